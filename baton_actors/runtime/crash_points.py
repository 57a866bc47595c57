"""Named places where a test can end, stop or delay the process that reaches them. Nothing is active outside tests.

The variable BATON_CRASH_POINTS, which is looked at once, when a process starts, names a file. While that file exists it says
what happens where; it may change at any time, so that one cluster serves many tests. Without the variable a point costs one look at
a name of this module. `baton_actors.testing.crash_points` writes the file.
"""

import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from baton_actors.errors import InvalidInput

VARIABLE = "BATON_CRASH_POINTS"

#: Every point there is, and where it lies.
POINTS: Mapping[str, str] = MappingProxyType(
    {
        "begin.before": "owner: a new tree is about to be written",
        "begin.after": "owner: it is written, nobody has been told",
        "lend.before": "directory: a tree is about to be lent to an owner",
        "lend.after": "directory: the lending is written, the owner does not know of it",
        "take.before": "owner: about to take the tree that it was lent",
        "take.after": "owner: the tree is taken and read, nothing of it is at work",
        "commit.before": "owner: a group of decisions is about to be written",
        "commit.after": "owner: it is written, nothing is published, acknowledged or started",
        "publish.after": "owner: its events are published, nothing is acknowledged or started",
        "dispatch.before": "owner: batons are started by the database's word, no worker process has heard of them",
        "dispatch.after": "owner: a worker process says that it has them",
        "release.before": "owner: a tree is about to be given back",
        "release.after": "owner: it is given back, the directory has not been told",
        "resume.before": "worker: about to run a baton again whose children have ended",
        "report.before": "worker: work is done, its reports are about to be sent",
        "report.after": "worker: its reports were acknowledged",
    }
)
#: `kill`: SIGKILL to this process. `stop`: SIGSTOP, with `seconds` continued by then. `delay`: this thread sleeps for `seconds`.
#: `raise`: a RuntimeError that no caller expects.
Deed = Literal["kill", "stop", "delay", "raise"]


def reached(name: str) -> None:
    """A point of `POINTS` is reached; nothing happens unless a test has planned it.

    Raises:
        RuntimeError: a test has planned that. InvalidInput: what the file says cannot be understood.
    """
    if _planned is not None:
        _planned.reached(name)


class Planned:
    """What a file plans, as JSON: `{name: {"do": …, "seconds": …, "nth": …, "once": …}}`.

    `nth` (1) counts how often this process has reached the point since the file last changed. `once` is the path of a file that
    who does the deed first creates, with its process id in it: nobody does it again. Without it, every process does.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._version: tuple[int, int] | None = None
        self._deeds: dict[str, dict[str, Any]] = {}
        self._counts: Counter[str] = Counter()

    def reached(self, name: str) -> None:
        """See the module's `reached`."""
        with self._lock:
            self._read_if_changed()
            self._counts[name] += 1
            deed = self._deeds.get(name)
            due = deed is not None and self._counts[name] == deed.get("nth", 1)
        if deed is not None and due and _is_first(deed.get("once")):
            _do(name, deed["do"], deed.get("seconds"))

    def _read_if_changed(self) -> None:
        try:
            found = self._file.stat()
            version = (found.st_mtime_ns, found.st_ino)
            if version != self._version:
                self._deeds = checked_plan(json.loads(self._file.read_text()))
                self._version = version
                self._counts.clear()
        except FileNotFoundError:
            self._deeds, self._version = {}, None


def checked_plan(plan: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The plan, if it can be carried out.

    Raises:
        InvalidInput: it names a point or a deed that there is not, or a delay without its length.
    """
    for name, deed in plan.items():
        if name not in POINTS:
            raise InvalidInput(VARIABLE, f"{name!r} is no crash point; there are {', '.join(POINTS)}")
        if deed.get("do") not in get_args(Deed):
            raise InvalidInput(VARIABLE, f"{name}: {deed.get('do')!r} cannot be done; it can {', '.join(get_args(Deed))}")
        if deed["do"] == "delay" and not isinstance(deed.get("seconds"), int | float):
            raise InvalidInput(VARIABLE, f"{name}: a delay needs its seconds, not {deed.get('seconds')!r}")
    return {name: dict(deed) for name, deed in plan.items()}


def _is_first(marker: str | None) -> bool:
    if marker is None:
        return True
    try:
        with Path(marker).open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return False
    return True


def _do(name: str, deed: Deed, seconds: float | None) -> None:
    match deed:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            if seconds is not None:  # who is stopped cannot wake himself
                subprocess.Popen(["sh", "-c", f"sleep {float(seconds)}; kill -CONT {os.getpid()}"], start_new_session=True)
            os.kill(os.getpid(), signal.SIGSTOP)
        case "delay":
            time.sleep(seconds or 0.0)
        case "raise":
            raise RuntimeError(f"crash point {name}")


_planned = Planned(Path(os.environ[VARIABLE])) if os.environ.get(VARIABLE) else None
