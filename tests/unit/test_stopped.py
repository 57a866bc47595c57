"""Stopped owners that a dead cluster left behind are ended, and nothing else is."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from baton_actors.runtime.stopped import end_stopped

Starter = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def started() -> Iterator[Starter]:
    """Start a process that shows itself under a name and waits."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(title: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [title, "-c", "print(flush=True); input()"], executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        processes.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def stop(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)


def test_a_stopped_owner_is_ended(started: Starter) -> None:
    owner = started("ray::OwnerActor")
    stop(owner)
    assert end_stopped([owner.pid, 2**22 + 1]) == [owner.pid]
    assert owner.wait() == -signal.SIGKILL


def test_an_owner_that_runs_is_left_alone(started: Starter) -> None:
    owner = started("ray::OwnerActor")
    assert end_stopped([owner.pid]) == []
    assert owner.poll() is None


def test_a_stopped_process_that_has_an_owners_old_number_is_left_alone(started: Starter) -> None:
    stranger = started("editor")
    stop(stranger)
    assert end_stopped([stranger.pid]) == []
    os.kill(stranger.pid, signal.SIGCONT)
    assert stranger.poll() is None
