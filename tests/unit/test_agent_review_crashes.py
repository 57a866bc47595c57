"""Runs of agents that die between any two saves: the tree ends as if nothing had happened, and no saved step is done again."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import stamina

from baton_actors.agent.memory import Memory
from baton_actors.agent.rounds import AgentRun
from baton_actors.agent.run import tools_of
from baton_actors.baton import Baton, HandedOver, Outcome
from baton_actors.jsonable import checked
from baton_actors.testing import ScriptedModel, Step, calls, fails, says
from tests.unit.agents import KEY, Crash, Record, Stage, StageHost


@pytest.fixture(autouse=True)
def without_pauses() -> Any:
    with stamina.set_testing(True, attempts=5):
        yield


class DyingHost(StageHost):
    """A run whose process may die right after any save is durable; what it saves must be JSON, as for the real host."""

    def save(
        self,
        *,
        state: Any,
        data: dict[str, Any],
        rows: Sequence[dict[str, Any]] = (),
        usage: dict[str, float] | None = None,
        rounds: int = 0,
    ) -> Awaitable[None]:
        for value, name in ((state, "state"), (data, "data"), (list(rows), "rows"), (usage or {}, "usage")):
            checked(value, name)
        saved = super().save(state=state, data=data, rows=rows, usage=usage, rounds=rounds)
        self._stage.step()  # type: ignore[attr-defined]  # of the stage below
        return saved


class DyingStage(Stage):
    """A stage on which the process dies once, at one of the places where it can: after a save, or before an outcome is told."""

    def __init__(self, model: Any, *, dies_at: int | None = None, **more: Any) -> None:
        super().__init__(model, **more)
        self.steps = 0
        self._dies_at = dies_at

    def step(self) -> None:
        self.steps += 1
        if self.steps == self._dies_at:
            raise Crash

    async def _one_run(self, record: Record) -> Outcome:
        host = DyingHost(self, record)
        memory = Memory(await host.conversation(), host.state, record.baton.generation)
        tools = tools_of(host, self.access, self.profile)
        run = AgentRun(host, self.model, "scripted", KEY, access=self.access, profile=self.profile, memory=memory, catalogue=tools)
        try:
            outcome = await run.outcome()
        except BaseExceptionGroup as group:
            if group.split(Crash)[0] is not None:
                raise Crash from None
            raise
        if not isinstance(outcome, HandedOver):
            self.step()
        return outcome


# ---------------------------------------------------------------- stories: models whose reply depends on nothing but the request


def said(body: dict[str, Any]) -> int:
    """How many rounds the conversation has seen."""
    return sum(message["role"] == "assistant" for message in body["messages"])


def in_turn(*steps: Step) -> Callable[[dict[str, Any]], Step]:
    return lambda body: steps[min(said(body), len(steps) - 1)]


def judges(body: dict[str, Any]) -> bool:
    return "response_format" in body and "subtasks" in json.dumps(body["response_format"]) and "action" not in json.dumps(body["response_format"])


PLAN = says(json.dumps({"reason": "two", "fits": False, "rounds": 9, "subtasks": [{"goal": "go east"}, {"goal": "go west"}]}))
TWO_TOOLS = calls(("act", {"at": "x"}), ("act", {"at": "y"}))


def tools_and_a_text(model: ScriptedModel) -> dict[str, Any]:
    model.always(in_turn(TWO_TOOLS, calls(("act", {"at": "z"})), says("done")))
    return {"breakdown": "never"}


def rounds_that_run_out(model: ScriptedModel) -> dict[str, Any]:
    model.always(lambda body: calls(("act", {"at": str(said(body))})) if "tools" in body else says("so far"))
    return {"breakdown": "never", "max_rounds": 2}


def children_beside_a_tool(model: ScriptedModel) -> dict[str, Any]:
    model.on("part a").always(in_turn(calls(("act", {"at": "a"})), says("A")))
    model.on("part b").always(fails(400, "no such luck"))
    spawns = [("spawn_task", {"goal": "part a"}), ("act", {"at": "x"}), ("spawn_task", {"goal": "part b"}), ("spawn_task", {"goal": "The whole"})]
    model.on("The whole").always(in_turn(calls(*spawns), calls(("spawn_task", {"goal": "part a again"})), says("all")))
    return {"breakdown": "estimate"}


def a_judgement(model: ScriptedModel) -> dict[str, Any]:
    model.on(judges).always(PLAN)
    model.on("go east").always(in_turn(TWO_TOOLS, says("sand")))
    model.on("go west").always(says("sea"))
    model.on("The whole").always(in_turn(calls(("act", {"at": "q"})), says("sand and sea")))
    return {}


def tried_first(model: ScriptedModel) -> dict[str, Any]:
    model.on(judges).always(PLAN)
    model.on("go").always(says("gone"))

    def whole(body: dict[str, Any]) -> Step:
        return says("sand and sea") if "These are" in str(body) or "results of its parts" in str(body) else calls(("act", {"at": str(said(body))}))

    model.on("The whole").always(whole)
    return {"breakdown": "as_needed", "max_rounds": 2}


def a_server_that_turns_out_to_know_no_tools(model: ScriptedModel) -> dict[str, Any]:
    acts = [{"action": "tool", "name": "act", "arguments": {"at": "x"}}, {"action": "spawn", "subtasks": [{"goal": "go"}]}]

    def reply(body: dict[str, Any]) -> Step:
        if "tools" in body:
            return fails(400, "tools are not supported")
        if "go" == body["messages"][1]["content"]:
            return says('{"action": "final", "answer": "gone"}')
        return says(json.dumps(acts[said(body)] if said(body) < 2 else {"action": "final", "answer": "done"}))

    model.always(reply)
    return {"breakdown": "estimate"}


def a_call_that_is_written_as_text(model: ScriptedModel) -> dict[str, Any]:
    def reply(body: dict[str, Any]) -> Step:
        if "tools" in body:
            return TWO_TOOLS if said(body) == 0 else says('{"name": "act", "arguments": {"at": "z"}}')
        return says('{"action": "final", "answer": "done"}')

    model.always(reply)
    return {"breakdown": "never"}


def a_conversation_that_gets_too_long(model: ScriptedModel) -> dict[str, Any]:
    told = {"error": {"message": "maximum context length is 8192 tokens", "code": "context_length_exceeded"}}

    def reply(body: dict[str, Any]) -> Step:
        if len(json.dumps(body["messages"])) > 9_000:
            return fails(400, told)
        return calls(("act", {"at": "x" * 4_000 + str(said(body))})) if said(body) < 3 else says("done")

    model.always(reply)
    return {"breakdown": "never"}


def an_endless_repetition(model: ScriptedModel) -> dict[str, Any]:
    model.always(lambda body: calls(("act", {"at": "x"})) if "tools" in body else says("enough"))
    return {"breakdown": "never", "max_rounds": 50}


STORIES = [
    tools_and_a_text,
    rounds_that_run_out,
    children_beside_a_tool,
    a_judgement,
    tried_first,
    a_server_that_turns_out_to_know_no_tools,
    a_call_that_is_written_as_text,
    a_conversation_that_gets_too_long,
    an_endless_repetition,
]


def played(story: Callable[[ScriptedModel], dict[str, Any]], **more: Any) -> tuple[DyingStage, Baton, ScriptedModel, Counter[str]]:
    ran: Counter[str] = Counter()

    async def act(at: str) -> str:
        """Act on the world."""
        ran[at] += 1
        return f"acted {at}"

    model = ScriptedModel()
    fields = story(model)
    stage = DyingStage(model, dies_at=more.pop("dies_at", None))
    root = stage.run("The whole", tools=[act], **{**fields, **more})
    return stage, root, model, ran


def ends(stage: Stage) -> dict[str, Any]:
    """What became of each baton, and what its conversation came to."""
    told = {}
    for record in stage.records.values():
        b = record.baton
        memory = Memory(record.rows, record.state, b.generation)
        messages = sorted(json.dumps(message, sort_keys=True) for message in memory.messages)
        told[b.id] = (b.goal, b.status, b.result, b.partial, b.error, b.children, record.breakdown, messages)
    return told


@pytest.mark.parametrize("story", STORIES)
def test_a_run_that_dies_after_any_save_ends_as_if_it_had_not(story: Callable[[ScriptedModel], dict[str, Any]]) -> None:
    whole, _, first, ran = played(story)
    assert first.refused == []
    faults = []
    for place in range(1, whole.steps + 1):
        stage, _, model, again = played(story, dies_at=place)
        assert model.refused == []
        if ends(stage) != ends(whole):
            faults.append((place, "ends", {k: (v, ends(whole).get(k)) for k, v in ends(stage).items() if v != ends(whole).get(k)}))
        if any(again[at] > ran[at] + 1 for at in again) or sum(again.values()) > sum(ran.values()) + 2:
            faults.append((place, "ran", again, ran))
    assert not faults, faults


@pytest.mark.parametrize("story", STORIES)
def test_a_window_for_one_round_only_ends_as_one_for_all(story: Callable[[ScriptedModel], dict[str, Any]]) -> None:
    whole, _, _, ran = played(story)
    narrow, _, model, again = played(story, timeout_hint=0.000_001)
    assert model.refused == []
    if story not in (children_beside_a_tool, a_judgement, a_server_that_turns_out_to_know_no_tools):
        assert any(isinstance(outcome, HandedOver) for _, outcome in narrow.outcomes)
    assert (ends(narrow), again) == (ends(whole), ran)
