"""Odd models, odd tools and odd servers: the agent goes on, or says in one line why not; every request stays valid."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from baton_actors.agent.chat import ChatModel
from baton_actors.agent.model import ModelError, Reply, Request
from baton_actors.capabilities.tool import tool
from baton_actors.testing import ScriptedModel, Step, calls, says
from tests.unit.agents import Stage

pytestmark = pytest.mark.usefixtures("without_pauses")


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def answers(body: dict[str, Any]) -> list[str]:
    return [message["content"] for message in body["messages"] if message["role"] == "tool"]


# ---------------------------------------------------------------- models


@pytest.mark.parametrize(
    "judgement",
    [
        says("I think it fits."),
        says('```json\n{"fits": true, "reason": "small"}\n```'),
        says('{"subtasks": "none"}'),
        says('{"subtasks": [{"goal": "the only part"}]}'),
        says('{"fits": false, "subtasks": [null, 3, {"goal": 5}, {}]}'),
        says("{" * 50),
        says(None, refusal="I do not judge."),
        calls(("spawn_task", {"goal": "a part"})),
    ],
)
def test_a_judgement_that_says_nothing_of_use_means_that_the_task_is_done_as_it_is(judgement: Step) -> None:
    with ScriptedModel(judgement, says("42")) as model:
        stage = Stage(model)
        assert stage.run("What is it?").result == "42"
    assert [data["broken_down"] for data in stage.data("decision")] == [False]


def test_ids_that_are_missing_or_there_twice_are_told_apart() -> None:
    """M7."""
    named = [("add", {"a": n, "b": 1}, id) for n, id in enumerate(["x", "x", "", None])]
    with ScriptedModel(calls(*named), says("ok")) as model:
        assert Stage(model).run("Go", breakdown="never", tools=[add]).result == "ok"
    assert model.refused == []
    assert answers(model.requests[1]) == ["1", "2", "3", "4"]


def test_an_id_that_comes_again_in_every_round_belongs_to_its_own_round() -> None:
    """M8."""

    def reply(body: dict[str, Any]) -> Step:
        done = len(answers(body))
        return says("ok") if done == 3 else calls(("add", {"a": done, "b": 1}, "same"))

    with ScriptedModel() as model:
        model.always(reply)
        assert Stage(model).run("Go", breakdown="never", tools=[add]).result == "ok"
    assert model.refused == []
    assert answers(model.requests[-1]) == ["1", "2", "3"]


def test_a_hundred_calls_of_one_reply_are_all_answered() -> None:
    with ScriptedModel(calls(*(("add", {"a": n, "b": 1}) for n in range(100))), says("ok")) as model:
        assert Stage(model).run("Go", breakdown="never", tools=[add]).result == "ok"
    assert model.refused == []
    assert answers(model.requests[1]) == [str(n + 1) for n in range(100)]


# ---------------------------------------------------------------- tools


@pytest.mark.parametrize(
    "value", ["", None, {}, [], 0, False, "\x00\ud800", b"\xff", {"a": float("nan")}, "x" * 13_000_000], ids=lambda value: repr(value)[:20]
)
def test_whatever_a_tool_returns_is_a_bounded_text_that_every_server_takes(value: Any) -> None:
    """M9."""

    def give() -> Any:
        """Give it."""
        return value

    with ScriptedModel(calls(("give", {})), says("ok")) as model:
        assert Stage(model).run("Go", breakdown="never", tools=[give]).result == "ok"
    assert model.refused == []
    [told] = answers(model.requests[1])
    assert len(told) <= 20_000


def test_a_tool_that_hangs_in_its_thread_keeps_nobody() -> None:
    gate = threading.Event()

    @tool(timeout=0.05)
    def hang() -> None:
        """Hang."""
        gate.wait(30)

    with ScriptedModel(calls(("hang", {}), ("add", {"a": 1, "b": 1})), says("ok")) as model:
        assert Stage(model).run("Go", breakdown="never", tools=[hang, add]).result == "ok"
    gate.set()
    assert answers(model.requests[1]) == ["timed out after 0.05 s; what it had begun may still take effect", "2"]


class Shape(BaseModel):
    """A shape, perhaps with another one in it."""

    kind: Literal["round", "square"]
    inner: "Shape | None" = None


def test_parameters_that_refer_to_themselves_are_called_by_structured_actions() -> None:
    def draw(shape: Shape, more: list[Shape], either: int | Shape | None = None) -> str:
        """Draw it."""
        return shape.kind + shape.inner.kind if shape.inner else shape.kind

    given = {"shape": {"kind": "round", "inner": {"kind": "square"}}, "more": []}
    act = says(json.dumps({"action": "tool", "name": "draw", "arguments": given}))
    with ScriptedModel(act, says('{"action": "final", "answer": "drawn"}')) as model:
        assert Stage(model, dialect="actions").run("Go", breakdown="never", tools=[draw]).result == "drawn"
    assert model.refused == []
    assert model.requests[1]["messages"][-1]["content"] == "Result of draw:\nroundsquare"


# ---------------------------------------------------------------- servers


@contextmanager
def server(answer: bytes) -> Iterator[tuple[str, threading.Event]]:
    """The address of a server that gives each request those bytes; the event is set when its client hangs up."""
    hung_up = threading.Event()

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:  # closed: the test is over
                return
            with connection:
                connection.settimeout(10)
                connection.recv(65_536)
                connection.sendall(answer)
                if answer.endswith(b"0\r\n\r\n") or b"Content-Length" in answer:
                    continue
                while connection.recv(65_536):
                    pass
                hung_up.set()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1", hung_up
        listening.shutdown(socket.SHUT_RDWR)


def stream(*lines: str, ends: bool = True) -> bytes:
    body = "".join(f"{line}\n\n" for line in lines).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    return head + f"{len(body):x}\r\n".encode() + body + b"\r\n" + (b"0\r\n\r\n" if ends else b"")


def whole(body: str) -> bytes:
    data = body.encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def piece(text: str, reason: str | None = None) -> str:
    return "data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]})


async def asked(url: str, on_text: Any = None) -> Reply:
    return await ChatModel(url, None, timeout=10).answer(Request("any", [{"role": "user", "content": "hi"}], on_text=on_text))


@pytest.mark.parametrize(
    "body",
    [
        stream(": ping", piece("a"), piece("b", "stop"), "data: [DONE]"),
        stream('data: {"choices": null}', piece("ab", "stop"), "data: [DONE]"),
        stream(piece("ab", "stop"), 'data: {"choices": [], "usage": null}', "data: [DONE]"),
        whole('{"choices": [{"message": {"content": "ab"}, "finish_reason": 5}], "usage": []}'),
        whole('{"choices": [{"message": {"content": "ab", "tool_calls": [null, 5, {"function": null}]}}]}'),
    ],
)
def test_an_answer_with_oddities_around_it_is_read(body: bytes) -> None:
    with server(body) as (url, _):
        assert asyncio.run(asked(url, lambda text: None)).message == {"role": "assistant", "content": "ab"}


@pytest.mark.parametrize(
    ("body", "meaning"),
    [
        (stream(piece("a"), 'data: {"error": {"message": "overloaded", "code": 503}}'), "retry"),
        (stream(piece("a"), "data: [DONE]"), "retry"),
        (stream("data: [DONE]"), "retry"),
        (whole('{"choices": {}}'), "retry"),
        (whole('{"choices": [null]}'), "retry"),
        (whole('{"error": "boom"}'), "final"),
        (whole("null"), "final"),
        (whole("<html>"), "final"),
    ],
)
def test_no_answer_is_an_error_that_says_what_it_means(body: bytes, meaning: str) -> None:
    """R1, R2."""
    with server(body) as (url, _), pytest.raises(ModelError) as error:
        asyncio.run(asked(url, lambda text: None))
    assert error.value.meaning == meaning
    assert "\n" not in str(error.value)


def test_a_stream_is_hung_up_when_its_run_is_stopped() -> None:
    async def story(url: str, hung_up: threading.Event) -> bool:
        begun = asyncio.Event()
        task = asyncio.create_task(asked(url, lambda text: begun.set()))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await asyncio.to_thread(hung_up.wait, 10)

    with server(stream(piece("Once upon"), ends=False)) as (url, hung_up):
        assert asyncio.run(story(url, hung_up))
