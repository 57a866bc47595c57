"""Which processes run batons: for tests that kill them."""

import os
from pathlib import Path

import ray


def worker_pids() -> list[int]:
    """Processes of this Ray that run batons."""
    raylet = parent_of(ray.get(_own_pid.remote()))
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if command_of(pid).startswith("ray::baton run") and parent_of(pid) == raylet]


@ray.remote(num_cpus=0)
def _own_pid() -> int:
    return os.getpid()


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
