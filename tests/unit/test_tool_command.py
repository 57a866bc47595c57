"""`baton tools`."""

import json
from pathlib import Path

import pytest
import typer

from baton_actors.capabilities.builtin import BUILTINS
from baton_actors.cli import tools
from baton_actors.errors import InvalidInput

SOURCE = '''
print("imported")

def convert(amount: float, to: str = "EUR") -> float:
    """Convert an amount, which is said here in so many words that they do not fit in one line of eighty.

    Args:
        amount: in dollars, or in whatever currency the amount may happen to be given in this time.
    """
    return amount

def odd(line: object, *more: int) -> None: ...
'''


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """The command alone, with a module of the user's beside it."""
    (tmp_path / "mine_of_tools.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    app = typer.Typer()
    app.callback()(lambda: None)
    tools.add_to(app)
    return app


def test_built_in_tools_and_named_functions_are_listed_in_80_columns(run: typer.Typer, capsys: pytest.CaptureFixture[str]) -> None:
    run(["tools", "--tool", "mine_of_tools:convert"], standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line and not line.startswith(" ")] == [
        "read_file(path, offset=0)",
        "list_folder(path)",
        "fetch_url(url, offset=0)",
        "read_result(id, offset=0)",
        "ask_human(question)",
        'convert(amount, to="EUR")',
    ]
    start = lines.index('convert(amount, to="EUR")')
    assert lines[start + 1] == "  mine_of_tools:convert"
    assert any(line.startswith("    amount (number): in dollars") for line in lines[start:])


def test_json_is_the_definitions_and_nothing_that_a_module_prints(run: typer.Typer, capsys: pytest.CaptureFixture[str]) -> None:
    run(["tools", "--json", "--tool", "mine_of_tools:convert"], standalone_mode=False)
    told = json.loads(capsys.readouterr().out)
    assert [each["function"]["name"] for each in told] == [*BUILTINS, "convert"]
    assert told[-1]["function"]["parameters"]["required"] == ["amount"]


@pytest.mark.parametrize("reference", ["mine_of_tools:odd", "mine_of_tools:gone", "nothing"])
def test_what_is_no_tool_is_said_of_the_option(run: typer.Typer, reference: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        run(["tools", "--tool", reference], standalone_mode=False)
    assert caught.value.what == "--tool"
