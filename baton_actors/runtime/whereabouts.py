"""Those who ask where a tree is, in the polls' loop, and are told when that changes."""

import threading
from collections import Counter
from collections.abc import Awaitable, Callable

from baton_actors.runtime.publication import Found, Waiting


class Whereabouts:
    """One `Waiting` for each tree that is asked for: a change wakes nobody who asks for another, since each looks in the database."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, Waiting] = {}
        self._asking: Counter[str] = Counter()

    async def until(self, root_id: str, look: Callable[[], Awaitable[Found | None]]) -> Found | None:
        """See `Waiting.until`."""
        with self._lock:
            waiting = self._waiting.setdefault(root_id, Waiting())
            self._asking[root_id] += 1
        try:
            found: Found | None = await waiting.until(look)
            return found
        finally:
            with self._lock:
                self._asking[root_id] -= 1
                if not self._asking[root_id]:
                    del self._asking[root_id], self._waiting[root_id]

    def wake(self, root_id: str) -> None:
        """That tree has been lent or let go; from any thread."""
        with self._lock:
            waiting = self._waiting.get(root_id)
        if waiting is not None:
            waiting.wake()

    def wake_all(self) -> None:
        """Nothing was known of any tree until now."""
        with self._lock:
            waiting = list(self._waiting.values())
        for each in waiting:
            each.wake()
