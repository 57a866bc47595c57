"""The state diagram that people see is the table that the machine uses."""

from baton_actors.machine import TRANSITIONS
from tests.state_diagram import README, block, current_block, state_diagram


def test_the_readme_shows_the_current_table() -> None:
    assert current_block(README.read_text(encoding="utf-8")) == block(), "run 'python -m tests.state_diagram --write'"


def test_a_baton_begins_pending() -> None:
    assert state_diagram().splitlines()[:2] == ["stateDiagram-v2", "    [*] --> pending: created"]


def test_every_change_of_status_is_in_the_diagram_once() -> None:
    changes = {(before or "[*]", after) for (before, _), after in TRANSITIONS.items() if before is not after}
    arrows = [line.split(":")[0].strip() for line in state_diagram().splitlines()[1:]]
    assert sorted(arrows) == sorted(f"{before} --> {after}" for before, after in changes)


def test_a_text_without_the_markers_has_no_block() -> None:
    assert current_block("# Title\n") is None
    assert current_block(f"# Title\n{block()}\nmore") == block()
