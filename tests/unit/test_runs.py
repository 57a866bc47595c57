"""The worker processes of one tree: what each is told, when it ends, what its death means, when it is given up."""

import asyncio
from typing import Any

import pytest

from baton_actors.baton import Status
from baton_actors.commands import Cancel, LossCause, Retry
from baton_actors.events import EventType
from baton_actors.machine import MAX_LOSSES
from baton_actors.runtime import runs
from baton_actors.runtime.wire import Lease
from tests.unit.owning import Fault, Owner, Stage, Worker, children, having, on_stage

OWN = {"num_gpus": 1}


async def spawned(stage: Stage, *goals: str, cores: int = 1, **fields: Any) -> tuple[Owner, Worker, list[str]]:
    """An owner whose root was broken down, its first worker, and the children."""
    owner = await stage.begun(cores=cores)
    worker = (await owner.worker(0)).connect()
    await worker.spawn(owner.root_id, *goals, **fields)
    return owner, worker, children(owner.root_id, len(goals))


async def holding(stage: Stage, worker: Worker, *ids: str, attempt: int = 1) -> None:
    """Wait until a worker was handed these batons."""
    await stage.until(lambda: all(id in worker.assignments and worker.assignments[id]["baton"]["attempt"] == attempt for id in ids))


def lost(stage: Stage, owner: Owner, id: str) -> list[dict[str, Any]]:
    """What the log says of the losses of a baton."""
    return [event.data for event in stage.log(owner.root_id, EventType.RETRYING) if event.baton_id == id]


# ---------------------------------------------------------------- instructions


@on_stage
async def test_the_first_run_is_handed_its_baton_with_its_start(stage: Stage) -> None:
    owner = await stage.begun()
    worker = await owner.worker(0)
    assert list(worker.assignments) == [owner.root_id]
    assert worker.first.number == 1


@on_stage
async def test_instructions_of_which_the_answer_was_lost_are_given_again(stage: Stage) -> None:
    owner = await stage.begun()
    worker = await owner.worker(0)
    poll = asyncio.create_task(owner.ownership.instructions(worker.lease, 1))
    await worker.spawn(owner.root_id, "a", "b")
    told = await poll
    again = await owner.ownership.instructions(worker.lease, 1)
    assert again == told
    assert [wire["baton"]["goal"] for wire in again.assignments] == ["a", "b"]
    assert (await owner.ownership.instructions(worker.lease, 0)).number == told.number
    assert [event.attempt for event in stage.log(owner.root_id, EventType.STARTED)] == [1, 1, 1]


@on_stage
async def test_what_was_handed_out_with_the_start_is_given_again_to_a_run_that_asks_from_the_beginning(stage: Stage) -> None:
    owner = await stage.begun()
    worker = await owner.worker(0)
    assert await owner.ownership.instructions(worker.lease, 0) == worker.first


@on_stage
async def test_a_run_that_is_not_known_has_moved(stage: Stage) -> None:
    owner = await stage.begun()
    told = await owner.ownership.instructions(Lease(owner.root_id, 1, 99), 4)
    assert (told.moved, told.number, told.assignments) == (True, 5, [])


@on_stage
async def test_instructions_and_stops_of_one_commit_come_in_one_answer(stage: Stage) -> None:
    owner, worker, ids = await spawned(stage, "a", "b")
    await holding(stage, worker, *ids)
    await worker.fail(ids[0])
    retry, cancel = owner.ownership.order(Retry(0, ids[0]), "1"), owner.ownership.order(Cancel(0, ids[1], "out"), "2")
    before = worker.received
    assert (await retry, await cancel) == (None, None)
    await holding(stage, worker, ids[0], attempt=2)
    assert worker.stops == [(ids[1], 1)]
    assert worker.received == before + 1


# ---------------------------------------------------------------- idle runs


@on_stage
async def test_an_idle_run_ends_after_a_while(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, worker, _ = await spawned(stage, "ask", "work", resources=OWN)
    monkeypatch.setattr(runs, "LINGER_SECONDS", 0.01)
    owner.ownership._runs.instruct()
    await stage.until(lambda: worker.gone)
    assert worker.ended
    assert owner.processes.killed == []


@on_stage
async def test_a_run_that_was_idle_for_a_moment_takes_the_next_baton(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "LINGER_SECONDS", 0.03)
    owner, worker, ids = await spawned(stage, "a")
    for attempt in (1, 2, 3):
        await holding(stage, worker, ids[0], attempt=attempt)
        await worker.report(worker.outcome("handed_over", ids[0], attempt))
    assert len(owner.workers) == 1
    await asyncio.sleep(0.04)
    assert not worker.ended, "it has work"


@on_stage
async def test_a_run_waits_for_a_slow_commit_that_will_give_it_work(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise processes are started and ended without having run anything."""
    monkeypatch.setattr(runs, "LINGER_SECONDS", 0.005)
    owner, first, ids = await spawned(stage, "own process", "shared")
    await holding(stage, first, ids[1])
    [grandchild] = children(ids[1], 1)
    await first.spawn(ids[1], "own process", resources=OWN)
    second = await owner.worker(1)
    planned = stage.store.plan("commit", Fault.NONE, held=True)
    checkpoint = stage.background(first.checkpoint(ids[0]))
    await stage.until(planned.reached.is_set)
    second.connect()
    await asyncio.sleep(0.03)
    assert not second.ended
    planned.go.set()
    assert await checkpoint
    await holding(stage, second, grandchild)
    assert len(owner.workers) == 2


# ---------------------------------------------------------------- a run dies


@on_stage
async def test_batons_of_a_shared_process_that_died_go_on_alone(stage: Stage) -> None:
    """A3: its death is nobody's fault until shown."""
    owner, worker, ids = await spawned(stage, "a", "b", "c")
    await holding(stage, worker, *ids)
    await worker.complete(ids[2])
    worker.die()
    one, other = (await owner.worker(1)).connect(), (await owner.worker(2)).connect()
    await stage.until(lambda: one.assignments and other.assignments)
    assert sorted([*one.assignments, *other.assignments]) == sorted(ids[:2])
    assert one.run.alone
    assert other.run.alone
    assert [stage.baton(id).losses for id in ids] == [0, 0, 0]
    assert stage.baton(ids[2]).status is Status.COMPLETED
    assert lost(stage, owner, ids[0]) == [{"reason": "lost", "cause": "process"}]


@on_stage
async def test_a_baton_that_kills_its_process_every_time_crashes_and_the_others_are_unharmed(stage: Stage) -> None:
    """A3."""
    owner, worker, [bad, good] = await spawned(stage, "bad", "good")
    await holding(stage, worker, bad, good)
    worker.die()
    died = 0
    while stage.baton(bad).status is not Status.FAILED:
        for each in owner.workers[1:]:
            if each.reports == 0 and not each.gone and each._following is None:
                each.connect()
            if good in each.run.in_flight and good in each.assignments:
                await each.complete(good)
            if bad in each.run.in_flight and bad in each.assignments and not each.gone:
                died += 1
                each.die()
        await asyncio.sleep(0.001)
    assert died == MAX_LOSSES
    assert stage.baton(bad).error_kind == "crashed"
    assert "lost 4 times in a row, at last because its process died" in (stage.baton(bad).error or "")
    assert stage.baton(bad).attempt == 5
    assert (stage.baton(good).status, stage.baton(good).losses) == (Status.COMPLETED, 0)


@on_stage
async def test_progress_between_two_deaths_clears_the_count(stage: Stage) -> None:
    owner = await stage.begun(resources=OWN)
    for number in range(6):
        worker = (await owner.worker(number)).connect()
        await stage.until(lambda each=worker: each.assignments)
        await worker.checkpoint(owner.root_id, number)
        worker.die()
    worker = (await owner.worker(6)).connect()
    await stage.until(lambda: worker.assignments)
    assert (stage.baton(owner.root_id).losses, worker.assignments[owner.root_id]["state"]) == (1, 5)


@pytest.mark.parametrize("cause", ["node", "owner", None])
@on_stage
async def test_deaths_of_nodes_and_owners_count_nothing(stage: Stage, cause: LossCause | None) -> None:
    owner = await stage.begun(resources=OWN)
    for number in range(6):
        worker = (await owner.worker(number)).connect()
        await stage.until(lambda each=worker: each.assignments)
        worker.die(cause)
    worker = (await owner.worker(6)).connect()
    await stage.until(lambda: worker.assignments)
    assert (stage.baton(owner.root_id).losses, stage.baton(owner.root_id).attempt) == (0, 7)


@on_stage
async def test_a_run_that_ends_twice_is_counted_once(stage: Stage) -> None:
    owner = await stage.begun(resources=OWN)
    worker = (await owner.worker(0)).connect()
    await stage.until(lambda: worker.assignments)
    owner.ownership.run_ended(worker.run, "process")
    owner.ownership.run_ended(worker.run, "process")
    await stage.until(lambda: len(owner.workers) == 2)
    assert stage.baton(owner.root_id).losses == 1


@on_stage
async def test_a_run_that_dies_while_its_report_is_written_has_reported(stage: Stage) -> None:
    """J7."""
    owner, worker, ids = await spawned(stage, "a", "b")
    await holding(stage, worker, *ids)
    planned = stage.store.plan("commit", Fault.NONE, having(EventType.COMPLETED), held=True)
    report = stage.background(worker.complete(ids[0]))
    await stage.until(planned.reached.is_set)
    worker.die()
    planned.go.set()
    assert await report
    again = (await owner.worker(1)).connect()
    await holding(stage, again, ids[1], attempt=2)
    assert stage.baton(ids[0]).status is Status.COMPLETED


# ---------------------------------------------------------------- processes that cannot be started


@on_stage
async def test_a_process_that_ends_before_its_first_call_is_tried_again(stage: Stage) -> None:
    owner = await stage.begun(resources=OWN)
    for number in range(3):
        (await owner.worker(number)).die("process", "the node had no memory")
    worker = (await owner.worker(3)).connect()
    await stage.until(lambda: worker.assignments)
    assert (stage.baton(owner.root_id).attempt, stage.baton(owner.root_id).losses) == (1, 0)


@on_stage
async def test_what_no_process_can_be_started_for_fails_with_the_reason(stage: Stage) -> None:
    owner, worker, ids = await spawned(stage, "a", "b", "c", resources={"num_gpus": 1})
    await holding(stage, worker)
    shared = children(owner.root_id, 3)
    for number in range(1, 20):
        if all(stage.baton(id).status is Status.FAILED for id in shared):
            break
        await stage.until(lambda place=number: len(owner.workers) > place or all(stage.baton(id).status is Status.FAILED for id in shared))
        if len(owner.workers) > number:
            owner.workers[number].die("process", "ImportError: no module of that name\nand much more")
    assert {stage.baton(id).error_kind for id in ids} == {"crashed"}
    assert stage.baton(ids[0]).error == "no process could be started for it, 4 times: ImportError: no module of that name"
    await stage.until(lambda: worker.assignments[owner.root_id].get("breakdown") == 1)
    assert [child[2] for child in worker.assignments[owner.root_id]["children"]] == ["failed"] * 3


@on_stage
async def test_a_start_that_is_refused_four_times_fails_the_baton_with_the_reason(stage: Stage) -> None:
    owner = await stage.begun(held=True, resources={"num_gpus": 1})
    owner.processes.refusal = ValueError("Use the 'num_cpus' and 'num_gpus' keyword\nin options")
    assert await owner.end() == "hibernated"
    again = await stage.begun(resources={"num_gpus": 2})
    again.workers[0].die("process")  # before it has made a call
    again.processes.refusal = owner.processes.refusal
    assert await again.end() == "ended"
    assert again.processes.refused == runs.MOST_FAILED_STARTS - 1
    root = stage.baton(again.root_id)
    assert (root.error_kind, root.attempt) == ("crashed", 1)
    assert root.error == "no process could be started for it, 4 times: Use the 'num_cpus' and 'num_gpus' keyword"


@on_stage
async def test_a_start_that_is_refused_with_the_birth_is_no_fault_of_the_birth(stage: Stage) -> None:
    owner, worker, ids = await spawned(stage, "a", "b")
    await holding(stage, worker, *ids)
    owner.processes.refusal = ValueError("no such resource")
    await worker.spawn(ids[0], "own process", resources={"num_gpus": 1})
    [grandchild] = children(ids[0], 1)
    await stage.until(lambda: stage.baton(grandchild).status is Status.FAILED)
    assert "no such resource" in (stage.baton(grandchild).error or "")
    assert await worker.complete(ids[1]), "the other runs go on"


@on_stage
async def test_a_shared_process_that_never_starts_ends_in_a_crash_and_not_in_a_loop(stage: Stage) -> None:
    """What it was handed goes on alone; when that cannot be started either, it has failed."""
    owner = await stage.begun()
    number = 0
    while not owner.released:
        if len(owner.workers) > number:
            owner.workers[number].die("process", "it cannot be started")
            number += 1
        await asyncio.sleep(0.001)
    root = stage.baton(owner.root_id)
    assert root.error_kind == "crashed"
    assert "it cannot be started" in (root.error or "")
    assert number <= 1 + runs.MOST_FAILED_STARTS


@pytest.mark.parametrize("cause", ["node", "owner", None])
@on_stage
async def test_processes_that_end_before_their_first_call_with_their_node_count_nothing(stage: Stage, cause: LossCause | None) -> None:
    owner = await stage.begun(resources=OWN)
    for number in range(2 * runs.MOST_FAILED_STARTS):
        (await owner.worker(number)).die(cause)
    worker = (await owner.worker(2 * runs.MOST_FAILED_STARTS)).connect()
    await stage.until(lambda: worker.assignments)
    assert stage.baton(owner.root_id).attempt == 1


# ---------------------------------------------------------------- no sign of life


@on_stage
async def test_a_run_with_no_sign_of_life_gets_nothing_more_and_its_baton_starts_elsewhere(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A7."""
    monkeypatch.setattr(runs, "LEAST_PATIENCE_SECONDS", 0.0)
    owner = await stage.begun()
    worker = (await owner.worker(0)).connect()
    await worker.report(
        ("spawned", owner.root_id, 1, [{"goal": "slow"}, {"goal": "stuck", "constraints": {"timeout_hint": 0.01}}], None, {})
    )
    slow, stuck = children(owner.root_id, 2)
    await holding(stage, worker, slow, stuck)
    monkeypatch.undo()
    second = (await owner.worker(1)).connect()
    await holding(stage, second, stuck, attempt=2)
    await stage.until(lambda: worker.stops == [(stuck, 1)])
    assert worker.run.stuck
    assert not worker.ended, "what else is in it goes on"
    assert lost(stage, owner, stuck) == [{"reason": "lost", "cause": "stuck", "losses": 1}]
    await second.spawn(stuck, *"abcdef")
    await holding(stage, second, *children(stuck, 6))
    assert set(worker.assignments) == {owner.root_id, slow, stuck}, "it is given nothing more"
    assert await worker.complete(slow)
    await stage.until(lambda: worker.ended)
    assert stage.baton(slow).attempt == 1


@on_stage
async def test_each_baton_of_a_process_that_hangs_is_lost_in_its_own_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "LEAST_PATIENCE_SECONDS", 0.0)
    owner = await stage.begun()
    worker = (await owner.worker(0)).connect()
    hints = [0.02, 0.01, 0.015]
    specs = [{"goal": str(hint), "constraints": {"timeout_hint": hint}} for hint in hints]
    await worker.report(("spawned", owner.root_id, 1, specs, None, {}))
    ids = children(owner.root_id, 3)
    await stage.until(lambda: all(lost(stage, owner, id) for id in ids))
    assert [event.baton_id for event in stage.log(owner.root_id, EventType.RETRYING)] == [ids[1], ids[2], ids[0]]
    assert [stage.baton(id).losses for id in ids] == [1, 1, 1]


@on_stage
async def test_a_stopped_process_is_killed_when_all_in_it_is_lost(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A7: it will never ask for instructions again."""
    monkeypatch.setattr(runs, "LEAST_PATIENCE_SECONDS", 0.0)
    owner = await stage.begun(timeout_hint=0.01)
    worker = await owner.worker(0)
    stage.background(owner.ownership.instructions(worker.lease, 1))  # and then it says nothing more
    await asyncio.sleep(0)
    monkeypatch.setattr(runs, "LEAST_PATIENCE_SECONDS", 120.0)
    second = (await owner.worker(1)).connect()
    await holding(stage, second, owner.root_id, attempt=2)
    await stage.until(lambda: worker.killed)
    assert await second.complete(owner.root_id)
    assert stage.baton(owner.root_id).losses <= 1


@on_stage
async def test_a_baton_that_hangs_every_time_crashes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "LEAST_PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(runs, "PATIENCE_WINDOWS", 0)
    owner = await stage.begun()
    number = 0
    while not owner.released:
        if len(owner.workers) > number:
            owner.workers[number].connect()
            number += 1
        await asyncio.sleep(0.001)
    root = stage.baton(owner.root_id)
    assert (root.error_kind, root.attempt) == ("crashed", 4)
    assert "raise timeout_hint" in (root.error or "")


@on_stage
async def test_the_clock_starts_with_the_first_call_and_each_checkpoint_sets_it_back(stage: Stage) -> None:
    owner = await stage.begun()
    worker = await owner.worker(0)
    flight = worker.run.in_flight[owner.root_id]
    assert flight.since is None, "a process may wait for long until Ray starts it"
    worker.connect()
    await stage.until(lambda: flight.since is not None)
    first = flight.since
    assert first is not None
    await worker.checkpoint(owner.root_id)
    assert flight.since is not None
    assert flight.since > first
    assert flight.patience == 120.0


@on_stage
async def test_a_window_that_is_long_gives_long_patience(stage: Stage) -> None:
    owner = await stage.begun(timeout_hint=600)
    worker = await owner.worker(0)
    assert worker.run.in_flight[owner.root_id].patience == 2_400.0


@on_stage
async def test_a_checkpoint_of_one_baton_is_no_sign_of_life_of_another(stage: Stage) -> None:
    _owner, worker, ids = await spawned(stage, "a", "b")
    await holding(stage, worker, *ids)
    before = {id: worker.run.in_flight[id].since for id in ids}
    await worker.checkpoint(ids[0])
    after = {id: worker.run.in_flight[id].since for id in ids}
    assert after[ids[0]] != before[ids[0]]
    assert after[ids[1]] == before[ids[1]]


# ---------------------------------------------------------------- stops


@on_stage
async def test_a_cancel_tells_the_run_that_holds_the_baton_and_no_other(stage: Stage) -> None:
    """C1, C2."""
    owner, first, _ids = await spawned(stage, *"abcd", cores=2)
    second = (await owner.worker(1)).connect()
    await stage.until(lambda: len(first.assignments) == 3 and len(second.assignments) == 2)
    target = next(iter(second.assignments))
    assert await owner.order(Cancel(0, target, "out")) is None
    await stage.until(lambda: second.stops)
    assert (first.stops, second.stops) == ([], [(target, 1)])
    assert not second.ended
    assert not second.killed
    rows = stage.rows()
    assert await second.complete(target), "what it still reports is acknowledged and dropped"
    assert stage.rows() == rows


@on_stage
async def test_a_cancel_of_the_root_tells_every_run(stage: Stage) -> None:
    """C1."""
    owner, first, ids = await spawned(stage, *"abcd", cores=2)
    second = (await owner.worker(1)).connect()
    await stage.until(lambda: len(first.assignments) == 3 and len(second.assignments) == 2)
    assert await owner.order(Cancel(0, owner.root_id, "enough")) is None
    await stage.until(lambda: first.ended and second.ended)
    assert sorted([*first.stops, *second.stops]) == sorted((id, 1) for id in ids)
    assert {baton.error_kind for baton in stage.store.snapshot(owner.root_id).batons} == {"cancelled"}


@on_stage
async def test_a_process_of_its_own_that_does_not_stop_is_killed(stage: Stage) -> None:
    owner = await stage.begun()
    worker = (await owner.worker(0)).connect()
    await worker.report(("spawned", owner.root_id, 1, [{"goal": "own", "resources": {"num_gpus": 1}}, {"goal": "shared"}], None, {}))
    own, shared = children(owner.root_id, 2)
    one = await owner.worker(1)
    one._follow(await owner.ownership.instructions(one.lease, one.received))
    assert list(one.assignments) == [own]
    assert await owner.order(Cancel(0, own, "out")) is None
    await stage.until(lambda: one.killed)
    assert owner.processes.killed == [one.run.id]
    assert (stage.baton(own).status, stage.baton(shared).status) == (Status.FAILED, Status.RUNNING)


@on_stage
async def test_a_process_of_its_own_that_stops_takes_no_other_baton(stage: Stage) -> None:
    """What does not listen must not share its process with the next one."""
    owner = await stage.begun()
    worker = (await owner.worker(0)).connect()
    await worker.report(("spawned", owner.root_id, 1, [{"goal": "own", "resources": {"num_gpus": 1}}, {"goal": "shared"}], None, {}))
    own, _ = children(owner.root_id, 2)
    one = (await owner.worker(1)).connect()
    await holding(stage, one, own)
    assert await owner.order(Cancel(0, own, "out")) is None
    assert await owner.order(Retry(0, own)) is None
    other = (await owner.worker(2)).connect()
    await holding(stage, other, own, attempt=2)
    await stage.until(lambda: one.gone)
    assert one.stops == [(own, 1)]
    assert one.ended


@on_stage
async def test_a_process_of_its_own_takes_one_baton_after_another(stage: Stage) -> None:
    owner, _, _ids = await spawned(stage, *"abc", resources={"num_gpus": 1})
    workers = [(await owner.worker(number)).connect() for number in (1, 2, 3)]
    await stage.until(lambda: sum(len(each.assignments) for each in workers) == 3)
    assert [len(each.assignments) for each in workers] == [1, 1, 1]
    await workers[0].spawn(next(iter(workers[0].assignments)), "next", resources={"num_gpus": 1})
    await stage.until(lambda: len(workers[0].assignments) == 2)
    assert len(owner.workers) == 4


@on_stage
async def test_an_isolated_baton_has_a_process_that_nothing_ran_in_before(stage: Stage) -> None:
    owner, _, _ids = await spawned(stage, *"ab", resources={"isolate": True})
    one, other = (await owner.worker(1)).connect(), (await owner.worker(2)).connect()
    await stage.until(lambda: one.assignments and other.assignments)
    assert one.run.shape.fresh
    [mine] = one.assignments
    await one.spawn(mine, "next", resources={"isolate": True})
    [grandchild] = children(mine, 1)
    following = (await owner.worker(3)).connect()
    await holding(stage, following, grandchild)
    await stage.until(lambda: one.gone)
    assert list(one.assignments) == [mine]


@on_stage
async def test_a_fresh_process_that_has_done_its_work_and_never_asks_again_is_killed(stage: Stage) -> None:
    owner = await stage.begun(resources={"isolate": True})
    worker = await owner.worker(0)
    instructions = await owner.ownership.instructions(worker.lease, worker.received)
    worker._follow(instructions)
    assert await worker.spawn(owner.root_id, "next")
    await stage.until(lambda: worker.killed)


@on_stage
async def test_runs_of_an_ended_tree_are_told_to_end_and_killed_if_they_do_not(stage: Stage) -> None:
    owner, first, _ids = await spawned(stage, "a", "b", cores=2)
    second = await owner.worker(1)
    assert await owner.order(Cancel(0, owner.root_id, "enough")) is None
    assert await owner.end() == "ended"
    await stage.until(lambda: first.ended and second.killed)
    assert not first.killed
    assert (await owner.ownership.instructions(second.lease, second.received)).moved


@on_stage
async def test_a_process_that_starts_after_its_tree_has_ended_is_sent_away(stage: Stage) -> None:
    owner, first, ids = await spawned(stage, "a", "b", cores=2)
    second = await owner.worker(1)
    for id in ids:
        await holding(stage, first, id)
        await first.complete(id)
    await holding(stage, first, owner.root_id, attempt=2)
    await first.complete(owner.root_id)
    assert await owner.end() == "ended"
    assert (await owner.ownership.instructions(second.lease, second.received)).moved


# ---------------------------------------------------------------- starts that fail, callers that have gone


@on_stage
async def test_a_process_that_has_begun_ends_the_row_of_failed_starts(stage: Stage) -> None:
    """Else four failures in days, beside processes that work, fail all that waits."""
    owner, _, ids = await spawned(stage, *"ab", resources=OWN)
    one = await owner.worker(1)
    for number in (2, 3):
        (await owner.worker(number)).die("process", "a moment without memory")
    one.connect()
    await stage.until(lambda: one.assignments)
    (await owner.worker(4)).die("process", "a moment without memory")
    await stage.until(lambda: len(owner.workers) > 5 or stage.baton(ids[1]).status is Status.FAILED)
    (await owner.worker(5)).die("process", "a moment without memory")
    again = (await owner.worker(6)).connect()
    await holding(stage, again, ids[1])


@on_stage
async def test_processes_that_fail_to_start_side_by_side_are_one_failure(stage: Stage) -> None:
    """Eight are started at once, and the node has no memory for a moment: that is no reason to fail all that waits."""
    owner, _, ids = await spawned(stage, *"abcdefgh", resources=OWN)
    await owner.worker(8)
    for worker in owner.workers[1:9]:
        worker.die("process", "a moment without memory")
    worker = (await owner.worker(9)).connect()
    await stage.until(lambda: worker.assignments)
    assert [stage.baton(id).error for id in ids] == [None] * 8


@on_stage
async def test_a_process_that_failed_to_start_is_not_tried_again_before_its_time_however_busy_the_tree_is(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, worker, ids = await spawned(stage, "a", "b")
    await holding(stage, worker, *ids)
    await worker.spawn(ids[0], "own process", resources=OWN)
    [grandchild] = children(ids[0], 1)
    monkeypatch.setattr(runs, "START_PAUSE_SECONDS", 60.0)
    (await owner.worker(1)).die("process", "a moment without memory")
    for step in range(5):
        await worker.checkpoint(ids[1], step)
    assert len(owner.workers) == 2, "the pause is not over"
    assert stage.baton(grandchild).status is Status.PENDING


@on_stage
async def test_a_call_for_instructions_whose_caller_has_gone_does_not_take_the_owner_down(stage: Stage) -> None:
    """Ray cancels the calls of a run that is killed; the loop would fail, and the owner's process with it."""
    owner = await stage.begun()
    worker = await owner.worker(0)
    call = asyncio.create_task(owner.ownership.instructions(worker.lease, 1))
    await asyncio.sleep(0)
    call.cancel()
    assert await worker.spawn(owner.root_id, "a", "b")
    told = await owner.ownership.instructions(worker.lease, 1)
    assert [wire["baton"]["goal"] for wire in told.assignments] == ["a", "b"]


@on_stage
async def test_a_call_for_instructions_is_answered_when_its_process_dies_or_asks_again(stage: Stage) -> None:
    """An actor has room for so many calls at once: one that is never answered holds its place until the owner ends."""
    owner = await stage.begun()
    worker = await owner.worker(0)
    first = stage.background(owner.ownership.instructions(worker.lease, 1))
    await asyncio.sleep(0)
    second = stage.background(owner.ownership.instructions(worker.lease, 1))
    await stage.until(first.done)
    worker.die()
    await stage.until(second.done)
    assert second.result().moved


@on_stage
async def test_a_process_that_is_about_to_be_killed_is_given_no_other_baton(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, _, ids = await spawned(stage, "a", "b", resources=OWN)
    one = await owner.worker(1)
    poll = stage.background(owner.ownership.instructions(one.lease, one.received))
    instructions = await poll
    one._follow(instructions)
    [mine] = one.assignments
    assert await owner.order(Cancel(0, mine, "out")) is None
    await stage.until(lambda: one.killed)
    assert owner.processes.killed == [one.run.id]
    assert {stage.baton(id).status for id in ids} == {Status.FAILED, Status.PENDING}
