"""`tools`: what an agent may call, and what a function of one's own looks like to a model."""

import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer

from baton_actors.cli.options import AsJson
from baton_actors.cli.output import as_json as json_text
from baton_actors.cli.output import print_json, print_text
from baton_actors.display import harmless
from baton_actors.errors import InvalidInput
from baton_actors.references import resolve

if TYPE_CHECKING:
    from baton_actors.capabilities.tool import Tool

_WIDTH = 80


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command()(tools)


def tools(
    tool: Annotated[list[str] | None, typer.Option("--tool", metavar="REF", help="module:function to show too. Repeatable.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the tools that agents may use."""
    from baton_actors.capabilities.builtin import BUILTINS
    from baton_actors.capabilities.catalogue import catalogue

    try:
        with redirect_stdout(sys.stderr):  # what a module prints while it is imported is no data
            found = catalogue([*BUILTINS, *(tool or ())], _function, context={}, folder=None, fetch=())
    except InvalidInput as error:
        raise InvalidInput("--tool", error.why) from None
    if as_json:
        print_json(found.definitions)
        return
    for number, each in enumerate(found.tools.values()):
        if number:
            print_text("")
        for line in _lines(each):
            print_text(line)


def _function(reference: str) -> Callable[..., Any]:
    return resolve(reference)[1]


def _lines(tool: "Tool") -> Iterator[str]:
    """A tool for a person: how it is called, what it does, what its parameters mean."""
    from baton_actors.capabilities.schema import expectation

    properties, required = tool.parameters["properties"], tool.parameters.get("required", ())
    call = f"{tool.name}({', '.join(name if name in required else _optional(name, about) for name, about in properties.items())})"
    yield from _wrapped(call, "", "  ")
    if tool.reference != tool.name:
        yield f"  {harmless(tool.reference)}"  # whole, to be copied
    for paragraph in tool.description.split("\n\n"):
        yield from _wrapped(paragraph, "  ", "  ")
    for name, about in properties.items():
        described = about.get("description", "")
        yield from _wrapped(f"{name} ({expectation(about)}){': ' if described else ''}{described}", "    ", "      ")


def _optional(name: str, about: dict[str, Any]) -> str:
    return f"{name}={json_text(about['default'])}" if "default" in about else f"{name}=…"


def _wrapped(text: str, first: str, other: str) -> list[str]:
    return textwrap.wrap(harmless(text), _WIDTH, initial_indent=first, subsequent_indent=other, break_on_hyphens=False)
