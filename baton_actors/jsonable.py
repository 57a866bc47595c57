"""What counts as JSON here, checked where a value enters and nowhere else.

SQLite and PostgreSQL disagree about NaN, `\\u0000`, lone surrogates and very deep values. One rule for both keeps
a task from failing on Monday's cluster that passed on Friday's laptop: plain `dict` with text keys, `list`, `tuple`
(becomes a list), `str`, `int`, finite `float`, `bool` and None.
"""

import json
import math
from typing import Any

from baton_actors.errors import InvalidInput

#: Levels of nesting; `json.loads` of the standard library gives up at about 1,000, PostgreSQL later.
MAX_DEPTH = 200
#: Python refuses to write integers of more than 4,300 digits as text; this is some 1,200.
MAX_INTEGER_BITS = 4_096
#: Characters of the encoded value. A child result of 13 MB must pass (it is cut where a prompt is made of it).
MAX_CHARACTERS = 32 * 1024 * 1024


#: One for all: `json.dumps` with options would make another for each value.
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def encode(value: Any) -> str:
    """A checked value as compact JSON text; characters stay themselves."""
    return _ENCODER.encode(value)


def checked(value: Any, name: str) -> Any:
    """The value with tuples made lists, if it is JSON by the rule above.

    Args:
        value: anything.
        name: what to call it in the message, and the start of the path (`result.items[3].when`).

    Raises:
        InvalidInput: names the path of the first thing that is not JSON, or the size and the limit.
    """
    plain = _plain(value, name, 0, set())
    if not isinstance(plain, dict | list | str):
        return plain
    size = len(encode(plain))
    if size > MAX_CHARACTERS:
        raise InvalidInput(name, f"{size:,} characters of JSON, the limit is {MAX_CHARACTERS:,}; store it elsewhere and pass a reference")
    return plain


def checked_text(value: str, name: str) -> str:
    """The text, if both databases can hold it.

    Raises:
        InvalidInput: a NUL character or a lone surrogate is in it.
    """
    if "\x00" in value:
        raise InvalidInput(name, "has a NUL character (\\u0000), which PostgreSQL cannot store; remove it")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(name, f"has a lone surrogate ({value[error.start]!r}); decode with errors='replace'") from None
    return value


def _plain(value: Any, path: str, depth: int, above: set[int]) -> Any:
    """One level of `checked`; bounded by MAX_DEPTH, so recursion is safe. `above` holds the ids of the containers around it."""
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return _checked_int(value, path)
    if kind is str:
        return checked_text(value, path)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput(path, f"{value} is not JSON; use null or a text")
        return float(value)
    if isinstance(value, dict | list | tuple):
        if id(value) in above:
            raise InvalidInput(path, "contains itself; JSON has no cycles")
        if depth >= MAX_DEPTH:
            raise InvalidInput(path[:200], f"is nested deeper than {MAX_DEPTH} levels; flatten it")
        above.add(id(value))
        plain = _plain_dict(value, path, depth, above) if isinstance(value, dict) else _plain_list(value, path, depth, above)
        above.discard(id(value))
        return plain
    if isinstance(value, str):  # StrEnum and other subclasses
        return checked_text(str(value), path)
    if isinstance(value, int):  # IntEnum and other subclasses
        return _checked_int(int(value), path)
    raise InvalidInput(path, f"{kind.__module__}.{kind.__qualname__} is not JSON; {_remedy(value)}")


def _checked_int(value: int, path: str) -> int:
    if value.bit_length() > MAX_INTEGER_BITS:
        raise InvalidInput(path, f"is an integer of {value.bit_length():,} bits, the limit is {MAX_INTEGER_BITS:,}; pass it as text")
    return value


def _plain_dict(value: dict[Any, Any], path: str, depth: int, above: set[int]) -> dict[str, Any]:
    plain = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise InvalidInput(path, f"key {key!r} is {type(key).__name__}; keys of JSON objects are text")
        plain[checked_text(str(key), f"{path} key")] = _plain(item, f"{path}.{key}", depth + 1, above)
    return plain


def _plain_list(value: list[Any] | tuple[Any, ...], path: str, depth: int, above: set[int]) -> list[Any]:
    return [_plain(item, f"{path}[{index}]", depth + 1, above) for index, item in enumerate(value)]


def _remedy(value: Any) -> str:
    if hasattr(value, "model_dump"):
        return "pass .model_dump(mode='json')"
    if hasattr(value, "isoformat"):
        return "pass .isoformat()"
    if isinstance(value, bytes | bytearray):
        return "decode it, or encode it as base64"
    if isinstance(value, set | frozenset):
        return "pass a sorted list"
    return "convert it to a dict, list, text or number first"
