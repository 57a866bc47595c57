"""The official client talks to the fake server, and finds what it finds at the real one."""

import http.client
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Event, Semaphore
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from baton_actors.testing import FakeChatServer, ScriptedModel, Step, calls, fails, raw, says
from tests.unit.histories import GOAL, asks, call, user

TOOLS: Any = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}]
SCHEMA: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}


def client_of(server: FakeChatServer, key: str = "sk-any") -> openai.OpenAI:
    return openai.OpenAI(base_url=server.base_url, api_key=key, max_retries=0)


def ask(server: FakeChatServer, *messages: Any, **fields: Any) -> Any:
    with client_of(server) as client:
        return client.chat.completions.create(**{"model": "scripted-1", "messages": list(messages) or [GOAL], **fields})


def streamed(server: FakeChatServer, **fields: Any) -> list[ChatCompletionChunk]:
    with client_of(server) as client:
        stream = client.chat.completions.create(**{"model": "scripted-1", "messages": [GOAL], "stream": True, **fields})
        return list(stream)


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@pytest.fixture
def server(model: ScriptedModel) -> Iterator[FakeChatServer]:
    with FakeChatServer(model) as server:
        yield server


# -------------------------------------------------------------------------------- answers


def test_a_text_is_answered(model: ScriptedModel, server: FakeChatServer) -> None:
    model.on("files", says("你好 🧭🏽"))
    answer = ask(server)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason, answer.model) == ("你好 🧭🏽", "stop", "scripted-1")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 1
    assert server.refused == []
    assert [each.body for each in server.requests] == model.requests
    assert server.requests[0].key == "sk-any"


def test_calls_are_answered(model: ScriptedModel, server: FakeChatServer) -> None:
    model.on("files", calls(("read", {"path": "a"}), ("read", {"path": "b"}, "mine"), text="Both."))
    choice = ask(server, tools=TOOLS).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert [each.id for each in choice.message.tool_calls] == ["call_1_0", "mine"]
    assert json.loads(choice.message.tool_calls[1].function.arguments) == {"path": "b"}


def test_a_text_is_streamed_in_pieces(model: ScriptedModel, server: FakeChatServer) -> None:
    model.on("files", says("It is about boats and 你好 🧭🏽.", reasoning_content="Hm."))
    chunks = streamed(server, stream_options={"include_usage": True})
    deltas = [each.choices[0].delta for each in chunks if each.choices]
    assert deltas[0].role == "assistant"
    pieces = [each.content for each in deltas if each.content]
    assert len(pieces) > 2
    assert "".join(pieces) == "It is about boats and 你好 🧭🏽."
    assert [each.reasoning_content for each in deltas if hasattr(each, "reasoning_content")] == ["Hm."]
    assert [each.choices[0].finish_reason for each in chunks if each.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert all(each.usage is None for each in chunks[:-1])


def test_a_stream_tells_usage_only_when_asked(model: ScriptedModel, server: FakeChatServer) -> None:
    model.on("files", says("hi"))
    assert all(each.choices and each.usage is None for each in streamed(server))


def test_calls_are_streamed_as_the_client_puts_them_together(model: ScriptedModel, server: FakeChatServer) -> None:
    model.on("files", calls(("read", {"path": "a" * 50}), ("read", {}), text="Both."))
    with (
        client_of(server) as client,
        client.chat.completions.stream(model="scripted-1", messages=[GOAL], tools=TOOLS) as stream,
    ):
        choice = stream.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Both."
    assert [(each.id, json.loads(each.function.arguments)) for each in choice.message.tool_calls or []] == [
        ("call_1_0", {"path": "a" * 50}),
        ("call_1_1", {}),
    ]


def test_a_stream_ends_with_done(model: ScriptedModel, server: FakeChatServer) -> None:
    model.on("files", says("hi"))
    with client_of(server) as client:
        body = {"model": "scripted-1", "messages": [GOAL], "stream": True}
        lines = client.post("/chat/completions", body=body, cast_to=str).splitlines()
    assert all(line.startswith("data: ") for line in lines[::2])
    assert lines[1::2] == [""] * (len(lines) // 2)
    assert lines[-2:] == ["data: [DONE]", ""]


def test_errors_keep_status_body_and_headers(model: ScriptedModel, server: FakeChatServer) -> None:
    model.on("files", fails(429, "Rate limit reached.", {"Retry-After": "2"}), fails(503, {"detail": "busy"}))
    with pytest.raises(openai.RateLimitError) as caught:
        ask(server, stream=True)
    assert caught.value.response.headers["retry-after"] == "2"
    assert (caught.value.code, caught.value.type) == ("rate_limit_exceeded", "requests")
    with pytest.raises(openai.InternalServerError) as broken:
        ask(server)
    assert broken.value.response.json() == {"detail": "busy"}


def test_malformed_bodies_go_out_as_they_are(model: ScriptedModel, server: FakeChatServer) -> None:
    model.on("files", raw({"choices": []}), raw("<html>"), raw({"error": {"message": "late"}}), raw('data: {"id": "x"}\n\ndata: {"id"'))
    assert ask(server).choices == []
    with pytest.raises(json.JSONDecodeError):
        ask(server)
    with pytest.raises(openai.APIError, match="late"):
        streamed(server)
    assert [each.id for each in streamed(server)] == ["x"]


def test_a_lone_surrogate_goes_out_as_its_escape(model: ScriptedModel, server: FakeChatServer) -> None:
    model.on("files", says("a\udc88"), says("a\udc88"))
    assert ask(server).choices[0].message.content == "a\udc88"
    assert "".join(each.choices[0].delta.content or "" for each in streamed(server)) == "a\udc88"


# -------------------------------------------------------------------------------- refusals


def test_a_bad_request_is_refused_and_kept(model: ScriptedModel, server: FakeChatServer) -> None:
    with pytest.raises(openai.BadRequestError, match="did not have response messages: a") as caught:
        ask(server, GOAL, asks(call("a")))
    assert (caught.value.param, caught.value.type) == ("messages", "invalid_request_error")
    (refused,) = server.refused
    assert (refused.status, refused.error) == (400, {"error": caught.value.body})
    assert len(refused.request.body["messages"]) == 2
    assert server.requests == model.requests == []


def test_a_body_that_is_no_json_is_refused(server: FakeChatServer) -> None:
    with closing(http.client.HTTPConnection(server.base_url.split("/")[2])) as connection:
        for body in (b"{broken", b"", b"\xff", b"[" * 100_000):
            connection.request("POST", "/v1/chat/completions", body)
            response = connection.getresponse()
            assert response.status == 400
            assert json.load(response)["error"]["message"].startswith("We could not parse the JSON body")


def test_an_unknown_model_is_not_found(server: FakeChatServer) -> None:
    with pytest.raises(openai.NotFoundError, match="The model `gpt-9` does not exist or you do not have access to it") as caught:
        ask(server, model="gpt-9")
    assert caught.value.code == "model_not_found"


def test_the_key_is_asked_for(model: ScriptedModel) -> None:
    model.on("files", says("hi"))
    with FakeChatServer(model, key="sk-right") as server:
        with client_of(server, "sk-wrong") as client:
            with pytest.raises(openai.AuthenticationError, match="Incorrect API key provided: sk-") as caught:
                client.chat.completions.create(model="scripted-1", messages=[GOAL])
            assert caught.value.code == "invalid_api_key"
            assert "sk-wrong" not in str(caught.value)
            with pytest.raises(openai.AuthenticationError):
                client.models.list()
        with closing(http.client.HTTPConnection(server.base_url.split("/")[2])) as connection:
            connection.request("GET", "/v1/models")
            response = connection.getresponse()
            assert response.status == 401
            assert "You didn't provide an API key" in json.load(response)["error"]["message"]
        with client_of(server, "sk-right") as client:
            assert client.chat.completions.create(model="scripted-1", messages=[GOAL]).choices[0].message.content == "hi"


def test_models_are_listed(model: ScriptedModel) -> None:
    with FakeChatServer(model, listed=("one", "two")) as server, client_of(server) as client:
        assert [each.id for each in client.models.list()] == ["one", "two"]


def test_a_server_that_lists_no_models_takes_every_name(model: ScriptedModel) -> None:
    model.on("files", says("hi"))
    with FakeChatServer(model, listed=None) as server, client_of(server) as client:
        with pytest.raises(openai.NotFoundError):
            client.models.list()
        assert ask(server, model="any").model == "any"


def test_an_unknown_path_is_not_found(server: FakeChatServer) -> None:
    with client_of(server) as client, pytest.raises(openai.NotFoundError, match="Invalid URL"):
        client.post("/responses", body={}, cast_to=object)


def test_a_server_without_tools_says_so(model: ScriptedModel) -> None:
    model.on("files", says("hi"))
    with FakeChatServer(model, tools=False) as server:
        with pytest.raises(openai.BadRequestError, match="does not support tools"):
            ask(server, tools=TOOLS)
        assert ask(server).choices[0].message.content == "hi"


def test_a_server_without_schemas_says_so(model: ScriptedModel) -> None:
    model.on("files", says("hi"))
    with FakeChatServer(model, schemas=False) as server:
        with pytest.raises(openai.BadRequestError, match="'response_format' of type 'json_schema' is not supported"):
            ask(server, response_format=SCHEMA)
        assert ask(server, response_format={"type": "text"}).choices[0].message.content == "hi"


def test_a_server_may_write_calls_as_text(model: ScriptedModel) -> None:
    model.on("files", calls(("read", {"a": 1})), calls(("read", {"a": 1}), ("read", None), text="Now:"), says("hi"), raw({"choices": []}))
    with FakeChatServer(model, tools="text") as server:
        one, two, three = (ask(server, tools=TOOLS).choices[0] for _ in range(3))
        assert ask(server).choices == []
    assert json.loads(one.message.content) == {"name": "read", "arguments": {"a": 1}}
    assert (one.message.tool_calls, one.finish_reason) == (None, "stop")
    assert two.message.content == 'Now:\n[{"name": "read", "arguments": {"a": 1}}, {"name": "read", "arguments": null}]'
    assert three.message.content == "hi"


def test_a_server_may_drop_tools_silently(model: ScriptedModel) -> None:
    model.on("files", calls(("read", {"a": 1}), text="I cannot."))
    with FakeChatServer(model, tools="ignored") as server:
        choice = ask(server, tools=TOOLS, tool_choice="auto").choices[0]
    assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == ("I cannot.", None, "stop")
    assert "tools" in server.requests[0].body
    assert "tools" not in model.requests[0]


def test_a_request_without_a_step_is_final_for_clients_and_fails_the_test() -> None:
    model = ScriptedModel()
    with FakeChatServer(model) as server, client_of(server).with_options(max_retries=2) as client:
        with pytest.raises(openai.APIStatusError, match="no step left") as caught:
            client.chat.completions.create(model="scripted-1", messages=[GOAL])
        assert caught.value.status_code == 410
        assert len(server.requests) == 1
    with pytest.raises(AssertionError, match="no step left"), model:
        pass


# -------------------------------------------------------------------------------- many, slow and gone clients


def test_many_clients_are_served_at_once(model: ScriptedModel, server: FakeChatServer) -> None:
    all_here, count, waiting = Event(), 20, []

    def together(body: dict[str, Any]) -> Step:
        waiting.append(body)
        if len(waiting) == count:
            all_here.set()
        assert all_here.wait(30)
        return says(body["messages"][0]["content"])

    model.always(together)
    with ThreadPoolExecutor(count) as pool:
        answers = list(pool.map(lambda place: ask(server, user(f"goal {place}")), range(count)))
    assert [each.choices[0].message.content for each in answers] == [f"goal {place}" for place in range(count)]
    times = [each.at for each in server.requests]
    assert len(times) == count
    assert all(isinstance(each, float) for each in times)


def test_a_client_that_hangs_up_is_no_crash(model: ScriptedModel, server: FakeChatServer, capfd: pytest.CaptureFixture[str]) -> None:
    asked, gone = Event(), Event()

    def wait(body: dict[str, Any]) -> Step:
        asked.set()
        assert gone.wait(30)
        return says("x" * 10_000_000)

    model.on("Hang", wait)
    model.on("files", says("hi"))
    host, _, port = server.base_url.split("/")[2].partition(":")
    body = json.dumps({"model": "scripted-1", "messages": [user("Hang up.")]}).encode()
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert asked.wait(30)
    gone.set()
    assert ask(server).choices[0].message.content == "hi"
    assert "Traceback" not in capfd.readouterr().err


def test_pauses_of_a_script_end_with_the_server(model: ScriptedModel) -> None:
    asked = Semaphore(0)

    def told(body: dict[str, Any]) -> Step:
        asked.release()
        return says("at last").slowly(600) if body.get("stream") else says("at last").after(600)

    model.on("files", told, told)
    with ThreadPoolExecutor(2) as pool:
        with FakeChatServer(model) as server:
            late, slow = pool.submit(ask, server), pool.submit(streamed, server)
            assert asked.acquire(timeout=30)
            assert asked.acquire(timeout=30)
        assert late.result(30).choices[0].message.content == "at last"
        assert "".join(each.choices[0].delta.content or "" for each in slow.result(30)) == "at last"
