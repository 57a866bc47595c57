"""Commits that fail, or of which nobody knows: at whatever place, the story goes on, nothing happens twice and nothing is lost."""

import asyncio
import hashlib
from typing import Any

import pytest

from baton_actors.baton import ENDED, Status
from baton_actors.commands import Cancel, Release, Retry
from baton_actors.errors import Moved, NotAllowed
from baton_actors.events import EventType
from tests.unit.owning import PASSING, Fault, Owner, Stage, children, having, hibernating, on_stage, submitted

FUNCTION = b"the bytes of a function"
HASH = hashlib.sha256(FUNCTION).hexdigest()
everywhere = pytest.mark.parametrize("fault", PASSING)


async def spawned(stage: Stage, *goals: str, cores: int = 1, **root: Any) -> tuple[Owner, list[str]]:
    """An owner whose root was broken down; its children run in its first worker."""
    owner = await stage.begun(cores=cores, **root)
    worker = (await owner.worker(0)).connect()
    await worker.spawn(owner.root_id, *goals)
    await stage.until(lambda: len(worker.assignments) > 1)
    return owner, children(owner.root_id, len(goals))


def starts(stage: Stage, owner: Owner) -> list[str]:
    """The batons that were started, in order, by the log."""
    return [event.baton_id for event in stage.log(owner.root_id, EventType.STARTED)]


# ---------------------------------------------------------------- each place


@everywhere
@on_stage
async def test_a_doubtful_birth_leads_to_one_tree_that_runs(stage: Stage, fault: Fault) -> None:
    stage.store.plan("begin_tree", fault)
    owner = await stage.begun(functions={HASH: FUNCTION}, worker=f"code:{HASH}")
    worker = (await owner.worker(0)).connect()
    assert await worker.complete(owner.root_id)
    assert await owner.end() == "ended"
    assert stage.statuses(owner.root_id) == ["completed"]
    assert len(owner.workers) == 1
    assert worker.code == {HASH: FUNCTION}
    assert stage.store.code([HASH]) == {HASH: FUNCTION}


@on_stage
async def test_a_birth_in_doubt_many_times_leads_to_one_tree_that_runs(stage: Stage) -> None:
    """O5: the database restarts again and again while the tree begins."""
    stage.store.plan("begin_tree", Fault.AFTER)
    stage.store.plan("begin_tree", Fault.UNUSABLE, times=5)
    stage.store.plan("take", Fault.BEFORE, times=3)
    owner = await stage.begun()
    worker = (await owner.worker(0)).connect()
    assert await worker.complete(owner.root_id)
    assert await owner.end() == "ended"


@everywhere
@on_stage
async def test_a_doubtful_dispatch_hands_the_baton_out_once(stage: Stage, fault: Fault) -> None:
    owner = await stage.begun(held=True)
    stage.store.plan("commit", fault, having(EventType.STARTED))
    assert await owner.order(Release(0, owner.root_id)) is None
    worker = (await owner.worker(0)).connect()
    await stage.until(lambda: owner.root_id in worker.assignments)
    assert await worker.complete(owner.root_id)
    assert await owner.end() == "ended"
    assert sum(owner.root_id in each.assignments for each in owner.workers) == 1


@everywhere
@on_stage
async def test_a_doubtful_dispatch_to_a_second_process_starts_each_child_once(stage: Stage, fault: Fault) -> None:
    """The group holds starts only: there is no command in it that would be decided again."""
    owner, ids = await spawned(stage, "a", "b", "c", "d", cores=2)
    second = await owner.worker(1)
    stage.store.plan("commit", fault, lambda group: all(event.type is EventType.STARTED for event in group.events))
    second.connect()
    await stage.until(lambda: sum(len(each.assignments) for each in owner.workers) >= 1 + len(ids))
    assert {stage.baton(id).status for id in ids} == {Status.RUNNING}
    for worker in owner.workers:
        await worker.complete(*(id for id in worker.assignments if id != owner.root_id))
    await stage.until(lambda: owner.tree.root.baton.status is Status.RUNNING)
    assert {stage.baton(id).status for id in ids} == {Status.COMPLETED}
    assert len(stage.log(owner.root_id, EventType.RESUMED)) == 1


@everywhere
@on_stage
async def test_a_report_in_doubt_is_applied_once(stage: Stage, fault: Fault) -> None:
    owner, ids = await spawned(stage, "a", "b")
    stage.store.plan("commit", fault, having(EventType.COMPLETED))
    worker = owner.workers[0]
    assert await worker.complete(ids[0], value={"n": 1})
    assert stage.baton(ids[0]).result == {"n": 1}
    assert [event.baton_id for event in stage.log(owner.root_id, EventType.COMPLETED)] == [ids[0]]
    assert (stage.baton(ids[1]).status, stage.baton(ids[1]).attempt) == (Status.RUNNING, 1), "the other one was not touched"
    assert await worker.complete(ids[1])
    await stage.until(lambda: worker.assignments[owner.root_id].get("breakdown") == 1)
    assert starts(stage, owner) == [owner.root_id, *ids, owner.root_id]


@everywhere
@on_stage
async def test_a_checkpoint_in_doubt_is_saved_once(stage: Stage, fault: Fault) -> None:
    owner = await stage.begun()
    worker = (await owner.worker(0)).connect()
    stage.store.plan("commit", fault)
    assert await worker.checkpoint(owner.root_id, {"step": 1})
    worker.die()
    again = await owner.worker(1)
    again.connect()
    await stage.until(lambda: again.assignments)
    assert again.assignments[owner.root_id]["state"] == {"step": 1}


@everywhere
@on_stage
async def test_a_breakdown_in_doubt_brings_its_children_and_their_code_once(stage: Stage, fault: Fault) -> None:
    owner = await stage.begun()
    worker = (await owner.worker(0)).connect()
    stage.store.plan("commit", fault, having(EventType.SPAWNED))
    assert await worker.spawn(owner.root_id, "a", "b", worker=f"code:{HASH}", code={HASH: FUNCTION})
    ids = children(owner.root_id, 2)
    await stage.until(lambda: set(ids) <= set(worker.assignments))
    assert stage.store.code([HASH]) == {HASH: FUNCTION}
    assert stage.store.tree(owner.root_id).code["functions"] == [HASH]
    assert worker.code == {HASH: FUNCTION}
    assert stage.baton(owner.root_id).children == ids
    assert await worker.complete(*ids)
    await stage.until(lambda: worker.assignments[owner.root_id].get("breakdown") == 1)


@everywhere
@on_stage
async def test_a_doubtful_report_of_the_last_child_does_not_lose_the_join(stage: Stage, fault: Fault) -> None:
    """J3."""
    owner, ids = await spawned(stage, "a", "b", "c")
    worker = owner.workers[0]
    await worker.complete(*ids[:2], value=1)
    stage.store.plan("commit", fault, having(EventType.RESUMED))
    assert await worker.complete(ids[2], value=2)
    await stage.until(lambda: worker.assignments[owner.root_id].get("breakdown") == 1)
    assert [child[3] for child in worker.assignments[owner.root_id]["children"]] == [1, 1, 2]
    assert len(stage.log(owner.root_id, EventType.RESUMED)) == 1
    assert await worker.complete(owner.root_id)
    assert await owner.end() == "ended"


@everywhere
@on_stage
async def test_a_cancel_in_doubt_is_answered_and_its_run_is_told(stage: Stage, fault: Fault) -> None:
    owner, ids = await spawned(stage, "a", "b")
    worker = owner.workers[0]
    stage.store.plan("commit", fault, having(EventType.FAILED))
    assert await owner.order(Cancel(0, ids[0], "not needed")) is None
    await stage.until(lambda: worker.stops)
    assert worker.stops == [(ids[0], 1)]
    assert stage.baton(ids[0]).error == "not needed"
    assert stage.baton(ids[1]).attempt == 1
    assert await worker.complete(ids[0]), "the late report is acknowledged"
    assert stage.baton(ids[0]).error_kind == "cancelled"


@everywhere
@on_stage
async def test_a_cancel_of_the_whole_tree_in_doubt_ends_it_once(stage: Stage, fault: Fault) -> None:
    owner, ids = await spawned(stage, "a", "b")
    stage.store.plan("commit", fault)
    answer = await owner.order(Cancel(0, owner.root_id, "enough"), "the command")
    assert await owner.end() == "ended"
    if answer is not None:  # it was carried out, and nobody is here to say so: whoever asks again is answered
        assert isinstance(answer, Moved)
        await stage.taken(owner.root_id, order=(Cancel(0, owner.root_id, "enough"), "the command"))
    await stage.until(lambda: owner.workers[0].ended)
    assert set(owner.workers[0].stops) >= {(id, 1) for id in ids}
    assert stage.statuses(owner.root_id) == ["failed"] * 3
    assert len(stage.log(owner.root_id, EventType.TREE_FAILED)) == 1


@everywhere
@on_stage
async def test_a_retry_in_doubt_is_carried_out_once_and_asked_again_only_answered(stage: Stage, fault: Fault) -> None:
    owner, ids = await spawned(stage, "a", "b")
    worker = owner.workers[0]
    await worker.fail(ids[0])
    stage.store.plan("commit", fault, having(EventType.RETRYING))
    assert await owner.order(Retry(0, ids[0]), "the command") is None
    assert await owner.order(Retry(0, ids[0]), "the command") is None
    await stage.until(lambda: worker.assignments[ids[0]]["baton"].get("generation") == 1)
    again = [event for event in stage.log(owner.root_id, EventType.RETRYING) if event.data["reason"] == "retry"]
    assert len(again) == 1
    assert stage.baton(ids[0]).generation == 1
    assert isinstance(await owner.order(Retry(0, ids[0]), "another command"), NotAllowed)


@on_stage
async def test_a_command_that_is_answered_is_remembered_by_the_next_owner(stage: Stage) -> None:
    owner, ids = await spawned(stage, "a", "b")
    await owner.workers[0].fail(ids[0])
    assert await owner.order(Retry(0, ids[0]), "the command") is None
    following = await stage.taken(owner.root_id, order=(Retry(0, ids[0]), "the command"))
    worker = (await following.worker(0)).connect()
    await stage.until(lambda: set(ids) <= set(worker.assignments))
    await worker.fail(ids[0])
    assert await following.order(Retry(0, ids[0]), "the command") is None
    assert stage.baton(ids[0]).generation == 1


@everywhere
@on_stage
async def test_an_ending_in_doubt_is_an_end(stage: Stage, fault: Fault) -> None:
    owner = await stage.begun()
    worker = (await owner.worker(0)).connect()
    stage.store.plan("commit", fault)
    poll = stage.background(owner.ownership.publication.final())
    assert await worker.complete(owner.root_id, value=42) in (True, False)
    assert await owner.end() == "ended"
    found = await poll
    assert (found.state, found.value["result"]) == ("here", 42)
    row = stage.store.tree(owner.root_id)
    assert (row.status, row.owner) == ("completed", None)
    assert len(stage.log(owner.root_id, EventType.TREE_COMPLETED)) == 1


@everywhere
@on_stage
async def test_a_hibernation_in_doubt_gives_the_tree_back_and_nobody_waits(stage: Stage, fault: Fault) -> None:
    stage.store.plan("commit", fault, hibernating)
    owner = await stage.begun(worker="human")
    assert await owner.end() in ("hibernated", "moved")
    assert stage.store.tree(owner.root_id).owner is None
    assert stage.statuses(owner.root_id) == ["running"]


# ---------------------------------------------------------------- several at once


@on_stage
async def test_a_queue_of_many_commands_in_doubt_is_decided_again_in_order(stage: Stage) -> None:
    owner, ids = await spawned(stage, *"abcdefgh")
    worker = owner.workers[0]
    stage.store.plan("commit", Fault.BEFORE)
    stage.store.plan("commit", Fault.AFTER)
    reports = [stage.background(worker.complete(id, value=place)) for place, id in enumerate(ids[:6])]
    orders = [stage.background(owner.order(Cancel(0, id, "out"))) for id in ids[6:]]
    assert [await each for each in reports] == [True] * 6
    assert [await each for each in orders] == [None, None]
    await stage.until(lambda: worker.assignments[owner.root_id].get("breakdown") == 1)
    assert [child[3] for child in worker.assignments[owner.root_id]["children"]] == [0, 1, 2, 3, 4, 5, None, None]


@on_stage
async def test_what_is_refused_is_refused_after_a_doubt_too(stage: Stage) -> None:
    """C4."""
    owner, ids = await spawned(stage, "a", "b")
    worker = owner.workers[0]
    stage.store.plan("commit", Fault.AFTER)
    report = stage.background(worker.complete(ids[0]))
    await asyncio.sleep(0)
    assert isinstance(await owner.order(Cancel(0, ids[0], "late")), NotAllowed)
    assert await report


# ---------------------------------------------------------------- every place


def sum_of_parts(wire: dict[str, Any]) -> tuple[Any, ...]:
    """Three parts by code that travels, one of them after a failure; then their sum."""
    baton = wire["baton"]
    if baton["goal"] == "all" and not wire.get("breakdown"):
        specs = [{"goal": str(n), "worker": f"code:{HASH}", "constraints": {"max_retries": 1}} for n in (1, 2, 3)]
        return ("spawned", specs, {"parts": 3}, {HASH: FUNCTION})
    if baton["goal"] == "all":
        return ("completed", sum(child[3] for child in wire["children"]), False)
    if baton["goal"] == "2" and not wire.get("state"):
        return ("failed", "try again", "error", True, None) if baton["attempt"] == 1 else ("completed", 2, False)
    return ("completed", int(baton["goal"]), False)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("place", range(8))
@on_stage
async def test_a_story_ends_the_same_wherever_the_database_fails(stage: Stage, place: int, fault: Fault, times: int) -> None:
    """O3, O5."""
    passed = [0]

    def at_this_place(_: object) -> bool:
        passed[0] += 1
        return passed[0] > place

    for method in ("begin_tree", "commit"):
        stage.store.plan(method, fault, at_this_place, times=times)
    if times > 1:
        stage.store.plan("take", fault, times=2)
    owner = await stage.begun(cores=2, behaviour=sum_of_parts)
    assert await owner.end() == "ended"
    snapshot = stage.store.snapshot(owner.root_id).batons
    assert [baton.result for baton in snapshot] == [6, 1, 2, 3]
    assert len(stage.log(owner.root_id, EventType.RESUMED)) == 1
    assert len(stage.log(owner.root_id, EventType.CREATED)) == 4
    assert stage.store.code([HASH]) == {HASH: FUNCTION}
    assert stage.store.tree(owner.root_id).status == "completed"


@pytest.mark.parametrize("fault", PASSING)
@on_stage
async def test_a_story_ends_when_every_second_commit_is_in_doubt(stage: Stage, fault: Fault) -> None:
    calls = [0]

    def every_second(_: object) -> bool:
        calls[0] += 1
        return calls[0] % 2 == 1

    for method in ("begin_tree", "commit"):
        stage.store.plan(method, fault, every_second, times=1_000)
    owner = await stage.begun(cores=2, behaviour=sum_of_parts)
    assert await owner.end() == "ended"
    assert stage.baton(owner.root_id).result == 6


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
@on_stage
async def test_a_takeover_with_a_database_that_fails_finds_everything(stage: Stage, fault: Fault) -> None:
    """O4, O5."""
    owner, ids = await spawned(stage, "a", "b")
    await owner.workers[0].complete(ids[0], value="kept")
    stage.store.plan("take", fault, times=3)
    following = await stage.taken(owner.root_id, behaviour=lambda wire: ("completed", "new", False))
    assert await following.end() == "ended"
    assert [stage.baton(id).result for id in ids] == ["kept", "new"]
    assert (stage.baton(ids[0]).attempt, stage.baton(ids[1]).attempt) == (1, 2), "finished work is never run again (A8)"
    assert stage.baton(ids[1]).losses == 0


@on_stage
async def test_a_birth_whose_tree_has_ended_meanwhile_is_known(stage: Stage) -> None:
    """A client that heard no answer hands the same tree in again."""
    submission = submitted()
    owner = await stage.begun(submission, behaviour=lambda wire: ("completed", 1, False))
    assert await owner.end() == "ended"
    second = stage.owner(submission.root.id, 1, "B")
    assert await second.ownership.begin(submission, "cl_test") == submission.root.id
    assert second.released == ["moved"]
    assert second.workers == []
    assert stage.baton(submission.root.id).status in ENDED


@on_stage
async def test_a_process_that_dies_while_its_start_is_in_doubt_does_not_take_the_next_start_with_it(stage: Stage) -> None:
    """The loss names an attempt that was never durable; its number is given out again."""
    owner = await stage.begun()
    worker = (await owner.worker(0)).connect()
    planned = stage.store.plan("commit", Fault.BEFORE, having(EventType.STARTED), held=True)
    report = stage.background(worker.spawn(owner.root_id, "a"))
    await stage.until(planned.reached.is_set)
    worker.die()  # with an attempt in it that is not durable
    planned.go.set()
    assert await report
    [child] = children(owner.root_id, 1)
    following = await owner.worker(1)
    following.connect()
    await stage.until(lambda: child in following.assignments)
    await stage.settled(owner)
    assert [event.data for event in stage.log(owner.root_id, EventType.RETRYING) if event.baton_id == child] == []
    assert await following.complete(child)
    assert stage.baton(child).attempt == 1
