"""A conversation made fit to send, before every request: pure, the standard library only.

Rows of a conversation come from models, tools, crashes and other people's programs. Nothing here invents what somebody said; the
one text of our own is the answer of a call that has none, since a call without an answer is refused by every strict server.
"""

import json
import math
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

#: The answer of a call that has none.
INTERRUPTED = "This call was interrupted and has no result."
#: Deeper values are cut off; the store refuses them anyway (see `jsonable`), and encoding them would end in a RecursionError.
MAX_DEPTH = 200

#: NUL cannot be stored by PostgreSQL, a lone surrogate cannot be encoded at all.
_UNWRITABLE = re.compile("[\x00\ud800-\udfff]")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_UNFIT_FOR_A_TOOL_NAME = re.compile(r"[^a-zA-Z0-9_-]+")
_SPEAKER_NAME = re.compile(r"[^\s<|\\/>]{1,64}")
#: Which kinds of content parts a role may have.
_PARTS = {
    "system": {"text"},
    "developer": {"text"},
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
    "tool": {"text"},
}


def repaired(messages: Sequence[Any]) -> list[dict[str, Any]]:
    """The messages that every strict Chat Completions server accepts, from any list of JSON values; never raises.

    A valid conversation comes back equal, and so does one that was repaired before. What is no message of a known role, or says
    nothing, is dropped. Every assistant message with calls is directly followed by one answer for each, in their order: answers
    are looked up until the next assistant message, since the same id in a later round is another call (M8). A call without an
    answer gets `INTERRUPTED`; answers without a call, and second ones, are dropped; what stood between moves behind them (B6).
    """
    return [message for stretch in _stretches(messages) for message in _in_order(stretch)]


def unanswered(messages: Sequence[Any]) -> list[dict[str, Any]]:
    """The calls of the last assistant message that have no answer yet: `id`, `name`, and `arguments` as text.

    The ids are those that `repaired` gives, so an answer that is appended under such an id is found.
    """
    stretches = list(_stretches(messages))
    pairs = _answers(stretches[-1]) if stretches else []
    return [
        {"id": call["id"], "name": call["function"]["name"], "arguments": call["function"]["arguments"]}
        for call, answer in pairs
        if answer is None
    ]


def normalised_calls(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message with its tool calls in the one form in which they are stored, run and sent back; all else as it is.

    Each has `type: function`, an id that is text and its own within the message (M7), a name of `[a-zA-Z0-9_-]{1,64}`, and
    arguments as text: objects are dumped (M4), null, absent and blank become `{}` (M5), and broken text stays what the model wrote
    (M1). Calls without a usable name are left out, and `tool_calls` with the last of them. Characters that cannot be stored are
    replaced.
    """
    kept = writable(dict(message))
    calls, _ = _normal_calls(kept.pop("tool_calls", None))
    return {**kept, "tool_calls": calls} if calls else kept


def shortened(messages: Sequence[Any], keep: int) -> list[Any]:
    """The messages with all tool outputs but those of the last round cut to their first `keep` characters, and a line that says so.

    Calls, ids and the order stay. Outputs that would not get shorter by it stay too, so doing it twice changes nothing.
    """
    rounds = [place for place, each in enumerate(messages) if _is_round(each)]
    older = rounds[-1] if rounds else 0
    return [_cut(each, keep) if place < older else each for place, each in enumerate(messages)]


def _is_round(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") == "assistant" and bool(message.get("tool_calls"))


def _cut(message: Any, keep: int) -> Any:
    if not isinstance(message, dict) or message.get("role") != "tool":
        return message
    text = _text_of(message.get("content"))
    notice = f"\n[cut: these are the first {keep:,} characters of this output]"
    return {**message, "content": text[:keep] + notice} if len(text) > keep + len(notice) else message


def _text_of(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
    return content if isinstance(content, str) else ""


# -------------------------------------------------------------------------------- calls and their answers


class _Turn(NamedTuple):
    """A message that is valid by itself; `ids`: of its calls, or of the call that it answers, as they were given."""

    message: dict[str, Any]
    ids: Sequence[str] = ()

    @property
    def role(self) -> str:
        return str(self.message["role"])


def _stretches(messages: Sequence[Any]) -> Iterator[list[_Turn]]:
    """What was said up to the first assistant message, then each assistant message with what follows it."""
    stretch: list[_Turn] = []
    for turn in filter(None, map(_turn, messages)):
        if turn.role == "assistant" and stretch:
            yield stretch
            stretch = []
        stretch.append(turn)
    if stretch:
        yield stretch


def _in_order(stretch: list[_Turn]) -> Iterator[dict[str, Any]]:
    others = [turn.message for turn in stretch if turn.role != "tool"]
    if stretch[0].role == "assistant":
        yield others.pop(0)
    for call, answer in _answers(stretch):
        yield answer or {"role": "tool", "tool_call_id": call["id"], "content": INTERRUPTED}
    yield from others


def _answers(stretch: list[_Turn]) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Each call of the assistant message that a stretch begins with, and its answer."""
    asked = stretch[0]
    waiting: dict[str, deque[dict[str, Any]]] = {}
    for turn in stretch:
        if turn.role == "tool":
            waiting.setdefault(turn.ids[0], deque()).append(turn.message)
    pairs: list[tuple[dict[str, Any], dict[str, Any] | None]] = []
    for call, given in zip(asked.message.get("tool_calls", ()), asked.ids, strict=False):
        found = waiting.get(call["id"]) or waiting.get(given)
        pairs.append((call, {**found.popleft(), "tool_call_id": call["id"]} if found else None))
    return pairs


def _normal_calls(value: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The calls in their normal form, and the ids that they came with, "" for none."""
    listed = value if isinstance(value, list) else [value]
    usable = [(call, name) for call in listed if isinstance(call, dict) and (name := _tool_name(call))]
    given = [_id(call.get("id")) for call, _ in usable]
    taken = set(given)
    used: set[str] = set()
    calls = []
    for place, (call, name) in enumerate(usable):
        id = given[place]
        if not id.strip() or id in used:
            id = f"call_{place}_{name[:24]}"
            while id in taken:
                id += "_"
        used.add(id)
        taken.add(id)
        function = {**call["function"], "name": name, "arguments": _arguments(call["function"].get("arguments"))}
        calls.append({**call, "id": id, "type": "function", "function": function})
    return calls, given


def _tool_name(call: dict[str, Any]) -> str:
    """The name that a call may have, "" if there is none in it."""
    function = call.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        return ""
    if _TOOL_NAME.fullmatch(name):
        return name
    cleaned = _UNFIT_FOR_A_TOOL_NAME.sub("_", name).strip("_")[:64]
    return cleaned if cleaned.strip("_-") else ""


def _id(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else ""


def _arguments(value: Any) -> str:
    if value is None or (isinstance(value, str) and not value.strip()):
        return "{}"
    return value if isinstance(value, str) else _json(value)


# -------------------------------------------------------------------------------- one message


def _turn(message: Any) -> _Turn | None:
    """The message as it is valid by itself; None if nothing in it can be sent."""
    if not isinstance(message, dict):
        return None
    message = writable(message)
    match message.get("role"):
        case "assistant":
            return _assistant(message)
        case "tool":
            id = _id(message.get("tool_call_id"))
            content = _content(message.get("content"), "tool")
            return _Turn({**_speaker(message), "tool_call_id": id, "content": "" if content is None else content}, [id])
        case "system" | "developer" | "user" as role:
            content = _content(message.get("content"), role)
            return None if _is_blank(content) else _Turn({**_speaker(message), "content": content})
        case _:
            return None


def _assistant(message: dict[str, Any]) -> _Turn | None:
    """With the fields that nobody knows as they are: some servers want their reasoning back (R3)."""
    calls, given = _normal_calls(message.get("tool_calls"))
    content = _content(message.get("content"), "assistant")
    if not calls and _is_blank(content):
        return None
    kept = {name: value for name, value in message.items() if name != "tool_calls" and _is_fit(name, value)}
    if "content" in kept:
        kept["content"] = content
    return _Turn({**kept, "tool_calls": calls} if calls else kept, given)


def _is_fit(name: str, value: Any) -> bool:
    """Whether an assistant's field may be sent; of those that the protocol knows only what has the right type."""
    match name:
        case "name":
            return isinstance(value, str) and _SPEAKER_NAME.fullmatch(value) is not None
        case "refusal":
            return value is None or isinstance(value, str)
        case "audio":
            return value is None or (isinstance(value, dict) and isinstance(value.get("id"), str))
        case "function_call":  # of the time before tools; new models refuse it
            return value is None
        case _:
            return True


def _speaker(message: dict[str, Any]) -> dict[str, Any]:
    """Role and name; other fields of messages that are no assistant's are refused by strict servers."""
    return {name: message[name] for name in ("role", "name") if name in message and _is_fit(name, message[name])}


def _content(value: Any, role: str) -> Any:
    """Text, or a list of parts that the role may have; None if nothing is there. Anything else becomes text (JSON)."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return [_part(part, role) for part in value] or None
    if isinstance(value, dict) and _is_part(value, role):
        return [value]
    return None if value == {} else _json(value)


def _part(value: Any, role: str) -> dict[str, Any]:
    if isinstance(value, dict) and _is_part(value, role):
        return value
    return {"type": "text", "text": value if isinstance(value, str) else _json(value)}


def _is_part(part: dict[str, Any], role: str) -> bool:
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in _PARTS[role]:
        return False
    payload = part.get(kind)
    if kind in ("text", "refusal"):
        return isinstance(payload, str)
    if not isinstance(payload, dict):
        return False
    match kind:
        case "image_url":
            return isinstance(payload.get("url"), str) and payload.get("detail", "auto") in ("auto", "low", "high", "original")
        case "input_audio":
            return isinstance(payload.get("data"), str) and payload.get("format") in ("wav", "mp3")
        case _:
            return all(isinstance(value, str) for value in payload.values())


def _is_blank(content: Any) -> bool:
    if isinstance(content, list):
        return all(part["type"] == "text" and not part["text"].strip() for part in content)
    return content is None or not content.strip()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def writable(value: Any, depth: int = 0) -> Any:
    """The value without what cannot be encoded or stored: NUL, lone surrogates, numbers that are none, endless depth."""
    if isinstance(value, str):
        return value if _iswritable(value) else _UNWRITABLE.sub("\ufffd", value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict | list) and depth >= MAX_DEPTH:
        return None
    if isinstance(value, dict):
        return {writable(name): writable(item, depth + 1) for name, item in value.items()}
    return [writable(item, depth + 1) for item in value] if isinstance(value, list) else value


def _iswritable(text: str) -> bool:
    """Encoding is ten times as fast as looking for surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in text
