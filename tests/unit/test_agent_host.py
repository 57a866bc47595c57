"""A worker process that runs agents: an agent of the test's own in the real one's place, and an owner that the test plays."""

import asyncio
import sys
import threading
import types
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError

from baton_actors.agent.host import Host
from baton_actors.baton import Child, Completed, Failed, HandedOver, Spawned
from baton_actors.commands import Checkpoint, Spending
from baton_actors.errors import Retry
from baton_actors.runtime import whispering, worker
from baton_actors.runtime.publication import Found
from baton_actors.runtime.wire import Instructions, command
from baton_actors.runtime.worker import WorkerRun
from tests.unit.owning import in_loop
from tests.unit.working import LEASE, PlayedOwner, assignment, baton

Agent = Callable[[Any], Awaitable[Any]]
AGENT_MODULE = "baton_actors.agent.run"


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> Callable[[Agent], None]:
    """Puts an agent into the real one's place."""

    def use(agent: Agent) -> None:
        module = types.ModuleType(AGENT_MODULE)
        module.run_agent = agent  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, AGENT_MODULE, module)

    return use


def task(number: int = 0, *, spoken: int = 0, **more: Any) -> dict[str, Any]:
    """What an agent is handed."""
    fields = {name: more.pop(name) for name in ("attempt", "goal") if name in more}
    return assignment(baton(number, "agent", **fields), **{"spoken": spoken, "room": 64, "learned": {}, "limited": False, **more})


def started(owner: PlayedOwner, *assignments: dict[str, Any], agent: dict[str, Any] | None = None) -> "asyncio.Task[None]":
    """A worker process at work."""
    return asyncio.create_task(WorkerRun(owner, LEASE, None, agent or {}).main(Instructions(1, list(assignments))))  # type: ignore[arg-type]


async def run_once(owner: PlayedOwner, *assignments: dict[str, Any], agent: dict[str, Any] | None = None) -> list[Any]:
    """The reports of a process that is told to end when it has done its work."""
    owner.give(end=True)
    await asyncio.wait_for(started(owner, *assignments, agent=agent), 10)
    return owner.reports


async def some_turns() -> None:
    """Let everything happen that waits for nothing from outside."""
    for _ in range(20):
        await asyncio.sleep(0)


# ---------------------------------------------------------------- what it sees


@in_loop
async def test_an_agent_sees_what_its_baton_knows(agents: Callable[[Agent], None]) -> None:
    seen: list[Any] = []

    async def agent(host: Host) -> Completed:
        seen.extend([host.baton.goal, host.children, host.breakdown, host.state, host.room, host.learned, host.agent, host.cancelled])
        return Completed("done")

    agents(agent)
    child = ("bt_9", "part", "completed", 7, None, None)
    given = task(breakdown=1, state={"at": 1}, children=[child], room=3, learned={"m": {"seconds": 2.0}})
    assert await run_once(PlayedOwner(), given, agent={"base_url": "x"}) == [("completed", "bt_0", 1, "done", False)]
    assert seen[1][0].result == 7
    assert [seen[0], *seen[2:]] == ["all", 1, {"at": 1}, 3, {"m": {"seconds": 2.0}}, {"base_url": "x"}, False]


@pytest.mark.parametrize(
    ("outcome", "report"),
    [
        (Completed("so far", partial=True), ("completed", "bt_0", 1, "so far", True)),
        (Failed("no", retryable=True), ("failed", "bt_0", 1, "no", "error", True, None)),
        (Spawned([Child("part")], state=[1]), ("spawned", "bt_0", 1, [{"goal": "part"}], [1], {})),
        (HandedOver(None), ("handed_over", "bt_0", 1, None)),
        (Completed(object()), None),
    ],
)
@in_loop
async def test_an_agents_outcome_is_reported_as_a_functions(
    agents: Callable[[Agent], None], outcome: Any, report: tuple[Any, ...] | None
) -> None:
    async def agent(host: Host) -> Any:
        return outcome

    agents(agent)
    [told] = await run_once(PlayedOwner(), task())
    assert told == report or (report is None and told[4] == "invalid_result")


@pytest.mark.parametrize(
    ("error", "words", "retryable"), [(ValueError("broken"), "ValueError: broken", False), (Retry("later"), "later", True)]
)
@in_loop
async def test_an_exception_out_of_the_agent_is_a_failure(
    agents: Callable[[Agent], None], error: Exception, words: str, retryable: bool
) -> None:
    async def agent(host: Host) -> Any:
        raise error

    agents(agent)
    [(kind, _, _, text, _, asks, _)] = await run_once(PlayedOwner(), task())
    assert (kind, text.splitlines()[0], asks) == ("failed", words, retryable)
    assert "runtime/agent_host.py" not in text


@in_loop
async def test_an_agent_that_cannot_be_imported_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, AGENT_MODULE, None)
    [report] = await run_once(PlayedOwner(), task())
    assert report[0] == "failed"
    assert "baton_actors.agent.run" in report[3]


@in_loop
async def test_importing_the_agent_does_not_hold_up_the_other_batons(
    agents: Callable[[Agent], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()

    class Slow(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            assert gate.wait(10)
            return agent

    async def agent(host: Host) -> Completed:
        return Completed("late")

    monkeypatch.setitem(sys.modules, AGENT_MODULE, Slow(AGENT_MODULE))
    quick = types.ModuleType("work")
    quick.run = lambda baton, ctx: "early"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "work", quick)
    owner = PlayedOwner()
    main = started(owner, task(0), assignment(baton(1)))
    await owner.reported(1)
    gate.set()
    owner.give(end=True)
    await asyncio.wait_for(main, 10)
    assert [report[3] for report in owner.reports] == ["early", "late"]


# ---------------------------------------------------------------- saving


@in_loop
async def test_saves_are_reported_in_order_before_the_outcome_each_at_its_place(agents: Callable[[Agent], None]) -> None:
    async def agent(host: Host) -> Completed:
        host.save(
            state=1,
            data={"kind": "round"},
            rows=[{"role": "user", "content": "é"}, {"role": "assistant"}],
            usage={"tokens_in": 3},
            rounds=1,
        )
        host.save(state=2, data={})
        host.save(state=3, data={}, rows=[{"n": 1}])
        return Completed()

    agents(agent)
    reports = await run_once(PlayedOwner(), task(spoken=5))
    assert [command(report, 7, 0.0) for report in reports[:3]] == [
        Checkpoint(
            7, "bt_0", 1, 1, {"kind": "round"}, Spending({"tokens_in": 3}, 1), 5, ('{"role":"user","content":"é"}', '{"role":"assistant"}')
        ),
        Checkpoint(7, "bt_0", 1, 2, {}, Spending({}, 0), 7, ()),
        Checkpoint(7, "bt_0", 1, 3, {}, Spending({}, 0), 8, ('{"n":1}',)),
    ]
    assert reports[3][0] == "completed"


@in_loop
async def test_a_save_is_awaited_until_the_owner_has_acknowledged_it(agents: Callable[[Agent], None]) -> None:
    steps: list[str] = []

    async def agent(host: Host) -> Completed:
        first = host.save(state=1, data={})
        host.save(state=2, data={})
        steps.append("saved")
        await first
        steps.append("durable")
        await host.save(state=3, data={})
        return Completed("done")

    agents(agent)
    owner = PlayedOwner()
    owner.gate = asyncio.Event()
    main = started(owner, task())
    while not steps:
        await asyncio.sleep(0.001)
    await some_turns()
    assert (steps, owner.reports) == (["saved"], [])
    owner.gate.set()
    owner.give(end=True)
    await asyncio.wait_for(main, 10)
    assert steps == ["saved", "durable"]
    assert [report[0] for report in owner.reports] == ["checkpoint"] * 3 + ["completed"]


@in_loop
async def test_each_of_many_agents_waits_for_its_own_save(agents: Callable[[Agent], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "REPORTS_A_CALL", 3)
    durable: list[str] = []
    owner = PlayedOwner()

    async def agent(host: Host) -> Completed:
        for step in range(4):
            await host.save(state=step, data={})
            assert ("checkpoint", host.baton.id, 1, step) in [report[:4] for report in owner.reports]
        durable.append(host.baton.id)
        return Completed()

    agents(agent)
    await run_once(owner, *(task(number) for number in range(20)))
    assert sorted(durable) == sorted(f"bt_{number}" for number in range(20))


@pytest.mark.parametrize(
    ("saved", "path"),
    [
        ({"state": {1, 2}, "data": {}}, "state"),
        ({"state": 1, "data": {"a": b"x"}}, "data.a"),
        ({"state": 1, "data": {}, "rows": [{}, {"content": "\x00"}]}, r"rows[1].content"),
        ({"state": 1, "data": {}, "usage": {"cost": float("nan")}}, "usage.cost"),
    ],
)
@in_loop
async def test_a_save_that_is_not_json_fails_with_its_path_and_takes_no_place(
    agents: Callable[[Agent], None], saved: dict[str, Any], path: str
) -> None:
    """D1."""

    async def agent(host: Host) -> Completed:
        try:
            host.save(**saved)
        except Exception as error:
            host.save(state=None, data={})
            return Completed(str(error))
        return Completed("accepted")

    agents(agent)
    save, outcome = await run_once(PlayedOwner(), task(spoken=4))
    assert outcome[3].startswith(f"{path}: ")
    assert save[5] == 4


# ---------------------------------------------------------------- its ends


@in_loop
async def test_a_cancelled_agent_stops_where_it_waits_and_reports_nothing(agents: Callable[[Agent], None]) -> None:
    """C1."""
    story: list[Any] = []

    async def agent(host: Host) -> Completed:
        story.append(host.cancelled)
        try:
            await asyncio.sleep(60)
        finally:
            story.append(host.cancelled)
            host.whisper("model", "after the end")
        return Completed()

    agents(agent)
    owner = PlayedOwner()
    main = started(owner, task())
    while not story:
        await asyncio.sleep(0.001)
    owner.give(stops=[("bt_0", 1)])
    owner.give(end=True)
    await asyncio.wait_for(main, 10)
    assert (story, owner.reports, owner.heard) == ([False, True], [], [])


@pytest.mark.parametrize("waits_for", ["save", "conversation", "read_result"])
@in_loop
async def test_an_agent_that_waits_for_an_owner_that_has_moved_is_stopped_and_nothing_hangs(
    agents: Callable[[Agent], None], waits_for: str
) -> None:
    waiting, after = asyncio.Event(), []

    async def agent(host: Host) -> Completed:
        waiting.set()
        if waits_for == "save":
            await host.save(state=1, data={})
        elif waits_for == "conversation":
            await host.conversation()
        else:
            await host.read_result("bt_9", 0, 10)
        after.append("went on")
        return Completed()

    agents(agent)
    owner = PlayedOwner()
    owner.accepts = False
    owner.answers = {"conversation": Found("gone"), "read_result": Found("gone")}
    main = started(owner, task(spoken=1))
    await asyncio.wait_for(waiting.wait(), 10)
    await some_turns()
    owner.give(moved=True)
    await asyncio.wait_for(main, 10)
    assert after == []


@in_loop
async def test_a_later_attempt_goes_on_from_the_conversation_of_an_earlier_one(agents: Callable[[Agent], None]) -> None:
    async def agent(host: Host) -> Any:
        rows = await host.conversation()
        host.save(state=len(rows), data={}, rows=[{"n": len(rows)}])
        return Completed(rows) if rows else HandedOver()

    agents(agent)
    owner = PlayedOwner()
    owner.answers["conversation"] = Found("here", [{"n": 0}])
    main = started(owner, task())
    await owner.reported(2)
    assert owner.questions == [], "nothing was saved before"
    owner.give(task(attempt=2, spoken=1))
    owner.give(end=True)
    await asyncio.wait_for(main, 10)
    assert owner.questions == [("conversation", "bt_0")]
    assert owner.reports[1:] == [
        ("handed_over", "bt_0", 1, None),
        ("checkpoint", "bt_0", 2, 1, {}, 1, ('{"n":1}',), {}, 0),
        ("completed", "bt_0", 2, [{"n": 0}], False),
    ]


# ---------------------------------------------------------------- what it asks


@in_loop
async def test_what_an_agent_asks_is_asked_until_the_owner_answers(
    agents: Callable[[Agent], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "RESEND_SECONDS", 0.001)

    async def agent(host: Host) -> Completed:
        owner.faults = [ActorUnavailableError("the node is away", None)]
        part = await host.read_result("bt_9", 3, 5)
        owner.answers["read_result"] = Found("here", None)
        return Completed([list(part or ()), await host.read_result("bt_8", 0, 5)])

    agents(agent)
    owner = PlayedOwner()
    owner.answers["read_result"] = Found("here", ("parts", 99))
    [report] = await run_once(owner, task())
    assert report[3] == [["parts", 99], None]
    assert owner.questions == [("read_result", "bt_9", 3, 5), ("read_result", "bt_8", 0, 5)]


@in_loop
async def test_an_agent_finds_the_functions_of_its_tree(agents: Callable[[Agent], None], monkeypatch: pytest.MonkeyPatch) -> None:
    tools = types.ModuleType("tools")
    tools.double = lambda number: 2 * number  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tools", tools)

    async def agent(host: Host) -> Completed:
        return Completed(host.function("tools:double")(21))

    agents(agent)
    [report] = await run_once(PlayedOwner(), task())
    assert report[3] == 42


@in_loop
async def test_an_agent_is_given_the_address_of_its_nodes_model(agents: Callable[[Agent], None], monkeypatch: pytest.MonkeyPatch) -> None:
    local = types.ModuleType("baton_actors.runtime.local_model")

    async def local_base_url() -> str:
        return "http://127.0.0.1:9/v1"

    local.local_base_url = local_base_url  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "baton_actors.runtime.local_model", local)

    async def agent(host: Host) -> Completed:
        return Completed(await host.local_base_url())

    agents(agent)
    [report] = await run_once(PlayedOwner(), task())
    assert report[3] == "http://127.0.0.1:9/v1"


# ---------------------------------------------------------------- whispers


@in_loop
async def test_whispers_reach_the_owner_and_those_that_are_lost_are_missed_by_nobody(agents: Callable[[Agent], None]) -> None:
    async def agent(host: Host) -> Completed:
        host.whisper("model", "round 1")
        while not owner.heard and not lost:
            await asyncio.sleep(0.001)
        return Completed("done")

    agents(agent)
    owner, lost = PlayedOwner(), []  # type: ignore[var-annotated]
    assert (await run_once(owner, task()))[0][3] == "done"
    assert owner.heard == [("bt_0", 1, "model", "round 1")]

    class Deaf(PlayedOwner):
        async def _whisper(self, *_: Any) -> None:
            lost.append(True)
            raise ActorDiedError

    owner = Deaf()
    assert (await run_once(owner, task()))[0][3] == "done"


@in_loop
async def test_an_agent_that_has_ended_is_not_said_to_live(agents: Callable[[Agent], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whispering, "ALIVE_SECONDS", 0.002)
    monkeypatch.setattr(whispering, "SEND_SECONDS", 0.001)
    go = asyncio.Event()

    async def agent(host: Host) -> Completed:
        host.whisper("model", "and never idle")
        if host.baton.id == "bt_1":
            await go.wait()
        return Completed()

    agents(agent)
    owner = PlayedOwner()
    main = started(owner, task(0), task(1))
    await owner.reported(1)
    async with asyncio.timeout(10):
        owner.heard.clear()
        while len(alive := [whisper[0] for whisper in owner.heard if whisper[2] == "alive"]) < 5:
            await asyncio.sleep(0.001)
    assert set(alive[1:]) == {"bt_1"}
    go.set()
    owner.give(end=True)
    await asyncio.wait_for(main, 10)


@in_loop
async def test_a_process_without_agents_whispers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = types.ModuleType("work")
    quick.run = lambda baton, ctx: 1  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "work", quick)
    monkeypatch.setattr(worker, "Whisperer", None)
    assert len(await run_once(PlayedOwner(), *(assignment(baton(number)) for number in range(5)))) == 5


@in_loop
async def test_awaited_saves_leave_nothing_behind(agents: Callable[[Agent], None]) -> None:
    async def agent(host: Host) -> Completed:
        for step in range(50):
            await host.save(state=step, data={})
        return Completed()

    agents(agent)
    owner = PlayedOwner()
    run = WorkerRun(owner, LEASE, None, {})  # type: ignore[arg-type]
    owner.give(end=True)
    await asyncio.wait_for(run.main(Instructions(1, [task()])), 10)
    assert (len(run._awaited), run._reported, run._acknowledged) == (0, 51, 51)
