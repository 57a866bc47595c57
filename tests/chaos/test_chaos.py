"""Random trees on a cluster that is injured all the time: in the end every promise was kept. `--chaos-seconds`, `--chaos-seed`."""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster

from baton_actors.client import connect
from baton_actors.testing.crash_points import CrashPoints, crash_points
from tests.chaos.checker import Recorded, crashed, faults, recorded, story
from tests.chaos.conftest import NODE, project, ray_nodes
from tests.chaos.history import History
from tests.chaos.injuries import Injuries
from tests.chaos.load import Load
from tests.chaos.server import Server, own_server
from tests.chaos.waiting import within

#: Customers with one tree each at a time.
CUSTOMERS = 4
#: Seconds in which all trees must end once nothing is injured any more.
END_SECONDS = 150.0

Say = Callable[[str], None]


@pytest.fixture
def seconds(request: pytest.FixtureRequest) -> float:
    return float(request.config.getoption("--chaos-seconds"))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    given = request.config.getoption("--chaos-seed")
    return random.SystemRandom().randrange(1_000_000) if given is None else int(given)


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Print past pytest: a run that went well tells its seed and its injuries too."""

    def said(line: str) -> None:
        with capsys.disabled():
            print(f"\n{line}", flush=True)

    return said


def test_every_promise_is_kept_on_sqlite_while_processes_die(seconds: float, seed: int, tmp_path: Path, say: Say) -> None:
    with crash_points(tmp_path / "points.json") as points, ray_nodes(1) as cluster:
        chaos(cluster, f"sqlite:///{tmp_path / 'baton.db'}", seconds, seed, tmp_path, say, points)


def test_every_promise_is_kept_on_postgresql_while_processes_nodes_and_the_database_die(
    seconds: float, seed: int, tmp_path: Path, say: Say
) -> None:
    with own_server() as server, crash_points(tmp_path / "points.json") as points, ray_nodes(2) as cluster:
        chaos(cluster, server.url, seconds, seed, tmp_path, say, points, node=NODE, server=server)


@pytest.mark.long
def test_every_promise_is_kept_on_sqlite_for_ten_minutes(seed: int, tmp_path: Path, say: Say) -> None:
    test_every_promise_is_kept_on_sqlite_while_processes_die(600, seed, tmp_path, say)


@pytest.mark.long
def test_every_promise_is_kept_on_postgresql_for_ten_minutes(seed: int, tmp_path: Path, say: Say) -> None:
    test_every_promise_is_kept_on_postgresql_while_processes_nodes_and_the_database_die(600, seed, tmp_path, say)


def chaos(
    cluster: Cluster,
    url: str,
    seconds: float,
    seed: int,
    folder: Path,
    say: Say,
    points: CrashPoints,
    node: dict[str, Any] | None = None,
    server: Server | None = None,
) -> None:
    """Work and injuries for so long, then peace until all has ended, then judgement."""
    history = History(folder / "history.jsonl")
    injuries = Injuries(cluster, history, random.Random(seed), points, node, server)
    (folder / "project").mkdir()
    with project(folder / "project"), connect(database_url=url, namespace="chaos", max_trees=CUSTOMERS + 2, warm_owners=1) as client:
        load = Load(client, url, history, seed, CUSTOMERS)
        load.start()
        try:
            injuries.run(seconds)
        finally:
            injuries.mend()
            load.close()
        load.ended(END_SECONDS)
        within(END_SECONDS, lambda: not unended(recorded(url)))  # those too whose submission nobody was told of
        load.stop()
    history.close()
    rows = recorded(url)
    found = faults(rows, history.lines)
    say(f"seed {seed}, {seconds:g} s: {len(rows.trees)} trees, {len(rows.batons)} batons, {len(rows.events)} events")
    say(f"  {history.counts()}\n  runs lost: {losses(rows)}")
    if crashed(rows):
        say(f"killed too often in a row, rightly: {crashed(rows)}")
    surprises = [line for line in history.lines if line["kind"] == "surprised"]
    if found or surprises:
        head: Any = cluster.head_node
        shutil.copytree(Path(head.get_session_dir_path()) / "logs", folder / "logs", ignore_dangling_symlinks=True)
        stuck = [story(rows, root_id) for root_id in unended(rows)[:3]]
        lines = [f"seed {seed}; the history and Ray's logs are in {folder}", *found[:20], *map(str, surprises[:5]), *stuck]
        pytest.fail("\n".join(lines), pytrace=False)


def losses(rows: Recorded) -> dict[str, int]:
    """How many runs were lost, by the cause that the log tells."""
    return dict(Counter(event["data"]["cause"] for event in rows.events if event["data"].get("reason") == "lost"))


def unended(rows: Recorded) -> list[str]:
    return [tree["root_id"] for tree in rows.trees if tree["status"] == "open" or tree["owner"] is not None]


pytestmark = pytest.mark.timeout(1_800)
