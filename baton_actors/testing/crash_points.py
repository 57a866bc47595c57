"""Ending, stopping or delaying a process of the runtime at a named place, once, in a real cluster.

    with crash_points(tmp_path / "points.json") as points:
        ray.init(address="local")  # its processes are started inside, so they look at the file
        client = baton.connect()
        with points.at("commit.after") as crash:  # the first owner that gets there is killed
            assert client.submit("add", worker=add).result() == 3
        assert crash.happened

Processes that were started outside, those of `ray start` among them, know nothing of it. The points are in
`baton_actors.runtime.crash_points.POINTS`.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

from baton_actors.runtime.crash_points import VARIABLE, Deed, checked_plan


@dataclass(frozen=True, slots=True)
class Crash:
    """What was planned at one point, for one process of the cluster."""

    marker: Path

    @property
    def happened(self) -> bool:
        """Whether a process has got there."""
        return self.marker.exists()

    @property
    def pid(self) -> int | None:
        """The process that it happened to; None as long as it has not happened."""
        return int(text) if self.happened and (text := self.marker.read_text()) else None


class CrashPoints:
    """Plans what happens in processes that look at a file; made by `crash_points`."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._made = 0

    @contextmanager
    def at(self, name: str, do: Deed = "kill", *, seconds: float | None = None, nth: int = 1) -> Iterator[Crash]:
        """Plan one deed for as long as the block lasts; the first process that reaches the point for the `nth` time does it.

        Args:
            do: `kill`, `stop` (continued after `seconds`, if that is given), `delay` (by `seconds`) or `raise`.

        Raises:
            InvalidInput: there is no such point, or it cannot be done there.
        """
        self._made += 1
        crash = Crash(self._file.with_name(f"{self._file.name}.{self._made}"))
        deed = {"do": do, "seconds": seconds, "nth": nth, "once": str(crash.marker)}
        self._write(json.dumps(checked_plan({name: deed})))
        try:
            yield crash
        finally:
            self._file.unlink()

    def _write(self, plan: str) -> None:
        """All at once: a process may read at any moment."""
        with NamedTemporaryFile("w", dir=self._file.parent, prefix=self._file.name, delete=False) as new:
            new.write(plan)
        os.replace(new.name, self._file)


@contextmanager
def crash_points(file: Path) -> Iterator[CrashPoints]:
    """Let processes that are started inside the block look at `file`, in an existing folder of this machine."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(file.absolute())
    try:
        yield CrashPoints(file.absolute())
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
