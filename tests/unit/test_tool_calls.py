"""A call of a tool: whatever a model sends and whatever a function does, there is an answer for the model."""

import asyncio
import dataclasses
import datetime
import enum
import json
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, field_validator
from ray import cloudpickle

from baton_actors.capabilities.answer import MAX_ANSWER_CHARACTERS, ToolAnswer
from baton_actors.capabilities.tool import Tool, ToolContext, tool, tool_of
from baton_actors.errors import InvalidInput


async def no_result(baton_id: str, offset: int, limit: int) -> None:
    return None


CONTEXT = ToolContext(idempotency_key="bt_1:0:1", baton_id="bt_1", goal="test", context={}, read_result=no_result, cancelled=lambda: False)


def called(function: Callable[..., Any], arguments: Any = None) -> ToolAnswer:
    """What a call of the function as a tool comes to."""
    return asyncio.run(tool_of(function, "test").call(arguments, CONTEXT))


def weather(city: str, days: int = 1) -> str:
    """The weather.

    Args:
        city: where.
    """
    return f"{city}: {days} sunny"


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    "arguments", ['{"{"ids": ["', '{"city": "Rome"', "city=Rome", '{"city": NaN}', "[" * 100_000, '{"city": "\udc88"}']
)
def test_arguments_that_are_no_json_are_told_and_nothing_runs(arguments: str) -> None:
    ran: list[str] = []
    answer = called(noting(ran), arguments)
    assert answer.failed
    assert answer.text.startswith("the arguments are no JSON, nothing was done: ")
    assert "\n" not in answer.text
    assert ran == []


def noting(ran: list[str]) -> Callable[..., Any]:
    def note(city: str = "nowhere") -> None:
        ran.append(city)

    return note


@pytest.mark.parametrize("arguments", ["null", "[1]", "3", '"text"', "true", [1], 3, True])
def test_json_that_is_no_object_is_told_and_never_taken_for_an_empty_one(arguments: Any) -> None:
    ran: list[str] = []
    answer = called(noting(ran), arguments)
    assert answer.failed
    assert answer.text.endswith("nothing was done; call it again with one JSON object")
    assert ran == []


@pytest.mark.parametrize("arguments", [None, "", "{}", {}])
def test_nothing_as_arguments_is_an_empty_object(arguments: Any) -> None:
    ran: list[str] = []
    assert called(noting(ran), arguments) == ToolAnswer("null")
    assert ran == ["nowhere"]


@pytest.mark.parametrize(
    "arguments", ['{"city": "東京 🙂", "days": 3}', {"city": "東京 🙂", "days": 3}, '{"city": "東京 🙂", "days": "3"}']
)
def test_arguments_are_an_object_as_text_or_as_a_dict(arguments: Any) -> None:
    assert called(weather, arguments) == ToolAnswer("東京 🙂: 3 sunny")


def test_each_fault_of_the_arguments_is_a_line_that_names_the_parameter_and_what_it_expects() -> None:
    assert called(weather, {"town": "Rome", "days": "many"}).text.splitlines() == [
        "the arguments do not fit, nothing was done:",
        "- city: is missing; expects string",
        '- days: input should be a valid integer, unable to parse string as an integer, not "many"',
        "- town: no such parameter; there are: city, days",
    ]


def test_many_faults_are_told_in_bounds() -> None:
    def add(numbers: list[int]) -> int:
        return sum(numbers)

    answer = called(add, {"numbers": ["x"] * 5_000})
    assert len(answer.text.splitlines()) == 22
    assert answer.text.endswith("and 4,980 more")


def test_a_validator_that_breaks_is_an_answer() -> None:
    class Odd(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def _fails(cls, number: int) -> int:
            raise KeyError("broken")

    def take(odd: Odd) -> None: ...

    assert called(take, {"odd": {"number": 1}}).text.startswith("KeyError: 'broken'")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=[])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


class Point(BaseModel):
    x: int
    about: dict[str, float] | None = None


def everything(a: int, b: list[Point], c: Any = 1, d: datetime.date | None = None, *, e: tuple[str, ...] = ()) -> Any:
    return [a, b, c, d, e]


TAKES_ALL: Tool = tool_of(everything, "test")


@given(JSON | st.fixed_dictionaries({"a": JSON, "b": JSON}, optional={"c": JSON, "d": JSON, "e": JSON}))
def test_no_arguments_whatsoever_make_a_call_raise(value: Any) -> None:
    async def call() -> None:
        for arguments in (value, json.dumps(value), json.dumps(value, ensure_ascii=False)[:-1]):
            answer = await TAKES_ALL.call(arguments, CONTEXT)
            answer.text.encode()

    asyncio.run(call())


# ---------------------------------------------------------------- running


def test_what_a_tool_raises_is_told_with_its_own_line() -> None:
    def broken() -> None:
        json.loads("no json")  # of my own

    answer = called(broken)
    assert answer.failed
    first, second = answer.text.splitlines()
    assert first.startswith("JSONDecodeError: Expecting value")
    assert second.startswith("  at test_tool_calls.py:")
    assert second.endswith('in broken: json.loads("no json")  # of my own')


def test_an_error_of_this_project_stands_alone() -> None:
    def refuse() -> None:
        raise InvalidInput("city", "is closed today")

    assert called(refuse) == ToolAnswer("city: is closed today", failed=True)


def test_what_an_exception_group_holds_is_told() -> None:
    async def several() -> None:
        raise ExceptionGroup("two", [ValueError("one"), KeyError("other")])

    assert called(several).text.splitlines()[1:3] == ["  ValueError: one", "  KeyError: 'other'"]


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration(1), Unspeakable(), asyncio.CancelledError()])
@pytest.mark.parametrize("declared", ["sync", "async"])
def test_whatever_a_tool_raises_is_its_own_failure(error: BaseException, declared: str) -> None:
    def sync() -> None:
        raise error

    async def asynchronous() -> None:
        raise error

    answer = called(sync if declared == "sync" else asynchronous)
    assert answer.failed
    assert type(error).__name__ in answer.text or "StopIteration" in answer.text


def test_a_coroutine_of_a_tool_declared_sync_is_awaited() -> None:
    async def inner(number: int) -> int:
        await asyncio.sleep(0)
        return number + 1

    def outer(number: int) -> Any:
        return inner(number)

    assert called(outer, {"number": 1}) == ToolAnswer("2")


def test_a_sync_tool_does_not_hold_up_the_loop() -> None:
    gate = threading.Event()

    def wait() -> str:
        gate.wait()
        return "opened"

    async def both() -> ToolAnswer:
        call = asyncio.create_task(tool_of(wait, "test").call(None, CONTEXT))
        await asyncio.sleep(0)
        gate.set()  # nobody could, if the loop stood still
        return await call

    assert asyncio.run(both()) == ToolAnswer("opened")


def test_more_hanging_tools_than_cores_leave_room_for_another() -> None:
    gate = threading.Event()

    @tool(timeout=0.01)
    def hang() -> None:
        gate.wait()

    async def many() -> ToolAnswer:
        hung = await asyncio.gather(*(tool_of(hang, "test").call(None, CONTEXT) for _ in range(50)))
        assert {answer.text for answer in hung} == {"timed out after 0.01 s; what it had begun may still take effect"}
        return await tool_of(weather, "test").call({"city": "Rome"}, CONTEXT)

    try:
        assert asyncio.run(many()) == ToolAnswer("Rome: 1 sunny")
    finally:
        gate.set()


def test_an_async_tool_is_cancelled_after_its_time_and_not_waited_for_if_it_does_not_listen() -> None:
    heard: list[str] = []

    @tool(timeout=0.01)
    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append("cancelled")
            await asyncio.Event().wait()

    assert called(stubborn).failed
    assert heard == ["cancelled"]


def test_a_timeout_error_of_the_tool_itself_is_what_it_raised() -> None:
    async def impatient() -> None:
        raise TimeoutError("the other side")

    assert called(impatient).text.startswith("TimeoutError: the other side\n")


def test_the_callers_cancellation_passes_through_and_on_to_an_async_tool() -> None:
    heard: list[str] = []

    async def run() -> None:
        begun = asyncio.Event()

        async def wait() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                heard.append("stopped")

        call = asyncio.create_task(tool_of(wait, "test").call(None, CONTEXT))
        await begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(run())
    assert heard == ["stopped"]


def test_a_tool_gets_the_context_that_it_asks_for() -> None:
    def sync(text: str, ctx: ToolContext) -> str:
        return f"{text} {ctx.idempotency_key}"

    async def optional(*, ctx: ToolContext | None = None) -> str:
        return "none" if ctx is None else ctx.goal

    assert called(sync, {"text": "a"}).text == "a bt_1:0:1"
    assert called(optional).text == "test"
    assert called(sync, {"text": "a", "ctx": {}}).failed


def test_defaults_stay_the_functions_own_objects() -> None:
    missing = object()

    def same(first: Any = missing, /, second: Any = missing) -> list[bool]:
        return [first is missing, second is missing]

    assert called(same).text == "[true,true]"
    assert called(same, {"second": 2}).text == "[true,false]"
    assert called(same, {"first": 1}).text == "[false,true]"


# ---------------------------------------------------------------- answers


@dataclasses.dataclass
class Place:
    name: str
    when: datetime.date
    inside: Any = None


class Colour(enum.Enum):
    RED = "red"


class Plain:
    def __repr__(self) -> str:
        return "<plain>"


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError


def cyclic() -> list[Any]:
    loop: list[Any] = [1]
    loop.append(loop)
    return loop


RESULTS = [
    ("text as it is\n", "text as it is\n"),
    (None, "null"),
    ({"a": [1, 2.5, True, None], "ü": "漢"}, '{"a":[1,2.5,true,null],"ü":"漢"}'),
    ((1, "a"), '[1,"a"]'),
    (Point(x=1, about={"y": 2}), '{"x":1,"about":{"y":2.0}}'),
    ([Place("here", datetime.date(2026, 1, 2), Point(x=1))], '[{"name":"here","when":"2026-01-02","inside":{"x":1,"about":null}}]'),
    ({3}, "[3]"),
    (Colour.RED, "red"),
    (Path("a/b"), "a/b"),
    (b"caf\xc3\xa9", "café"),
    ({"data": b"\x89PNG\xff"}, '{"data":"(5 bytes that are no text)"}'),
    (bytearray(b"a\x00b"), "(3 bytes that are no text)"),
    (Plain(), "<plain>"),
    ([Plain()], '["<plain>"]'),
    (Broken(), "(a Broken that cannot be shown: RuntimeError)"),
    (math.nan, "NaN"),
    ({(1, 2): "x"}, "{(1, 2): 'x'}"),
    (cyclic(), "[1, [...]]"),
    (10**5_000, "(a int that cannot be shown: ValueError)"),
    ("\ud800 and \x00", "\N{REPLACEMENT CHARACTER} and \N{REPLACEMENT CHARACTER}"),
]


@pytest.mark.parametrize(("value", "text"), RESULTS, ids=[text for _, text in RESULTS])
def test_results_of_all_kinds_become_text(value: Any, text: str) -> None:
    def give() -> Any:
        return value

    assert called(give) == ToolAnswer(text)


@pytest.mark.parametrize("fails", [False, True])
def test_an_answer_of_13_mb_is_bounded_and_says_what_was_left_out(fails: bool) -> None:
    def give() -> str:
        if fails:
            raise ValueError("x" * 13_000_000)
        return "x" * 13_000_000

    text = called(give).text
    assert len(text) <= MAX_ANSWER_CHARACTERS
    body, _, last = text.rpartition("\n")
    assert last.endswith(" more characters were left out]")
    left_out = int(last.split()[0].strip("[").replace(",", ""))
    total = 13_000_000 if not fails else 13_000_000 + len("ValueError: ")
    assert len(body) + left_out >= total


# ---------------------------------------------------------------- travelling


def test_a_decorated_local_function_stays_itself_and_travels_by_value() -> None:
    offset = 40

    def add(number: int) -> int:
        """Add forty."""
        return number + offset

    decorated = tool(name="add_forty", description="Adds 40.", timeout=5)(add)
    assert decorated is add
    assert decorated(2) == 42
    arrived = tool_of(cloudpickle.loads(cloudpickle.dumps(decorated)), "code:1")
    assert (arrived.name, arrived.description, arrived.timeout) == ("add_forty", "Adds 40.", 5)
    assert asyncio.run(arrived.call('{"number": 2}', CONTEXT)) == ToolAnswer("42")


def test_the_decorator_alone_changes_nothing() -> None:
    assert tool(weather) is weather
    assert tool_of(weather, "test").definition == {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "where."}, "days": {"type": "integer", "default": 1}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
