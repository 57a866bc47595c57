"""What the agent needs of the process it runs in. The runtime's worker is one, the tests' is another."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from baton_actors.baton import Baton, ChildResult


class Host(Protocol):
    """One run of one baton, as the agent sees it.

    Attributes:
        children: what the last breakdown brought, in spawn order. breakdown: how many there were.
        state: what was saved last; None at first. room: how many children may be spawned now, by budget and guards.
        limited: whether the tree's budget limits rounds, tokens or cost; then each call is reserved before it is made.
        learned: what is known of models in this tree, by model key (see `learning.py`).
        agent: the tree's agent settings, as `access.Access` reads them.
        cancelled: what this run still does will be dropped.
    """

    baton: Baton
    children: list[ChildResult]
    breakdown: int
    state: Any
    room: int
    limited: bool
    learned: dict[str, dict[str, Any]]
    agent: dict[str, Any]

    @property
    def cancelled(self) -> bool:
        """Whether to stop."""

    async def conversation(self) -> list[dict[str, Any]]:
        """All rows ever saved for this baton, in order, those of earlier generations among them."""

    def save(
        self,
        *,
        state: Any,
        data: dict[str, Any],
        rows: Sequence[dict[str, Any]] = (),
        usage: dict[str, float] | None = None,
        rounds: int = 0,
    ) -> Awaitable[None]:
        """Append rows, replace the state, add to what was used, as one step of the log with this `data`.

        It is sent at once, in order before this run's outcome; awaiting it waits until it is durable.
        """

    async def reserve(self, amounts: dict[str, float]) -> str | None:
        """Set aside what calls may use at most (`rounds tokens cost`), until the next save; None, or the limit without room for it."""

    def whisper(self, kind: str, text: str = "") -> None:
        """Tell those who watch what is going on; not stored, may be lost (see `events.Whisper`)."""

    def function(self, reference: str) -> Callable[..., Any]:
        """The function that `module:name` or `code:<hash>` names; raises whatever its code raises when it is loaded."""

    async def read_result(self, baton_id: str, offset: int, limit: int) -> tuple[str, int] | None:
        """At most `limit` characters of a result in this tree, from `offset`, and how many there are; None if there is none."""

    async def local_base_url(self) -> str:
        """The address of this node's local model, which is started if it does not run; raises `ModelUnusable`."""
