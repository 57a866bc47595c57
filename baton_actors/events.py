"""What became true: the event types and their wire form.

An event is stored in the transaction that made it true, published after it, and never changed. What each `data` holds:

    baton.created      goal (cut to 200 characters), worker; held, not_before, deadline if set
    baton.started      alone: true when it has a process of its own after a shared one crashed
    baton.progress     kind: "checkpoint" | "released" | "reserved", and what a function adds; of the agent:
                       "decision" (breakdown, broken_down, reason, rounds, seconds_per_round, judged_rounds),
                       "round" (round, purpose, model, seconds, tokens_in, tokens_out, tokens_cached, cost, calls: names of tools),
                       "tool" (name, seconds, failed), "dialect" (model, dialect or schemas: false, reason)
    baton.waiting      worker: "human" or "external"; it runs until somebody answers
    baton.spawned      children (how many), breakdown, generation; reason: "retry" when an ended parent re-opened
    baton.resumed      breakdown, generation
    baton.retrying     reason: "error" (with error, not_before) | "lost" (with cause, losses) | "retry" (with generation)
    baton.handed_over  rounds so far
    baton.completed    partial: true if rounds or budget ran out
    baton.failed       error (cut to 500 characters), error_kind
    tree.completed     nothing
    tree.failed        error, error_kind
    tree.reopened      baton_id that was retried, budget that was added

A result is never in it: whoever is told of an end reads the result from the database.

Beside the log there is what is only heard: `Whisper`, without a seq, never stored.
"""

from enum import StrEnum
from typing import Any, NamedTuple


class EventType(StrEnum):
    """The closed set of event types; `tree.completed` and `tree.failed` are the last of their run."""

    CREATED = "baton.created"
    STARTED = "baton.started"
    PROGRESS = "baton.progress"
    WAITING = "baton.waiting"
    SPAWNED = "baton.spawned"
    RESUMED = "baton.resumed"
    RETRYING = "baton.retrying"
    HANDED_OVER = "baton.handed_over"
    COMPLETED = "baton.completed"
    FAILED = "baton.failed"
    TREE_COMPLETED = "tree.completed"
    TREE_FAILED = "tree.failed"
    TREE_REOPENED = "tree.reopened"


#: A subscription ends after one of these.
TREE_ENDS = frozenset({EventType.TREE_COMPLETED, EventType.TREE_FAILED})


class Event(NamedTuple):
    """One line of a tree's log. `seq` is 1, 2, 3 … without gaps; `at` is milliseconds since 1970, UTC.

    `change` holds the fields of the baton that the event sets. It is for `machine.apply` alone: never on the wire, never stored.
    """

    seq: int
    type: EventType
    at: int
    root_id: str
    baton_id: str
    parent_id: str | None
    depth: int
    attempt: int
    data: dict[str, Any]
    change: dict[str, Any] = {}

    def to_wire(self) -> dict[str, Any]:
        """The JSON object that subscribers see."""
        wire = self._asdict()
        del wire["change"]
        return wire

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> "Event":
        """The event of a JSON object made by `to_wire`."""
        return cls(**{**wire, "type": EventType(wire["type"])})


class Whisper(NamedTuple):
    """What is going on in a run right now; it may be lost, and is of no more interest once the run has ended.

    Attributes:
        kind: `model`: a model call has begun, `text` says what for ("round 2", "judging"). `tool`: tools run, `text` names them.
            `text`: the model's answer goes on with `text`. `idle`: what was told last is over.
    """

    baton_id: str
    attempt: int
    kind: str
    text: str = ""
