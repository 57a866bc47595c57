"""The tools of one task: which there are, under which names, and what is refused before anything runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from baton_actors.capabilities.builtin import BUILTINS, read_file
from baton_actors.capabilities.catalogue import Catalogue, catalogue, check_tools
from baton_actors.capabilities.tool import tool
from baton_actors.errors import InvalidInput


def double(number: int) -> int:
    """Twice a number."""
    return 2 * number


@tool(name="double")
def also(number: int) -> int:
    """The same."""
    return number + number


@tool(name="spawn_task")
def spawning() -> None:
    """Not the agent's."""


@tool(name="read_file")
def reading(path: str) -> str:
    """Not ours."""
    return path


FUNCTIONS: dict[str, Callable[..., Any]] = {"code:1": double, "here:also": also, "here:spawning": spawning, "here:reading": reading}


def made(references: list[str] | None, context: dict[str, Any] | None = None, fetch: tuple[str, ...] = ()) -> Catalogue:
    """The catalogue of a task."""
    return catalogue(references, FUNCTIONS.__getitem__, context=context or {}, folder=Path("/data"), fetch=fetch)


# ---------------------------------------------------------------- one task


def test_no_list_means_the_built_in_tools_that_can_do_something_here() -> None:
    assert list(made(None).tools) == ["read_result"]
    assert list(made(None, {"files": ["a.txt"]}).tools) == ["read_file", "list_folder", "read_result"]
    assert list(made(None, {"files": ["a.txt"]}, ("*",)).tools) == [name for name in BUILTINS if name != "ask_human"]
    assert list(made(None, {"files": 3, "path": " ", "other": "/etc"}).tools) == ["read_result"]


def test_a_list_means_exactly_these_in_their_order() -> None:
    assert made([]).tools == {}
    assert list(made(["code:1", "fetch_url"]).tools) == ["double", "fetch_url"]


def test_a_tool_is_found_by_its_name_and_named_again_by_its_reference() -> None:
    found = made(["code:1", "read_file"])
    tool = found.get("double")
    assert tool is not None
    assert tool.function is double
    assert [found.reference(name) for name in found.tools] == ["code:1", "read_file"]
    assert found.get("code:1") is None
    assert [each["function"]["name"] for each in found.definitions] == ["double", "read_file"]


def test_the_same_reference_twice_is_one_tool() -> None:
    assert list(made(["code:1", "code:1"]).tools) == ["double"]


def test_two_tools_of_one_name_are_refused_naming_both() -> None:
    with pytest.raises(InvalidInput, match="'code:1' and 'here:also' are both called 'double'"):
        made(["code:1", "here:also"])


@pytest.mark.parametrize("reference", ["here:spawning", "here:reading"])
def test_names_of_the_agents_own_tools_are_reserved(reference: str) -> None:
    with pytest.raises(InvalidInput, match=f"'{reference}' is called '.*', a name of the agent's own"):
        made([reference])


def test_a_built_in_tool_named_as_a_function_is_itself() -> None:
    reference = "baton_actors.capabilities.builtin:read_file"
    found = catalogue([reference], lambda _: read_file, context={}, folder=None, fetch=())
    assert found.reference("read_file") == reference


def test_a_function_that_cannot_be_loaded_is_named() -> None:
    with pytest.raises(InvalidInput, match="tools: 'code:2' cannot be loaded: KeyError: 'code:2'"):
        made(["code:2"])


# ---------------------------------------------------------------- a submission


@pytest.mark.parametrize(
    "tools", [[], ["read_file", "fetch_url"], [double, "read_file"], ["code:" + "0" * 64], ["os.path:basename", double]]
)
def test_tools_that_can_be_used_pass(tools: list[Any]) -> None:
    check_tools(tools)


REFUSED: list[tuple[Any, str]] = [
    (
        ["read_files"],
        "there is no tool 'read_files'; did you mean 'read_file'? there are read_file, list_folder, fetch_url, read_result, ask_human,",
    ),
    (["spawn"], "there is no tool 'spawn'; there are read_file"),
    (["nowhere_at_all:f"], "no module 'nowhere_at_all', neither installed nor in "),
    (["os.path:nothing"], "module 'os.path' has no 'nothing'"),
    (["os.path:sep"], "'os.path:sep' is str, not a function"),
    (["json:loads"], "'loads': a model cannot know what to give for **kw"),
    (["read_file", "read_file"], "read_file is named twice; name it once"),
    ([double, double], "double is named twice; name it once"),
    ([double, also], "double' and '"),
    ([spawning], "is called 'spawn_task', a name of the agent's own"),
    ([3], "3 is no function"),
    ("read_file", "'read_file' is a text; give a list: ['read_file']"),
]


@pytest.mark.parametrize(("tools", "why"), REFUSED, ids=[why for _, why in REFUSED])
def test_what_cannot_be_used_is_said_at_the_submission_in_one_line(tools: Any, why: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_tools(tools)
    assert caught.value.what == "tools"
    assert why in caught.value.why
    assert "ctx" not in caught.value.why
    assert "\n" not in caught.value.why
