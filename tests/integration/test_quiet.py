"""While a tree only waits, nobody asks anybody anything: counted, not timed."""

import threading
from pathlib import Path
from typing import Any

import pytest
import ray

import baton_actors as baton
from baton_actors.client import Client
from baton_actors.runtime.directory import RENEWALS_A_SWEEP

#: What one renewal of the lease may send, the sweep that comes with every third one included.
STATEMENTS_OF_A_RENEWAL = 2 + RENEWALS_A_SWEEP


def test_a_hundred_sleeping_children_cause_no_call_and_no_sql_but_the_lease(
    client: Client, working_directory: Path, tmp_path: Path
) -> None:
    bell = tmp_path / "bell"
    tree = client.submit("sleep", worker="jobs:many", context={"file": str(bell), "count": 100, "child": "jobs:wait_for_file"})
    seen: list[int] = []
    subscriber = threading.Thread(target=lambda: seen.extend(event.seq for event in tree.events()))
    subscriber.start()
    started = 0
    for event in tree.events():
        started += event.type == "baton.started" and event.depth == 1
        if started == 100:
            break
    owner, directory = owner_of(client, tree), client._directory
    with pytest.raises(baton.WaitTimeout):
        tree.result(timeout=0.5)  # the runs have made their call for instructions by now, and one poll for the end is open
    before, before_directory = ray.get(owner.status.remote()), ray.get(directory.counts.remote())
    with pytest.raises(baton.WaitTimeout):
        tree.result(timeout=5.0)
    after, after_directory = ray.get(owner.status.remote()), ray.get(directory.counts.remote())
    assert calls_between(before, after) == {"outcome": 1}, "only this test's own question for the result"
    assert after["statements"] == before["statements"]
    assert after_directory["statements"] - before_directory["statements"] <= STATEMENTS_OF_A_RENEWAL
    bell.write_text("wake up")
    assert len(tree.result()) == 100
    subscriber.join()
    assert seen == list(range(1, len(seen) + 1))


def owner_of(client: Client, tree: baton.TreeHandle) -> Any:
    return ray.get(client._directory.where.remote(tree.id)).value


def calls_between(before: dict[str, Any], after: dict[str, Any]) -> dict[str, int]:
    """How many calls of each kind the owner got between two looks."""
    counts = {name: after["calls"][name] - before["calls"].get(name, 0) for name in after["calls"]}
    return {name: count for name, count in counts.items() if count}
