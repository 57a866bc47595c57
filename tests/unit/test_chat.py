"""Chat Completions over real HTTP, against the strict server and against servers that do it in their own way."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from baton_actors.agent.chat import ChatModel, listed_models
from baton_actors.agent.model import ModelError, Reply, Request
from baton_actors.errors import ModelUnusable
from baton_actors.testing import FakeChatServer, ScriptedModel, calls, fails, forbid_model_calls, says

GO = [{"role": "user", "content": "Go"}]
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}


def ask(url: str, *, key: str | None = None, timeout: float = 20, **fields: Any) -> Reply:
    async def story() -> Reply:
        return await ChatModel(url, key, timeout=timeout).answer(Request("scripted-1", fields.pop("messages", GO), **fields))

    return asyncio.run(story())


@contextmanager
def answering(*answers: tuple[int, str, str]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that gives these answers (status, content type, text), whatever is asked; its address and what it was asked."""
    left = list(answers)
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self._reply()

        def do_GET(self) -> None:
            self._reply()

        def _reply(self) -> None:
            status, kind, text = left.pop(0) if len(left) > 1 else left[0]
            data = text.encode()
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1", asked
        finally:
            server.shutdown()
            thread.join()


def answer(text: str) -> tuple[int, str, str]:
    return 200, "application/json", json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})


def complaint(words: str, status: int = 400) -> tuple[int, str, str]:
    return status, "application/json", json.dumps({"error": {"message": words}})


@pytest.mark.parametrize("streamed", [False, True])
def test_text_calls_and_usage_come_through(streamed: bool) -> None:
    heard: list[str] = []
    on_text = heard.append if streamed else None
    with (
        ScriptedModel(says("to mato 🍅", reasoning_content="hm"), calls(("add", {"a": 1}), ("add", {"a": 2}))) as model,
        FakeChatServer(model) as server,
    ):
        first = ask(server.base_url, on_text=on_text)
        second = ask(server.base_url, on_text=on_text, tools=[ADD])
        assert server.refused == []
    assert first.message["content"] == "to mato 🍅"
    assert first.message["reasoning_content"] == "hm"
    assert first.usage["tokens_in"] > 0
    assert [call["function"]["arguments"] for call in second.message["tool_calls"]] == ['{"a": 1}', '{"a": 2}']
    assert second.finish_reason == "tool_calls"
    assert "".join(heard) == ("to mato 🍅" if streamed else "")


def test_a_server_that_does_not_stream_though_asked_is_understood() -> None:
    with answering(answer("in one piece")) as (url, asked):
        assert ask(url, on_text=lambda _: None).message["content"] == "in one piece"
    assert asked[0]["stream"] is True


def test_a_stream_that_breaks_off_is_retryable() -> None:
    chunk = json.dumps({"choices": [{"delta": {"content": "half"}, "finish_reason": None}]})
    with answering((200, "text/event-stream", f"data: {chunk}\n\n")) as (url, _), pytest.raises(ModelError, match="broke off") as caught:
        ask(url, on_text=lambda _: None)
    assert caught.value.meaning == "retry"


def test_an_error_told_in_a_stream_is_the_providers_error() -> None:
    told = json.dumps({"error": {"message": "out of capacity", "code": 503}})
    with (
        answering((200, "text/event-stream", f"data: {told}\n\n")) as (url, _),
        pytest.raises(ModelError, match="out of capacity") as caught,
    ):
        ask(url, on_text=lambda _: None)
    assert caught.value.meaning == "retry"


def test_max_tokens_is_renamed_once_and_remembered() -> None:
    words = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."

    async def story(url: str) -> None:
        model = ChatModel(url, None, timeout=20)
        for _ in range(2):
            await model.answer(Request("m", GO, max_tokens=5))

    with answering(complaint(words), answer("ok")) as (url, asked):
        asyncio.run(story(url))
    assert ["max_tokens" in body for body in asked] == [True, False, False]
    assert asked[2]["max_completion_tokens"] == 5


@pytest.mark.parametrize("name", ["temperature", "stream_options"])
def test_a_parameter_that_is_refused_is_left_out(name: str) -> None:
    with answering(complaint(f"Unsupported value: '{name}' does not support this"), answer("ok")) as (url, asked):
        ask(url, temperature=0.0, on_text=lambda _: None)
    assert name in asked[0]
    assert name not in asked[1]


def test_a_page_of_a_proxy_says_where_to_look() -> None:
    page = "<html><head><title>Welcome to the intranet</title></head></html>"
    with answering((200, "text/html", page)) as (url, _), pytest.raises(ModelError, match=r"HTML page.*Welcome.*OPENAI_BASE_URL"):
        ask(url)
    with answering((502, "text/html", page)) as (url, _), pytest.raises(ModelError, match="Welcome to the intranet") as caught:
        ask(url)
    assert caught.value.meaning == "retry"


def test_nothing_listens_is_retryable_and_says_where() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(ModelError, match=f"cannot reach the model at {url}") as caught:
            ask(url)
    assert caught.value.meaning == "retry"


def test_a_model_that_takes_too_long_is_retryable() -> None:
    late = pytest.raises(ModelError, match="did not answer in time")
    with ScriptedModel() as model, FakeChatServer(model) as server, late as caught:
        model.always(says("late").after(60))
        ask(server.base_url, timeout=0.5)
    assert caught.value.meaning == "retry"


def test_a_wrong_key_and_an_unknown_model_are_final_and_say_what_to_check() -> None:
    with ScriptedModel() as model, FakeChatServer(model, key="right") as server:
        with pytest.raises(ModelError, match="OPENAI_API_KEY") as caught:
            ask(server.base_url, key="wrong")
        assert caught.value.meaning == "final"
    with ScriptedModel() as model, FakeChatServer(model, listed=["other"]) as server, pytest.raises(ModelError, match="--model"):
        ask(server.base_url)


def test_retry_after_comes_with_the_error() -> None:
    slow = fails(429, "slow", {"Retry-After": "7"})
    with ScriptedModel(slow) as model, FakeChatServer(model) as server, pytest.raises(ModelError) as caught:
        ask(server.base_url)
    assert (caught.value.meaning, caught.value.after) == ("retry", 7)


# ---------------------------------------------------------------- the list of models


def test_models_are_listed() -> None:
    with ScriptedModel() as model, FakeChatServer(model, listed=["a", "b"], key="right") as server:
        assert listed_models(server.base_url, "right") == ["a", "b"]
        with pytest.raises(ModelUnusable, match="refuses OPENAI_API_KEY"):
            listed_models(server.base_url, "wrong")
        with pytest.raises(ModelUnusable, match="asks for a key"):
            listed_models(server.base_url, None)


def test_a_server_that_lists_nothing_is_not_asked_further() -> None:
    for status in (400, 404, 405, 501):
        with answering((status, "application/json", "{}")) as (url, _):
            assert listed_models(url, None) is None
    with answering((200, "application/json", '{"models": []}')) as (url, _):
        assert listed_models(url, None) is None


def test_a_page_instead_of_a_list_and_nobody_there() -> None:
    with answering((200, "text/html", "<html><title>Hi</title></html>")) as (url, _), pytest.raises(ModelUnusable, match="HTML"):
        listed_models(url, None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ModelUnusable, match="no model answers there"):
            listed_models(f"http://127.0.0.1:{taken.getsockname()[1]}/v1", None)


def test_calls_to_real_models_can_be_forbidden() -> None:
    with forbid_model_calls(), pytest.raises(ModelUnusable):
        ChatModel("https://api.example.com/v1", "key", timeout=5)
