"""A function as a tool: what a model is told of it, and what a call comes to.

Whatever goes wrong in a call is an answer for the model; only the cancellation of the caller passes through.
"""

import inspect
import json
import math
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, overload

from pydantic import ValidationError

from baton_actors.capabilities.answer import ToolAnswer, answer, failure, raised
from baton_actors.capabilities.calling import run_guarded
from baton_actors.capabilities.schema import Form, described, expectation, form_of
from baton_actors.errors import InvalidInput

#: Characters of a description that every server takes.
MOST_DESCRIPTION = 1_024
#: Seconds that a call may take, unless the tool says otherwise.
TIMEOUT_SECONDS = 60.0
#: Faults of one call's arguments that are told; a model corrects the first ones first.
_MOST_FAULTS = 20
_OPTIONS = "__baton_tool__"
_AGAIN = "call it again with one JSON object"
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class _Options:
    """What the decorator was told; None is left to the function, or to the default."""

    name: str | None = None
    description: str | None = None
    timeout: float | None = None
    approval: bool = False


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, timeout: float | None = None, approval: bool = False
) -> Callable[[F], F]: ...
def tool(
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    approval: bool = False,
) -> F | Callable[[F], F]:
    """Say how a function is shown to a model, as `@tool` or `@tool(name=…)`; the function itself stays what it is.

    Without it a function can be a tool as well: by its own name, its docstring, and 60 seconds.

    Args:
        name: letters a-z, digits, `_` and `-`, at most 64. description: instead of the docstring's text.
        timeout: seconds that a call may take. approval: a human is asked before each call: `baton ls --waiting`, `baton answer ID yes`.

    Raises:
        InvalidInput: no such name, not a time, or not a function.
    """
    if name is not None:
        _check_name(name)
    if timeout is not None and not (timeout > 0 and math.isfinite(timeout)):
        raise InvalidInput("timeout", f"must be seconds above 0, not {timeout!r}")
    options = _Options(name, description, timeout, approval)

    def with_options(function: F) -> F:
        if isinstance(function, type) or not hasattr(function, "__name__"):
            raise InvalidInput("tools", f"{function!r} is no function; decorate a function with @tool")
        setattr(function, _OPTIONS, options)
        return function

    return with_options if function is None else with_options(function)


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """What a tool may ask for by a parameter with this hint; the model does not see that parameter.

    Attributes:
        idempotency_key: the same in every attempt of this call: give it to systems that should act once.
        baton_id, goal, context: of the task that calls.
        folder: what relative paths of the submitter stand for. fetch: patterns of hosts that may be fetched from.
        read_result: at most `limit` characters from `offset` of a result in this tree, by (baton id, offset, limit), and how many
            characters it has; None if there is none.
        cancelled: whether what this call still does will be dropped.
    """

    idempotency_key: str
    baton_id: str
    goal: str
    context: dict[str, Any]
    folder: Path | None = None
    fetch: tuple[str, ...] = ()
    read_result: Callable[[str, int, int], Awaitable[tuple[str, int] | None]]
    cancelled: Callable[[], bool]


@dataclass(frozen=True)
class Tool:
    """A function that a model may call.

    Attributes:
        name, description: what the model sees. parameters: JSON schema of an object. timeout: seconds that a call may take.
        reference: text by which it is found again: a built-in's name, `module:function` or `code:<hash>`.
        approval: whether a human is asked before each call.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    reference: str
    timeout: float
    function: Callable[..., Any] = field(repr=False)
    form: Form = field(repr=False)
    approval: bool = False

    @property
    def definition(self) -> dict[str, Any]:
        """The tool as Chat Completions has it, with as much of its description as servers take."""
        function = {"name": self.name, "description": self.description[:MOST_DESCRIPTION], "parameters": self.parameters}
        return {"type": "function", "function": function}

    async def call(self, arguments: Any, context: ToolContext) -> ToolAnswer:
        """Call it; `arguments` is a JSON object, as text or as a dict; nothing (None, no characters) stands for an empty one."""
        try:
            positional, named = self._bound(arguments)
        except ValueError as error:
            return failure(str(error))
        except Exception as error:  # a validator in the user's own types
            return raised(error, self.function)
        for name in self.form.hidden:
            named[name] = context
        end = await run_guarded(self.function, positional, named, self.timeout)
        if end.timed_out:
            return failure(f"timed out after {self.timeout:g} s; what it had begun may still take effect")
        return answer(end.value) if end.error is None else raised(end.error, self.function)

    def _bound(self, arguments: Any) -> tuple[list[Any], dict[str, Any]]:
        """The values of a call. ValueError: what is wrong with the arguments, for the model."""
        try:
            return self.form.bound(_object_text(arguments))
        except ValidationError as error:
            raise ValueError(self._faults(error)) from None

    def _faults(self, error: ValidationError) -> str:
        faults = error.errors(include_url=False, include_context=False)
        lines = [self._fault(fault) for fault in faults[:_MOST_FAULTS]]
        if len(faults) > _MOST_FAULTS:
            lines.append(f"and {len(faults) - _MOST_FAULTS:,} more")
        return "\n".join(["the arguments do not fit, nothing was done:", *lines])

    def _fault(self, fault: Any) -> str:
        """One of pydantic's findings: which parameter, and what it expects."""
        path = ".".join(str(part) for part in fault["loc"])
        properties = self.parameters["properties"]
        match fault["type"]:
            case "missing" if path in properties:
                return f"- {path}: is missing; expects {expectation(properties[path])}"
            case "extra_forbidden" if len(fault["loc"]) == 1:
                return f"- {path}: no such parameter; there are: {', '.join(properties) or 'none'}"
            case "json_invalid":
                return f"- {fault['msg']}"
            case _:
                return f"- {path}: {fault['msg'][:1].lower()}{fault['msg'][1:]}, not {_quoted(fault['input'])}"


def tool_of(function: Callable[..., Any], reference: str) -> Tool:
    """A function as a tool. Parameters without a hint take any JSON value; positional-only ones are filled in by their names.

    Raises:
        InvalidInput: a class or something without a usable name, `*args` or `**kwargs`, a generator, hints without a JSON schema.
    """
    options: _Options = getattr(function, _OPTIONS, _Options())
    name = _name_of(function, options)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidInput("tools", f"{name!r} yields, and a call has one answer; return a list instead")
    description, parameters = described(function.__doc__)
    form = form_of(function, name, parameters, ToolContext)
    return Tool(
        name,
        description if options.description is None else options.description,
        form.schema,
        reference,
        options.timeout or TIMEOUT_SECONDS,
        function,
        form,
        options.approval,
    )


def _name_of(function: Callable[..., Any], options: _Options) -> str:
    own = getattr(function, "__name__", None)
    if isinstance(function, type):
        raise InvalidInput("tools", f"{own!r} is a class; wrap it in a function that makes what is needed and says it in text or JSON")
    if own is None:
        raise InvalidInput("tools", f"{repr(function)[:80]} is no function; wrap it in one, with a docstring")
    name = options.name or own
    if name == "<lambda>":
        raise InvalidInput("tools", "a lambda has no name and no type hints for a model; write it as a function with def")
    _check_name(name)
    return name


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidInput("tools", f"{name!r} is no name that models accept (1 to 64 of a-z A-Z 0-9 _ -); give another: @tool(name=…)")


def _object_text(arguments: Any) -> str:
    """The arguments as the text of a JSON object. ValueError: what they are instead; they are never taken for an empty object."""
    if arguments is None or arguments == "":
        return "{}"
    try:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        text.encode()
        value = json.loads(text, parse_constant=_refuse_constant)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the arguments are no JSON, nothing was done: {error}; {_AGAIN}") from None
    if not isinstance(value, dict):
        raise ValueError(f"the arguments are {_quoted(value)}, nothing was done; {_AGAIN}")
    return text


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _quoted(value: Any) -> str:
    """A value from JSON, short enough to be said back."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 80 else f"{text[:80]}…"
