"""When an owner gives its tree back to wait without it, and what comes in at that moment."""

import time

import pytest

from baton_actors.baton import Budget, Status
from baton_actors.commands import Answer, Cancel, Release
from baton_actors.errors import Moved
from baton_actors.events import EventType
from baton_actors.runtime import ownership
from tests.unit.owning import PASSING, Fault, Owner, Stage, Worker, children, hibernating, on_stage

HOUR = 3_600_000


def now() -> int:
    return time.time_ns() // 1_000_000


async def asking(stage: Stage) -> tuple[Owner, Worker, str]:
    """An owner whose root was broken down into a question to a human, its worker, and the question."""
    owner = await stage.begun()
    worker = (await owner.worker(0)).connect()
    await worker.spawn(owner.root_id, "which colour?", worker="human")
    return owner, worker, children(owner.root_id, 1)[0]


@on_stage
async def test_a_tree_that_waits_for_a_human_is_given_back_and_its_run_ends(stage: Stage) -> None:
    """J5, Q3."""
    owner, worker, _question = await asking(stage)
    assert await owner.end() == "hibernated"
    await stage.until(lambda: worker.gone)
    assert worker.ended
    assert not worker.killed
    row = stage.store.tree(owner.root_id)
    assert (row.status, row.owner, row.wake_at) == ("open", None, None)
    assert stage.store.due("cl_test", 1) == []
    assert (await owner.ownership.publication.final()).state == "gone"


@on_stage
async def test_a_held_tree_is_given_back(stage: Stage) -> None:
    owner = await stage.begun(held=True)
    assert await owner.end() == "hibernated"
    assert owner.workers == []
    assert stage.store.tree(owner.root_id).wake_at is None
    following = await stage.taken(owner.root_id, order=(Release(0, owner.root_id), "the command"))
    worker = (await following.worker(0)).connect()
    assert await worker.complete(owner.root_id)


@pytest.mark.parametrize("field", ["not_before", "deadline"])
@on_stage
async def test_a_tree_whose_time_is_far_is_given_back_with_the_time_to_wake_it(stage: Stage, field: str) -> None:
    at = now() + HOUR
    owner = await stage.begun(worker="human" if field == "deadline" else "work:run", **{field: at})
    assert await owner.end() == "hibernated"
    wake_at = stage.store.tree(owner.root_id).wake_at
    assert wake_at is not None
    assert abs(wake_at - at) < 5_000
    assert abs((stage.store.next_wake("cl_test") or 0) - HOUR) < 5_000


@on_stage
async def test_a_tree_is_woken_for_the_nearest_of_its_times(stage: Stage) -> None:
    owner = await stage.begun(not_before=now() + 5 * HOUR, deadline=now() + 3 * HOUR, budget=Budget(seconds=4 * 3600))
    assert await owner.end() == "hibernated"
    assert abs((stage.store.next_wake("cl_test") or 0) - 3 * HOUR) < 5_000


@on_stage
async def test_an_owner_keeps_a_tree_whose_time_is_near(stage: Stage) -> None:
    at = now() + 30
    owner = await stage.begun(not_before=at)
    worker = (await owner.worker(0)).connect()
    await stage.until(lambda: worker.assignments)
    assert owner.released == []
    assert await worker.complete(owner.root_id)
    assert stage.log(owner.root_id, EventType.STARTED)[0].at >= at


@on_stage
async def test_what_was_put_off_for_long_is_started_by_the_next_owner(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "HIBERNATE_SECONDS", 0.0)
    owner = await stage.begun(not_before=now() + 500)
    assert await owner.end() == "hibernated"
    await stage.until(lambda: stage.store.due("cl_test", 1) == [owner.root_id])
    following = await stage.taken(owner.root_id)
    worker = (await following.worker(0)).connect()
    await stage.until(lambda: worker.assignments)


@on_stage
async def test_a_tree_with_a_baton_at_work_is_kept(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "HIBERNATE_SECONDS", 0.0)
    owner = await stage.begun()
    worker = (await owner.worker(0)).connect()
    for step in range(3):
        await worker.checkpoint(owner.root_id, step)
        await stage.settled(owner)
    assert not any(hibernating(group) for group in stage.store.groups)
    await worker.spawn(owner.root_id, "ask", worker="human")
    assert await owner.end() == "hibernated"


@on_stage
async def test_a_tree_whose_processes_have_not_started_yet_is_kept(stage: Stage) -> None:
    owner = await stage.begun(resources={"num_gpus": 1})
    await stage.settled(owner)
    assert not any(hibernating(group) for group in stage.store.groups)
    worker = (await owner.worker(0)).connect()
    await stage.until(lambda: worker.assignments)


@on_stage
async def test_an_answer_that_comes_while_the_tree_is_given_back_is_sent_on(stage: Stage) -> None:
    planned = stage.store.plan("commit", Fault.NONE, hibernating, held=True)
    owner, _worker, question = await asking(stage)
    await stage.until(planned.reached.is_set)
    order = owner.ownership.order(Answer(0, question, "blue"), "the command")
    planned.go.set()
    assert isinstance(await order, Moved)
    assert await owner.end() == "hibernated"
    following = await stage.taken(owner.root_id, order=(Answer(0, question, "blue"), "the command"))
    again = (await following.worker(0)).connect()
    await stage.until(lambda: again.assignments)
    assert again.assignments[owner.root_id]["children"][0][3] == "blue"


@pytest.mark.parametrize("fault", PASSING)
@on_stage
async def test_an_answer_that_comes_while_giving_back_is_in_doubt_is_carried_out_or_sent_on(stage: Stage, fault: Fault) -> None:
    """The tree is then either ours, with its answer, or nobody's: never open with an owner that has let go."""
    planned = stage.store.plan("commit", fault, hibernating, held=True)
    owner, worker, question = await asking(stage)
    await stage.until(planned.reached.is_set)
    order = owner.ownership.order(Answer(0, question, "blue"), "the command")
    planned.go.set()
    answer = await order
    if fault is Fault.AFTER:
        assert isinstance(answer, Moved)
        assert stage.store.tree(owner.root_id).owner is None
        owner = await stage.taken(owner.root_id, order=(Answer(0, question, "blue"), "the command"))
        worker = (await owner.worker(0)).connect()
    else:
        assert answer is None
    await stage.until(lambda: worker.assignments[owner.root_id].get("breakdown") == 1 if worker.assignments else False)
    assert stage.baton(question).result == "blue"
    assert stage.store.tree(owner.root_id).owner == owner.name
    assert await worker.complete(owner.root_id)
    assert await owner.end() == "ended"


@on_stage
async def test_a_cancel_of_a_tree_that_waits_ends_it(stage: Stage) -> None:
    owner, _worker, question = await asking(stage)
    await owner.end()
    following = await stage.taken(owner.root_id, order=(Cancel(0, owner.root_id, "nobody knows"), "the command"))
    assert await following.end() == "ended"
    assert stage.baton(question).error_kind == "cancelled"
    assert stage.baton(owner.root_id).status is Status.FAILED


@on_stage
async def test_a_deadline_that_passes_while_a_human_is_waited_for_ends_the_wait(stage: Stage) -> None:
    owner = await stage.begun()
    worker = (await owner.worker(0)).connect()
    await worker.spawn(owner.root_id, "which colour?", worker="human", deadline=now() + 30)
    await stage.until(lambda: worker.assignments[owner.root_id].get("breakdown") == 1)
    [child] = worker.assignments[owner.root_id]["children"]
    assert (child[2], child[5]) == ("failed", "timeout")


@on_stage
async def test_a_budget_of_seconds_ends_the_tree_and_stops_its_runs(stage: Stage) -> None:
    owner = await stage.begun(budget=Budget(seconds=0.03))
    worker = (await owner.worker(0)).connect()
    assert await owner.end() == "ended"
    await stage.until(lambda: worker.ended)
    assert worker.stops == [(owner.root_id, 1)]
    assert stage.baton(owner.root_id).error_kind == "budget"
