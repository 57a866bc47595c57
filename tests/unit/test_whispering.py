"""Whispers at both ends: gathered and sent by a worker process, kept for those who listen by an owner."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from baton_actors.events import Event, EventType, Whisper
from baton_actors.runtime import whispering
from baton_actors.runtime.whispering import RECENT_WHISPERS, TEXT_CHARACTERS, WAITING_WHISPERS, Heard, Whisperer, WireWhisper
from tests.unit.owning import in_loop


class Line:
    """Carries whispers to nobody.

    Attributes:
        calls: what each call carried. gate: calls wait for it.
    """

    def __init__(self) -> None:
        self.calls: list[list[WireWhisper]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def send(self, whispers: list[WireWhisper]) -> None:
        self.calls.append(whispers)
        await self.gate.wait()

    async def carried(self, count: int) -> list[list[WireWhisper]]:
        async with asyncio.timeout(10):
            while len(self.calls) < count:
                await asyncio.sleep(0.001)
        return self.calls


async def whispered(tell: Callable[[Whisperer, Line], Awaitable[None]]) -> list[list[WireWhisper]]:
    """The calls that a process makes of what it is told."""
    line = Line()
    whisperer = Whisperer(line.send)
    running = asyncio.create_task(whisperer.run())
    try:
        await tell(whisperer, line)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    return line.calls


# ---------------------------------------------------------------- the worker's side


@in_loop
async def test_what_comes_together_goes_in_one_call_and_pieces_of_text_are_joined() -> None:
    async def tell(whisperer: Whisperer, line: Line) -> None:
        whisperer.whisper("bt_1", 1, "model", "round 1")
        for piece in ("Hel", "lo", " world"):
            whisperer.whisper("bt_1", 1, "text", piece)
            whisperer.whisper("bt_2", 4, "text", piece.upper())
        whisperer.whisper("bt_1", 1, "tool", "search")
        whisperer.whisper("bt_1", 1, "text", "again")
        await line.carried(1)

    assert await whispered(tell) == [
        [
            ("bt_1", 1, "model", "round 1"),
            ("bt_1", 1, "text", "Hello world"),
            ("bt_2", 4, "text", "HELLO WORLD"),
            ("bt_1", 1, "tool", "search"),
            ("bt_1", 1, "text", "again"),
        ]
    ]


@in_loop
async def test_what_comes_while_a_call_is_under_way_waits_and_is_bounded() -> None:
    """The owner is slow, or stopped: memory does not grow, and the last words are kept."""

    async def tell(whisperer: Whisperer, line: Line) -> None:
        line.gate.clear()
        whisperer.whisper("bt_1", 1, "model", "")
        await line.carried(1)
        for number in range(3 * WAITING_WHISPERS):
            whisperer.whisper(f"bt_{number}", 1, "tool", "x" * 2 * TEXT_CHARACTERS)
        for _ in range(100):
            whisperer.whisper("bt_1", 1, "text", "x" * 1_000)
        whisperer.whisper("bt_1", 1, "text", "end")
        line.gate.set()
        await line.carried(2)

    _, late = await whispered(tell)
    assert len(late) == WAITING_WHISPERS
    assert max(len(text) for *_, text in late) == TEXT_CHARACTERS
    assert late[-1][3].endswith("xxxend")


@in_loop
async def test_calls_have_a_pause_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    async def tell(whisperer: Whisperer, line: Line) -> None:
        for count in range(1, 4):
            whisperer.whisper("bt_1", 1, "text", "a")
            while len(line.calls) < count:
                await sleep(0)

    monkeypatch.setattr("baton_actors.runtime.whispering.asyncio.sleep", noted)
    calls = await whispered(tell)
    assert len(calls) == 3
    assert set(pauses) == {whispering.SEND_SECONDS}


@in_loop
async def test_what_is_under_way_shows_that_it_lives_until_it_is_idle_or_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whispering, "ALIVE_SECONDS", 0.005)
    monkeypatch.setattr(whispering, "SEND_SECONDS", 0.001)

    async def tell(whisperer: Whisperer, line: Line) -> None:
        def alive() -> list[tuple[str, int]]:
            return sorted(whisper[:2] for whisper in line.calls[-1] if whisper[2] == "alive")

        async def said(*expected: tuple[str, int]) -> None:
            line.calls.clear()
            async with asyncio.timeout(10):
                while not line.calls or alive() != list(expected):
                    await asyncio.sleep(0.001)

        for number, kind in enumerate(("model", "tool", "text")):
            whisperer.whisper(f"bt_{number}", 3, kind, "")
        await said(("bt_0", 3), ("bt_1", 3))
        await said(("bt_0", 3), ("bt_1", 3))
        whisperer.whisper("bt_0", 3, "idle", "")
        await said(("bt_1", 3))
        whisperer.silence("bt_1", 3)
        whisperer.whisper("bt_2", 3, "text", "")
        await said()

    await whispered(tell)


# ---------------------------------------------------------------- the owner's side


def event(type: EventType, baton_id: str) -> Event:
    return Event(1, type, 0, "bt_root", baton_id, None, 0, 1, {})


def model(number: int, text: str = "") -> Whisper:
    return Whisper(f"bt_{number}", 1, "model", text)


def text(number: int, piece: str) -> Whisper:
    return Whisper(f"bt_{number}", 1, "text", piece)


def test_who_listens_hears_everything_in_order() -> None:
    heard = Heard()
    assert heard.after(0) == ((), 0)
    heard.add([model(1), text(1, "a")])
    assert heard.after(0) == ((model(1), text(1, "a")), 2)
    heard.add([text(1, "b"), model(2)])
    assert heard.after(2) == ((text(1, "b"), model(2)), 4)
    assert heard.after(3) == ((model(2),), 4)
    assert heard.after(4) == ((), 4)


def test_who_comes_late_hears_what_goes_on_now() -> None:
    heard = Heard()
    heard.add([model(1, "round 1"), text(1, "old"), model(1, "round 2"), text(1, "a"), text(1, "b"), Whisper("bt_2", 1, "tool", "search")])
    heard.add([model(3), Whisper("bt_3", 1, "idle"), text(4, "of nothing that was told")])
    assert heard.after(0) == ((model(1, "round 2"), text(1, "ab"), Whisper("bt_2", 1, "tool", "search")), 9)


@pytest.mark.parametrize(
    "type", [EventType.COMPLETED, EventType.FAILED, EventType.SPAWNED, EventType.RETRYING, EventType.HANDED_OVER, EventType.STARTED]
)
def test_what_has_ended_is_doing_nothing(type: EventType) -> None:
    heard = Heard()
    heard.add([model(1), model(2)])
    heard.follow([event(EventType.PROGRESS, "bt_2"), event(type, "bt_1")])
    assert heard.after(0) == ((model(2),), 2)


@pytest.mark.parametrize("number", [1, RECENT_WHISPERS + 10_000])
def test_who_missed_some_or_counts_otherwise_hears_what_goes_on_now(number: int) -> None:
    heard = Heard()
    for _ in range(3):
        heard.add([text(1, "x")] * RECENT_WHISPERS)
    heard.add([model(2)])
    assert heard.after(number) == ((model(2),), 3 * RECENT_WHISPERS + 1)


def test_memory_is_bounded_whatever_is_whispered() -> None:
    heard = Heard()
    heard.add([model(1)])
    for _ in range(100):
        heard.add([text(1, "x" * 1_000)] * 100)
    (doing, so_far), _ = heard.after(0)
    assert (doing, so_far.text) == (model(1), "x" * TEXT_CHARACTERS)
    assert len(heard._recent) == RECENT_WHISPERS
