"""What goes into the state machine, and what comes out beside events: commands and effects.

Time, randomness and ids come in with commands; the machine has none of its own. `at` is milliseconds since 1970, UTC.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from baton_actors.baton import Baton, Budget, ChildSpec, ErrorKind, Status
from baton_actors.events import Event

#: What ended a run that did not report its end. Only `process` (when it ran alone), `stuck` and `idle` count.
LossCause = Literal["process", "node", "owner", "stuck", "idle"]


NO_BUDGET = Budget()


@dataclass(frozen=True, slots=True)
class Submit:
    """A new tree: its root, as it is to be stored."""

    at: int
    root: Baton


@dataclass(frozen=True, slots=True)
class Start:
    """A worker is about to be handed this baton."""

    at: int
    baton_id: str


@dataclass(frozen=True, slots=True)
class Spending:
    """What a run used since its last report: `usage` as in `Baton.usage`, `rounds` model calls."""

    usage: dict[str, float] = field(default_factory=dict)
    rounds: int = 0


NOTHING_SPENT = Spending()


@dataclass(frozen=True, slots=True)
class Complete:
    """Report: the task is done."""

    at: int
    baton_id: str
    attempt: int
    value: Any
    partial: bool = False
    spending: Spending = NOTHING_SPENT


@dataclass(frozen=True, slots=True)
class Fail:
    """Report: the task cannot be done. `jitter` is a random number in [0, 1) for the backoff, `after` seconds to wait at least."""

    at: int
    baton_id: str
    attempt: int
    error: str
    kind: ErrorKind = ErrorKind.ERROR
    retryable: bool = False
    after: float | None = None
    jitter: float = 0.0
    spending: Spending = NOTHING_SPENT


@dataclass(frozen=True, slots=True)
class Spawn:
    """Report: the task is broken down."""

    at: int
    baton_id: str
    attempt: int
    children: tuple[ChildSpec, ...]
    state: Any = None
    spending: Spending = NOTHING_SPENT


@dataclass(frozen=True, slots=True)
class HandOver:
    """Report: the window closed; go on from `state`, or from the last checkpoint if it is None."""

    at: int
    baton_id: str
    attempt: int
    state: Any = None
    spending: Spending = NOTHING_SPENT


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Report: progress that a later run need not make again. `data` goes into the event.

    Attributes:
        first_row: of an agent's save: its place in the conversation. It takes as many places as it has rows, one at least, so
            each save of a baton has a place of its own, and one that is decided again after a doubtful commit is known by it.
            None: a function's checkpoint, which spends nothing and is harmless when repeated.
        rows: what the conversation goes on with, as JSON texts.
    """

    at: int
    baton_id: str
    attempt: int
    state: Any
    data: dict[str, Any] = field(default_factory=dict)
    spending: Spending = NOTHING_SPENT
    first_row: int | None = None
    rows: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reserve:
    """Before a model call: set aside what it may use at most (`rounds`, `tokens`, `cost`); the next report settles it."""

    at: int
    baton_id: str
    attempt: int
    amounts: dict[str, float]


@dataclass(frozen=True, slots=True)
class Lose:
    """A run ended without a report. `alone`: it had its process to itself."""

    at: int
    baton_id: str
    attempt: int
    cause: LossCause
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a baton and all below it."""

    at: int
    baton_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Retry:
    """Start a failed baton again; `budget` is added to the tree's."""

    at: int
    baton_id: str
    budget: Budget = NO_BUDGET


@dataclass(frozen=True, slots=True)
class Release:
    """Start a baton that was created held."""

    at: int
    baton_id: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Somebody outside answers a baton that waits."""

    at: int
    baton_id: str
    value: Any


@dataclass(frozen=True, slots=True)
class Due:
    """A time that `Wake` asked for has come."""

    at: int
    baton_id: str


@dataclass(frozen=True, slots=True)
class Recover:
    """The tree was read from the database: every effect is to be told again, and runs are lost but those that are `known`."""

    at: int
    known: frozenset[tuple[str, int]] = frozenset()


Report = Complete | Fail | Spawn | HandOver | Checkpoint
Command = Submit | Start | Report | Reserve | Lose | Cancel | Retry | Release | Answer | Due | Recover


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Effect: hand this baton to a worker, by way of a `Start` command."""

    baton_id: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Effect: tell the worker that runs this attempt to stop."""

    baton_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Wake:
    """Effect: send `Due` for this baton at that time (milliseconds since 1970)."""

    baton_id: str
    at: int


@dataclass(frozen=True, slots=True)
class End:
    """Effect: the tree has ended; its owner is free."""

    status: Status


Effect = Dispatch | Stop | Wake | End


@dataclass(frozen=True, slots=True)
class Decision:
    """What a command leads to. `refused` names the exhausted limit of a `Reserve`."""

    events: tuple[Event, ...] = ()
    effects: tuple[Effect, ...] = ()
    refused: str | None = None
