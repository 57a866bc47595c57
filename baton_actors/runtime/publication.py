"""The committed events of one tree, for subscribers who are served in a thread of their own.

The owner's loop appends; long polls, in the actor's `polls` concurrency group, read. Only immutable events pass between the
two, under a lock that is held for a moment. A slow subscriber slows nobody: what it missed is read from the database.
"""

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

from baton_actors.events import Event

#: Events that are kept in memory; older ones are read from the database.
RECENT_EVENTS = 8_192
#: Events in one answer.
PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Page:
    """What a subscriber gets: events in order; `behind`: read from the database first; `moved`: ask the directory again."""

    events: tuple[tuple[Any, ...], ...] = ()
    behind: bool = False
    moved: bool = False


class Waiting:
    """Those who wait in the polls' loop for something that happens in the actor's own; woken all at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._futures: list[asyncio.Future[None]] = []

    def future(self) -> "asyncio.Future[None]":
        """Done at the next `wake`. Ask for it first, look at the state then, and only then await it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            self._loop = loop
            self._futures.append(future)
        return future

    def wake(self) -> None:
        """Wake all, from any thread."""
        with self._lock:
            futures, self._futures = self._futures, []
            loop = self._loop
        if futures and loop is not None:
            loop.call_soon_threadsafe(_finish, futures)


class Publication:
    """What one tree has published so far.

    Args:
        seq: of the last event that was committed before.
    """

    def __init__(self, seq: int) -> None:
        self._lock = threading.Lock()
        self._seq = seq
        self._recent: list[Event] = []
        self._final: dict[str, Any] | None = None
        self._closed = False
        self._waiting = Waiting()

    @property
    def seq(self) -> int:
        """Of the last event that was published."""
        return self._seq

    def publish(self, events: list[Event]) -> None:
        """More events, committed."""
        if not events:
            return
        with self._lock:
            self._recent.extend(events)
            self._seq = events[-1].seq
            if len(self._recent) > 2 * RECENT_EVENTS:
                del self._recent[:-RECENT_EVENTS]
        self._waiting.wake()

    def close(self, final: dict[str, Any] | None) -> None:
        """No more comes from here: the tree has ended with this root, or (None) it has moved."""
        with self._lock:
            self._final = final
            self._closed = True
        self._waiting.wake()

    async def after(self, cursor: int) -> Page:
        """The events after a cursor, as soon as there are any. Called in the polls' loop only."""
        while True:
            more = self._waiting.future()
            with self._lock:
                missing = self._seq - cursor
                if missing > len(self._recent):
                    return Page(behind=True)
                if missing > 0:
                    start = len(self._recent) - missing
                    return Page(tuple(event[:-1] for event in self._recent[start : start + PAGE]))
                if self._closed:
                    return Page(moved=True)
            await more

    async def final(self) -> dict[str, Any] | None:
        """The root when the tree has ended; None if it moved. Called in the polls' loop only."""
        while True:
            more = self._waiting.future()
            with self._lock:
                if self._closed:
                    return self._final
            await more


def _finish(waiting: list[asyncio.Future[None]]) -> None:
    for future in waiting:
        if not future.done():  # its subscriber may have gone
            future.set_result(None)
