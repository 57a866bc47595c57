"""One rule of what is JSON, on both databases: it names the path of what is not, and says what to do."""

import datetime
import enum
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from baton_actors.errors import InvalidInput
from baton_actors.jsonable import MAX_CHARACTERS, MAX_DEPTH, checked, checked_text, encode


class Point(BaseModel):
    x: int = 1


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


def cyclic() -> dict[str, Any]:
    loop: dict[str, Any] = {"name": "loop"}
    loop["again"] = [loop]
    return loop


REFUSED = [
    (float("nan"), "nan is not JSON"),
    (float("inf"), "inf is not JSON"),
    ("\udc88", "lone surrogate"),
    ("a\x00b", "NUL character"),
    (b"bytes", "bytes is not JSON; decode it, or encode it as base64"),
    (datetime.datetime(2026, 1, 1), r"datetime is not JSON; pass \.isoformat\(\)"),
    ({1, 2}, "set is not JSON; pass a sorted list"),
    (Point(), r"Point is not JSON; pass \.model_dump\(mode='json'\)"),
    (object(), "object is not JSON"),
    ({1: "a"}, "key 1 is int"),
]


@pytest.mark.parametrize(("value", "why"), REFUSED, ids=[why for _, why in REFUSED])
def test_what_is_not_json_is_refused_with_its_path_and_a_remedy(value: Any, why: str) -> None:
    with pytest.raises(InvalidInput, match=why) as caught:
        checked({"items": [0, {"when": value}]}, "result")
    assert caught.value.what == "result.items[1].when"


def test_a_value_that_contains_itself_is_refused() -> None:
    with pytest.raises(InvalidInput, match="contains itself") as caught:
        checked(cyclic(), "result")
    assert caught.value.what == "result.again[0]"


def test_the_same_value_twice_is_no_cycle() -> None:
    shared = [1]
    assert checked({"a": shared, "b": shared}, "x") == {"a": [1], "b": [1]}


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_nesting_is_bounded() -> None:
    assert checked(nested(MAX_DEPTH), "x") == nested(MAX_DEPTH)
    with pytest.raises(InvalidInput, match=f"deeper than {MAX_DEPTH} levels"):
        checked(nested(MAX_DEPTH + 1), "x")
    with pytest.raises(InvalidInput, match=f"deeper than {MAX_DEPTH} levels"):
        checked(nested(100_000), "x")


def test_a_value_that_is_too_large_is_refused_with_its_size_and_the_limit() -> None:
    with pytest.raises(InvalidInput, match=rf"33,554,434 characters of JSON, the limit is {MAX_CHARACTERS:,}"):
        checked("a" * MAX_CHARACTERS, "result")


def test_tuples_become_lists_and_enums_their_values() -> None:
    plain = checked({"t": (1, (2,)), "c": Colour.RED, "l": Level.HIGH}, "x")
    assert plain == {"t": [1, [2]], "c": "red", "l": 3}
    assert [type(plain["c"]), type(plain["l"])] == [str, int]


@pytest.mark.parametrize("text", ["漢字かな", "🙂👨‍👩‍👧", "שלום עולם", "𝒳𐍈", "e\u0301", "\x1b[31m", "\x7f\t\r\n"])
def test_characters_of_all_kinds_pass_unchanged(text: str) -> None:
    assert checked_text(text, "goal") == text
    assert json.loads(encode(checked({text: [text]}, "x"))) == {text: [text]}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_what_passes_round_trips_and_what_does_not_is_refused(value: Any) -> None:
    try:
        plain = checked(value, "x")
    except InvalidInput:
        assert "\\u0000" in json.dumps(value)
    else:
        assert json.loads(encode(plain)) == value
