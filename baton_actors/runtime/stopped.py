"""Owners' processes that a cluster of this machine left behind, stopped, perhaps in a transaction.

A process that was stopped does not notice that its Ray has ended. The lock it holds in a SQLite file would keep everybody from
writing for ever, whatever the patience. In a living cluster this is seen by `calling`, and PostgreSQL cuts such a session off.
"""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def end_stopped(pids: Iterable[int], folder: Path = Path("/proc")) -> list[int]:
    """End those of these processes that are owners and stopped; which they were. Numbers that others have by now are left alone.

    Args:
        folder: where the system tells of its processes; on one that has no such folder nothing is ended.
    """
    ended = []
    for pid in pids:
        if _is_stopped_owner(folder / str(pid)):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                ended.append(pid)
    return ended


def _is_stopped_owner(process: Path) -> bool:
    try:
        state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        title = (process / "cmdline").read_bytes()
    except OSError:
        return False
    return state == "T" and title.startswith(b"ray::OwnerActor")
