"""A scripted model: each request gets its step, and what was forgotten or not foreseen fails the test."""

import asyncio
import json
from typing import Any

import pytest

from baton_actors.agent.model import Model, ModelError, Reply, Request
from baton_actors.testing import ScriptedModel, Step, calls, fails, objection, raw, says
from baton_actors.testing.steps import chunks_of, pieces_of
from tests.unit.histories import GOAL, SYSTEM, answer, asks, call, user

TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}]


def request(*messages: dict[str, Any], **fields: Any) -> Request:
    return Request("m", list(messages) or [GOAL], **fields)


def ask(model: Model, *messages: dict[str, Any], **fields: Any) -> Reply:
    return asyncio.run(model.answer(request(*messages, **fields)))


def error_of(step: Step, **fields: Any) -> ModelError:
    """What a loop is told when it meets this step."""
    with ScriptedModel(step) as model, pytest.raises(ModelError) as caught:
        ask(model, **fields)
    return caught.value


def test_steps_are_used_in_their_order() -> None:
    with ScriptedModel(calls(("read", {"path": "ü"})), says("It is about boats.")) as model:
        first = ask(model, tools=TOOLS)
        assert first.finish_reason == "tool_calls"
        assert first.message == {"role": "assistant", "tool_calls": [call("call_1_0", arguments='{"path": "ü"}')]}
        second = ask(model, GOAL, first.message, answer("call_1_0"))
        assert second.message == {"role": "assistant", "content": "It is about boats."}
        assert second.usage["tokens_in"] > second.usage["tokens_out"] > 0
    assert [len(each["messages"]) for each in model.requests] == [1, 3]
    assert all(objection(each) is None for each in model.requests)


def test_ids_are_given_or_made_from_round_and_place() -> None:
    step = calls(("a", {}, "mine"), ("b", None), ("c", "{broken", ""), text="Both.", reasoning_content="Hm.")
    with ScriptedModel(step, step) as model:
        message = ask(model).message
        again = ask(model, GOAL, {"role": "assistant", "content": "x"}, GOAL).message
    assert [each["id"] for each in message["tool_calls"]] == ["mine", "call_1_1", "call_2_c"]
    assert [each["id"] for each in again["tool_calls"]] == ["mine", "call_2_1", "call_2_c"]
    assert [each["function"]["arguments"] for each in message["tool_calls"]] == ["{}", "{}", "{broken"]
    assert (message["content"], message["reasoning_content"]) == ("Both.", "Hm.")


def test_texts_are_told_in_pieces_to_whoever_listens() -> None:
    heard: list[str] = []
    with ScriptedModel(says("abcdefghijklmnop").slowly(0)) as model:
        ask(model, on_text=heard.append)
    assert len(heard) > 1
    assert "".join(heard) == "abcdefghijklmnop"
    assert model.requests[0]["stream"] is True


def test_usage_is_told_as_the_script_says() -> None:
    with ScriptedModel(says("x", usage={"prompt_tokens": 7, "completion_tokens": 3, "cost": 0.5})) as model:
        assert ask(model).usage == {"tokens_in": 7, "tokens_out": 3, "cost": 0.5}


def test_a_request_carries_what_the_loop_asks_for() -> None:
    with ScriptedModel(says("{}")) as model:
        ask(model, tools=TOOLS, schema={"type": "object"}, max_tokens=9, temperature=0.0)
    (body,) = model.requests
    assert (body["tools"], body["max_tokens"], body["temperature"]) == (TOOLS, 9, 0.0)
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"}


# -------------------------------------------------------------------------------- routes


def test_conversations_side_by_side_have_scripts_of_their_own() -> None:
    async def both(model: ScriptedModel) -> list[Reply]:
        asked = (model.answer(request(SYSTEM, user(f"Write about {what}."))) for what in ("boats", "trains", "kites"))
        return await asyncio.gather(*asked)

    with ScriptedModel(says("K")) as model:
        model.on("boats", says("B").after(0.01))
        model.on("trains", says("T"))
        replies = asyncio.run(both(model))
    assert [each.message["content"] for each in replies] == ["B", "T", "K"]


def test_the_first_user_message_decides_before_the_last() -> None:
    with ScriptedModel() as model:
        model.on("child", says("child"))
        model.on("parent", says("parent"), says("again"))
        assert (
            ask(model, user("the parent's goal"), asks(call("a")), answer("a", "child"), user("child is done")).message["content"]
            == "parent"
        )
        assert ask(model, user("an example"), {"role": "assistant", "content": "x"}, user("the child's goal")).message["content"] == "child"
        assert ask(model, user([{"type": "text", "text": "parent"}])).message["content"] == "again"


def test_a_route_may_be_a_function_and_the_first_that_fits_wins() -> None:
    with ScriptedModel() as model:
        model.on(lambda body: "response_format" in body, says("judged"))
        model.on("files", says("done"))
        assert ask(model).message["content"] == "done"
        assert ask(model, schema={"type": "object"}).message["content"] == "judged"


def test_a_step_may_be_a_function_of_the_request() -> None:
    def echo(body: dict[str, Any]) -> Step:
        return says(str(len(body["messages"])))

    model = ScriptedModel(echo)
    model.always(says("always"))
    model.on("forever").always(echo)
    with model:
        assert [ask(model, *[GOAL] * count).message["content"] for count in (2, 1, 1)] == ["2", "always", "always"]
        assert [ask(model, user("forever")).message["content"] for _ in range(3)] == ["1"] * 3


# -------------------------------------------------------------------------------- what fails a test


def test_a_request_without_a_step_fails_the_test_and_is_named() -> None:
    model = ScriptedModel()
    with pytest.raises(ModelError, match="no step left") as caught:
        ask(model, GOAL, user("Well?"))
    assert caught.value.meaning == "final"
    assert len(model.requests) == 1
    with pytest.raises(AssertionError, match=r"no step left .* any conversation .* 2 messages, the last of user: 'Well\?'"), model:
        pass


def test_steps_that_were_not_used_fail_the_test_and_are_named() -> None:
    with pytest.raises(AssertionError) as caught, ScriptedModel(says("hi"), calls(("read", {}), ("list", {}))) as model:
        model.on("kites", fails(500, "no"), raw({"x": 1}), lambda body: says("x"))
    assert str(caught.value).splitlines() == [
        "5 faults of the script:",
        "- step not used: fails(500), in the script of 'kites'",
        "- step not used: raw({'x': 1}), in the script of 'kites'",
        "- step not used: the function '<lambda>', in the script of 'kites'",
        "- step not used: says('hi'), in the script of any conversation",
        "- step not used: calls(read, list), in the script of any conversation",
    ]


def test_a_failure_of_the_test_itself_is_not_hidden_by_the_script() -> None:
    with pytest.raises(ZeroDivisionError) as caught, ScriptedModel(says("hi")):
        _ = 1 / 0
    assert "step not used: says('hi')" in caught.value.__notes__[0]


def test_a_step_that_raises_fails_the_test_with_its_cause() -> None:
    def broken(body: dict[str, Any]) -> Step:
        raise KeyError("tools")

    model = ScriptedModel(broken)
    with pytest.raises(ModelError, match="the script raised KeyError: 'tools'"):
        ask(model)
    with pytest.raises(AssertionError, match="the script raised KeyError: 'tools'") as caught, model:
        pass
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_function_that_makes_no_step_is_named() -> None:
    def nothing(body: dict[str, Any]) -> Any:
        return body["model"]

    model = ScriptedModel(nothing)
    with pytest.raises(ModelError, match="the function 'nothing' returned 'm', which is no step"):
        ask(model)


def test_a_request_that_the_real_endpoint_would_refuse_is_refused() -> None:
    with ScriptedModel() as model, pytest.raises(ModelError, match="did not have response messages: a") as caught:
        ask(model, GOAL, asks(call("a")))
    assert caught.value.meaning == "final"
    assert [told["error"]["param"] for _, told in model.refused] == ["messages"]
    assert model.requests == []


# -------------------------------------------------------------------------------- failures mean what they mean to a real client


@pytest.mark.parametrize(
    ("step", "meaning"),
    [
        (fails(429, "slow down"), "retry"),
        (fails(429, {"error": {"message": "pay", "code": "insufficient_quota"}}), "final"),
        (fails(500, "oops"), "retry"),
        (fails(503, "busy"), "retry"),
        (fails(400, "bad request"), "final"),
        (fails(401, "no key"), "final"),
        (
            fails(400, {"error": {"message": "This model's maximum context length is 4097 tokens.", "code": "context_length_exceeded"}}),
            "too_long",
        ),
        (fails(400, {"error": {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 20031, "n_ctx": 2048}}), "too_long"),
        (says(None, refusal="I will not."), "refused"),
        (says("", finish_reason="content_filter"), "refused"),
        (raw({"choices": []}), "retry"),
        (raw({"error": {"message": "overloaded", "code": 503}}), "retry"),
        (raw("<html>"), "final"),
        (raw([]), "final"),
    ],
)
def test_failures_mean_what_they_mean_to_a_client(step: Step, meaning: str) -> None:
    assert error_of(step).meaning == meaning


def test_complaints_about_tools_and_schemas_are_told_apart() -> None:
    assert error_of(fails(400, "m does not support tools"), tools=TOOLS).meaning == "no_tools"
    assert error_of(fails(400, "response_format is not supported"), schema={"type": "object"}).meaning == "no_schema"


def test_the_server_says_how_long_to_wait() -> None:
    assert error_of(fails(429, "slow down", {"Retry-After": "7"})).after == 7
    assert error_of(fails(429, "slow down")).after is None


def test_malformed_answers_are_read_with_patience() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": None, "function": {"name": "read", "arguments": {"a": 1}}}]}
    with ScriptedModel(raw(json.dumps({"choices": [{"message": message}], "usage": None}))) as model:
        assert ask(model).message["tool_calls"] == [call("call_0_read", arguments='{"a": 1}')]


# -------------------------------------------------------------------------------- streams


@pytest.mark.parametrize("text", ["", "a", "ab", "你好 🧭🏽, how are you today?", "x" * 1_000])
def test_pieces_together_are_the_text(text: str) -> None:
    assert "".join(pieces_of(text)) == text
    assert all(pieces_of(text))


def test_a_body_without_choices_is_its_own_only_chunk() -> None:
    assert list(chunks_of({"error": {"message": "x"}}, with_usage=True)) == [{"error": {"message": "x"}}]
    assert list(chunks_of({"choices": [5]}, with_usage=True)) == [{"choices": [5]}]


def test_arguments_that_are_no_text_are_streamed_as_they_are() -> None:
    asked = {"id": "a", "function": {"name": "read", "arguments": {"a": 1}}}
    chunks = list(chunks_of({"choices": [{"message": {"tool_calls": [asked]}, "finish_reason": "stop"}]}, with_usage=False))
    assert chunks[1]["choices"][0]["delta"] == {"tool_calls": [{"index": 0, **asked}]}
