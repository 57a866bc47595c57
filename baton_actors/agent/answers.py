"""What a server of the Chat Completions protocol sends back, read with patience: pure, no HTTP, no client library.

Servers differ in every field that is not asked for by everybody. A body becomes a `Reply` or a `ModelError` that says what it
means; the pieces of a stream become the body that would have come at once.
"""

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeGuard

from baton_actors.agent.conversation import normalised_calls
from baton_actors.agent.model import Meaning, ModelError, Reply

#: Characters of a server's own words that are kept in an error.
MOST_WORDS = 400
#: How a tool is called whose name no server would take back.
UNUSABLE = "unknown_tool"
#: Codes, types and words by which servers say that a conversation is too long (OpenAI, llama.cpp, vLLM, Anthropic, Google, …).
_TOO_LONG = (
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "context length",
    "context window",
    "context size",
    "prompt is too long",
    "input is too long",
    "too many tokens",
    "input token count",
    "reduce the length",
)
#: No call uses more tokens, or costs more.
_MOST_AMOUNT = 1e12
_ABOUT_TOOLS = ("tools", "tool_choice", "tool choice", "tool use", "tool call", "tool-call", "function call", "functions")
_ABOUT_SCHEMA = ("response_format", "json_schema", "json schema", "structured output", "guided", "grammar")
_NO_MONEY = ("insufficient_quota", "billing", "credit")


def reply_of(body: Any, *, tools: bool = False, schema: bool = False) -> Reply:
    """The answer in a body that came with HTTP 200; `tools` and `schema` as for `error_of`.

    Raises:
        ModelError: there is none in it, or the model refused.
    """
    if isinstance(body, list) and body and isinstance(body[0], dict) and body[0].get("error"):
        body = body[0]
    if not isinstance(body, dict):
        raise ModelError("the server's answer is no JSON object; does OPENAI_BASE_URL lead to a Chat Completions server (…/v1)?")
    if body.get("error"):
        raise error_of(None, body, {}, tools=tools, schema=schema)
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(message, dict) or not isinstance(first, dict):
        raise ModelError("the server's answer holds no choice", "retry")
    reason = str(first.get("finish_reason") or "stop")
    if isinstance(message.get("refusal"), str) and message["refusal"]:
        raise ModelError(f"the model refused: {_words(message['refusal'])}", "refused", usage=usage_of(body.get("usage")))
    if reason == "content_filter":
        raise ModelError("the server's content filter stopped the answer", "refused", usage=usage_of(body.get("usage")))
    return Reply(normalised_calls(_kept(message)), reason, usage_of(body.get("usage")))


def _kept(message: dict[str, Any]) -> dict[str, Any]:
    """The message without what says nothing; content in parts is joined, and fields that nobody knows stay as they are.

    A call whose name cannot be used gets one, so that the model can be told that there is no such tool.
    """
    kept = {name: value for name, value in message.items() if value is not None and value != [] and name != "role"}
    if isinstance(kept.get("content"), list):
        texts = (part.get("text") for part in kept["content"] if isinstance(part, dict))
        kept["content"] = "".join(text for text in texts if isinstance(text, str))
    if isinstance(kept.get("tool_calls"), list):
        kept["tool_calls"] = [_named(call) for call in kept["tool_calls"] if isinstance(call, dict)]
    return {"role": "assistant", **kept}


def _named(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, dict):
        return call
    name = function.get("name")
    usable = isinstance(name, str) and any(char.isascii() and char.isalnum() for char in name)
    return call if usable else {**call, "function": {**function, "name": UNUSABLE}}


def usage_of(usage: Any) -> dict[str, float]:
    """`tokens_in tokens_out tokens_cached cost`, as far as a server tells them (R8: null is unknown)."""
    if not isinstance(usage, dict):
        return {}
    details = usage.get("prompt_tokens_details")
    found = {
        "tokens_in": usage.get("prompt_tokens"),
        "tokens_out": usage.get("completion_tokens"),
        "tokens_cached": details.get("cached_tokens") if isinstance(details, dict) else None,
        "cost": usage.get("cost"),
    }
    return {name: amount for name, amount in found.items() if _is_amount(amount)}


def _is_amount(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST_AMOUNT


def error_of(status: int | None, body: Any, headers: Mapping[str, str], *, tools: bool = False, schema: bool = False) -> ModelError:
    """What an error answer means. `tools`, `schema`: whether the request had any; only then a complaint can be about them."""
    code, words, kind = _error_fields(body)
    status = status or (int(code) if code.isdigit() else 500 if kind == "server_error" else 400)
    told = f"{code} {kind} {words}".lower()
    meaning: Meaning = "final"
    if status == 429:
        meaning = "final" if any(each in told for each in _NO_MONEY) else "retry"
    elif status in (408, 409, 425) or status >= 500:
        meaning = "retry"
        if tools and status in (500, 501) and any(each in told for each in ("tools param", "--jinja", "not support tool")):
            meaning = "no_tools"  # llama.cpp answers a template without tools so
    elif status in (400, 413, 422) or (status == 404 and tools and "tool" in told):
        meaning = _meaning_of_complaint(told, tools, schema)
    return ModelError(_sentence(status, code, words), meaning, retry_after(headers) if meaning == "retry" else None)


def _meaning_of_complaint(told: str, tools: bool, schema: bool) -> Meaning:
    if any(each in told for each in _TOO_LONG):
        return "too_long"
    if "content_filter" in told or "content management policy" in told:
        return "refused"
    if schema and any(each in told for each in _ABOUT_SCHEMA):
        return "no_schema"
    if tools and any(each in told for each in _ABOUT_TOOLS) and "tool_call_id" not in told:
        return "no_tools"
    return "final"


def _error_fields(body: Any) -> tuple[str, str, str]:
    """Code, message and type, from the several places where servers put them."""
    body = body[0] if isinstance(body, list) and body else body
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return "", _words(error if isinstance(error, str) else ""), ""
    words = error.get("message") or error.get("detail") or error.get("msg") or ""
    return str(error.get("code") or ""), _words(words if isinstance(words, str) else json.dumps(words)), str(error.get("type") or "")


def _words(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= MOST_WORDS else one_line[:MOST_WORDS] + "…"


def _sentence(status: int, code: str, words: str) -> str:
    match status:
        case 401 | 403:
            return f"the server refuses the key ({status}): {words or 'no reason given'}; check OPENAI_API_KEY on the worker's node"
        case 404:
            return f"the server knows no such model or path (404): {words or 'no reason given'}; check --model and OPENAI_BASE_URL"
        case 429:
            return f"the server allows no more for now (429): {words or code or 'rate limit'}"
        case _:
            return f"the server answered {status}: {words or code or 'no reason given'}"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait, from `Retry-After` in seconds or as a date; None if it says nothing usable."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None and milliseconds >= 0:
        return milliseconds / 1000
    given = headers.get("retry-after")
    if given is None:
        return None
    seconds = _number(given)
    if seconds is None:
        try:
            at = parsedate_to_datetime(given)
        except (TypeError, ValueError):
            return None
        seconds = (at - datetime.now(UTC if at.tzinfo else None)).total_seconds()
    return max(0.0, seconds)


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else None
    except ValueError:
        return None
    return number if number is not None and math.isfinite(number) else None


class Pieces:
    """The pieces of a streamed answer, put together again."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._calls: list[dict[str, Any]] = []
        self._by_index: dict[Any, dict[str, Any]] = {}
        self._reason: str | None = None
        self._usage: Any = None
        self.anything = False

    def add(self, chunk: Any) -> str:
        """Take in one chunk; the content that came with it.

        Raises:
            ModelError: the stream tells of an error.
        """
        if not isinstance(chunk, dict):
            return ""
        if chunk.get("error"):
            raise error_of(None, chunk, {})
        self._usage = chunk.get("usage") or self._usage
        choices = chunk.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(first, dict):
            return ""
        self.anything = True
        self._reason = first.get("finish_reason") or self._reason
        delta = first.get("delta")
        return self._take(delta) if isinstance(delta, dict) else ""

    def _take(self, delta: dict[str, Any]) -> str:
        for name, value in delta.items():
            if name == "tool_calls":
                for call in value if isinstance(value, list) else ():
                    if isinstance(call, dict):
                        self._take_call(call)
            elif name != "role" and value is not None:
                known = self._fields.get(name)
                joins = isinstance(known, str | list) and type(known) is type(value)
                self._fields[name] = known + value if joins else value
        content = delta.get("content")
        return content if isinstance(content, str) else ""

    def _take_call(self, piece: dict[str, Any]) -> None:
        """A new id is a new call, whatever its index says; a piece without one belongs to the call of its index, or the last."""
        index, id = piece.get("index"), piece.get("id")
        call = self._by_index.get(index) if index is not None else (self._calls[-1] if self._calls else None)
        if call is None or (id and call.get("id") and call["id"] != id):
            call = {"type": "function", "function": {"name": "", "arguments": ""}}
            self._calls.append(call)
            self._by_index[index] = call
        if id:
            call["id"] = id
        function = piece.get("function")
        if not isinstance(function, dict):
            return
        if isinstance(function.get("name"), str) and function["name"] != call["function"]["name"]:
            call["function"]["name"] += function["name"]
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            call["function"]["arguments"] += arguments
        elif arguments is not None:
            call["function"]["arguments"] = arguments

    def body(self) -> dict[str, Any]:
        """The body that would have come at once.

        Raises:
            ModelError: the stream ended before the answer did.
        """
        if not self.anything:
            raise ModelError("the server's stream held no answer", "retry")
        if self._reason is None:
            raise ModelError("the server's stream broke off before its end", "retry")
        message = {**self._fields, **({"tool_calls": self._calls} if self._calls else {})}
        return {"choices": [{"message": message, "finish_reason": self._reason}], "usage": self._usage}
