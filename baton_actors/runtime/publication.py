"""The committed events of one tree, for subscribers who are served in a thread of their own.

The owner's loop appends; long polls, in the actor's `polls` concurrency group, read. Only immutable values pass between the
two, under a lock that is held for a moment. A slow subscriber slows nobody: what it missed is read from the database.
"""

import asyncio
import random
import threading
from dataclasses import dataclass, replace
from typing import Any, Literal

from baton_actors.events import Event, Whisper
from baton_actors.runtime.whispering import Heard

#: Events that are kept in memory, at least; older ones are read from the database.
RECENT_EVENTS = 4_096
#: Events in one answer.
PAGE = 1_000
#: Seconds after which a long poll is answered with nothing, at random between the two: Ray's own advice for many pollers.
#: A subscriber that has gone leaves its call behind, which would otherwise wait for ever.
POLL_SECONDS = (30.0, 60.0)


@dataclass(frozen=True, slots=True)
class Page:
    """What a subscriber gets: events in order; `behind`: read from the database first; `moved`: ask the directory again.

    Who listens also gets `beside`, what was whispered meanwhile, and `heard`, the number to ask with next.
    """

    events: tuple[tuple[Any, ...], ...] = ()
    behind: bool = False
    moved: bool = False
    beside: tuple[Whisper, ...] = ()
    heard: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a question that waits: the answer, or that it will not come from here, or (neither) that it is to be asked again.

    `news`: the database holds more events than the asker has.
    """

    state: Literal["here", "gone", "waiting", "news"]
    value: Any = None


class Waiting:
    """Those who wait in the polls' loop for something that happens in the actor's own; woken all at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._futures: set[asyncio.Future[None]] = set()

    def future(self) -> "asyncio.Future[None]":
        """Done at the next `wake`. Ask for it first, look at the state then, and only then await it, or forget it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            self._loop = loop
            self._futures.add(future)
        return future

    def forget(self, future: "asyncio.Future[None]") -> None:
        """Nobody waits for this one any more."""
        with self._lock:
            self._futures.discard(future)

    def wake(self) -> None:
        """Wake all, from any thread."""
        with self._lock:
            futures, self._futures = self._futures, set()
            loop = self._loop
        if futures and loop is not None:
            loop.call_soon_threadsafe(_finish, futures)

    async def until(self, look: Any) -> Any:
        """What `look()` returns as soon as that is not None, looked at after each wake; None when the time of a long poll is over."""
        end = asyncio.get_running_loop().time() + random.uniform(*POLL_SECONDS)
        while True:
            changed = self.future()
            try:
                if (found := await look()) is not None:
                    return found
                async with asyncio.timeout_at(end):
                    await changed
            except TimeoutError:
                return None
            finally:
                self.forget(changed)


class Publication:
    """What one tree has published so far; nothing is answered before `start` said where it begins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seq: int | None = None
        self._recent: list[tuple[Any, ...]] = []
        self._final: dict[str, Any] | None = None
        self._closed = False
        self._heard = Heard()
        self._more = Waiting()
        self._more_or_heard = Waiting()
        self._end = Waiting()

    @property
    def seq(self) -> int:
        """Of the last event that was published."""
        return self._seq or 0

    def start(self, seq: int) -> None:
        """What comes next follows this seq; harmless when repeated."""
        with self._lock:
            if self._seq is None:
                self._seq = seq
        self._wake()

    def publish(self, events: list[Event]) -> None:
        """More events, committed."""
        if not events:
            return
        with self._lock:
            self._recent.extend(event[:-1] for event in events)  # without `change`, which may hold whole results
            self._seq = events[-1].seq
            if len(self._recent) > 2 * RECENT_EVENTS:
                del self._recent[:-RECENT_EVENTS]
            self._heard.follow(events)
        self._wake()

    def whisper(self, whispers: list[Whisper]) -> None:
        """What attempts in flight are doing; only those who listen are woken."""
        if whispers:
            with self._lock:
                self._heard.add(whispers)
            self._more_or_heard.wake()

    def close(self, final: dict[str, Any] | None) -> None:
        """No more comes from here: the tree has ended with this root, or (None) it has moved."""
        with self._lock:
            self._final = final
            self._closed = True
        self._wake()
        self._end.wake()

    def _wake(self) -> None:
        self._more.wake()
        self._more_or_heard.wake()

    async def after(self, cursor: int, heard: int | None = None) -> Page:
        """The events after a cursor, as soon as there are any. Called in the polls' loop only.

        Who gives the number of the last whisper that was heard, 0 at first, is told of whispers too, as soon as there are any.
        """

        async def look() -> Page | None:
            with self._lock:
                return self._events_after(cursor) if heard is None else self._all_after(cursor, heard)

        page: Page | None = await (self._more if heard is None else self._more_or_heard).until(look)
        return page or Page(heard=heard or 0)

    def _events_after(self, cursor: int) -> Page | None:
        missing = 0 if self._seq is None else self._seq - cursor
        if missing > len(self._recent):
            return Page(behind=True)
        if missing > 0:
            start = len(self._recent) - missing
            return Page(tuple(self._recent[start : start + PAGE]))
        return Page(moved=True) if self._closed else None

    def _all_after(self, cursor: int, heard: int) -> Page | None:
        page = self._events_after(cursor)
        beside, last = self._heard.after(heard)
        return replace(page or Page(), beside=beside, heard=last) if page or beside else None

    async def final(self) -> Found:
        """The root when the tree has ended. Called in the polls' loop only."""

        async def look() -> Found | None:
            with self._lock:
                if not self._closed:
                    return None
                return Found("gone") if self._final is None else Found("here", self._final)

        found: Found | None = await self._end.until(look)
        return found or Found("waiting")


def _finish(waiting: "set[asyncio.Future[None]]") -> None:
    for future in waiting:
        if not future.done():  # its subscriber may have gone
            future.set_result(None)
