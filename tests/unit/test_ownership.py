"""One owner and its tree when the database works: how few commits a story takes, and what reports and commands lead to."""

import asyncio
import hashlib
import random
from typing import Any

import pytest

from baton_actors.baton import Status
from baton_actors.commands import Answer, Cancel, Release, Retry
from baton_actors.errors import Moved, NotAllowed, NotFound
from baton_actors.events import EventType
from baton_actors.machine import decide
from baton_actors.runtime import ownership
from baton_actors.runtime.wire import Lease
from tests.unit.owning import CLUSTER, Fault, Owner, Stage, Worker, children, having, on_stage, submitted

FUNCTION = b"the bytes of a function"
HASH = hashlib.sha256(FUNCTION).hexdigest()


async def spawned(stage: Stage, *goals: str, cores: int = 1, **fields: Any) -> tuple[Owner, Worker, list[str]]:
    """An owner whose root was broken down, its first worker, and the children, which run there."""
    owner = await stage.begun(cores=cores)
    worker = (await owner.worker(0)).connect()
    await worker.spawn(owner.root_id, *goals, **fields)
    return owner, worker, children(owner.root_id, len(goals))


# ---------------------------------------------------------------- how few commits


@on_stage
async def test_a_tree_of_one_baton_takes_two_commits(stage: Stage) -> None:
    before = stage.store.commits
    owner = await stage.begun(behaviour=lambda wire: ("completed", 1, False))
    assert await owner.end() == "ended"
    assert stage.store.commits - before == 2
    assert [str(event.type) for event in owner.published] == ["baton.created", "baton.started", "baton.completed", "tree.completed"]


@on_stage
async def test_a_chain_takes_one_commit_for_each_report(stage: Stage) -> None:
    depth = 5

    def behave(wire: dict[str, Any]) -> tuple[Any, ...]:
        if wire["baton"].get("depth", 0) == depth or wire.get("breakdown"):
            return ("completed", wire["baton"].get("depth", 0), False)
        return ("spawned", [{"goal": "deeper"}], None, {})

    before = stage.store.commits
    owner = await stage.begun(behaviour=behave)
    assert await owner.end() == "ended"
    assert stage.store.commits - before == 1 + depth + (depth + 1)
    assert len(owner.workers) == 1, "each waiting parent holds no process (J6)"


@on_stage
async def test_children_ending_in_one_list_resume_their_parent_once_in_one_commit(stage: Stage) -> None:
    """J2."""
    owner, worker, ids = await spawned(stage, *map(str, range(250)))
    await stage.until(lambda: set(ids) <= set(worker.assignments))
    before = stage.store.commits
    assert await worker.complete(*ids)
    assert stage.store.commits - before == 1
    assert len(stage.log(owner.root_id, EventType.RESUMED)) == 1
    await stage.until(lambda: worker.assignments[owner.root_id].get("breakdown") == 1)
    assert len(worker.assignments[owner.root_id]["children"]) == 250


@on_stage
async def test_300_children_ending_at_once_in_two_processes_resume_their_parent_once_in_one_commit(stage: Stage) -> None:
    """J2, J7."""
    owner, first, ids = await spawned(stage, *map(str, range(300)), cores=2)
    second = (await owner.worker(1)).connect()
    await stage.until(lambda: len(first.assignments) == 151 and len(second.assignments) == 150)
    before = stage.store.commits
    reports = [worker.complete(*(id for id in worker.assignments if id != owner.root_id)) for worker in (first, second)]
    assert await asyncio.gather(*reports) == [True, True]
    assert stage.store.commits - before == 1
    assert len(stage.log(owner.root_id, EventType.RESUMED)) == 1
    assert {stage.baton(id).status for id in ids} == {Status.COMPLETED}


@on_stage
async def test_children_that_end_one_by_one_in_any_order_resume_their_parent_once_with_all_results(stage: Stage) -> None:
    """J1, J4: one failed and one cancelled count as ended."""
    owner, worker, ids = await spawned(stage, *map(str, range(100)))
    await stage.until(lambda: set(ids) <= set(worker.assignments))
    order = random.Random(7).sample(ids, len(ids))
    work = [worker.complete(id, value=ids.index(id)) for id in order[:98]]
    answers = await asyncio.gather(*work, worker.fail(order[98]), owner.order(Cancel(0, order[99], "out")))
    assert answers == [*[True] * 99, None]
    await stage.until(lambda: worker.assignments[owner.root_id].get("breakdown") == 1)
    given = worker.assignments[owner.root_id]["children"]
    assert [child[0] for child in given] == ids
    assert [child[3] for child in given] == [None if id in order[98:] else place for place, id in enumerate(ids)]
    assert len(stage.log(owner.root_id, EventType.RESUMED)) == 1


@on_stage
async def test_a_parent_whose_resumed_attempt_dies_sees_the_same_results_again(stage: Stage) -> None:
    """J8."""
    owner, worker, ids = await spawned(stage, "a", "b")
    await stage.until(lambda: set(ids) <= set(worker.assignments))
    await worker.complete(*ids, value=7)
    await stage.until(lambda: worker.assignments[owner.root_id].get("breakdown") == 1)
    given = worker.assignments[owner.root_id]["children"]
    worker.die()
    again = (await owner.worker(1)).connect()
    await stage.until(lambda: again.assignments)
    assert again.assignments[owner.root_id]["children"] == given


# ---------------------------------------------------------------- births


@on_stage
async def test_the_code_of_a_submission_is_stored_and_sent_with_its_tree(stage: Stage) -> None:
    archive = b"a zip"
    owner = await stage.begun(functions={HASH: FUNCTION}, archive=archive, worker=f"code:{HASH}")
    worker = await owner.worker(0)
    name = hashlib.sha256(archive).hexdigest()
    assert worker.code == {HASH: FUNCTION}
    assert owner.processes.archive == (name, archive)
    assert stage.store.code([HASH, name]) == {HASH: FUNCTION, name: archive}
    following = await stage.taken(owner.root_id)
    again = (await following.worker(0)).connect()
    await stage.until(lambda: again.assignments)
    assert again.code == {HASH: FUNCTION}
    assert following.processes.archive == (name, archive)


@on_stage
async def test_code_is_sent_to_a_process_once_and_stored_with_the_breakdown_that_brought_it(stage: Stage) -> None:
    owner, worker, ids = await spawned(stage, "a", "b", worker=f"code:{HASH}", code={HASH: FUNCTION})
    await stage.until(lambda: set(ids) <= set(worker.assignments))
    assert worker.code == {HASH: FUNCTION}
    worker.code.clear()
    await worker.spawn(ids[0], "c", worker=f"code:{HASH}", code={HASH: FUNCTION})
    [grandchild] = children(ids[0], 1)
    await stage.until(lambda: grandchild in worker.assignments)
    assert worker.code == {}
    assert stage.store.tree(owner.root_id).code["functions"] == [HASH]


@on_stage
async def test_a_tree_that_another_owner_has_already_is_not_begun_a_second_time(stage: Stage) -> None:
    """O1: the directory died after it had given the submission to an owner, and the client handed it in again."""
    other = await stage.begun(behaviour=lambda wire: ("completed", 1, False))
    await other.end()
    submission = submitted()
    first = await stage.begun(submission, "A")
    second = stage.owner(submission.root.id, 1, "B")
    assert await second.ownership.begin(submission, CLUSTER) == submission.root.id
    assert second.released == ["moved"]
    assert second.workers == []
    assert isinstance(await second.order(Cancel(0, submission.root.id, "no")), Moved)
    assert stage.store.tree(submission.root.id).owner == "A"
    assert await (await first.worker(0)).connect().complete(submission.root.id)


@on_stage
async def test_an_idempotency_key_leads_to_the_tree_that_has_it(stage: Stage) -> None:
    first = await stage.begun(key="the key")
    again = submitted(key="the key")
    second = stage.owner(again.root.id, 1, "B")
    assert await second.ownership.begin(again, CLUSTER) == first.root_id
    assert second.released == ["moved"]
    assert (await second.ownership.publication.after(0)).moved
    assert [baton.id for baton in stage.store.trees()] == [first.root_id]


@on_stage
async def test_trees_without_a_key_have_nothing_to_do_with_each_other(stage: Stage) -> None:
    first, second = await stage.begun(goal="one"), await stage.begun(goal="two")
    assert first.root_id != second.root_id
    for owner in (first, second):
        await (await owner.worker(0)).connect().complete(owner.root_id, value=owner.root_id)
        assert await owner.end() == "ended"
    assert stage.baton(first.root_id).result == first.root_id
    assert {event.root_id for event in stage.log(first.root_id)} == {first.root_id}


@on_stage
async def test_a_tree_that_was_not_lent_to_an_owner_is_not_taken(stage: Stage) -> None:
    first = await stage.begun()
    for name, epoch in (("B", 1), ("A", 2)):
        second = stage.owner(first.root_id, epoch, name)
        assert not await second.ownership.take()
        assert second.released == ["moved"]
        second.ownership.abandon()
    assert stage.store.tree(first.root_id).owner == "A"


# ---------------------------------------------------------------- reports


@on_stage
async def test_a_report_sent_again_is_acknowledged_and_not_decided_again(stage: Stage) -> None:
    owner, worker, ids = await spawned(stage, "a", "b")
    await stage.until(lambda: set(ids) <= set(worker.assignments))
    report = ("checkpoint", ids[0], 1, "once", {})
    assert await worker.report(report)
    rows = stage.rows()
    assert await owner.ownership.report(worker.lease, worker.reports, [report])
    assert await owner.ownership.report(worker.lease, 1, [report])
    await stage.settled(owner)
    assert stage.rows() == rows


@on_stage
async def test_a_report_sent_again_while_it_is_written_waits_for_the_same_commit(stage: Stage) -> None:
    owner, worker, ids = await spawned(stage, "a", "b")
    await stage.until(lambda: set(ids) <= set(worker.assignments))
    planned = stage.store.plan("commit", Fault.NONE, having(EventType.PROGRESS), held=True)
    report = ("checkpoint", ids[0], 1, "once", {})
    first = stage.background(worker.report(report))
    await stage.until(planned.reached.is_set)
    second = stage.background(owner.ownership.report(worker.lease, worker.reports, [report]))
    await asyncio.sleep(0.01)
    assert not first.done()
    assert not second.done()
    planned.go.set()
    assert await first
    assert await second
    assert len(stage.log(owner.root_id, EventType.PROGRESS)) == 1


@on_stage
async def test_a_report_whose_caller_has_gone_is_applied_and_acknowledged_to_the_next_call(stage: Stage) -> None:
    owner, worker, ids = await spawned(stage, "a", "b")
    await stage.until(lambda: set(ids) <= set(worker.assignments))
    planned = stage.store.plan("commit", Fault.NONE, having(EventType.PROGRESS), held=True)
    report = ("checkpoint", ids[0], 1, "once", {})
    first = stage.background(worker.report(report))
    await stage.until(planned.reached.is_set)
    first.cancel()
    planned.go.set()
    assert await owner.ownership.report(worker.lease, worker.reports, [report])
    assert len(stage.log(owner.root_id, EventType.PROGRESS)) == 1


@on_stage
async def test_a_report_of_an_earlier_attempt_is_acknowledged_and_changes_nothing(stage: Stage) -> None:
    """A1, A2."""
    owner, worker, ids = await spawned(stage, "a", "b")
    await stage.until(lambda: set(ids) <= set(worker.assignments))
    await worker.fail(ids[0])
    assert await owner.order(Retry(0, ids[0])) is None
    await stage.until(lambda: worker.assignments[ids[0]]["baton"]["attempt"] == 2)
    rows = stage.rows()
    assert await worker.report(("completed", ids[0], 1, "late", False), ("checkpoint", ids[0], 1, "late", {}))
    assert await worker.report(("spawned", ids[0], 1, [{"goal": "late"}], None, {}), ("handed_over", ids[0], 1, "late"))
    assert await worker.report(("completed", "bt_nobody", 1, "late", False))
    assert stage.rows() == rows
    assert await worker.complete(ids[0], value="in time")
    assert await worker.checkpoint(ids[0]), "terminal states absorb what comes later"
    assert stage.baton(ids[0]).result == "in time"


@on_stage
async def test_a_report_from_another_life_of_the_tree_is_answered_no(stage: Stage) -> None:
    owner, worker, ids = await spawned(stage, "a")
    following = await stage.taken(owner.root_id)
    assert not await following.ownership.report(Lease(owner.root_id, 1, 99), 1, [("completed", ids[0], 1, "late", False)])
    assert (await following.ownership.instructions(Lease(owner.root_id, 1, 99), 1)).moved
    assert not await worker.complete(ids[0])
    assert stage.baton(ids[0]).result is None


@on_stage
async def test_reports_made_while_a_commit_is_under_way_go_into_one_next_commit(stage: Stage) -> None:
    _owner, worker, ids = await spawned(stage, *"abcdefgh")
    await stage.until(lambda: set(ids) <= set(worker.assignments))
    planned = stage.store.plan("commit", Fault.NONE, held=True)
    first = stage.background(worker.checkpoint(ids[0]))
    await stage.until(planned.reached.is_set)
    others = [stage.background(worker.complete(id)) for id in ids[:7]]
    await asyncio.sleep(0)
    before = stage.store.commits
    planned.go.set()
    assert await first
    assert await asyncio.gather(*others) == [True] * 7
    assert stage.store.commits - before == 2
    assert not any(worker.run.in_flight.get(id) for id in ids[:7])


@on_stage
async def test_a_breakdown_into_nothing_resumes_at_once(stage: Stage) -> None:
    owner, worker, _ = await spawned(stage)
    await stage.until(lambda: worker.assignments[owner.root_id].get("breakdown") == 1)
    assert worker.assignments[owner.root_id]["children"] == []


@on_stage
async def test_a_run_that_hands_over_goes_on_from_its_state(stage: Stage) -> None:
    owner = await stage.begun()
    worker = (await owner.worker(0)).connect()
    await worker.report(worker.outcome("handed_over", owner.root_id, {"round": 3}))
    await stage.until(lambda: worker.assignments[owner.root_id]["baton"]["attempt"] == 2)
    assert worker.assignments[owner.root_id]["state"] == {"round": 3}
    assert stage.baton(owner.root_id).losses == 0


@on_stage
async def test_a_retryable_failure_is_tried_again_when_its_time_has_come(stage: Stage) -> None:
    owner = await stage.begun(max_retries=1)
    worker = (await owner.worker(0)).connect()
    await worker.report(worker.outcome("failed", owner.root_id, "later", "error", True, 0.02))
    assert stage.baton(owner.root_id).status is Status.PENDING
    await stage.until(lambda: worker.assignments[owner.root_id]["baton"]["attempt"] == 2)
    started = stage.log(owner.root_id, EventType.STARTED)[-1]
    [retrying] = stage.log(owner.root_id, EventType.RETRYING)
    assert started.at >= retrying.data["not_before"]


# ---------------------------------------------------------------- commands


@on_stage
async def test_a_held_tree_runs_when_it_is_released_and_a_second_release_is_harmless(stage: Stage) -> None:
    owner = await stage.begun(held=True)
    first, second = owner.ownership.order(Release(0, owner.root_id), "1"), owner.ownership.order(Release(0, owner.root_id), "2")
    assert (await first, await second) == (None, None)
    assert await (await owner.worker(0)).connect().complete(owner.root_id)


@on_stage
async def test_commands_that_the_state_does_not_permit_are_refused_in_words(stage: Stage) -> None:
    """C4."""
    owner, worker, ids = await spawned(stage, "a", "b")
    assert isinstance(await owner.order(Cancel(0, "bt_nobody", "no")), NotFound)
    assert isinstance(await owner.order(Retry(0, ids[0])), NotAllowed)
    assert isinstance(await owner.order(Answer(0, ids[0], 1)), NotAllowed)
    await worker.complete(ids[0])
    refusal = await owner.order(Cancel(0, ids[0], "late"))
    assert "already ended" in str(refusal)
    assert [await owner.order(Cancel(0, ids[1], "once")) for _ in range(2)] == [None, None]


@on_stage
async def test_a_command_is_dated_by_its_owner_and_not_by_the_client(stage: Stage) -> None:
    """O6."""
    owner, _worker, ids = await spawned(stage, "a", "b")
    assert await owner.order(Cancel(4_000_000_000_000, ids[0], "from a clock that is ahead")) is None
    [failed] = stage.log(owner.root_id, EventType.FAILED)
    assert abs(failed.at - stage.baton(owner.root_id).created_at) < 60_000


@on_stage
async def test_an_end_and_a_retry_in_one_group_leave_a_living_tree(stage: Stage) -> None:
    owner, worker, ids = await spawned(stage, "a", "b")
    await stage.until(lambda: set(ids) <= set(worker.assignments))
    await worker.report(worker.outcome("failed", ids[0], "broken", "error", False, None), worker.outcome("completed", ids[1], 1, False))
    await stage.until(lambda: worker.assignments[owner.root_id].get("breakdown") == 1)
    report = stage.background(worker.fail(owner.root_id))
    await asyncio.sleep(0)
    retry = owner.ownership.order(Retry(0, ids[0]), "the command")
    assert await report
    assert await retry is None
    row = stage.store.tree(owner.root_id)
    assert (row.status, row.owner) == ("open", "A")
    assert owner.released == []
    assert [str(event.type) for event in stage.log(owner.root_id)].count("tree.failed") == 1
    await stage.until(lambda: worker.assignments[ids[0]]["baton"].get("generation") == 1)
    await worker.complete(ids[0])
    await stage.until(lambda: worker.assignments[owner.root_id]["baton"].get("generation") == 1)
    await worker.complete(owner.root_id)
    assert await owner.end() == "ended"
    assert stage.store.tree(owner.root_id).status == "completed"


@on_stage
async def test_a_retry_and_an_end_in_one_group_leave_an_ended_tree(stage: Stage) -> None:
    owner, worker, ids = await spawned(stage, "a", "b")
    await worker.fail(ids[0])
    retry = owner.ownership.order(Retry(0, ids[0]), "1")
    cancel = owner.ownership.order(Cancel(0, owner.root_id, "enough"), "2")
    assert (await retry, await cancel) == (None, None)
    assert await owner.end() == "ended"
    row = stage.store.tree(owner.root_id)
    assert (row.status, row.owner) == ("failed", None)


@on_stage
async def test_an_ended_tree_that_is_retried_lives_at_its_next_owner(stage: Stage) -> None:
    owner = await stage.begun(behaviour=lambda wire: ("failed", "broken", "error", False, None))
    await owner.end()
    following = await stage.taken(owner.root_id, order=(Retry(0, owner.root_id), "the command"))
    worker = (await following.worker(0)).connect()
    await stage.until(lambda: worker.assignments)
    assert stage.store.tree(owner.root_id).status == "open"
    await worker.complete(owner.root_id, value=2)
    assert await following.end() == "ended"
    assert stage.baton(owner.root_id).result == 2


@on_stage
async def test_an_ended_tree_taken_for_a_command_that_is_refused_is_given_back(stage: Stage) -> None:
    owner = await stage.begun(behaviour=lambda wire: ("completed", 1, False))
    await owner.end()
    rows = stage.rows()
    epoch = stage.store.lend(owner.root_id, "B", CLUSTER, None)
    assert epoch is not None
    following = stage.owner(owner.root_id, epoch, "B")
    assert await following.ownership.take()
    assert isinstance(await following.ownership.serve((Retry(0, owner.root_id), "the command")), NotAllowed)
    await following.end()
    assert stage.rows()["batons"] == rows["batons"]
    row = stage.store.tree(owner.root_id)
    assert (row.status, row.owner) == ("completed", None)


# ---------------------------------------------------------------- faults of ours


class _Strange(Exception):
    """What the machine should never raise."""


@pytest.mark.parametrize("place", [0, 2, 4])
@on_stage
async def test_a_command_that_cannot_be_decided_does_not_take_the_others_down(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    owner, worker, ids = await spawned(stage, *"abcdef")
    await stage.until(lambda: set(ids) <= set(worker.assignments))

    def strange(tree: Any, command: Any) -> Any:
        if isinstance(command, Cancel):
            raise _Strange("this cannot be decided")
        return decide(tree, command)

    monkeypatch.setattr(ownership, "decide", strange)
    before = [stage.background(worker.complete(id)) for id in ids[:place]]
    await asyncio.sleep(0)
    order = owner.ownership.order(Cancel(0, ids[4], "out"), "the command")
    after = [stage.background(worker.complete(id)) for id in ids[place:5]]
    with pytest.raises(_Strange):
        await order
    assert await asyncio.gather(*before, *after) == [True] * 5
    assert [stage.baton(id).status for id in ids] == [Status.COMPLETED] * 5 + [Status.RUNNING]
    assert stage.baton(ids[5]).attempt == 1
    assert stage.store.tree(owner.root_id).answered == []


@on_stage
async def test_a_report_that_cannot_be_decided_fails_its_call_and_no_other(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    _owner, worker, ids = await spawned(stage, "a", "b")
    await stage.until(lambda: set(ids) <= set(worker.assignments))

    def strange(tree: Any, command: Any) -> Any:
        if getattr(command, "value", None) == "strange":
            raise _Strange("this cannot be decided")
        return decide(tree, command)

    monkeypatch.setattr(ownership, "decide", strange)
    with pytest.raises(_Strange):
        await worker.complete(ids[0], value="strange")
    assert await worker.complete(ids[1])
    assert [stage.baton(id).status for id in ids] == [Status.RUNNING, Status.COMPLETED]
