"""The names that users import are locked, and importing them is cheap."""

import json
import subprocess
import sys

import pytest

import baton_actors

NAMES = [
    "Baton",
    "BatonCancelled",
    "BatonError",
    "BatonFailed",
    "CannotConnect",
    "Child",
    "ChildResult",
    "Client",
    "Completed",
    "Constraints",
    "Context",
    "ErrorKind",
    "Event",
    "EventStream",
    "Failed",
    "HandedOver",
    "InvalidInput",
    "NotAllowed",
    "NotFound",
    "Retry",
    "Spawned",
    "Status",
    "ToolContext",
    "TreeHandle",
    "WaitTimeout",
    "__version__",
    "connect",
    "tool",
]
HEAVY = ("ray", "openai", "sqlalchemy", "alembic", "fastapi", "typer", "rich", "griffe")


def loaded_by(code: str) -> list[str]:
    """The heavy packages that a fresh process has loaded after running `code`."""
    script = f"{code}\nimport json, sys\nprint(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    return list(json.loads(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout))


def test_exported_names_are_these_and_sorted() -> None:
    assert baton_actors.__all__ == NAMES == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_exported_name_is_there(name: str) -> None:
    assert getattr(baton_actors, name) is not None
    assert name in dir(baton_actors)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = baton_actors.nonsense


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_by("import baton_actors; baton_actors.Baton, baton_actors.Retry") == []


def test_asking_for_help_loads_neither_ray_nor_sqlalchemy() -> None:
    run = "from contextlib import redirect_stdout\nfrom io import StringIO\nfrom baton_actors.cli.app import execute\n"
    loaded = loaded_by(f"{run}with redirect_stdout(StringIO()): execute(['--help'])")
    assert not {"ray", "sqlalchemy", "alembic", "openai", "fastapi"} & set(loaded)
