"""A real HTTP server of the Chat Completions protocol on 127.0.0.1, as strict as the real endpoint, behind it a `ScriptedModel`."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from types import TracebackType
from typing import Any, Literal, Self

from baton_actors.testing.checking import error_body
from baton_actors.testing.scripted import ScriptedModel
from baton_actors.testing.steps import Step, chunks_of
from baton_actors.testing.strict import objection


@dataclass(frozen=True, slots=True)
class Received:
    """A request that came in.

    Attributes:
        at: when, in seconds of the monotonic clock. body: as it was sent. key: of the `Authorization` header.
    """

    at: float
    body: Any
    key: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that was not given to the model: its answer's `status` and `error` body."""

    request: Received
    status: int
    error: dict[str, Any]


class FakeChatServer:
    """The server; it runs inside the `with` block.

    Args:
        model: says what is answered. listed: the models it has; None: it lists none and takes every name.
        key: that a client must show; None: any, or none.
        tools: True: calls go through. False: a request with tools is refused. `"text"`: a call is written as JSON into the content.
            `"ignored"`: the model does not hear of the tools, and its calls are lost.
        schemas: False: a request for a JSON schema is refused. The text of a script is sent as it stands either way.

    Attributes:
        requests: those that were answered by the model. refused: those that were not; `server.refused == []` says that each
            request was valid.
    """

    def __init__(
        self,
        model: ScriptedModel,
        *,
        listed: Sequence[str] | None = ("scripted-1",),
        key: str | None = None,
        tools: bool | Literal["text", "ignored"] = True,
        schemas: bool = True,
    ) -> None:
        self.model = model
        self.listed = listed
        self.key = key
        self.tools = tools
        self.schemas = schemas
        self.requests: list[Received] = []
        self.refused: list[Refused] = []
        #: Set when the server stops: ends the pauses of a script.
        self.stopping = Event()
        self._server = _Server(("127.0.0.1", 0), _connection_of(self))
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def base_url(self) -> str:
        """Up to and with `/v1`."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def refusal(self, request: Received) -> tuple[int, dict[str, Any]] | None:
        """Status and body of the answer to a request that the model is not to see; None if it may."""
        if told := self.wrong_key(request.key):
            return 401, told
        if told := objection(request.body):
            return 400, told
        name = request.body["model"]
        if self.listed is not None and name not in self.listed:
            told = error_body(f"The model `{name}` does not exist or you do not have access to it.", code="model_not_found")
            return 404, told
        if self.tools is False and "tools" in request.body:
            return 400, error_body(f"{name} does not support tools", kind="api_error")
        wanted = request.body.get("response_format") or {}
        if not self.schemas and wanted.get("type") == "json_schema":
            return 400, error_body("Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.")
        return None

    def wrong_key(self, key: str | None) -> dict[str, Any] | None:
        """The body of the answer 401, if the key is not the one."""
        if self.key is None or key == self.key:
            return None
        if not key:
            return error_body(
                "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth."
            )
        return error_body(f"Incorrect API key provided: {key[:3]}***{key[-2:]}.", code="invalid_api_key")

    def answer_to(self, step: Step, body: dict[str, Any]) -> Any:
        """The body of a step's answer, as this kind of server gives it."""
        answer = step.answer_to(body)
        return _in_text(answer, written=self.tools == "text") if step.message is not None and self.tools in ("text", "ignored") else answer


def _in_text(answer: dict[str, Any], *, written: bool) -> dict[str, Any]:
    """A completion without calls: they are written into its content, or left out."""
    choice = answer["choices"][0]
    message = dict(choice["message"])
    calls = message.pop("tool_calls", None)
    if calls is None:
        return answer
    text = message.get("content") or ""
    if written:
        shown = [_as_json(call["function"]) for call in calls]
        text += ("\n" if text else "") + (shown[0] if len(shown) == 1 else f"[{', '.join(shown)}]")
    return {**answer, "choices": [{**choice, "message": {**message, "content": text}, "finish_reason": "stop"}]}


def _as_json(function: dict[str, Any]) -> str:
    """A call as a model writes it: its arguments are no text in a text, but stand there as they are, broken or not."""
    arguments = function["arguments"]
    return f'{{"name": {json.dumps(function["name"])}, "arguments": {"null" if arguments is None else arguments}}}'


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    #: A thousand clients may connect at once; those that do not fit wait for a second before they try again.
    request_queue_size = 1_024

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients hang up; the rest is a fault of ours, and is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _connection_of(fake: FakeChatServer) -> Callable[..., BaseHTTPRequestHandler]:
    return lambda *args: _Connection(fake, *args)


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, fake: FakeChatServer, *args: Any) -> None:
        self.fake = fake
        super().__init__(*args)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a test's output is its own."""

    def do_GET(self) -> None:
        if told := self.fake.wrong_key(self._key()):
            self._send(401, told)
        elif self.path.split("?")[0] == "/v1/models" and self.fake.listed is not None:
            names = self.fake.listed
            models = [{"id": name, "object": "model", "created": 1_764_500_000, "owned_by": "script"} for name in names]
            self._send(200, {"object": "list", "data": models})
        else:
            self._send_unknown_path()

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.split("?")[0] != "/v1/chat/completions":
            self._send_unknown_path()
            return
        request = Received(time.monotonic(), _parsed(data), self._key())
        if refusal := self.fake.refusal(request):
            self.fake.refused.append(Refused(request, *refusal))
            self._send(*refusal)
            return
        self.fake.requests.append(request)
        self._answer(request.body)

    def _answer(self, body: dict[str, Any]) -> None:
        heard = body
        if self.fake.tools == "ignored":
            heard = {name: value for name, value in body.items() if name not in ("tools", "tool_choice", "parallel_tool_calls")}
        step = self.fake.model.step_for(heard)
        self.fake.stopping.wait(step.before)
        answer = self.fake.answer_to(step, heard)
        if step.status == 200 and body.get("stream"):
            self._stream(step, answer, with_usage=bool((body.get("stream_options") or {}).get("include_usage")))
        else:
            self._send(step.status, answer, step.headers)

    def _stream(self, step: Step, answer: Any, *, with_usage: bool) -> None:
        self._begin(200, "text/event-stream; charset=utf-8", {**step.headers, "Transfer-Encoding": "chunked"})
        if isinstance(answer, str):
            self._write_chunk(_json(answer))
        else:
            for chunk in chunks_of(answer, with_usage=with_usage):
                self._write_chunk(b"data: " + _json(chunk) + b"\n\n")
                self.fake.stopping.wait(step.between)
            self._write_chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _write_chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _key(self) -> str | None:
        scheme, _, key = self.headers.get("Authorization", "").partition(" ")
        return key.strip() or None if scheme.lower() == "bearer" else None

    def _send_unknown_path(self) -> None:
        self._send(404, error_body(f"Invalid URL ({self.command} {self.path})"))

    def _send(self, status: int, body: Any, headers: Any = None) -> None:
        data = _json(body)
        self._begin(status, "application/json", {**(headers or {}), "Content-Length": str(len(data))})
        self.wfile.write(data)

    def _begin(self, status: int, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **headers}.items():
            self.send_header(name, value)
        self.end_headers()


def _parsed(data: bytes) -> Any:
    """The JSON of a request; its text if it is none, which is then refused as no object."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return data.decode(errors="replace")


def _json(value: Any) -> bytes:
    """A text as it stands, all else as JSON in UTF-8; a lone surrogate goes as its escape, as real servers send it."""
    try:
        return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()
