"""Decisions that the database will never take: what is at fault fails, all else goes on, and nobody tries for ever."""

from typing import Any

import pytest

from baton_actors.baton import Status
from baton_actors.commands import Answer, Cancel
from baton_actors.runtime.ownership import REFUSED
from baton_actors.runtime.wire import spec_wire
from baton_actors.store import GroupRefused
from tests.unit.drive import spec
from tests.unit.owning import Fault, Owner, Stage, Worker, children, on_stage

#: A lone surrogate: what workers send is checked for it, so no report should hold one.
UNSTORABLE = "\udc88"


async def broken_down(stage: Stage, *goals: str, **fields: Any) -> tuple[Owner, Worker, list[str]]:
    """A tree whose children all run in one worker."""
    owner = await stage.begun()
    worker = (await owner.worker(0)).connect()
    await worker.spawn(owner.root_id, *goals, **fields)
    ids = children(owner.root_id, len(goals))
    await stage.until(lambda: set(ids) <= worker.assignments.keys())
    return owner, worker, ids


@on_stage
async def test_a_result_that_no_database_takes_fails_its_baton_alone(stage: Stage) -> None:
    owner, worker, (first, second, third) = await broken_down(stage, "one", "two", "three")
    good, bad, better = (worker.outcome("completed", id, value, False) for id, value in ((first, 1), (second, UNSTORABLE), (third, 3)))
    assert await worker.report(good, bad, better), "it is acknowledged, or the worker would send it for ever"
    await stage.until(lambda: worker.assignments[owner.root_id]["baton"]["attempt"] == 2)
    results = [(child[2], child[3], child[4]) for child in worker.assignments[owner.root_id]["children"]]
    assert results[0] == (Status.COMPLETED, 1, None)
    assert results[2] == (Status.COMPLETED, 3, None)
    assert results[1][0] is Status.FAILED
    assert results[1][2].startswith(REFUSED)
    await worker.complete(owner.root_id)
    assert await owner.end() == "ended"


@pytest.mark.parametrize("kind", ["failed", "handed_over", "checkpoint"])
@on_stage
async def test_any_report_that_no_database_takes_fails_its_baton(stage: Stage, kind: str) -> None:
    rest: dict[str, tuple[Any, ...]] = {
        "failed": (UNSTORABLE, "error", False, None),
        "handed_over": (UNSTORABLE,),
        "checkpoint": (UNSTORABLE, {}),
    }
    owner = await stage.begun()
    worker = (await owner.worker(0)).connect()
    assert await worker.report(worker.outcome(kind, owner.root_id, *rest[kind]))
    assert await owner.end() == "ended"
    root = stage.store.baton(owner.root_id)
    assert (root.status, root.error_kind) == ("failed", "invalid_result")


@on_stage
async def test_a_client_whose_command_no_database_takes_is_told_so(stage: Stage) -> None:
    owner = await stage.begun()
    worker = (await owner.worker(0)).connect()
    tasks = [spec_wire(spec("which colour?", worker="human")), spec_wire(spec("paint"))]
    await worker.report(worker.outcome("spawned", owner.root_id, tasks, None, {}))
    asked, other = children(owner.root_id, 2)
    await stage.until(lambda: other in worker.assignments)
    answer = await owner.order(Answer(0, asked, UNSTORABLE))
    assert isinstance(answer, GroupRefused)
    assert stage.store.baton(asked).status == "running", "it can be answered again"
    assert await owner.order(Answer(0, asked, "words")) is None
    await worker.complete(other)
    await stage.until(lambda: worker.assignments[owner.root_id]["baton"]["attempt"] == 2)
    await worker.complete(owner.root_id)
    assert await owner.end() == "ended"


@on_stage
async def test_what_waits_while_a_group_is_taken_apart_is_carried_out(stage: Stage) -> None:
    owner, worker, (first, second) = await broken_down(stage, "one", "two")
    held = stage.store.plan("commit", Fault.NONE, lambda group: first in group.changed, held=True)
    report = stage.background(worker.complete(first, value=UNSTORABLE))
    await stage.until(held.reached.is_set)
    cancelled = stage.background(owner.order(Cancel(0, second, "no longer needed")))
    held.go.set()
    assert await report
    assert await cancelled is None
    assert [stage.store.baton(id).error_kind for id in (first, second)] == ["invalid_result", "cancelled"]
    await stage.until(lambda: worker.assignments[owner.root_id]["baton"]["attempt"] == 2)
    await worker.complete(owner.root_id)
    assert await owner.end() == "ended"
