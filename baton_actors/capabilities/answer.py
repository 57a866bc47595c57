"""What a tool's call comes to, as text for a model: bounded, and storable in both databases."""

import dataclasses
import enum
import inspect
import json
import re
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType
from typing import Any

from pydantic import BaseModel

from baton_actors.errors import BatonError

#: Characters of an answer, the line that says what was left out among them.
MAX_ANSWER_CHARACTERS = 20_000
_JSON_TYPES = (dict, list, tuple, bool, int, float, str, type(None))
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


@dataclasses.dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What the model is told. `failed`: the call did not do what it was to do, and the text says why."""

    text: str
    failed: bool = False


def answer(value: Any) -> ToolAnswer:
    """What a tool returned: text as it is, anything like JSON as compact JSON, other objects as Python shows them."""
    return ToolAnswer(bounded(_text(value)))


def failure(why: str) -> ToolAnswer:
    """A call that failed, and why."""
    return ToolAnswer(bounded(why), failed=True)


def raised(error: BaseException, function: Callable[..., Any]) -> ToolAnswer:
    """What a tool raised: its type, its message, and the last line of the tool's own code on the way there.

    Errors of this project say what to do, and stand alone.
    """
    message = _shown(error, str)
    if isinstance(error, BatonError):
        return failure(message)
    inner = [f"  {type(each).__name__}: {_shown(each, str)}" for each in getattr(error, "exceptions", ())]  # of an exception group
    first = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return failure("\n".join([first, *inner, *_own_line(error, function)]))


def bounded(text: str) -> str:
    """At most MAX_ANSWER_CHARACTERS of a text, a last line saying how many were left out; lone surrogates and NUL replaced."""
    if len(text) > MAX_ANSWER_CHARACTERS:
        kept = MAX_ANSWER_CHARACTERS - len(_left_out(len(text)))
        text = text[:kept] + _left_out(len(text) - kept)
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _left_out(characters: int) -> str:
    return f"\n[{characters:,} more characters were left out]"


def _text(value: Any) -> str:
    plain = value if isinstance(value, _JSON_TYPES) else _shown(value, _plain)
    if isinstance(plain, str):
        return str.__str__(plain)  # of an enum the value, not the name
    try:
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), default=_plain)
    except Exception:  # keys that are no text, cycles, too deep, properties that raise
        return str(_shown(value, repr))


def _plain(value: Any) -> Any:
    """One level of something that `json` does not know, in what it knows."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, bytes | bytearray | memoryview):
        return _decoded(bytes(value))
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return list(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return str(value) if isinstance(value, Path) else _shown(value, repr)


def _decoded(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"({len(data):,} bytes that are no text)"
    return f"({len(data):,} bytes that are no text)" if "\x00" in text else text


def _shown(value: Any, how: Callable[[Any], Any]) -> Any:
    """What `how` makes of a foreign object, whose own code may raise anything."""
    try:
        return how(value)
    except Exception as error:
        return f"(a {type(value).__name__} that cannot be shown: {type(error).__name__})"


def _own_line(error: BaseException, function: Callable[..., Any]) -> list[str]:
    """The last line of the tool's file that the error went through; of what it raised elsewhere, the last line at all."""
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
    ours = str(Path(__file__).with_name("calling.py"))
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != ours]
    own = [frame for frame in frames if isinstance(code, CodeType) and frame.filename == code.co_filename]
    if not frames:
        return []
    at = (own or frames)[-1]
    return [f"  at {Path(at.filename).name}:{at.lineno} in {at.name}" + (f": {at.line}" if at.line else "")]
