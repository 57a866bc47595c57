"""What an owner does for agents: it keeps what they save, once; hands it out again; hears that they live, and tells who listens."""

import asyncio
from typing import Any

import pytest

from baton_actors.baton import Budget, Status
from baton_actors.commands import Cancel, Retry
from baton_actors.events import EventType, Whisper
from baton_actors.runtime.wire import Lease
from tests.unit.owning import PASSING, Fault, Owner, Stage, Worker, children, on_stage

SPENT = {"tokens_in": 10.0, "tokens_out": 2.0, "cost": 0.25}
everywhere = pytest.mark.parametrize("fault", PASSING)


async def agent(stage: Stage, **given: Any) -> tuple[Owner, Worker]:
    """An owner whose root is an agent's, and the process that was handed it."""
    owner = await stage.begun(worker="agent", **given)
    worker = (await owner.worker(0)).connect()
    return owner, worker


async def handed(stage: Stage, worker: Worker, id: str, attempt: int) -> dict[str, Any]:
    """What a process is handed as that attempt of a baton."""
    await stage.until(lambda: id in worker.assignments and worker.assignments[id]["baton"]["attempt"] == attempt)
    return worker.assignments[id]


def said(stage: Stage, id: str) -> list[str]:
    """The words of a stored conversation."""
    return [row["content"] for row in stage.store.conversation(id)]


# ---------------------------------------------------------------- saving


@on_stage
async def test_what_an_agent_saves_is_stored_with_what_it_spent_before_it_is_acknowledged(stage: Stage) -> None:
    owner, worker = await agent(stage)
    assert await worker.report(worker.saved(owner.root_id, 0, "hello", "hi", usage=SPENT, rounds=1, kind="round", round=1))
    assert said(stage, owner.root_id) == ["hello", "hi"]
    stored = stage.baton(owner.root_id)
    assert (stored.usage, stored.rounds) == (SPENT, 1)
    assert [event.data for event in stage.log(owner.root_id, EventType.PROGRESS)] == [{"kind": "round", "round": 1}]
    assert await owner.ownership.conversation(owner.root_id) == [{"content": "hello"}, {"content": "hi"}]


@on_stage
async def test_saves_of_several_agents_in_one_call_are_one_commit(stage: Stage) -> None:
    owner = await stage.begun()
    worker = (await owner.worker(0)).connect()
    await worker.spawn(owner.root_id, "a", "b", worker="agent")
    one, two = children(owner.root_id, 2)
    await handed(stage, worker, two, 1)
    commits = stage.store.commits
    assert await worker.report(worker.saved(one, 0, "1"), worker.saved(two, 0, "2"), worker.saved(one, 1), worker.saved(one, 2, "3"))
    assert stage.store.commits == commits + 1
    assert (said(stage, one), said(stage, two)) == (["1", "3"], ["2"])


@pytest.mark.parametrize("rows", [("more", "and more"), ()])
@everywhere
@on_stage
async def test_a_save_in_doubt_is_stored_once_and_paid_once(stage: Stage, fault: Fault, rows: tuple[str, ...]) -> None:
    """O3."""
    owner, worker = await agent(stage)
    assert await worker.report(worker.saved(owner.root_id, 0, "first"))
    stage.store.plan("commit", fault)
    assert await worker.report(worker.saved(owner.root_id, 1, *rows, usage=SPENT, rounds=1))
    assert await worker.report(worker.saved(owner.root_id, 1 + max(1, len(rows)), "last", usage=SPENT, rounds=1))
    assert said(stage, owner.root_id) == ["first", *rows, "last"]
    stored = stage.baton(owner.root_id)
    assert (stored.usage, stored.rounds) == ({key: 2 * amount for key, amount in SPENT.items()}, 2)
    assert len(stage.log(owner.root_id, EventType.PROGRESS)) == 3
    assert await worker.complete(owner.root_id)
    assert await owner.end() == "ended"


@on_stage
async def test_many_saves_are_stored_once_when_every_second_commit_is_in_doubt(stage: Stage) -> None:
    owner, worker = await agent(stage)
    calls = [0]

    def every_second(_: object) -> bool:
        calls[0] += 1
        return calls[0] % 2 == 1

    stage.store.plan("commit", Fault.AFTER, every_second, times=100)
    saves = [stage.background(worker.report(worker.saved(owner.root_id, place, str(place), rounds=1))) for place in range(12)]
    assert [await save for save in saves] == [True] * 12
    assert said(stage, owner.root_id) == [str(place) for place in range(12)]
    assert stage.baton(owner.root_id).rounds == 12


@on_stage
async def test_a_save_of_a_cancelled_agent_is_acknowledged_and_not_stored(stage: Stage) -> None:
    """C3."""
    owner = await stage.begun()
    worker = (await owner.worker(0)).connect()
    await worker.spawn(owner.root_id, "a", "b", worker="agent")
    one, _ = children(owner.root_id, 2)
    await handed(stage, worker, one, 1)
    assert await owner.order(Cancel(0, one, "enough")) is None
    assert await worker.report(worker.saved(one, 0, "late", usage=SPENT))
    assert (said(stage, one), stage.baton(one).usage) == ([], {})


# ---------------------------------------------------------------- what is handed out


@on_stage
async def test_an_agent_that_goes_on_is_told_where_its_conversation_stands(stage: Stage) -> None:
    owner, worker = await agent(stage, budget=Budget(batons=8))
    first = worker.assignments[owner.root_id]
    assert (first["spoken"], first["room"], first["learned"]) == (0, 7, {})
    await worker.report(worker.saved(owner.root_id, 0, "a", "b", kind="round", model="m", seconds=2.5))
    await worker.report(worker.outcome("handed_over", owner.root_id, None))
    again = await handed(stage, worker, owner.root_id, 2)
    assert (again["spoken"], again["learned"], again["state"]) == (2, {"m": {"seconds": 2.5}}, {"at": 0})


@on_stage
async def test_a_function_is_handed_nothing_of_it(stage: Stage) -> None:
    owner = await stage.begun()
    assert set((await owner.worker(0)).assignments[owner.root_id]) == {"baton"}


@on_stage
async def test_what_one_agent_learned_is_handed_to_the_next_and_forgotten_by_the_next_owner(stage: Stage) -> None:
    owner, worker = await agent(stage)
    await worker.report(worker.saved(owner.root_id, 0, kind="dialect", model="m", dialect="actions"))
    await worker.spawn(owner.root_id, "part")
    (child,) = children(owner.root_id, 1)
    assert (await handed(stage, worker, child, 1))["learned"] == {"m": {"dialect": "actions"}}
    following = await stage.taken(owner.root_id)
    assert (await handed(stage, await following.worker(0), child, 2))["learned"] == {}


@on_stage
async def test_a_conversation_and_the_settings_of_agents_survive_a_takeover_a_crash_and_a_retry(stage: Stage) -> None:
    settings = {"base_url": "http://127.0.0.1:1/v1", "tools": ["a"]}
    owner, worker = await agent(stage, agent=settings)
    assert owner.processes.agent == settings
    await worker.report(worker.saved(owner.root_id, 0, "a", usage=SPENT, rounds=1))
    following = await stage.taken(owner.root_id)
    assert following.processes.agent == settings
    second = (await following.worker(0)).connect()
    assert (await handed(stage, second, owner.root_id, 2))["spoken"] == 1
    await second.report(second.saved(owner.root_id, 1, "b", usage=SPENT, rounds=1))
    second.die()
    third = (await following.worker(1)).connect()
    assert (await handed(stage, third, owner.root_id, 3))["spoken"] == 2
    await third.fail(owner.root_id)
    last = await stage.taken(owner.root_id, "C", order=(Retry(0, owner.root_id), "again"))
    fourth = (await last.worker(0)).connect()
    assert (await handed(stage, fourth, owner.root_id, 4))["spoken"] == 2
    await fourth.report(fourth.saved(owner.root_id, 2, "c"))
    assert said(stage, owner.root_id) == ["a", "b", "c"]
    assert stage.baton(owner.root_id).rounds == 2


# ---------------------------------------------------------------- results


@on_stage
async def test_results_of_ended_batons_of_the_tree_are_read_in_parts(stage: Stage) -> None:
    owner = await stage.begun()
    worker = (await owner.worker(0)).connect()
    await worker.spawn(owner.root_id, "a", "b", "c")
    done, broken, open_ = children(owner.root_id, 3)
    await handed(stage, worker, open_, 1)
    await worker.complete(done, value={"digits": "0123456789"})
    await worker.fail(broken, "it broke")
    read = owner.ownership.read_result
    assert await read(done, 11, 4) == ("0123", 23)
    assert await read(broken, 0, 100) == ("it broke", 8)
    assert [await read(id, 0, 100) for id in (open_, owner.root_id, "bt_unknown")] == [None] * 3


# ---------------------------------------------------------------- whispers


@on_stage
async def test_whispers_of_attempts_in_flight_are_told_to_who_listens(stage: Stage) -> None:
    owner, worker = await agent(stage)
    root = owner.root_id
    poll = stage.background(owner.ownership.publication.after(owner.ownership.publication.seq, 0))
    others = [(root, 2, "model", "of another attempt"), ("bt_unknown", 1, "model", ""), (root, 1, "alive", "")]
    owner.ownership.whisper(worker.lease, [*others, (root, 1, "model", "round 1")])
    assert (await poll).beside == (Whisper(root, 1, "model", "round 1"),)


@pytest.mark.parametrize("kind", ["alive", "model", "text", "idle"])
@on_stage
async def test_a_whisper_is_a_sign_of_life_of_its_attempt_only(stage: Stage, kind: str) -> None:
    """A7."""
    owner = await stage.begun()
    worker = (await owner.worker(0)).connect()
    await worker.spawn(owner.root_id, "a", "b", worker="agent")
    one, two = children(owner.root_id, 2)
    await handed(stage, worker, two, 1)
    flights = worker.run.in_flight
    flights[one].since = flights[two].since = 0.0
    owner.ownership.whisper(worker.lease, [(one, 1, kind, ""), (two, 7, kind, "")])
    now = asyncio.get_running_loop().time()
    assert flights[one].since is not None
    assert now - flights[one].since < 10
    assert flights[two].since == 0.0


@on_stage
async def test_an_agent_that_waits_for_its_model_is_not_stuck_and_a_stopped_process_is(stage: Stage) -> None:
    owner, worker = await agent(stage)
    flight = worker.run.in_flight[owner.root_id]
    for _ in range(5):
        flight.since = asyncio.get_running_loop().time() - flight.patience + 0.02
        owner.ownership.whisper(worker.lease, [(owner.root_id, 1, "alive", "")])
        owner.ownership._runs._lose_stuck()
    await stage.settled(owner)
    assert stage.baton(owner.root_id).attempt == 1
    flight.since = asyncio.get_running_loop().time() - flight.patience
    owner.ownership._runs._lose_stuck()
    second = await owner.worker(1)
    second.connect()
    await handed(stage, second, owner.root_id, 2)
    [lost] = stage.log(owner.root_id, EventType.RETRYING)
    assert lost.data["cause"] == "stuck"
    owner.ownership.whisper(worker.lease, [(owner.root_id, 1, "model", "a ghost")])
    assert (await owner.ownership.publication.after(0, 0)).beside == ()


@on_stage
async def test_whispers_of_another_life_and_of_a_tree_that_is_gone_are_dropped(stage: Stage) -> None:
    owner, worker = await agent(stage)
    owner.ownership.whisper(Lease(owner.root_id, 1, 99), [(owner.root_id, 1, "model", "")])
    await worker.complete(owner.root_id)
    assert await owner.end() == "ended"
    owner.ownership.whisper(worker.lease, [(owner.root_id, 1, "model", "")])
    assert owner.ownership.publication._heard.after(0) == ((), 0)


@on_stage
async def test_what_a_baton_was_doing_is_over_when_it_has_ended(stage: Stage) -> None:
    owner = await stage.begun()
    worker = (await owner.worker(0)).connect()
    await worker.spawn(owner.root_id, "a", "b", worker="agent")
    ids = children(owner.root_id, 2)
    await handed(stage, worker, ids[1], 1)
    owner.ownership.whisper(worker.lease, [(id, 1, "model", id) for id in ids])
    await worker.complete(ids[0])
    assert [whisper.text for whisper in (await owner.ownership.publication.after(0, 0)).beside] == [ids[1]]
    assert stage.baton(ids[0]).status is Status.COMPLETED
