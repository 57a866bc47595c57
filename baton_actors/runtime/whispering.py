"""What is only heard, on its way from a run to those who listen: `Whisperer` at the worker's side, `Heard` at the owner's.

Nothing here is stored, and everything is bounded: whoever comes too late, or listens too slowly, is told what goes on now.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import Any

from baton_actors.events import Event, EventType, Whisper

#: Seconds between two calls that carry whispers.
SEND_SECONDS = 0.1
#: A call to a model may take minutes. So often a process says that those it waits for still live.
ALIVE_SECONDS = 30.0
#: Sent to the owner only, as a sign of life; nobody is told of it.
ALIVE = "alive"
#: Characters of one whisper, and of an answer so far that is kept for those who come later; the last ones count.
TEXT_CHARACTERS = 4_000
#: Whispers that wait to be sent, and whispers that wait to be fetched.
WAITING_WHISPERS = 1_000
RECENT_WHISPERS = 1_000

#: A whisper on the wire: baton_id, attempt, kind, text.
WireWhisper = tuple[str, int, str, str]


class Whisperer:
    """The whispers of one process: gathered, pieces of text joined, and sent a few times a second.

    Args:
        send: carries whispers to the owner; what it is given may be lost.
    """

    def __init__(self, send: Callable[[list[WireWhisper]], Awaitable[None]]) -> None:
        self._send = send
        self._waiting: deque[list[Any]] = deque(maxlen=WAITING_WHISPERS)
        self._latest: dict[tuple[str, int], list[Any]] = {}
        self._under_way: set[tuple[str, int]] = set()
        self._filled = asyncio.Event()

    def whisper(self, baton_id: str, attempt: int, kind: str, text: str) -> None:
        """One more. From `model` or `tool` until `idle`, or until it is silenced, the attempt counts as under way."""
        key = (baton_id, attempt)
        if kind == "idle":
            self._under_way.discard(key)
        elif kind != "text":
            self._under_way.add(key)
        latest = self._latest.get(key)
        if kind == "text" and latest is not None and latest[2] == "text":
            latest[3] = (latest[3] + text)[-TEXT_CHARACTERS:]
        else:
            self._latest[key] = fresh = [baton_id, attempt, kind, text[-TEXT_CHARACTERS:]]
            self._waiting.append(fresh)
        self._filled.set()

    def silence(self, baton_id: str, attempt: int) -> None:
        """That attempt is over."""
        self._under_way.discard((baton_id, attempt))

    async def run(self) -> None:
        """Send what has gathered, and signs of life, until cancelled."""
        loop = asyncio.get_running_loop()
        said = loop.time()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(said + ALIVE_SECONDS if self._under_way else None):
                    await self._filled.wait()
            if loop.time() >= said + ALIVE_SECONDS:
                said = loop.time()
                self._waiting.extend([*key, ALIVE, ""] for key in self._under_way)
            whispers: list[Any] = [tuple(whisper) for whisper in self._waiting]
            self._waiting.clear()
            self._latest.clear()
            self._filled.clear()
            if whispers:
                await self._send(whispers)
            await asyncio.sleep(SEND_SECONDS)


class Heard:
    """The whispers of one tree, numbered apart from its log: the last ones, and what each attempt in flight is doing now."""

    def __init__(self) -> None:
        self._last = 0
        self._recent: deque[Whisper] = deque(maxlen=RECENT_WHISPERS)
        self._doing: dict[str, tuple[Whisper, str]] = {}

    def add(self, whispers: list[Whisper]) -> None:
        """More, of attempts in flight."""
        self._recent.extend(whispers)
        self._last += len(whispers)
        for whisper in whispers:
            doing = self._doing.get(whisper.baton_id)
            if whisper.kind == "idle":
                self._doing.pop(whisper.baton_id, None)
            elif whisper.kind != "text":
                self._doing[whisper.baton_id] = (whisper, "")
            elif doing is not None:
                self._doing[whisper.baton_id] = (doing[0], (doing[1] + whisper.text)[-TEXT_CHARACTERS:])

    def follow(self, events: Iterable[Event]) -> None:
        """What has become true: every event of a baton but its progress ends what it was doing."""
        if self._doing:
            for event in events:
                if event.type is not EventType.PROGRESS:
                    self._doing.pop(event.baton_id, None)

    def after(self, number: int) -> tuple[tuple[Whisper, ...], int]:
        """What follows a whisper, and the number of the last. Who has heard none (0), or missed some, is told what goes on now.

        What goes on begins, for each baton, with its `model` or `tool`, so it takes the place of what was heard of it before.
        """
        missing = self._last - number
        if missing == 0:
            return (), self._last
        if number > 0 and 0 < missing <= len(self._recent):
            return tuple(islice(self._recent, len(self._recent) - missing, None)), self._last
        now: list[Whisper] = []
        for doing, text in self._doing.values():
            now.append(doing)
            if text:
                now.append(doing._replace(kind="text", text=text))
        return tuple(now), self._last
