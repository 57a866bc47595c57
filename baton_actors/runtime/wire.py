"""The forms in which owner and worker speak to each other: plain dicts and tuples, cheap to pickle by the thousand.

A report is a tuple that starts with its kind; the owner turns it into a command and adds the time. Exceptions travel as
text, never as objects: many do not unpickle on the other side.
"""

from dataclasses import dataclass, field
from typing import Any

from baton_actors.baton import AGENT, Baton, ChildResult, ChildSpec, ErrorKind
from baton_actors.commands import Checkpoint, Complete, Fail, HandOver, Report, Spawn, Spending
from baton_actors.machine import Tree, limited, room
from baton_actors.runtime.learning import Experience

#: ("completed", baton_id, attempt, value, partial) | ("failed", …, error, kind, retryable, after) |
#: ("spawned", …, specs, state, code) | ("handed_over", …, state) | ("checkpoint", …, state, data); an agent's goes on with
#: (…, first_row, rows, usage, rounds), its rows as JSON texts.
WireReport = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Lease:
    """Which life of which tree a run belongs to; every call between owner and worker carries it."""

    root_id: str
    epoch: int
    run_id: int


@dataclass(frozen=True, slots=True)
class Luggage:
    """What every run of a tree is given at its start.

    Attributes:
        archive: hash of the modules that it imports, and a reference to their bytes. agent: settings of its agents.
    """

    archive: tuple[str, Any] | None = None
    agent: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Instructions:
    """What the owner tells a run: batons to stop, more to run, the code they need, and whether to end.

    `number` counts them, so that a lost answer is given again. `moved` says that the owner has another tree now.
    """

    number: int
    assignments: list[dict[str, Any]] = field(default_factory=list)
    code: dict[str, bytes] = field(default_factory=dict)
    stops: list[tuple[str, int]] = field(default_factory=list)
    end: bool = False
    moved: bool = False


def assignment(tree: Tree, baton_id: str, experience: Experience) -> dict[str, Any]:
    """All that a worker needs of a baton that was just started; what only an agent needs is for agents only."""
    node = tree.nodes[baton_id]
    baton = node.baton
    wire: dict[str, Any] = {"baton": baton.model_dump(exclude_defaults=True)}
    if node.breakdown:
        wire["breakdown"] = node.breakdown
        wire["children"] = [
            (child.id, child.goal, child.status, child.result, child.error, child.error_kind) for child in tree.child_results(baton_id)
        ]
    if node.state is not None:
        wire["state"] = node.state
    if baton.worker == AGENT:
        wire |= {"spoken": node.spoken, "room": room(tree, baton), "learned": experience.known(), "limited": limited(tree)}
    return wire


def read_assignment(wire: dict[str, Any]) -> tuple[Baton, int, Any, list[ChildResult]]:
    """The baton, its breakdown, its saved state and its children's results."""
    children = [ChildResult(*child) for child in wire.get("children", ())]
    return Baton.model_validate(wire["baton"]), wire.get("breakdown", 0), wire.get("state"), children


def spec_wire(spec: ChildSpec) -> dict[str, Any]:
    """A child to be, without what stands at its default."""
    return spec.model_dump(exclude_defaults=True)


def command(report: WireReport, at: int, jitter: float) -> Report:
    """The command of a report that came in at that time."""
    kind, baton_id, attempt, *rest = report
    match kind:
        case "completed":
            value, partial = rest
            return Complete(at, baton_id, attempt, value, partial)
        case "failed":
            error, error_kind, retryable, after = rest
            return Fail(at, baton_id, attempt, error, ErrorKind(error_kind), retryable, after, jitter)
        case "spawned":
            specs, state, _code = rest
            return Spawn(at, baton_id, attempt, tuple(ChildSpec.model_validate(spec) for spec in specs), state)
        case "handed_over":
            return HandOver(at, baton_id, attempt, *rest)
        case "checkpoint":
            return _checkpoint(at, baton_id, attempt, *rest)
        case _:
            raise ValueError(f"unknown report {kind!r}")


def _checkpoint(at: int, baton_id: str, attempt: int, state: Any, data: dict[str, Any], *save: Any) -> Checkpoint:
    if not save:
        return Checkpoint(at, baton_id, attempt, state, data)
    first_row, rows, usage, rounds = save
    return Checkpoint(at, baton_id, attempt, state, data, Spending(usage, rounds), first_row, rows)
