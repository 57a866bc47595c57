"""A process is killed once at each named place of the runtime; the tree ends as if nothing had happened."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import baton_actors as baton
from baton_actors.client import Client, connect
from baton_actors.runtime.crash_points import POINTS
from baton_actors.testing.crash_points import CrashPoints
from tests.chaos.checker import faults, recorded, story
from tests.chaos.plans import Plan, evaluated
from tests.chaos.playing import bounds_of
from tests.chaos.waiting import within
from tests.integration.conftest import end_actors

_NUMBERS = itertools.count()
#: Two levels, two breakdowns, a failure, and a question: while that waits alone, the owner gives the tree back.
PLAN: Plan = {
    "do": "sum",
    "failure": "counts",
    "parts": [
        [
            {"do": "sum", "failure": "counts", "parts": [[{"do": "value", "value": n, "seconds": 0.0} for n in (1, 2)]]},
            {"do": "flaky", "value": 4, "fails": 1},
            {"do": "hopeless"},
            {"do": "checkpoints", "value": 8, "steps": 2, "seconds": 0.0},
        ],
        [{"do": "human", "value": 16}],
    ],
}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def client(request: pytest.FixtureRequest, points: CrashPoints, databases: Callable[[str], str]) -> Iterator[Client]:
    with connect(database_url=databases(request.param), namespace=f"crashes-{request.param}", warm_owners=2) as connected:
        yield connected
    end_actors(f"crashes-{request.param}")


@pytest.mark.parametrize("name", POINTS)
def test_a_tree_survives_the_death_of_a_process_at(name: str, client: Client, points: CrashPoints) -> None:
    wait_until(lambda: counts(client)["idle"] > 0)  # else it would wait for an owner, instead of beginning at one
    with points.at(name) as crash:
        tree = played(client, name)
    assert crash.happened, "nothing got there"
    judge(client, tree)


@pytest.mark.parametrize(
    ("name", "do"), [("commit.after", "raise"), ("report.before", "raise"), ("commit.before", "delay"), ("publish.after", "stop")]
)
def test_a_tree_survives_what_else_happens_to_a_process(name: str, do: str, client: Client, points: CrashPoints) -> None:
    with points.at(name, do, seconds=0.2, nth=2) as crash:  # type: ignore[arg-type]  # pytest knows no literals
        tree = played(client, f"{name} {do}")
    assert crash.happened, "nothing got there"
    judge(client, tree)


def played(client: Client, goal: str) -> baton.TreeHandle:
    """The plan, from its submission to its end."""
    tree = client.submit(goal, context=PLAN, idempotency_key=f"{goal} {next(_NUMBERS)}", **bounds_of(PLAN))
    wait_until(lambda: client.list(waiting=True) != [])
    wait_until(lambda: client._read("tree", tree.id).owner is None)  # what is asked of a tree at rest begins with its lending
    tree.answer(client.list(waiting=True)[0].id, 16)
    assert tree.result(timeout=60) == evaluated(PLAN)[1]
    return tree


def judge(client: Client, tree: baton.TreeHandle) -> None:
    """The rows keep every promise, and the tree's owner is free again."""
    wait_until(lambda: tree.id not in counts(client)["lent"])
    rows = recorded(client._settings.database)
    told = {"kind": "submitted", "key": client._read("tree", tree.id).idempotency_key, "root_id": tree.id, "plan": PLAN}
    assert faults(rows, [told]) == [], story(rows, tree.id)


def counts(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client._reach.ask("counts")
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    assert within(60, condition)
