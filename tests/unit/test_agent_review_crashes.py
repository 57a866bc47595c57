"""Runs of agents that die between any two saves: the tree ends as if nothing had happened, and no saved step is done again."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from baton_actors.agent.memory import Memory
from baton_actors.baton import Baton, HandedOver, Outcome, Spawned, Status
from baton_actors.events import Event, EventType
from baton_actors.jsonable import checked
from baton_actors.runtime.learning import Experience
from baton_actors.testing import ScriptedModel, Step, calls, fails, says
from tests.unit.agents import Crash, Record, Stage, StageHost

pytestmark = pytest.mark.usefixtures("without_pauses")


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
        self._stage.saved(data)  # type: ignore[attr-defined]  # of the stage below
        return saved


class DyingStage(Stage):
    """A stage on which the process dies once, at one of the places where it can: after a save, or before an outcome is told."""

    def __init__(self, model: Any, *, dies_at: int | None = None, **more: Any) -> None:
        super().__init__(model, **more)
        self.steps = 0
        self._dies_at = dies_at
        self._experience = Experience()

    def saved(self, data: dict[str, Any]) -> None:
        """A save is durable: the tree learns from it, and the process may die."""
        self._experience.learn([Event(1, EventType.PROGRESS, 0, "", "", None, 0, 1, data)])
        self.learned = {model: {k: v for k, v in facts.items() if k != "seconds"} for model, facts in self._experience.known().items()}
        self.step()

    def step(self) -> None:
        self.steps += 1
        if self.steps == self._dies_at:
            raise Crash

    def host_of(self, record: Record) -> StageHost:
        return DyingHost(self, record)

    async def _one_run(self, record: Record) -> Outcome:
        outcome = await super()._one_run(record)
        if not isinstance(outcome, HandedOver):
            self.step()
        return outcome


class FailingOnce(ScriptedModel):
    """A model that answers one of its requests with an error that is final."""

    def __init__(self, fails_at: int | None) -> None:
        super().__init__()
        self._fails_at = fails_at

    def step_for(self, body: dict[str, Any]) -> Step:
        if len(self.requests) + 1 == self._fails_at:
            self.requests.append(body)
            return fails(400, "not now")
        return super().step_for(body)


# ---------------------------------------------------------------- stories: models whose reply depends on nothing but the request


def said(body: dict[str, Any]) -> int:
    """How many rounds the conversation has seen."""
    return sum(message["role"] == "assistant" for message in body["messages"])


def in_turn(*steps: Step) -> Callable[[dict[str, Any]], Step]:
    return lambda body: steps[min(said(body), len(steps) - 1)]


def judges(body: dict[str, Any]) -> bool:
    schema = json.dumps(body.get("response_format", ""))
    return "subtasks" in schema and "action" not in schema


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
    parts = [("spawn_task", {"goal": goal}) for goal in ("part a", "part b", "The whole")]  # the last one is refused
    again = calls(("spawn_task", {"goal": "part a again"}))
    model.on("The whole").always(in_turn(calls(("act", {"at": "x"}), *parts), again, says("all")))
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
        return says("sand and sea") if "results of its parts" in str(body) else calls(("act", {"at": str(said(body))}))

    model.on("The whole").always(whole)
    return {"breakdown": "as_needed", "max_rounds": 2}


def a_server_that_turns_out_to_know_no_tools(model: ScriptedModel) -> dict[str, Any]:
    acts = [{"action": "tool", "name": "act", "arguments": {"at": "x"}}, {"action": "spawn", "subtasks": [{"goal": "go"}]}]

    def reply(body: dict[str, Any]) -> Step:
        if "tools" in body:
            return fails(400, "tools are not supported")
        if body["messages"][1]["content"] == "go":
            return says('{"action": "final", "answer": "gone"}')
        return says(json.dumps(acts[said(body)] if said(body) < 2 else {"action": "final", "answer": "done"}))

    model.always(reply)
    return {"breakdown": "estimate"}


def a_call_that_is_written_as_text(model: ScriptedModel) -> dict[str, Any]:
    def reply(body: dict[str, Any]) -> Step:
        if "tools" in body:
            return TWO_TOOLS if said(body) == 0 else says('{"name": "act", "arguments": {"at": "z"}}')
        act = '{"action": "tool", "name": "act", "arguments": {"at": "z"}}'
        return says('{"action": "final", "answer": "done"}' if "acted z" in str(body) else act)

    model.always(reply)
    return {"breakdown": "never"}


def a_conversation_that_gets_too_long(model: ScriptedModel) -> dict[str, Any]:
    told = {"error": {"message": "maximum context length is 8192 tokens", "code": "context_length_exceeded"}}

    def reply(body: dict[str, Any]) -> Step:
        if len(json.dumps(body["messages"])) > 9_000:
            return fails(400, told)
        return calls(("act", {"at": f"long {said(body)}"})) if said(body) < 3 else says("done")

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


def played(
    story: Callable[[ScriptedModel], dict[str, Any]], *, dies_at: int | None = None, fails_at: int | None = None, **more: Any
) -> tuple[DyingStage, Baton, ScriptedModel, Counter[str]]:
    """A story from its beginning to its end, and how often the tool ran for each argument."""
    ran: Counter[str] = Counter()

    async def act(at: str) -> str:
        """Act on the world."""
        ran[at] += 1
        return f"acted {at} " * (400 if at.startswith("long") else 1)

    model = FailingOnce(fails_at)
    fields = story(model)
    stage = DyingStage(model, dies_at=dies_at)
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
    for place in range(1, whole.steps + 1):
        stage, _, model, again = played(story, dies_at=place)
        assert model.refused == []
        assert ends(stage) == ends(whole), f"died at {place}"
        assert all(again[at] <= ran[at] + 1 for at in again), f"died at {place}"  # what was under way, and no more


@pytest.mark.parametrize("story", STORIES)
def test_windows_for_one_round_each_end_as_one_for_all(story: Callable[[ScriptedModel], dict[str, Any]]) -> None:
    whole, _, _, ran = played(story)
    narrow, _, model, again = played(story, timeout_hint=0.000_001)
    assert model.refused == []
    assert (ends(narrow), again) == (ends(whole), ran)


@pytest.mark.parametrize("story", STORIES)
def test_a_call_that_fails_for_good_costs_no_more_than_a_retry_whichever_it_is(story: Callable[[ScriptedModel], dict[str, Any]]) -> None:
    _, _, first, ran = played(story)
    for place in range(1, len(first.requests) + 1):
        stage, root, model, again = played(story, fails_at=place)
        if root.status is Status.FAILED:
            root = stage.retry(root)
        assert model.refused == []
        assert root.status is Status.COMPLETED, f"call {place}"
        assert all(again[at] <= ran[at] for at in again if at in ran), f"call {place}"


@pytest.mark.parametrize("story", STORIES)
def test_what_was_whispered_of_every_baton_is_over_at_the_end(story: Callable[[ScriptedModel], dict[str, Any]]) -> None:
    stage, _, _, _ = played(story)
    last = {id: kind for id, kind, _ in stage.whispers}
    assert set(last.values()) == {"idle"}


def test_an_ancestor_that_is_opened_again_goes_on_from_where_it_parked() -> None:
    seen: list[dict[str, Any]] = []
    with ScriptedModel() as model:
        model.on("part a").always(says("A"))
        model.on("part b", fails(400, "no"))

        def whole(body: dict[str, Any]) -> Step:
            seen.append(body)
            spawns: list[tuple[str, Any]] = [("spawn_task", {"goal": "part a"}), ("no_such_tool", {}), ("spawn_task", {"goal": "part b"})]
            return says(f"answer {len(seen)}") if said(body) else calls(*spawns)

        model.on("The whole").always(whole)
        stage = DyingStage(model)
        root = stage.run("The whole", breakdown="estimate")
        [parked] = [outcome.state for _, outcome in stage.outcomes if isinstance(outcome, Spawned)]
        record = stage.records[root.id]
        first, second = record.children
        record.state = json.loads(json.dumps(parked))
        record.children = [first, replace(second, status=Status.COMPLETED, result="B", error=None, error_kind=None)]
        record.baton = root.model_copy(update={"generation": 1, "status": Status.PENDING, "result": None})
        again = asyncio.run(stage.ended(root.id))
    assert (root.result, again.result) == ("answer 2", "answer 3")
    assert model.refused == []
    told = {message["tool_call_id"]: message["content"] for message in seen[-1]["messages"] if message["role"] == "tool"}
    assert (told["call_1_0"], told["call_1_2"]) == ("A", "B")
    assert len(seen[-1]["messages"]) == 6  # nothing of the first answer
