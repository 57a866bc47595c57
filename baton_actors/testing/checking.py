"""The words in which the Chat Completions endpoint refuses a value: one function for each kind of fault. Pure."""

import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn


class Objection(Exception):
    """A request is refused; inside `testing` only, `strict.objection` makes an answer of it."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message, param, code)
        self.body = error_body(message, param=param, code=code)


def error_body(message: str, *, kind: str = "invalid_request_error", param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """The JSON object of an error answer."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_IS: dict[str, Callable[[Any], bool]] = {
    "a string": lambda value: isinstance(value, str),
    "a boolean": lambda value: isinstance(value, bool),
    "an integer": _is_integer,
    "a decimal number": lambda value: _is_integer(value) or isinstance(value, float),
    "an object": lambda value: isinstance(value, dict),
    "an array of objects": lambda value: isinstance(value, list),
    "an array of strings": lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
    "one of a string or array of objects": lambda value: isinstance(value, str | list),
    "one of a string or array of strings": lambda value: isinstance(value, str) or _IS["an array of strings"](value),
    "one of a string or object": lambda value: isinstance(value, str | dict),
}


def typed(value: Any, path: str, expected: str) -> Any:
    """The value, if it is what is expected; `expected` is in the endpoint's words, see `_IS`."""
    if not _IS[expected](value):
        raise Objection(f"Invalid type for '{path}': expected {expected}, but got {_kind(value)} instead.", path, "invalid_type")
    return value


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    kinds = {bool: "a boolean", int: "an integer", float: "a decimal number", str: "a string", list: "an array"}
    return kinds.get(type(value), "an object")


def required(owner: dict[str, Any], name: str, path: str, expected: str) -> Any:
    """The field of an object at `path` ("" for the request itself)."""
    where = f"{path}.{name}" if path else name
    if name not in owner:
        raise Objection(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")
    return typed(owner[name], where, expected)


def optional(owner: dict[str, Any], name: str, path: str, expected: str) -> Any:
    """The field if it is there; null counts as absent."""
    return None if owner.get(name) is None else required(owner, name, path, expected)


def one_of(value: Any, path: str, supported: Iterable[str]) -> None:
    """See that the value is one of those."""
    names = [f"'{name}'" for name in supported]
    if f"'{value}'" not in names:
        told = " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])}, and {names[-1]}"
        raise Objection(f"Invalid value: '{value}'. Supported values are: {told}.", path, "invalid_value")


def known_fields(owner: dict[str, Any], path: str, known: Iterable[str]) -> None:
    """See that an object has no other fields."""
    for name in sorted(owner.keys() - set(known)):
        raise Objection(f"Unknown parameter: '{path}.{name}'.", f"{path}.{name}", "unknown_parameter")


def not_empty(value: Any, path: str) -> Any:
    """The string or array, if there is something in it."""
    if not value:
        noun = "string" if isinstance(value, str) else "array"
        told = f"Expected {'a string' if noun == 'string' else 'an array'} with minimum length 1, but got an empty {noun} instead."
        raise Objection(f"Invalid '{path}': empty {noun}. {told}", path, f"empty_{noun}")
    return value


def not_longer(value: Any, path: str, most: int) -> None:
    """See that a string or array has at most so many characters or items."""
    if len(value) > most:
        a, noun = ("a", "string") if isinstance(value, str) else ("an", "array")
        told = f"Expected {a} {noun} with maximum length {most}, but got {a} {noun} with length {len(value)} instead."
        raise Objection(f"Invalid '{path}': {noun} too long. {told}", path, f"{noun}_above_max_length")


def matching(value: str, path: str, pattern: str) -> None:
    """See that a string fits a pattern as a whole."""
    if not re.fullmatch(pattern, value):
        told = f"string does not match pattern. Expected a string that matches the pattern '{pattern}'."
        raise Objection(f"Invalid '{path}': {told}", path, "invalid_value")


def bounded(value: float, path: str, least: float, most: float) -> None:
    """See that a number lies between the bounds."""
    noun = "integer" if isinstance(value, int) else "decimal"
    if value < least:
        _out_of_bounds(
            f"{noun} below minimum value. Expected a value >= {least}, but got {value} instead.", path, f"{noun}_below_min_value"
        )
    if value > most:
        _out_of_bounds(f"{noun} above maximum value. Expected a value <= {most}, but got {value} instead.", path, f"{noun}_above_max_value")


def _out_of_bounds(told: str, path: str, code: str) -> NoReturn:
    raise Objection(f"Invalid '{path}': {told}", path, code)
