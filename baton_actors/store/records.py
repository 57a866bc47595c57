"""What passes between the store and those who use it; none of it knows SQL."""

from dataclasses import dataclass, field
from typing import Any, Literal

from baton_actors.baton import Baton

TreeStatus = Literal["open", "completed", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRow:
    """One row of `trees`, JSON columns decoded.

    Attributes:
        lease_until, wake_at: milliseconds, database time. wake_at None: nothing but a command wakes it.
        budget: `{"limits": {...}, "since": ms, "guards": {...}}`.
        code: what travels with the tree. answered: `[command id, answer]` pairs. agent: settings that its agents share.
    """

    root_id: str
    cluster_id: str
    lease_until: int = 0
    owner: str | None = None
    owner_pid: int | None = None
    epoch: int = 0
    seq: int = 0
    status: TreeStatus = "open"
    wake_at: int | None = None
    budget: dict[str, Any] = field(default_factory=dict)
    idempotency_key: str | None = None
    code: dict[str, Any] = field(default_factory=dict)
    answered: list[Any] = field(default_factory=list)
    created_at: int = 0
    agent: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadedTree:
    """A whole tree: each baton, parents before children, with the fields that its owner keeps beside it.

    Those fields are `breakdown since retries alone state parked reborn_at reserved spoken`, by the names the machine uses.
    """

    tree: TreeRow
    batons: list[tuple[Baton, dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Owned:
    """A tree that is lent to an owner; `owner_pid` is None until that one took it."""

    root_id: str
    owner: str
    epoch: int
    owner_pid: int | None
