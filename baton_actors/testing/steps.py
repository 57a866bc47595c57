"""The steps of a script: what a model does with one request. Values, and the bodies that a server makes of them."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from baton_actors.testing.checking import error_body

#: Characters of a text that a token stands for where usage is counted.
CHARACTERS_PER_TOKEN = 4
#: A streamed text comes in at most so many pieces.
MOST_PIECES = 8
#: Type and code of a provider's error, where a script names only the status.
_KINDS = {
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}


@dataclass(frozen=True, slots=True)
class Step:
    """What a model does with one request; made by `says`, `calls`, `fails` and `raw`.

    Attributes:
        name: how it is called where it was not used. status: of the HTTP answer. message: of the assistant; None: `body` is the
            whole answer. finish_reason, usage: beside the message; `usage` None is counted. headers: of the HTTP answer.
        before: seconds until the answer begins. between: seconds between the pieces of a streamed one.
    """

    name: str
    status: int = 200
    message: Mapping[str, Any] | None = None
    finish_reason: str = "stop"
    usage: Mapping[str, Any] | None = None
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    before: float = 0.0
    between: float = 0.0

    def after(self, seconds: float) -> "Step":
        """The same step, begun so many seconds after the request."""
        return replace(self, before=seconds)

    def slowly(self, seconds: float) -> "Step":
        """The same step, with so many seconds between the pieces of a streamed answer."""
        return replace(self, between=seconds)

    def answer_to(self, request: Mapping[str, Any]) -> Any:
        """The whole body of the answer to a request."""
        return self.body if self.message is None else self._completion(self.message, request)

    def _completion(self, message: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
        round = sum(each["role"] == "assistant" for each in request["messages"]) + 1
        said = {"role": "assistant", **message}
        if "tool_calls" in said:
            said["tool_calls"] = [{"id": f"call_{round}_{place}", **call} for place, call in enumerate(said["tool_calls"])]
        return {
            "id": f"chatcmpl-{round}",
            "object": "chat.completion",
            "created": 1_764_500_000,
            "model": request["model"],
            "choices": [{"index": 0, "message": said, "logprobs": None, "finish_reason": self.finish_reason}],
            "usage": dict(self.usage) if self.usage is not None else _counted(request["messages"], message),
            "system_fingerprint": None,
        }


def _counted(messages: Any, message: Mapping[str, Any]) -> dict[str, Any]:
    asked, said = (1 + len(json.dumps(each, ensure_ascii=False)) // CHARACTERS_PER_TOKEN for each in (messages, message))
    return {
        "prompt_tokens": asked,
        "completion_tokens": said,
        "total_tokens": asked + said,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def says(text: str | None, *, finish_reason: str = "stop", usage: Mapping[str, Any] | None = None, **fields: Any) -> Step:
    """The model answers with a text.

    Args:
        text: None: no content. finish_reason: `stop`, `length`, `content_filter`, …
        usage: as the server tells it; None: counted from the texts.
        fields: of the message, beside the content: `refusal="No."`, `reasoning_content="Hm."`.
    """
    message = {"content": text, "refusal": None, **fields}
    return Step(f"says({_brief(text)})", message=message, finish_reason=finish_reason, usage=usage)


def calls(
    *named: tuple[Any, ...],
    text: str | None = None,
    finish_reason: str = "tool_calls",
    usage: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Step:
    """The model calls tools.

    Args:
        named: `(name, arguments)` or `(name, arguments, id)` each. Arguments are dumped as JSON, but a text and None go as they
            stand, broken or not. An id that is not given is made from the round and the place of the call.
        text: the content beside the calls. finish_reason, usage, fields: as of `says`.
    """
    made = [_call(*each) for each in named]
    message = {"content": text, "refusal": None, **fields, "tool_calls": made}
    name = f"calls({', '.join(str(each[0]) for each in named)})"
    return Step(name, message=message, finish_reason=finish_reason, usage=usage)


def _call(name: Any, arguments: Any, *id: Any) -> dict[str, Any]:
    told = arguments if arguments is None or isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {**({"id": id[0]} if id else {}), "type": "function", "function": {"name": name, "arguments": told}}


def fails(status: int, error: str | Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Step:
    """The server answers with an error.

    Args:
        status: of the HTTP answer. error: the message, or the whole body. headers: for instance `{"Retry-After": "2"}`.
    """
    kind, code = _KINDS.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
    body = error_body(error, kind=kind, code=code) if isinstance(error, str) else dict(error)
    return Step(f"fails({status})", status=status, body=body, headers=dict(headers or {}))


def raw(body: Any) -> Step:
    """The server answers 200 with just this body: a JSON value, or a text that is sent as it stands (no JSON, half a stream)."""
    return Step(f"raw({_brief(body)})", body=body)


def _brief(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:59]}…"


def pieces_of(text: str) -> list[str]:
    """A text as it is generated; the pieces together are the text."""
    size = max(1, -(-len(text) // MOST_PIECES))
    return [text[start : start + size] for start in range(0, len(text), size)]


def chunks_of(body: Any, *, with_usage: bool) -> Iterator[Any]:
    """The chunks in which a server streams the answer that would have this body; a body without choices is the only chunk.

    Args:
        with_usage: a last chunk without choices tells the usage.
    """
    choices = body.get("choices") if isinstance(body, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        yield body
        return
    head = {name: body[name] for name in ("id", "created", "model", "system_fingerprint") if name in body}
    head |= {"object": "chat.completion.chunk"} | ({"usage": None} if with_usage else {})
    for delta in _deltas(choices[0].get("message") or {}):
        yield {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": choices[0].get("finish_reason")}]}
    if with_usage:
        yield {**head, "choices": [], "usage": body.get("usage")}


def _deltas(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Role first, then fields that only some servers have, then the text, then each call: its head, and its arguments in pieces."""
    content = message.get("content")
    yield {"role": "assistant", "content": None if content is None else ""}
    for name, value in message.items():
        if name not in ("role", "content", "tool_calls") and value is not None:
            yield {name: value}
    for piece in pieces_of(content) if isinstance(content, str) else [content] if content is not None else []:
        yield {"content": piece}
    for place, call in enumerate(message.get("tool_calls") or ()):
        function = call.get("function") or {}
        arguments = function.get("arguments")
        if not isinstance(arguments, str):
            yield {"tool_calls": [{"index": place, **call}]}
            continue
        yield {"tool_calls": [{"index": place, **call, "function": {**function, "arguments": ""}}]}
        for piece in pieces_of(arguments):
            yield {"tool_calls": [{"index": place, "function": {"arguments": piece}}]}
