"""What a model is told of a function: its parameters as a schema, its docstring as a description."""

import contextlib
import dataclasses
import enum
import functools
import json
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from ray import cloudpickle

from baton_actors.capabilities.schema import described, expectation, hold_hints
from baton_actors.capabilities.tool import ToolContext, tool, tool_of
from baton_actors.errors import InvalidInput


class Node(BaseModel):
    """A node of a list."""

    title: str
    next: "Node | None" = None


@dataclasses.dataclass
class Size:
    width: int


class Colour(enum.Enum):
    RED = "red"


def properties(function: Callable[..., Any]) -> dict[str, Any]:
    """The schemas of a function's parameters."""
    return dict(tool_of(function, "test").parameters["properties"])


# ---------------------------------------------------------------- types


def test_hints_become_schemas_without_titles() -> None:
    def take(
        text: str, number: float, several: list[int], either: int | str, choice: Literal["a", "b"], mapping: dict[str, bool], free: Any
    ) -> None: ...

    assert properties(take) == {
        "text": {"type": "string"},
        "number": {"type": "number"},
        "several": {"type": "array", "items": {"type": "integer"}},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "choice": {"type": "string", "enum": ["a", "b"]},
        "mapping": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "free": {},
    }


def test_models_dataclasses_and_enums_keep_their_definitions_and_properties_called_title() -> None:
    def take(node: Node, size: Size, colour: Colour) -> None: ...

    schema = tool_of(take, "test").parameters
    assert schema["properties"] == {
        "node": {"$ref": "#/$defs/Node"},
        "size": {"$ref": "#/$defs/Size"},
        "colour": {"$ref": "#/$defs/Colour"},
    }
    assert schema["$defs"]["Node"] == {
        "type": "object",
        "description": "A node of a list.",
        "properties": {"title": {"type": "string"}, "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}], "default": None}},
        "required": ["title"],
    }
    assert schema["$defs"]["Size"]["properties"] == {"width": {"type": "integer"}}
    assert schema["$defs"]["Colour"]["enum"] == ["red"]


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    def nothing() -> None: ...

    assert tool_of(nothing, "test").parameters == {"type": "object", "properties": {}, "additionalProperties": False}


def test_missing_hints_mean_any_value() -> None:
    space: dict[str, Any] = {}
    exec("def take(value, other=3): return value", space)
    assert properties(space["take"]) == {"value": {}, "other": {"default": 3}}


def test_parameters_may_have_any_name() -> None:
    space: dict[str, Any] = {}
    exec("def take(schema: str, copy: int, _hidden: int, model_config: int, self: int, json=1): ...", space)
    assert list(properties(space["take"])) == ["schema", "copy", "_hidden", "model_config", "self", "json"]


def test_a_default_of_none_lets_null_be_given() -> None:
    def take(number: Annotated[int, Field(ge=1)] = None, text: str = None) -> None: ...  # noqa: RUF013  # as people write it

    null = {"type": "null"}
    assert properties(take)["text"] == {"anyOf": [{"type": "string"}, null], "default": None}
    assert properties(take)["number"] == {"anyOf": [{"type": "integer", "minimum": 1}, null], "default": None}


def test_a_default_that_is_no_json_is_not_told_and_warns_nobody() -> None:
    def take(value: Any = object()) -> None: ...

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert properties(take) == {"value": {}}


def test_what_stands_beside_a_hint_goes_before_the_docstring() -> None:
    def take(a: Annotated[int, Field(description="beside", ge=0)], b: int = Field(3, description="default"), c: int = 1) -> int:
        """Take.

        Args:
            a: docstring a
            b: docstring b
            c: docstring c
        """
        return a + b + c

    assert [each["description"] for each in properties(take).values()] == ["beside", "default", "docstring c"]
    assert tool_of(take, "test").form.bound('{"a": 1}') == ([], {"a": 1, "b": 3})


def test_a_wrapped_function_is_seen_through() -> None:
    def inner(number: int) -> int:
        """Inside."""
        return number

    @functools.wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    assert tool_of(outer, "test").description == "Inside."
    assert properties(outer) == {"number": {"type": "integer"}}


def test_a_method_of_an_object_is_a_function_without_self() -> None:
    class Shop:
        def price(self, item: str) -> int:
            return len(item)

    assert list(properties(Shop().price)) == ["item"]


# ---------------------------------------------------------------- what cannot be a tool


def generator() -> Iterator[int]:
    yield 1


def with_socket(name: str, line: socket.socket) -> None: ...


def with_callback(each: "Callable[[int], int]") -> None: ...


def with_unknown(thing: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821  # on purpose


def with_star(*names: str) -> None: ...


def with_stars(**names: str) -> None: ...


def with_hidden(ctx: ToolContext, /) -> None: ...


def größe() -> None: ...


REFUSED = [
    (with_socket, "'with_socket': no JSON schema can be made of socket, the type of parameter 'line'"),
    (with_callback, "'with_callback': no JSON schema can be made of"),
    (with_unknown, "'with_unknown': the type 'Nowhere' of parameter 'thing' cannot be found"),
    (with_star, "'with_star': a model cannot know what to give for *names: str"),
    (with_stars, "'with_stars': a model cannot know what to give for **names: str"),
    (with_hidden, "'with_hidden': parameter 'ctx' is filled in by name; move it behind the '/'"),
    (größe, "'größe' is no name that models accept"),
    (generator, "'generator' yields, and a call has one answer; return a list instead"),
    (lambda number: number, "a lambda has no name"),
    (Node, "'Node' is a class; wrap it in a function"),
    (functools.partial(with_star, "a"), "is no function; wrap it in one"),
    (3, "3 is no function"),
    (max, "'max' has no signature that can be read; wrap it"),
]


@pytest.mark.parametrize(("function", "why"), REFUSED, ids=[why for _, why in REFUSED])
def test_what_cannot_be_a_tool_is_refused_in_one_clear_line(function: Any, why: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        tool_of(function, "test")
    assert caught.value.what == "tools"
    assert why in caught.value.why
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "why"), [({"name": "a b"}, "is no name"), ({"name": ""}, "is no name"), ({"timeout": 0}, "seconds above 0")]
)
def test_options_are_checked_where_they_are_written(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        tool(**options)
    with pytest.raises(InvalidInput, match="is no function; decorate a function"):
        tool(Node)


# ---------------------------------------------------------------- hints as text

POSTPONED = """
from __future__ import annotations
from typing import Literal
from pydantic import BaseModel
from baton_actors.capabilities.tool import ToolContext

def look(thing: Thing, how: Literal["near", "far"], ctx: ToolContext) -> Missing:
    "Look at a thing."
    return f"{thing.name} {how}"

class Thing(BaseModel):
    name: str
"""
LOOKED_AT = {"thing": {"$ref": "#/$defs/Thing"}, "how": {"type": "string", "enum": ["near", "far"]}}


def test_hints_that_are_text_are_found_whatever_the_order_and_the_result_is_not_looked_at() -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(POSTPONED, space)
    assert properties(space["look"]) == LOOKED_AT


def test_hints_that_are_text_travel_with_a_function_of_main_to_another_process(tmp_path: Path) -> None:
    arrived = tmp_path / "function"
    send = "from baton_actors.capabilities.catalogue import check_tools\nfrom ray import cloudpickle\ncheck_tools([look])\n"
    (tmp_path / "script.py").write_text(f"{POSTPONED}\n{send}open({str(arrived)!r}, 'wb').write(cloudpickle.dumps(look))\n")
    root = str(Path(__file__).parents[2])
    subprocess.run([sys.executable, str(tmp_path / "script.py")], check=True, env={"PYTHONPATH": root})
    made = tool_of(cloudpickle.loads(arrived.read_bytes()), "code:1")
    assert made.parameters["properties"] == LOOKED_AT
    positional, named = made.form.bound('{"thing": {"name": "door"}, "how": "near"}')
    assert positional == []
    assert named["thing"].name == "door"


def test_names_of_the_enclosing_function_are_found_if_the_function_uses_them() -> None:
    space: dict[str, Any] = {}
    exec(
        "from __future__ import annotations\n"
        "from pydantic import BaseModel\n"
        "def make():\n"
        "    class Local(BaseModel): pass\n"
        "    def take(value: list[int] | None, other: Local): return Local()\n"
        "    return take\n",
        space,
    )
    made = space["make"]()
    hold_hints(made)
    assert list(properties(cloudpickle.loads(cloudpickle.dumps(made)))) == ["value", "other"]


def test_hints_are_held_only_where_they_are_text() -> None:
    def plain(number: int) -> int:
        return number

    hold_hints(plain)
    hold_hints(len)
    assert vars(plain) == {}
    with contextlib.suppress(InvalidInput):
        hold_hints(with_unknown)
    assert vars(with_unknown) == {}


def test_a_function_with_a_model_of_main_travels_whole() -> None:
    class Local(BaseModel):
        number: int

    def take(value: Local) -> int:
        return value.number

    assert properties(cloudpickle.loads(cloudpickle.dumps(take))) == properties(take)


# ---------------------------------------------------------------- docstrings

STYLES = {
    "google": """Find it.

    Looks everywhere,
    twice.

    Args:
        what: The thing
            to find.
        how (str): Way.

    Returns:
        It.

    Raises:
        KeyError: never
    """,
    "numpy": """Find it.

    Looks everywhere,
    twice.

    Parameters
    ----------
    what : str
        The thing
        to find.
    how : str, optional
        Way.

    Returns
    -------
    str
        It.
    """,
    "sphinx": """Find it.

    Looks everywhere,
    twice.

    :param what: The thing
        to find.
    :param str how: Way.
    :returns: It.
    :raises KeyError: never
    """,
}


@pytest.mark.parametrize("style", STYLES)
def test_docstrings_of_each_style_are_read(style: str) -> None:
    assert described(STYLES[style]) == ("Find it.\n\nLooks everywhere,\ntwice.", {"what": "The thing to find.", "how": "Way."})


def test_a_list_that_looks_like_a_section_stays() -> None:
    text, _ = described("Convert.\n\nFormats:\n    json: all\n    csv: tables\n\nNothing else.\n\nArgs:\n    x: y")
    assert text == "Convert.\n\nFormats:\njson: all\ncsv: tables\n\nNothing else."


@pytest.mark.parametrize("docstring", [None, "", "  \n ", "One line: with a colon."])
def test_a_docstring_may_be_missing_or_one_line(docstring: str | None) -> None:
    assert described(docstring) == ((docstring or "").strip(), {})


def test_a_docstring_on_parameters_that_are_not_there_says_nothing_aloud(capsys: pytest.CaptureFixture[str]) -> None:
    def take(number):  # type: ignore[no-untyped-def]  # without hints, which a parser would warn of
        """Take.

        Args:
            number: one
            other: gone
        """

    assert properties(take) == {"number": {"description": "one"}}
    assert capsys.readouterr() == ("", "")


def test_schemas_in_words() -> None:
    def take(a: int | None, b: list[Literal["x", "y"]], c: Node, d: Literal["z"], e: Any, f: Path) -> None: ...

    words = [expectation(each) for each in properties(take).values()]
    assert words == ["integer or null", 'list of one of "x", "y"', "Node", '"z"', "any value", "string (path)"]


def test_definitions_are_json() -> None:
    def take(node: Node, size: Size, value: Any = object()) -> None: ...

    definition = tool_of(take, "test").definition
    assert json.loads(json.dumps(definition)) == definition
