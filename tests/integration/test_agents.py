"""Agents under real owners and worker processes, their model behind real HTTP as strict as the real one."""

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

import baton_actors as baton
from baton_actors.client import Client
from baton_actors.errors import InvalidInput, ModelUnusable
from baton_actors.events import Whisper
from baton_actors.testing import FakeChatServer, ScriptedModel, calls, fails, says

from .conftest import story
from .processes import worker_pids


def weigh(thing: str) -> str:
    """Weigh a thing.

    Args:
        thing: what to weigh.
    """
    return f"{thing}: {len(thing)} kg"


@pytest.fixture(params=["sqlite", "postgresql"])
def connect_to(request: pytest.FixtureRequest, connected: Callable[..., Client]) -> Callable[[FakeChatServer], Client]:
    url = str(request.getfixturevalue(f"{request.param}_url"))
    return lambda server: connected(database_url=url, openai_base_url=server.base_url)


@pytest.fixture
def here(sqlite_url: str, connected: Callable[..., Client]) -> Callable[[FakeChatServer], Client]:
    return lambda server: connected(database_url=sqlite_url, openai_base_url=server.base_url)


def answers(body: dict[str, Any]) -> dict[str, str]:
    return {message["tool_call_id"]: message["content"] for message in body["messages"] if message["role"] == "tool"}


def spans(events: list[baton.Event]) -> list[tuple[int, int]]:
    """When each child ran: seq of its start and of its end."""
    ends = {event.baton_id: event.seq for event in events if event.type == "baton.completed"}
    return [(event.seq, ends[event.baton_id]) for event in events if event.type == "baton.started" and event.depth == 1]


def test_three_children_of_one_round_overlap_and_the_parent_is_resumed_with_four_answers(
    connect_to: Callable[[FakeChatServer], Client],
) -> None:
    with ScriptedModel() as model, FakeChatServer(model) as server:
        for name in "abc":
            model.on(f"part {name}", says(name.upper()).after(0.5))
        spawns = [("spawn_task", {"goal": f"part {name}"}) for name in "abc"]
        model.on("The whole", calls(spawns[0], ("weigh", {"thing": "gold"}), *spawns[1:]), says("all of it"))
        client = connect_to(server)
        tree = client.submit("The whole", tools=[weigh], breakdown="estimate")
        assert tree.result(60) == "all of it"
        assert server.refused == []
        last = answers(server.requests[-1].body)
    assert last == {"call_1_0": "A", "call_1_1": "gold: 4 kg", "call_1_2": "B", "call_1_3": "C"}
    events = story(client, tree)
    runs = spans(events)
    assert len(runs) == 3
    assert max(start for start, _ in runs) < min(end for _, end in runs)
    root = tree.snapshot().batons[0]
    assert root.rounds == 2
    assert root.usage["tokens_in"] > 0
    assert [event.data["kind"] for event in events if event.baton_id == tree.id and event.type == "baton.progress"] == [
        "decision",
        "round",
        "tool",
        "round",
    ]


def test_a_worker_killed_between_two_rounds_costs_that_round_only(here: Callable[[FakeChatServer], Client]) -> None:
    killed = []

    def kill(body: dict[str, Any]) -> Any:
        killed.extend(worker_pids())
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        return says("nobody hears this")

    with ScriptedModel(calls(("weigh", {"thing": "gold"})), kill, says("4 kg")) as model, FakeChatServer(model) as server:
        client = here(server)
        tree = client.submit("How heavy is gold?", tools=[weigh], breakdown="never")
        assert tree.result(90) == "4 kg"
        assert server.refused == []
        assert len(server.requests) == 3
        assert answers(server.requests[2].body) == {"call_1_0": "gold: 4 kg"}
    assert killed
    assert sum(event.data.get("kind") == "tool" for event in story(client, tree)) == 1


def test_a_window_of_two_seconds_with_rounds_of_one_hands_over_and_ends_with_the_same_answer(
    here: Callable[[FakeChatServer], Client],
) -> None:
    with ScriptedModel() as model, FakeChatServer(model) as server:
        weighed = [calls(("weigh", {"thing": "x" * n})).after(1) for n in (1, 2, 3)]
        model.on("slowly", *weighed, says("6 kg").after(1))
        model.on("at once", *(step.after(0) for step in weighed), says("6 kg"))
        client = here(server)
        slow = client.submit("Weigh slowly", tools=[weigh], breakdown="never", timeout_hint=2)
        quick = client.submit("Weigh at once", tools=[weigh], breakdown="never", timeout_hint=60)
        assert (slow.result(90), quick.result(90)) == ("6 kg", "6 kg")
    assert any(event.type == "baton.handed_over" for event in story(client, slow))
    assert not any(event.type == "baton.handed_over" for event in story(client, quick))


@pytest.mark.parametrize("tools", [True, False, "text"])
def test_the_same_goal_passes_with_a_server_that_calls_tools_one_that_refuses_them_and_one_that_writes_them(
    here: Callable[[FakeChatServer], Client], tools: Any
) -> None:
    def as_actions(body: dict[str, Any]) -> bool:
        return "response_format" in body

    with ScriptedModel() as model, FakeChatServer(model, tools=tools) as server:
        final = {"action": "final", "answer": "7 kg in all"}
        act = {"action": "tool", "name": "weigh", "arguments": {"thing": "gold"}}

        def next_action(body: dict[str, Any]) -> Any:
            seen = any("gold: 4 kg" in message["content"] for message in body["messages"])
            return says(json.dumps(final if seen else act))

        model.on(as_actions).always(next_action)
        first = calls(("weigh", {"thing": "gold"}))
        model.on("How heavy", *{True: [first, says("7 kg in all")], False: [], "text": [first]}[tools])
        client = here(server)
        tree = client.submit("How heavy are they?", tools=[weigh], breakdown="never")
        assert tree.result(60) == "7 kg in all"
    learnt = [event.data for event in story(client, tree) if event.data.get("kind") == "dialect"]
    assert bool(learnt) is (tools is not True)


def test_what_one_baton_learns_of_a_model_its_siblings_know(here: Callable[[FakeChatServer], Client]) -> None:
    with ScriptedModel() as model, FakeChatServer(model, tools=False) as server:
        spawn = {"action": "spawn", "subtasks": [{"goal": "go east"}, {"goal": "go west"}]}
        model.on("go", says('{"action": "final", "answer": "gone"}')).always(says('{"action": "final", "answer": "gone"}'))
        model.on("Explore", says(json.dumps(spawn)), says('{"action": "final", "answer": "explored"}'))
        tree = here(server).submit("Explore", tools=[weigh], breakdown="estimate")
        assert tree.result(60) == "explored"
        assert len(server.refused) == 1


def test_an_agent_is_broken_down_by_its_models_judgement(here: Callable[[FakeChatServer], Client]) -> None:
    judged = {"reason": "two countries", "fits": False, "rounds": 8, "subtasks": [{"goal": "visit Peru"}, {"goal": "visit Laos"}]}
    with ScriptedModel() as model, FakeChatServer(model) as server:
        model.on(lambda body: "response_format" in body, says(json.dumps(judged)))
        model.on("visit", says("been there")).always(says("been there"))
        model.on("Travel", says("home again"))
        client = here(server)
        tree = client.submit("Travel")
        assert tree.result(60) == "home again"
        assert server.refused == []
    [decision] = [e.data for e in story(client, tree) if e.data.get("kind") == "decision" and e.depth == 0]
    assert decision["broken_down"] is True
    assert "two countries" in decision["reason"]


def test_a_function_spawns_agents_and_agents_keep_to_their_model(here: Callable[[FakeChatServer], Client]) -> None:
    def ask_three(task: baton.Baton, ctx: baton.Context) -> Any:
        if ctx.breakdown:
            return [child.result for child in ctx.children]
        return baton.Spawned([baton.Child(f"question {n}", worker="agent", breakdown="never") for n in range(3)])

    with ScriptedModel() as model, FakeChatServer(model) as server:
        model.on("question").always(says("42"))
        assert here(server).submit("ask", worker=ask_three).result(60) == ["42"] * 3
        assert {request.body["model"] for request in server.requests} == {"scripted-1"}


def test_the_answer_is_heard_while_it_is_written(here: Callable[[FakeChatServer], Client]) -> None:
    heard: list[Whisper] = []
    text = "Once upon a time there was a baton that nobody dropped."
    with ScriptedModel(says(text).slowly(0.2)) as model, FakeChatServer(model) as server:
        tree = here(server).submit("Tell a story", breakdown="never")
        for _ in tree.events(beside=heard.append):
            pass
        assert tree.result() == text
    told = "".join(whisper.text for whisper in heard if whisper.kind == "text")
    assert told
    assert told in text
    assert any(whisper.kind == "model" for whisper in heard)


def test_retrying_goes_on_from_the_conversation(here: Callable[[FakeChatServer], Client]) -> None:
    with ScriptedModel(calls(("weigh", {"thing": "gold"})), fails(400, "no"), says("4 kg")) as model, FakeChatServer(model) as server:
        tree = here(server).submit("How heavy is gold?", tools=[weigh], breakdown="never")
        with pytest.raises(baton.BatonFailed, match="the server answered 400: no"):
            tree.result(60)
        tree.retry()
        assert tree.result(60) == "4 kg"
        assert answers(server.requests[-1].body) == {"call_1_0": "gold: 4 kg"}


def test_a_model_that_always_spawns_ends_by_the_guard_with_its_reason(sqlite_url: str, connected: Callable[..., Client]) -> None:
    count = iter(range(10_000))
    with ScriptedModel() as model, FakeChatServer(model) as server:
        model.always(lambda body: calls(("spawn_task", {"goal": f"deeper {next(count)}"})) if "tools" in body else says("enough"))
        client = connected(database_url=sqlite_url, openai_base_url=server.base_url, guard_depth=5)
        tree = client.submit("Dig", breakdown="estimate", max_rounds=2)
        assert tree.result(120) is not None
    assert max(each.depth for each in tree.snapshot().batons) == 5


def test_a_tree_that_waits_for_a_person_goes_on_with_the_answer(here: Callable[[FakeChatServer], Client]) -> None:
    with ScriptedModel(calls(("ask_human", {"question": "Which metal?"})), says("gold it is")) as model, FakeChatServer(model) as server:
        client = here(server)
        tree = client.submit("Weigh something", tools=[weigh, "ask_human"], breakdown="never")
        waiting = next(event for event in tree.events() if event.type == "baton.waiting")
        [question] = client.list(waiting=True)
        assert (question.id, question.goal) == (waiting.baton_id, "Which metal?")
        tree.answer(question.id, "gold")
        assert tree.result(60) == "gold it is"
        assert answers(server.requests[1].body) == {"call_1_0": "gold"}


def test_agents_of_one_tree_share_its_budget_and_spend_no_more(here: Callable[[FakeChatServer], Client]) -> None:
    with ScriptedModel() as model, FakeChatServer(model) as server:
        model.always(lambda body: calls(("weigh", {"thing": "x" * len(body["messages"])})) if "tools" in body else says("so far"))
        client = here(server)
        tree = client.submit("Weigh and weigh", tools=[weigh], breakdown="never", max_rounds=50, budget={"rounds": 6, "tokens": 100_000})
        root = tree.wait(60)
        assert (root.result, root.partial, root.rounds) == ("so far", True, 6)
        assert len(server.requests) == 6


# ---------------------------------------------------------------- what is known at submission


def test_what_is_wrong_with_model_or_tools_is_said_at_submission(here: Callable[[FakeChatServer], Client]) -> None:
    def spawn_task() -> None:
        """Mine."""

    def odd(thing: "NoSuchType") -> str:  # type: ignore[name-defined]  # noqa: F821
        """Odd."""
        return str(thing)

    with ScriptedModel() as model, FakeChatServer(model, listed=["first", "second"]) as server:
        client = here(server)
        for fields, words in (
            ({}, "has 2 models; choose with --model or BATON_MODEL: first, second"),
            ({"model": "secnd"}, "did you mean second"),
            ({"model": "first", "tools": ["raed_file"]}, "did you mean 'read_file'"),
            ({"model": "first", "tools": [spawn_task]}, "a name of the agent's own"),
            ({"model": "first", "tools": [odd]}, "NoSuchType"),
            ({"model": "first", "tools": ["json:nothing"]}, "has no 'nothing'"),
        ):
            with pytest.raises(InvalidInput, match=words):
                client.submit("Go", **fields)
        assert client.list() == []


def test_a_model_that_nobody_serves_is_said_at_submission(sqlite_url: str, connected: Callable[..., Client]) -> None:
    client = connected(database_url=sqlite_url, openai_base_url="http://127.0.0.1:9/v1")
    with pytest.raises(ModelUnusable, match="no model answers there"):
        client.submit("Go")


def test_a_wrong_key_is_said_at_submission(here: Callable[[FakeChatServer], Client], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "wrong")
    with ScriptedModel() as model, FakeChatServer(model, key="right") as server:
        client = here(server)
        with pytest.raises(ModelUnusable, match="refuses OPENAI_API_KEY"):
            client.submit("Go")
