"""The state diagram of a baton, made from the machine's own table: `python -m tests.state_diagram [--write]` (into README.md)."""

import re
import sys
from pathlib import Path

from baton_actors.events import EventType
from baton_actors.machine import TRANSITIONS

README = Path(__file__).parent.parent / "README.md"
BEGIN = "<!-- state diagram: begin -->"
END = "<!-- state diagram: end -->"
_BLOCK = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)


def state_diagram() -> str:
    """A Mermaid `stateDiagram-v2`, in the order of the table; events that lead from a status to the same one share an arrow."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (before, event), after in TRANSITIONS.items():
        if before is not after:
            arrows.setdefault((before or "[*]", after), []).append(_word(event))
    lines = [f"    {before} --> {after}: {', '.join(events)}" for (before, after), events in arrows.items()]
    return "\n".join(["stateDiagram-v2", *lines])


def _word(event: EventType) -> str:
    return event.removeprefix("baton.").replace("_", " ")


def block() -> str:
    """What stands in the README, its markers included."""
    return f"{BEGIN}\n```mermaid\n{state_diagram()}\n```\n{END}"


def current_block(text: str) -> str | None:
    """The block as a text has it; None if it has none."""
    found = _BLOCK.search(text)
    return found[0] if found else None


def main(arguments: list[str]) -> int:
    """Print the diagram, or put it into the README; the exit code."""
    if arguments != ["--write"]:
        print(state_diagram())
        return 0
    text = README.read_text(encoding="utf-8")
    if current_block(text) is None:
        print(f"README.md has no place for it: write {BEGIN} and {END} on lines of their own", file=sys.stderr)
        return 1
    README.write_text(_BLOCK.sub(lambda _: block(), text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
