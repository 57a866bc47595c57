"""What one transaction writes: the outcome of a group of decisions, collected row by row."""

from dataclasses import dataclass, field
from typing import Any

from baton_actors.events import Event


@dataclass(slots=True)
class Group:
    """Changes of one tree that become durable together.

    The values' names are those of `Baton` and of what its owner keeps beside it (`breakdown since retries alone state
    parked reborn_at reserved spoken`). `children` is no column: it says where a created child stands among its siblings.

    Attributes:
        created: whole batons by id, parents before children. changed: what changed of others, by id.
        events: in order of seq. tree: columns of `trees` to set (`status wake_at budget code answered`).
        messages: rows of conversations, as (baton id, seq, JSON text); new ones only, none is ever written again.
        release: the owner gives the tree back with this transaction; wake_in: it is due again in so many milliseconds, None: never.
        code: functions and packages by hash, as (kind, bytes); a hash that is known already is left as it is.
    """

    created: dict[str, dict[str, Any]] = field(default_factory=dict)
    changed: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    messages: list[tuple[str, int, str]] = field(default_factory=list)
    tree: dict[str, Any] = field(default_factory=dict)
    release: bool = False
    wake_in: int | None = None
    code: dict[str, tuple[str, bytes]] = field(default_factory=dict)

    def add_row(self, id: str, created: bool, values: dict[str, Any]) -> None:
        """One more change; what comes later of the same baton is laid over what came before. `values` is not kept."""
        if created:
            self.created[id] = dict(values)
        elif (known := self.created.get(id)) is not None or (known := self.changed.get(id)) is not None:
            known.update(values)
        else:
            self.changed[id] = dict(values)

    def positions(self) -> dict[str, int]:
        """Where each created child stands among its parent's children, as far as this group lists them."""
        parents = {values["parent_id"] for values in self.created.values()}
        positions: dict[str, int] = {}
        for parent in parents:
            values = self.changed.get(parent) or self.created.get(parent) or {}
            for position, child in enumerate(values.get("children", ())):
                if child in self.created:
                    positions[child] = position
        return positions
