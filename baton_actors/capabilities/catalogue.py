"""The tools of one task: found by their references, each under its own name."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import Any

from baton_actors.capabilities.builtin import BUILTINS, usable
from baton_actors.capabilities.schema import hold_hints
from baton_actors.capabilities.tool import Tool, tool_of
from baton_actors.errors import InvalidInput
from baton_actors.references import resolve

#: The agent's own tool, which ends a run instead of answering.
RESERVED = frozenset({"spawn_task"})


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What one task may call; `tools` by name, in the order they were named."""

    tools: dict[str, Tool]

    def get(self, name: str) -> Tool | None:
        """The tool of that name, if there is one."""
        return self.tools.get(name)

    def reference(self, name: str) -> str:
        """The text by which the tool of that name is found again, for a child that is to have it too; KeyError if there is none."""
        return self.tools[name].reference

    @property
    def definitions(self) -> list[dict[str, Any]]:
        """All tools as Chat Completions has them."""
        return [tool.definition for tool in self.tools.values()]


def catalogue(
    references: Sequence[str] | None,
    load: Callable[[str], Callable[..., Any]],
    *,
    context: Mapping[str, Any],
    folder: Path | None,
    fetch: tuple[str, ...],
) -> Catalogue:
    """The tools that a task has.

    Args:
        references: a built-in's name, `module:function` or `code:<hash>` each. None: the built-in ones that can do something here.
        load: the function of a reference that is no built-in's name; may raise anything.
        context, folder, fetch: the task's, as in `ToolContext`.

    Raises:
        InvalidInput: an unknown or unusable one, or two of one name.
    """
    if references is None:
        references = [name for name in BUILTINS if usable(name, context, folder, fetch)]
    tools: dict[str, Tool] = {}
    for reference in dict.fromkeys(references):
        _add(tools, _loaded(reference, load), reference)
    return Catalogue(tools)


def check_tools(tools: Sequence[str | Callable[..., Any]]) -> None:
    """Look at the tools of a submission as far as that goes where it is made, and make its functions ready to travel.

    A function under `from __future__ import annotations` is given what its hints stand for, see `hold_hints`.

    Raises:
        InvalidInput: no such tool or function, hints without a schema, a name that is reserved or there twice.
    """
    if isinstance(tools, str):
        raise InvalidInput("tools", f"{tools!r} is a text; give a list: [{tools!r}]")
    named: dict[str, Tool] = {}
    seen: list[str | Callable[..., Any]] = []
    for each in tools:
        if any(each is other or each == other for other in seen):
            raise InvalidInput("tools", f"{_shown(each)} is named twice; name it once")
        seen.append(each)
        if isinstance(each, str) and each.startswith("code:"):
            continue
        function = _loaded(each, lambda reference: resolve(reference)[1]) if isinstance(each, str) else each
        _add(named, function, _shown(each))
        if not isinstance(each, str):
            hold_hints(function)


def _add(tools: dict[str, Tool], function: Callable[..., Any], reference: str) -> None:
    tool = _tool_of(function, reference)
    if tool.name in RESERVED or (tool.name in BUILTINS and BUILTINS[tool.name] is not function):
        raise InvalidInput("tools", f"{reference!r} is called {tool.name!r}, a name of the agent's own; give another: @tool(name=…)")
    if other := tools.get(tool.name):
        raise InvalidInput(
            "tools", f"{other.reference!r} and {reference!r} are both called {tool.name!r}; give one another name: @tool(name=…)"
        )
    tools[tool.name] = tool


def _tool_of(function: Callable[..., Any], reference: str) -> Tool:
    return _remembered(function, reference) if isinstance(function, FunctionType) else tool_of(function, reference)


@lru_cache(maxsize=256)
def _remembered(function: FunctionType, reference: str) -> Tool:
    """One for all batons of a process: a schema takes a millisecond."""
    return tool_of(function, reference)


def _loaded(reference: str, load: Callable[[str], Callable[..., Any]]) -> Callable[..., Any]:
    if reference in BUILTINS:
        return BUILTINS[reference]
    if ":" not in reference:
        raise InvalidInput("tools", _unknown(reference))
    try:
        return load(reference)
    except InvalidInput as error:
        raise InvalidInput("tools", error.why.removesuffix(" of (baton, ctx)")) from None
    except Exception as error:  # loading runs foreign code
        raise InvalidInput("tools", f"{reference!r} cannot be loaded: {type(error).__name__}: {error}") from None


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, BUILTINS, 1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    return f"there is no tool {name!r}; {meant}there are {', '.join(BUILTINS)}, and any function by module:function"


def _shown(tool: str | Callable[..., Any]) -> str:
    """What a tool is called before its own name is known: a reference, or where a function was written."""
    if isinstance(tool, str):
        return tool
    return f"{getattr(tool, '__module__', '?')}:{getattr(tool, '__qualname__', type(tool).__name__)}"
