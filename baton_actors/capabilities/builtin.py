"""The tools that come with the house: files that the task names, pages of permitted hosts, results of children."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from baton_actors.capabilities.files import granted_paths, listing, permitted, text_of, ungranted
from baton_actors.capabilities.pages import FETCH_SECONDS, page_text
from baton_actors.capabilities.tool import ToolContext, tool
from baton_actors.errors import InvalidInput

__all__ = [
    "BUILTINS",
    "ask_human",
    "fetch_url",
    "granted_paths",
    "list_folder",
    "read_file",
    "read_result",
    "text_of",
    "ungranted",
    "usable",
]

#: Characters of one page of a file, a web page or a result; an answer has room for it and a line that says what follows.
PAGE_CHARACTERS = 16_000

Offset = Annotated[int, Field(ge=0)]


def read_file(path: str, context: ToolContext, offset: Offset = 0) -> str:
    """Read a text file. The last line says how long it is, and the offset at which to go on.

    Args:
        path: A file that the task names, or one below a folder that it names.
        offset: Characters to skip.
    """
    text, total = text_of(permitted(path, context.context, context.folder), offset, PAGE_CHARACTERS)
    return _page(text, offset, total)


def list_folder(path: str, context: ToolContext) -> str:
    """List a folder: its subfolders end with a slash, its files have their size.

    Args:
        path: A folder that the task names, or one below it.
    """
    return listing(permitted(path, context.context, context.folder))


@tool(timeout=FETCH_SECONDS)
def fetch_url(url: str, context: ToolContext, offset: Offset = 0) -> str:
    """Fetch a web page as text. The last line says how long it is, and the offset at which to go on.

    Args:
        url: An http or https address.
        offset: Characters to skip.
    """
    text = page_text(url, context.fetch)
    return _page(text[offset : offset + PAGE_CHARACTERS], offset, len(text))


async def read_result(id: str, context: ToolContext, offset: Offset = 0) -> str:
    """Read the result of a subtask that was too long to be shown whole.

    Args:
        id: The subtask's id.
        offset: Characters to skip.
    """
    found = await context.read_result(id, offset, PAGE_CHARACTERS)
    if found is None:
        raise InvalidInput("id", f"{id!r} is no subtask with a result")
    text, total = found
    return _page(text, offset, total)


def ask_human(question: str) -> str:
    """Ask the person who gave the task, and wait for the answer. Ask only what you cannot find out yourself.

    Args:
        question: Makes sense to somebody who does not see this conversation.
    """
    raise InvalidInput("ask_human", "is answered by the agent itself: it parks until somebody answers")


#: By name. No other function may have one of these names.
BUILTINS: dict[str, Callable[..., Any]] = {each.__name__: each for each in (read_file, list_folder, fetch_url, read_result, ask_human)}


def usable(name: str, context: Mapping[str, Any], folder: Path | None, fetch: tuple[str, ...]) -> bool:
    """Whether a built-in tool can do anything in a task with this context."""
    match name:
        case "read_file" | "list_folder":
            return bool(granted_paths(context, folder))
        case "fetch_url":
            return bool(fetch)
        case "ask_human":
            return False  # a task waits for days if nobody is there, so it is for those who name it
        case _:
            return True


def _page(text: str, offset: int, total: int) -> str:
    """A window of a text, and where it stands in the whole."""
    end = offset + len(text)
    if offset > total:
        raise InvalidInput("offset", f"{offset:,} is beyond the end: there are {total:,} characters")
    rest = f"go on with offset={end}" if end < total else "that is the end"
    return f"{text}\n[characters {offset:,} to {end:,} of {total:,}; {rest}]"
