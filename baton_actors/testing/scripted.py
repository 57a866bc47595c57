"""A model that does what a script says: without HTTP as a `Model`, or behind a `FakeChatServer`."""

import asyncio
import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from types import TracebackType
from typing import Any, Self, TypeAlias

from baton_actors.agent.answers import error_of, reply_of
from baton_actors.agent.model import ModelError, Reply, Request
from baton_actors.testing.checking import error_body
from baton_actors.testing.steps import Step, pieces_of
from baton_actors.testing.strict import objection

#: A step, or a function that makes one of the body of the request.
Scripted: TypeAlias = Step | Callable[[dict[str, Any]], Step]
#: The status where the script has no answer: it is final for clients. After a 500 they would ask again and again.
OFF_SCRIPT = 410


@dataclass(slots=True)
class Route:
    """The script of some conversations; made by `ScriptedModel.on`."""

    name: str
    where: Callable[[dict[str, Any]], bool] | str
    steps: deque[Scripted] = field(default_factory=deque)
    forever: Scripted | None = None

    def always(self, step: Scripted) -> None:
        """What is done with each request after the last step."""
        self.forever = step

    def takes(self, body: dict[str, Any], text: str) -> bool:
        """Whether a request belongs to it, of whose user messages this is one."""
        return self.where in text if isinstance(self.where, str) else self.where(body)

    def next(self) -> Scripted | None:
        """The step of one more request; None if there is none."""
        return self.steps.popleft() if self.steps else self.forever


class ScriptedModel:
    """A model that does, request by request, what its script says.

    Args:
        steps: of the conversations that no route takes, in order.

    Attributes:
        requests: the bodies of the requests that got a step or should have got one, as they came. refused: bodies that the real
            endpoint would not accept, with its answer.

    Leaving the `with` block raises AssertionError for each step that was not used, and for each request that had none.
    """

    def __init__(self, *steps: Scripted) -> None:
        self.requests: list[dict[str, Any]] = []
        self.refused: list[tuple[Any, dict[str, Any]]] = []
        self._routes: list[Route] = []
        self._rest = Route("any conversation", lambda body: True, deque(steps))
        self._faults: list[str] = []
        self._cause: Exception | None = None
        self._lock = Lock()

    def on(self, where: str | Callable[[dict[str, Any]], bool], *steps: Scripted) -> Route:
        """Give some conversations a script of their own; the first route that fits takes a request.

        Args:
            where: a text in the first user message; else, if no route's text is there, in the last one. Or a function of the body.
        """
        route = Route(repr(where) if isinstance(where, str) else getattr(where, "__name__", "a function"), where, deque(steps))
        self._routes.append(route)
        return route

    def always(self, step: Scripted) -> None:
        """What is done with each request that no route takes, after the last step."""
        self._rest.always(step)

    def step_for(self, body: dict[str, Any]) -> Step:
        """Take the next step for a request; safe to call from several threads."""
        with self._lock:
            self.requests.append(body)
        try:
            route = self._route(body)
            with self._lock:
                step = route.next()
            made = _made(step, body) if callable(step) else step
        except Exception as error:  # functions of a test: whatever they raise belongs into its report
            self._cause = error
            return self._off_script(f"the script raised {type(error).__name__}: {error}, for the request {_told(body)}")
        return made or self._off_script(f"no step left in the script of {route.name} for the request {_told(body)}")

    def _off_script(self, fault: str) -> Step:
        self._faults.append(fault)
        return Step("off script", status=OFF_SCRIPT, body=error_body(fault, kind="script_error"))

    def _route(self, body: dict[str, Any]) -> Route:
        asked = [_text_of(each.get("content")) for each in body["messages"] if each["role"] == "user"] or [""]
        fitting = (route for text in (asked[0], asked[-1]) for route in self._routes if route.takes(body, text))
        return next(fitting, self._rest)

    async def answer(self, request: Request) -> Reply:
        """See `Model.answer`; a request that the real endpoint would refuse is refused here too."""
        body = _body_of(request)
        if refusal := objection(body):
            self.refused.append((body, refusal))
            raise ModelError(f"the strict server answered 400: {refusal['error']['message']}")
        body = json.loads(json.dumps(body))
        step = self.step_for(body)
        await asyncio.sleep(step.before)
        if step.status != 200:
            headers = {name.lower(): value for name, value in step.headers.items()}
            raise error_of(step.status, step.body, headers, tools=bool(request.tools), schema=request.schema is not None)
        reply = reply_of(_parsed(step.answer_to(body)), tools=bool(request.tools), schema=request.schema is not None)
        content = reply.message.get("content")
        if request.on_text is not None and isinstance(content, str):
            for piece in pieces_of(content):
                request.on_text(piece)
                await asyncio.sleep(step.between)
        return reply

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        left = [
            f"step not used: {_name_of(step)}, in the script of {route.name}"
            for route in (*self._routes, self._rest)
            for step in route.steps
        ]
        faults = [*self._faults, *left]
        if not faults:
            return
        told = f"{len(faults)} faults of the script:\n" + "\n".join(f"- {fault}" for fault in faults)
        if error is not None:
            error.add_note(told)
        else:
            raise AssertionError(told) from self._cause


def _made(function: Callable[[dict[str, Any]], Any], body: dict[str, Any]) -> Step:
    step = function(body)
    if not isinstance(step, Step):
        raise TypeError(f"{_name_of(function)} returned {step!r}, which is no step; return says(…), calls(…), fails(…) or raw(…)")
    return step


def _body_of(request: Request) -> dict[str, Any]:
    """The body that a client would send."""
    body: dict[str, Any] = {"model": request.model, "messages": [dict(message) for message in request.messages]}
    if request.tools:
        body["tools"] = [dict(tool) for tool in request.tools]
    if request.schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "reply", "schema": dict(request.schema)}}
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    return body | ({"stream": True} if request.on_text is not None else {})


def _parsed(body: Any) -> Any:
    """A raw text as a client reads it; one that is no JSON is no answer."""
    if not isinstance(body, str):
        return body
    try:
        return json.loads(body)
    except ValueError:
        return None


def _text_of(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
    return content if isinstance(content, str) else ""


def _name_of(step: Scripted) -> str:
    return step.name if isinstance(step, Step) else f"the function {getattr(step, '__name__', step)!r}"


def _told(body: dict[str, Any]) -> str:
    """A request as a person finds it again: how many messages, and the last one."""
    last = body["messages"][-1]
    text = " ".join(_text_of(last.get("content")).split())
    return f"with {len(body['messages'])} messages, the last of {last['role']}: {text[:200]!r}"
