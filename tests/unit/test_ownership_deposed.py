"""An owner that is deposed, knowing it or not: it writes nothing more, ends its runs, and sends everybody away."""

import asyncio

import pytest

from baton_actors.commands import Cancel
from baton_actors.errors import Moved
from baton_actors.events import EventType
from baton_actors.runtime.publication import Page
from tests.unit.owning import Fault, Owner, Stage, Worker, children, hibernating, on_stage


async def at_work(stage: Stage) -> tuple[Owner, Worker, list[str]]:
    """An owner with two children at work."""
    owner = await stage.begun()
    worker = (await owner.worker(0)).connect()
    await worker.spawn(owner.root_id, "a", "b")
    ids = children(owner.root_id, 2)
    await stage.until(lambda: set(ids) <= set(worker.assignments))
    return owner, worker, ids


@on_stage
async def test_a_deposed_owner_writes_nothing_more_and_lets_go(stage: Stage) -> None:
    """O2."""
    owner, worker, ids = await at_work(stage)
    stage.store.depose(owner.root_id)
    rows = stage.rows()
    assert not await worker.complete(ids[0]), "the run is told that its tree is not here any more"
    assert owner.released == ["moved"]
    assert stage.rows() == rows
    assert isinstance(await owner.order(Cancel(0, owner.root_id, "late")), Moved)
    assert not await worker.complete(ids[1])
    assert (await owner.ownership.instructions(worker.lease, worker.received)).moved
    await stage.until(lambda: worker.gone)
    assert (ids[1], 1) in worker.stops or worker.killed, "what has not reported is stopped"
    assert stage.rows() == rows


@on_stage
async def test_everybody_who_waits_at_a_deposed_owner_is_told(stage: Stage) -> None:
    owner, _worker, ids = await at_work(stage)
    publication = owner.ownership.publication
    events, final = stage.background(publication.after(publication.seq)), stage.background(publication.final())
    await asyncio.sleep(0)
    stage.store.depose(owner.root_id)
    orders = [stage.background(owner.order(Cancel(0, id, "late"))) for id in ids]
    assert [type(await each) for each in orders] == [Moved, Moved]
    assert (await events, (await final).state) == (Page(moved=True), "gone")
    assert (await publication.after(publication.seq), (await publication.final()).state) == (Page(moved=True), "gone")


@on_stage
async def test_runs_of_a_deposed_owner_are_killed_at_once(stage: Stage) -> None:
    """The next owner starts the same batons elsewhere."""
    owner = await stage.begun(cores=2)
    silent = await owner.worker(0)
    stage.store.depose(owner.root_id)
    assert isinstance(await owner.order(Cancel(0, owner.root_id, "late")), Moved)
    await stage.until(lambda: silent.killed)
    assert owner.released == ["moved"]


@on_stage
async def test_an_owner_deposed_while_it_waits_finds_out_when_it_gives_the_tree_back(stage: Stage) -> None:
    planned = stage.store.plan("commit", Fault.DEPOSED, hibernating)
    owner = await stage.begun(worker="human")
    assert await owner.end() == "moved"
    assert planned.times == 0
    assert stage.store.calls["commit"] == 1, "it does not try again"
    assert stage.store.tree(owner.root_id).owner == "another"


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
@on_stage
async def test_an_owner_deposed_while_a_commit_is_in_doubt_does_not_guess(stage: Stage, fault: Fault) -> None:
    """O3: it came through, or not; then another owner was lent the tree. Both are not ours any more."""
    owner, worker, ids = await at_work(stage)
    taking = stage.store.plan("take", Fault.DEPOSED)
    stage.store.plan("commit", fault)
    answer = await worker.complete(ids[0])
    assert not answer
    assert taking.times == 0
    assert owner.released == ["moved"]
    completed = stage.log(owner.root_id, EventType.COMPLETED)
    assert len(completed) == (1 if fault is Fault.AFTER else 0)
    assert len(owner.published) == len(stage.log(owner.root_id)) - len(completed), "the next owner's subscribers read the rest"


@on_stage
async def test_an_ending_that_came_through_in_doubt_and_was_reopened_elsewhere_is_not_an_end_here(stage: Stage) -> None:
    owner = await stage.begun()
    worker = (await owner.worker(0)).connect()
    stage.store.plan("take", Fault.DEPOSED)
    stage.store.plan("commit", Fault.AFTER)
    assert not await worker.complete(owner.root_id)
    assert owner.released == ["moved"]
    assert (await owner.ownership.publication.final()).state == "gone"


@on_stage
async def test_alarms_of_a_deposed_owner_do_not_ring(stage: Stage) -> None:
    owner = await stage.begun(max_retries=1)
    worker = (await owner.worker(0)).connect()
    await worker.report(worker.outcome("failed", owner.root_id, "later", "error", True, 0.02))
    stage.store.depose(owner.root_id)
    assert isinstance(await owner.order(Cancel(0, owner.root_id, "late")), Moved)
    rows, calls = stage.rows(), stage.store.calls["commit"]
    await asyncio.sleep(0.04)
    assert (stage.rows(), stage.store.calls["commit"]) == (rows, calls)


@on_stage
async def test_two_owners_of_one_tree_end_it_once(stage: Stage) -> None:
    """O1, O2: the first is stopped for a while, the second takes over and ends the tree, the first goes on."""
    first = await stage.begun()
    worker = (await first.worker(0)).connect()
    second = await stage.taken(first.root_id)
    again = (await second.worker(0)).connect()
    await stage.until(lambda: again.assignments)
    answers = await asyncio.gather(worker.complete(first.root_id, value="first"), again.complete(first.root_id, value="second"))
    assert answers == [False, True]
    assert (first.released, second.released) == (["moved"], ["ended"])
    assert stage.baton(first.root_id).result == "second"
    assert (stage.baton(first.root_id).attempt, stage.baton(first.root_id).losses) == (2, 0), "a loss of the owner counts nothing"


@on_stage
async def test_a_command_to_a_fallen_owner_is_never_lost_but_sent_on(stage: Stage) -> None:
    owner, worker, ids = await at_work(stage)
    planned = stage.store.plan("commit", Fault.DEPOSED, held=True)
    report = stage.background(worker.checkpoint(ids[0]))
    await stage.until(planned.reached.is_set)
    orders = [owner.ownership.order(Cancel(0, id, "in the queue meanwhile"), id) for id in ids]
    planned.go.set()
    assert not await report
    assert [type(await each) for each in orders] == [Moved, Moved]
    following = await stage.taken(owner.root_id, order=(Cancel(0, ids[0], "asked again"), ids[0]))
    assert stage.baton(ids[0]).error == "asked again"
    assert following.released == []
