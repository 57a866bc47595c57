"""A PostgreSQL server of the test's own: it can be restarted at any moment and harms nobody."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psycopg
import pytest

Mode = Literal["fast", "immediate"]


@dataclass(frozen=True)
class Server:
    """One server with its data in a folder; who connects from this machine is trusted."""

    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1"
        _run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self, mode: Mode) -> None:
        """`immediate` is a crash: it recovers from its log at the next start."""
        _run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", mode, "stop")

    def drop_connections(self) -> int:
        """End every connection but the one that asks; how many."""
        with psycopg.connect(self.url, autocommit=True) as admin:
            others = "pid <> pg_backend_pid() AND backend_type = 'client backend'"
            ended = admin.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
            return len(ended.fetchall())


@contextmanager
def own_server() -> Iterator[Server]:
    """Made, started, and removed; the test is skipped where PostgreSQL is not installed."""
    if shutil.which("initdb") is None or shutil.which("pg_ctl") is None:
        pytest.skip("PostgreSQL's initdb and pg_ctl are not on the PATH")
    folder = Path(tempfile.mkdtemp(prefix="chaos"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")  # it refuses to be run by root
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = Server(folder, free.getsockname()[1])
    try:
        _run("initdb", "-D", str(folder / "data"), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        server.start()
        yield server
    finally:
        with suppress(subprocess.CalledProcessError):  # it never came up
            server.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)


def _run(*command: str) -> None:
    # Its output goes nowhere: the server it starts would hold the pipe open.
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", user=_user())


def _user() -> str | None:
    return "postgres" if os.geteuid() == 0 else None
