"""A tree at one moment: what `tree`, the HTTP door and the displays show. A value; nothing here reads a database."""

from dataclasses import dataclass
from typing import Any

from baton_actors.baton import Baton, Status


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A tree as it stood after one event.

    Attributes:
        root_id: the tree. status: its root's.
        seq: of the last event that is in it; `events(after=seq)` goes on from here without a gap.
        batons: all of them, each after its parent, the root first.
    """

    root_id: str
    status: Status
    seq: int
    batons: list[Baton]

    def to_wire(self) -> dict[str, Any]:
        """Flat JSON, `{root_id, status, seq, batons: […]}`: nested JSON breaks at 500 levels."""
        batons = [baton.model_dump(mode="json") for baton in self.batons]
        return {"root_id": self.root_id, "status": str(self.status), "seq": self.seq, "batons": batons}
