"""What a worker function is given beside its baton."""

import threading
from collections.abc import Callable
from typing import Any

from baton_actors.baton import Baton, ChildResult
from baton_actors.jsonable import checked


class Context:
    """The second argument of a worker function.

    Attributes:
        children: what the last breakdown brought, in spawn order; empty at first.
        breakdown: 0 at first, 1 when resumed after the first breakdown, and so on.
        state: what was saved by `Spawned(..., state=…)`, `HandedOver(state)` or `checkpoint`; None at first.
        attempt: number of this run.
        deadline: end of patience, milliseconds since 1970, or None.
        idempotency_key: the same for every attempt of this step: give it to systems that should act once.
    """

    def __init__(
        self,
        baton: Baton,
        *,
        children: list[ChildResult],
        breakdown: int,
        state: Any,
        report_checkpoint: Callable[[Any, dict[str, Any]], object],
    ) -> None:
        self.children = children
        self.breakdown = breakdown
        self.state = state
        self.attempt = baton.attempt
        self.deadline = baton.deadline
        self.idempotency_key = f"{baton.id}:{baton.generation}:{breakdown}"
        self._report_checkpoint = report_checkpoint
        self._stopped = threading.Event()

    @property
    def cancelled(self) -> bool:
        """Whether the baton was cancelled, or ended otherwise: what this run still does will be dropped."""
        return self._stopped.is_set()

    def checkpoint(self, state: Any, **data: Any) -> None:
        """Save progress: a later attempt finds it in `ctx.state`, and the no-progress clock starts anew.

        It is sent at once, in order before this run's outcome, and does not wait for the commit. `data` goes into the event.

        Raises:
            InvalidInput: state or data is not JSON.
        """
        self._report_checkpoint(checked(state, "state"), checked(data, "data"))

    def stop(self) -> None:
        """For the runtime: from now on `cancelled` is true."""
        self._stopped.set()
