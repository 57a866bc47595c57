"""Faults that a review found, each by its kind: odd replies, odd servers, runs that die in between."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from baton_actors.agent.access import Wishes, choose
from baton_actors.agent.breakdown import judgement_of
from baton_actors.agent.chat import ChatModel, listed_models
from baton_actors.agent.model import ModelError, Request
from baton_actors.agent.profile import MEDIUM
from baton_actors.baton import Status
from baton_actors.capabilities.tool import ToolContext
from baton_actors.errors import InvalidInput, ModelUnusable
from baton_actors.testing import ScriptedModel, calls, fails, says
from tests.unit.agents import Stage
from tests.unit.test_chat import answer, answering, complaint

GO = [{"role": "user", "content": "Go"}]


pytestmark = pytest.mark.usefixtures("without_pauses")


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def answers(body: dict[str, Any]) -> dict[str, str]:
    return {message["tool_call_id"]: message["content"] for message in body["messages"] if message["role"] == "tool"}


# ---------------------------------------------------------------- odd replies


def test_content_in_parts_is_an_answer() -> None:
    with ScriptedModel() as model:
        model.always(says([{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]))  # type: ignore[arg-type]
        assert Stage(model).run("Go", breakdown="never", tools=[add]).result == "42"
    assert len(model.requests) == 1


def test_a_blank_answer_is_none() -> None:
    with ScriptedModel(says(" \n "), says("42")) as model:
        assert Stage(model).run("Go", breakdown="never").result == "42"


def test_a_text_that_was_cut_off_is_partial() -> None:
    with ScriptedModel(says("The answer is for", finish_reason="length")) as model:
        root = Stage(model).run("Go", breakdown="never")
    assert (root.result, root.partial) == ("The answer is for", True)


def test_a_call_that_was_cut_off_is_not_made_after_a_crash_either() -> None:
    ran = []

    def note(text: str = "") -> str:
        """Note."""
        ran.append(text)
        return "noted"

    cut = calls(("note", '{"text": "once"}'), ("note", '{"text": "upon'), finish_reason="length")
    with ScriptedModel(cut, says("short")) as model:
        stage = Stage(model)
        stage.crash_after = lambda data: data["kind"] == "round"
        assert stage.run("Go", breakdown="never", tools=[note]).result == "short"
    assert ran == []


@pytest.mark.parametrize("name", ["", None, "計算", 7])
def test_a_name_that_no_tool_can_have_is_told(name: Any) -> None:
    with ScriptedModel(calls((name, {}), text="I compute."), says("ok")) as model:
        assert Stage(model).run("Go", breakdown="never", tools=[add]).result == "ok"
    assert "There is no tool" in next(iter(answers(model.requests[1]).values()))


def test_a_closing_answer_that_calls_a_tool_is_asked_for_in_words() -> None:
    again = calls(("add", {"a": 1, "b": 1}))
    with ScriptedModel(again, again, says("two")) as model:
        root = Stage(model).run("Go", breakdown="never", tools=[add], max_rounds=1)
    assert (root.result, root.partial) == ("two", True)


def test_a_short_answer_at_the_close_is_no_echo_and_each_call_is_counted_once() -> None:
    again = calls(("add", {"a": 1, "b": 1}))
    with ScriptedModel(again, says("you")) as model:
        root = Stage(model).run("Who?", breakdown="never", tools=[add], max_rounds=1)
    assert (root.result, root.rounds) == ("you", 2)
    with ScriptedModel(again, again, again) as model:
        root = Stage(model).run("Go", breakdown="never", tools=[add], max_rounds=1)
    assert (root.result, root.rounds, len(model.requests)) == ("2", 3, 3)


def test_a_model_that_never_answers_in_words_leaves_what_its_tools_said() -> None:
    with ScriptedModel() as model:
        model.always(lambda body: calls(("add", {"a": len(body["messages"]), "b": 1})))
        root = Stage(model).run("Go", breakdown="never", tools=[add], max_rounds=2)
    assert (root.status, root.result, root.partial) == (Status.COMPLETED, "5", True)


@pytest.mark.parametrize("text", ["\\ud83d", "\\u0000", "a\\u0000b"])
def test_escapes_of_what_cannot_be_stored_are_replaced(text: str) -> None:
    final = f'{{"action": "final", "answer": "x{text}"}}'
    with ScriptedModel(says(final)) as model:
        root = Stage(model, dialect="actions").run("Go", breakdown="never", tools=[add])
    assert root.result.startswith("x")
    assert "\ufffd" in root.result
    assert judgement_of(f'{{"subtasks": ["go {text}", "come back"]}}', "x", 9).subtasks[0].startswith("go ")


@pytest.mark.parametrize("nested", ["[" * 100_000, '{"a":' * 100_000])
def test_endless_nesting_is_words_and_no_crash(nested: str) -> None:
    with ScriptedModel(says(nested)) as model:
        assert Stage(model, dialect="actions").run("Go", breakdown="never", tools=[add]).status is Status.COMPLETED
    with ScriptedModel(calls(("spawn_task", nested)), says("ok")) as model:
        assert Stage(model).run("Go", breakdown="estimate").result == "ok"


def test_a_plan_of_more_parts_than_can_be_afforded_loses_none() -> None:
    goals = [f"visit town {n}" for n in range(8)]
    parts = judgement_of(json.dumps({"subtasks": goals}), "x", 3).subtasks
    assert len(parts) == 3
    assert all(goal in "\n".join(parts) for goal in goals)


def test_an_action_that_is_none_is_asked_for_again() -> None:
    with ScriptedModel(says('{"action": "spawn", "subtasks": []}'), says('{"action": "final", "answer": "42"}')) as model:
        assert Stage(model, dialect="actions").run("Go", breakdown="estimate", tools=[add]).result == "42"
    assert "was no action" in model.requests[1]["messages"][-1]["content"]


# ---------------------------------------------------------------- keys, usage, bounds


def keys_of(run: Callable[[Callable[..., Any]], Any]) -> list[str]:
    keys: list[str] = []

    def act(context: ToolContext, at: str = "") -> str:
        """Act."""
        keys.append(context.idempotency_key)
        return "acted"

    run(act)
    return keys


def test_two_different_calls_never_have_the_same_key() -> None:
    def run(act: Callable[..., Any]) -> None:
        step = says('{"action": "tool", "name": "act", "arguments": {}}')
        final = says('{"action": "final", "answer": "ok"}')
        with ScriptedModel() as model:
            plan = '{"subtasks": [{"goal": "go east"}, {"goal": "go west"}]}'
            model.on(lambda body: "Break this task down" in body["messages"][0]["content"], says(plan))
            model.on(lambda body: body["messages"][1]["content"].startswith("go ")).always(final)
            model.on("Act", step, step, final)
            Stage(model, dialect="actions").run("Act", breakdown="as_needed", tools=[act], max_rounds=1)

    keys = keys_of(run)
    assert len(keys) == len(set(keys)) == 2


def test_a_call_that_a_retry_makes_again_has_its_key() -> None:
    def run(act: Callable[..., Any]) -> None:
        with ScriptedModel(calls(("act", {})), fails(400, "no"), says("ok")) as model:
            stage = Stage(model)
            failed = stage.run("Act", breakdown="never", tools=[act])
            record = stage.records[failed.id]
            record.rows = record.rows[:3]  # the answer of the tool was not saved
            record.state["spans"] = [[0, 3]]
            assert stage.retry(failed).result == "ok"

    first, second = keys_of(run)
    assert first == second


def test_what_a_refusal_cost_is_counted() -> None:
    with ScriptedModel(says(None, refusal="no")) as model:
        root = Stage(model).run("Go", breakdown="never")
    assert root.usage["tokens_in"] > 0
    assert root.rounds == 1


def test_a_model_with_little_room_gets_as_much_of_a_tools_answer_as_it_can_hold() -> None:
    def long() -> str:
        """Much."""
        return "word " * 4_000

    with ScriptedModel(calls(("long", {})), says("ok")) as model:
        Stage(model, profile=MEDIUM).run("Go", breakdown="never", tools=[long])
    assert len(answers(model.requests[1])["call_1_0"]) < 3_200
    assert "cut after 3,000 of 20,000 characters" in answers(model.requests[1])["call_1_0"]


def test_a_budget_that_ends_closes_the_task_within_it() -> None:
    with ScriptedModel() as model:
        model.always(lambda body: calls(("add", {"a": len(body["messages"]), "b": 1})) if "tools" in body else says("so far"))
        stage = Stage(model)
        stage.rounds_left = 4
        root = stage.run("Go", breakdown="never", tools=[add], max_rounds=100)
    assert (root.result, root.partial, root.rounds) == ("so far", True, 4)


def test_a_budget_without_room_for_a_call_fails_with_its_name() -> None:
    with ScriptedModel() as model:
        stage = Stage(model)
        stage.rounds_left = 0
        root = stage.run("Go", tools=[add])
    assert (root.error_kind, root.error) == ("budget", "the budget of rounds has no room for another model call")


# ---------------------------------------------------------------- odd servers


def ask(url: str, timeout: float = 20, **fields: Any) -> Any:
    async def story() -> Any:
        return await ChatModel(url, None, timeout=timeout).answer(Request("m", GO, **fields))

    return asyncio.run(story())


def test_a_server_that_only_shows_signs_of_life_is_given_up_in_time() -> None:
    stream = b": alive\n\n" * 3

    async def story() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
            try:
                while True:
                    writer.write(stream)
                    await writer.drain()
                    await asyncio.sleep(0.02)
            except OSError:
                pass

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        with pytest.raises(ModelError, match="did not answer in time"):
            await ChatModel(url, None, timeout=1).answer(Request("m", GO, on_text=lambda _: None))
        server.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    "stream", ["data: {broken\n\n", 'data: {"choices": 3}\n\ndata: 7\n\n', "data: \xff\xfe\n\n", "data: null\n\ndata: [DONE]\n\n"]
)
def test_a_stream_that_cannot_be_read_is_tried_again(stream: str) -> None:
    with answering((200, "text/event-stream", stream)) as (url, _), pytest.raises(ModelError) as caught:
        ask(url, on_text=lambda _: None)
    assert caught.value.meaning == "retry"


def test_a_body_that_was_cut_off_is_tried_again() -> None:
    with answering((200, "application/json", '{"choices": [{"mess')) as (url, _), pytest.raises(ModelError) as caught:
        ask(url, on_text=lambda _: None)
    assert caught.value.meaning == "retry"


def test_an_organisation_that_may_not_stream_is_answered_in_one_piece() -> None:
    words = "Your organization must be verified to stream this model. Please go to the settings."
    told = {"error": {"message": words, "type": "invalid_request_error", "param": "stream", "code": "unsupported_value"}}
    with answering((400, "application/json", json.dumps(told)), answer("ok")) as (url, asked):
        assert ask(url, on_text=lambda _: None).message["content"] == "ok"
    assert "stream" not in asked[1]


def test_tools_that_no_endpoint_takes_are_known_by_a_404_and_by_an_error_in_a_200() -> None:
    words = "No endpoints found that support tool use. Try disabling it."
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
    for status, body in ((404, {"error": {"message": words, "code": 404}}), (200, {"error": {"message": words, "code": 404}})):
        with answering((status, "application/json", json.dumps(body))) as (url, _), pytest.raises(ModelError) as caught:
            ask(url, tools=[tool])
        assert caught.value.meaning == "no_tools"


def test_an_error_that_comes_in_a_list_is_read() -> None:
    told = json.dumps([{"error": {"code": 400, "message": "The input token count (9) exceeds the maximum", "status": "INVALID_ARGUMENT"}}])
    with answering((400, "application/json", told)) as (url, _), pytest.raises(ModelError, match="input token count") as caught:
        ask(url)
    assert caught.value.meaning == "too_long"


def test_usage_beyond_all_measure_is_unknown() -> None:
    body = json.dumps({"choices": [{"message": {"content": "ok"}}], "usage": {"prompt_tokens": 10**400, "completion_tokens": 3}})
    with answering((200, "application/json", body)) as (url, _):
        assert ask(url).usage == {"tokens_out": 3}


# ---------------------------------------------------------------- submissions


def chosen(model: str | None, names: list[str] | None, **wishes: Any) -> tuple[str, str | None]:
    given = {"base_url": "http://127.0.0.1:1/v1", "key": None, "default_model": "d", **wishes}
    return choose(Wishes(model, **given), lambda url, key: names, lambda _: None)


@pytest.mark.parametrize(
    ("model", "listed"),
    [("llama3.2", "llama3.2:latest"), ("gemini-2.5-flash", "models/gemini-2.5-flash"), ("org/model:nitro", "org/model"), ("m", "m")],
)
def test_a_name_is_known_in_the_forms_that_servers_take(model: str, listed: str) -> None:
    assert chosen(model, [listed, "other"])[0] == model
    with pytest.raises(InvalidInput, match="has no model"):
        chosen("something else", [listed])


@pytest.mark.parametrize("url", ["http://h:port/v1", "http://[::1", "http://", "http://h/v1\nx", "ftp://h", "localhost:1", "http://a b/"])
def test_an_address_that_is_none_is_one_line(url: str) -> None:
    with pytest.raises(InvalidInput, match="is no address"):
        chosen("m", None, base_url=url)


def test_an_address_with_a_secret_in_it_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidInput, match="OPENAI_API_KEY") as caught:
        chosen("m", None, base_url="http://me:hunter2@127.0.0.1/v1")
    assert "hunter2" not in str(caught.value)


def test_a_key_with_characters_that_no_key_has_is_one_line() -> None:
    with pytest.raises(InvalidInput, match="OPENAI_API_KEY"):
        chosen("m", None, key="schlüssel")


def test_a_server_that_answers_oddly_to_the_list_is_no_crash() -> None:
    with answering(complaint("teapot", 418)) as (url, _):
        assert listed_models(url, None) is None
    with pytest.raises(ModelUnusable):
        listed_models("http://127.0.0.1:1/\u00fc", "k\u00fc")
