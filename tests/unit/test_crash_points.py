"""What a crash point does in one process: nothing, unless a file plans it."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from baton_actors.errors import InvalidInput
from baton_actors.runtime import crash_points as runtime
from baton_actors.runtime.crash_points import POINTS, Planned, reached
from baton_actors.testing.crash_points import CrashPoints, crash_points

PACKAGE = Path(runtime.__file__).parents[1]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "points.json"


def test_nothing_happens_in_a_process_that_was_started_without_the_variable(file: Path) -> None:
    with CrashPoints(file).at("commit.after", "raise") as crash:
        reached("commit.after")
    assert not crash.happened


def test_the_process_that_reaches_a_planned_point_is_killed(file: Path) -> None:
    code = "from baton_actors.runtime.crash_points import reached; reached('commit.before'); reached('commit.after'); print('alive')"
    with crash_points(file) as points, points.at("commit.after") as crash:
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60)
        again = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (-9, b"")
    assert crash.happened
    assert crash.pid != os.getpid()
    assert again.stdout == b"alive\n", "it happens once in all processes"


def test_the_variable_is_as_before_after_the_block(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(runtime.VARIABLE, "another")
    with crash_points(file):
        assert os.environ[runtime.VARIABLE] == str(file)
    assert os.environ[runtime.VARIABLE] == "another"
    monkeypatch.delenv(runtime.VARIABLE)
    with crash_points(file):
        pass
    assert runtime.VARIABLE not in os.environ


def test_a_deed_is_done_at_the_nth_time_and_once(file: Path) -> None:
    planned = Planned(file)
    with CrashPoints(file).at("report.after", "raise", nth=3) as crash:
        planned.reached("report.after")
        planned.reached("report.before")
        planned.reached("report.after")
        assert not crash.happened
        with pytest.raises(RuntimeError, match=r"crash point report\.after"):
            planned.reached("report.after")
        planned.reached("report.after")
    assert crash.pid == os.getpid()


def test_what_a_process_does_follows_the_file(file: Path) -> None:
    planned, points = Planned(file), CrashPoints(file)
    planned.reached("take.after")
    for _ in range(2):
        with points.at("take.after", "raise"), pytest.raises(RuntimeError):
            planned.reached("take.after")
        planned.reached("take.after")


def test_a_stopped_process_goes_on_after_its_seconds(file: Path) -> None:
    code = "from baton_actors.runtime.crash_points import reached; reached('publish.after'); print('went on')"
    with crash_points(file) as points, points.at("publish.after", "stop", seconds=0.1) as crash:
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)
    assert crash.happened
    assert ended.stdout == b"went on\n"


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"commit.sometime": {"do": "kill"}}, "'commit.sometime' is no crash point; there are begin.before, "),
        ({"commit.after": {"do": "explode"}}, "commit.after: 'explode' cannot be done; it can kill, stop, delay, raise"),
        ({"commit.after": {"do": "delay", "seconds": None}}, "commit.after: a delay needs its seconds, not None"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(plan: dict[str, Any], words: str, file: Path) -> None:
    with pytest.raises(InvalidInput, match=re.escape(f"BATON_CRASH_POINTS: {words}")):
        runtime.checked_plan(plan)
    ((name, deed),) = plan.items()
    with pytest.raises(InvalidInput), CrashPoints(file).at(name, deed["do"]):
        pass
    assert not file.exists()


def test_every_point_is_reached_somewhere_and_no_other() -> None:
    used = {name for path in PACKAGE.rglob("*.py") for name in re.findall(r'\breached\("([^"]+)"\)', path.read_text())}
    assert used == set(POINTS)
