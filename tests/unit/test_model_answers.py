"""What servers send back: bodies, errors and streams as users of many servers have reported them (CASES groups M and R)."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from baton_actors.agent.answers import Pieces, error_of, reply_of, retry_after, usage_of
from baton_actors.agent.model import ModelError


def body(message: Any, reason: Any = "stop", usage: Any = None) -> dict[str, Any]:
    return {"choices": [{"message": message, "finish_reason": reason}], "usage": usage}


def meaning(given: Any) -> str:
    with pytest.raises(ModelError) as caught:
        reply_of(given)
    return caught.value.meaning


@pytest.mark.parametrize("choices", [[], None, [None], [{}], [{"message": None}], "no list"])
def test_no_choice_with_status_200_is_retryable(choices: Any) -> None:
    assert meaning({"choices": choices}) == "retry"


def test_an_error_in_a_body_of_status_200_is_the_providers_error() -> None:
    with pytest.raises(ModelError, match="Upstream is overloaded") as caught:
        reply_of({"error": {"code": 503, "message": "Upstream is overloaded"}})
    assert caught.value.meaning == "retry"
    assert meaning({"error": {"code": 400, "message": "bad thing"}}) == "final"


@pytest.mark.parametrize("answer", [None, 3, "text", ["list"]])
def test_an_answer_that_is_no_object_says_where_to_look(answer: Any) -> None:
    with pytest.raises(ModelError, match="OPENAI_BASE_URL"):
        reply_of(answer)


def test_fields_that_nobody_knows_are_kept_and_empty_ones_dropped() -> None:
    message = {"role": "assistant", "content": "4", "reasoning_content": "2+2", "refusal": None, "annotations": [], "audio": None}
    assert reply_of(body(message)).message == {"role": "assistant", "content": "4", "reasoning_content": "2+2"}


def test_calls_count_though_the_finish_reason_says_stop() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    assert reply_of(body({"content": None, "tool_calls": [call]}, "stop")).message["tool_calls"] == [call]


def test_arguments_as_an_object_become_text_and_ids_are_made() -> None:
    calls = [{"function": {"name": "add", "arguments": {"a": 1}}}, {"id": "", "function": {"name": "add", "arguments": None}}]
    made = reply_of(body({"tool_calls": calls}, "tool_calls")).message["tool_calls"]
    assert [call["function"]["arguments"].replace(" ", "") for call in made] == ['{"a":1}', "{}"]
    assert len({call["id"] for call in made}) == 2
    assert all(call["id"] for call in made)


def test_a_refusal_and_a_content_filter_are_final() -> None:
    assert meaning(body({"content": None, "refusal": "I cannot help with that"})) == "refused"
    assert meaning(body({"content": "half"}, "content_filter")) == "refused"
    assert error_of(400, {"error": {"code": "content_filter", "message": "policy"}}, {}).meaning == "refused"


@pytest.mark.parametrize("usage", [None, {}, "x", {"prompt_tokens": None}, {"prompt_tokens": -1}, {"prompt_tokens": float("nan")}])
def test_usage_that_says_nothing_is_unknown(usage: Any) -> None:
    assert usage_of(usage) == {}


def test_usage_with_its_details() -> None:
    told = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}, "cost": 0.01}
    assert usage_of(told) == {"tokens_in": 10, "tokens_out": 5, "tokens_cached": 4, "cost": 0.01}
    assert usage_of({**told, "prompt_tokens_details": None, "cost": True}) == {"tokens_in": 10, "tokens_out": 5}


TOO_LONG = [
    {"error": {"message": "This model's maximum context length is 8192 tokens. However, …", "code": "context_length_exceeded"}},
    {"error": {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 20031, "n_ctx": 2048}},
    {"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum", "type": "invalid_request_error"}},
    {"object": "error", "message": "The input token count (5000) exceeds the maximum", "code": 400},
]


@pytest.mark.parametrize("told", TOO_LONG)
def test_a_conversation_that_is_too_long_is_known_in_each_providers_words(told: Any) -> None:
    assert error_of(400, told, {}, tools=True, schema=True).meaning == "too_long"


@pytest.mark.parametrize(
    "words",
    [
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        "registry.example/model does not support tools",
        "Unrecognized request argument supplied: tools",
    ],
)
def test_a_complaint_about_tools_is_one_only_if_there_were_any(words: str) -> None:
    assert error_of(400, {"error": {"message": words}}, {}, tools=True).meaning == "no_tools"
    assert error_of(400, {"error": {"message": words}}, {}, tools=False).meaning == "final"


def test_unanswered_calls_are_no_complaint_about_tools() -> None:
    words = "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'."
    assert error_of(400, {"error": {"message": words}}, {}, tools=True).meaning == "final"


def test_a_complaint_about_the_schema() -> None:
    told = {"error": {"message": "response_format of type json_schema is not supported"}}
    assert error_of(400, told, {}, schema=True).meaning == "no_schema"


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_what_passes_is_retried(status: int) -> None:
    assert error_of(status, {}, {}).meaning == "retry"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_does_not_pass_is_not(status: int) -> None:
    assert error_of(status, {}, {}).meaning == "final"


def test_no_money_left_is_no_rate_limit() -> None:
    assert error_of(429, {"error": {"code": "insufficient_quota", "message": "You exceeded your current quota"}}, {}).meaning == "final"


@pytest.mark.parametrize("given", ["", "soon", "nan", None])
def test_a_retry_after_that_says_nothing(given: str | None) -> None:
    assert retry_after({} if given is None else {"retry-after": given}) is None


def test_retry_after_in_seconds_and_as_a_date() -> None:
    assert retry_after({"retry-after": "7"}) == 7
    assert retry_after({"retry-after": "0"}) == 0
    assert retry_after({"retry-after": "-3"}) == 0
    assert retry_after({"retry-after": "86400"}) == 86_400
    assert retry_after({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    in_a_minute = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert 50 < (retry_after({"retry-after": in_a_minute}) or 0) <= 60
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0


@pytest.mark.parametrize("told", [None, "plain words", 3, ["list"], {"error": "text"}, {"error": {"message": {"odd": 1}}}, {"detail": "x"}])
def test_errors_of_any_shape_are_one_line(told: Any) -> None:
    assert "\n" not in str(error_of(400, told, {}))


# ---------------------------------------------------------------- streams


def streamed(*deltas: Any, reason: Any = "stop", usage: Any = None) -> Any:
    pieces = Pieces()
    for delta in deltas:
        pieces.add({"choices": [{"delta": delta, "finish_reason": None}]})
    pieces.add({"choices": [{"delta": {}, "finish_reason": reason}]})
    if usage:
        pieces.add({"choices": [], "usage": usage})
    return reply_of(pieces.body())


def call(index: int | None, id: str | None, name: str | None, arguments: str | None) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {"tool_calls": [{"index": index, "id": id, "function": function}]}


def made(reply: Any) -> list[tuple[str, str]]:
    return [(each["function"]["name"], each["function"]["arguments"]) for each in reply.message["tool_calls"]]


def test_pieces_of_text_are_joined_and_usage_comes_last() -> None:
    reply = streamed({"role": "assistant", "content": ""}, {"content": "to"}, {"content": "mato"}, usage={"prompt_tokens": 1})
    assert (reply.message["content"], reply.usage) == ("tomato", {"tokens_in": 1})


def test_pieces_of_parallel_calls_by_index() -> None:
    reply = streamed(
        call(0, "a", "add", ""),
        call(1, "b", "sub", ""),
        call(0, None, None, '{"x"'),
        call(1, None, None, "{}"),
        call(0, None, None, ": 1}"),
    )
    assert made(reply) == [("add", '{"x": 1}'), ("sub", "{}")]


def test_parallel_calls_that_all_have_index_0_are_told_apart_by_id() -> None:
    reply = streamed(call(0, "a", "add", "{}"), call(0, "b", "add", '{"y":'), call(0, None, None, "2}"))
    assert made(reply) == [("add", "{}"), ("add", '{"y":2}')]


def test_pieces_without_an_index_belong_to_the_last_call() -> None:
    reply = streamed(call(None, "a", "add", '{"x":'), call(None, None, None, "1}"), call(None, "b", "sub", "{}"))
    assert made(reply) == [("add", '{"x":1}'), ("sub", "{}")]


def test_reasoning_is_joined_and_kept() -> None:
    assert streamed({"reasoning_content": "let "}, {"reasoning_content": "me"}, {"content": "4"}).message["reasoning_content"] == "let me"


def test_a_stream_that_breaks_off_is_no_answer() -> None:
    pieces = Pieces()
    pieces.add({"choices": [{"delta": {"content": "half an ans"}, "finish_reason": None}]})
    with pytest.raises(ModelError, match="broke off") as caught:
        pieces.body()
    assert caught.value.meaning == "retry"


def test_an_error_in_the_middle_of_a_stream_is_the_providers_error() -> None:
    with pytest.raises(ModelError, match="capacity"):
        Pieces().add({"error": {"message": "out of capacity", "code": 503}})


@pytest.mark.parametrize("chunk", [None, 3, {}, {"choices": None}, {"choices": [None]}, {"choices": [{"delta": None}]}])
def test_odd_chunks_are_passed_over(chunk: Any) -> None:
    assert Pieces().add(chunk) == ""
