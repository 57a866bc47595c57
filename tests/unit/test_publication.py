"""What subscribers see of one tree: everything after their cursor, then what comes, then that it is over or elsewhere."""

import asyncio
import threading

import pytest

from baton_actors.events import Event, EventType, Whisper
from baton_actors.runtime import publication
from baton_actors.runtime.publication import PAGE, RECENT_EVENTS, Found, Page, Publication, Waiting
from tests.unit.owning import in_loop

ROOT = "bt_root"


def events(first: int, last: int, change: object = None) -> list[Event]:
    """Events of a tree from one seq to another, both included."""
    return [Event(seq, EventType.PROGRESS, 0, ROOT, ROOT, None, 0, 1, {}, {"state": change}) for seq in range(first, last + 1)]


def seqs(page: Page) -> list[int]:
    return [event[0] for event in page.events]


def published(last: int) -> Publication:
    """A publication that began with the tree."""
    made = Publication()
    made.start(0)
    made.publish(events(1, last))
    return made


async def cancelled(*tasks: "asyncio.Task[object]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# ---------------------------------------------------------------- cursors


@pytest.mark.parametrize(("cursor", "expected"), [(0, [1, 2, 3, 4, 5]), (3, [4, 5]), (4, [5])])
@in_loop
async def test_a_cursor_gets_what_follows_it(cursor: int, expected: list[int]) -> None:
    assert seqs(await published(5).after(cursor)) == expected


@in_loop
async def test_two_subscribers_see_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """E3."""
    made = published(5)
    pages = await asyncio.gather(made.after(0), made.after(0), made.after(2))
    assert [seqs(page) for page in pages] == [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [3, 4, 5]]


@pytest.mark.parametrize("cursor", [5, 6, 1_000_000])
@in_loop
async def test_a_cursor_at_the_end_or_beyond_waits_for_what_follows_it(cursor: int) -> None:
    made = published(5)
    poll = asyncio.create_task(made.after(cursor))
    await asyncio.sleep(0.01)
    assert not poll.done()
    made.publish(events(6, cursor + 1) if cursor < 10 else events(6, 7))
    if cursor < 10:
        assert seqs(await poll) == [cursor + 1]
    else:
        await asyncio.sleep(0.01)
        assert not poll.done()
        await cancelled(poll)


@in_loop
async def test_an_event_that_comes_while_a_subscriber_waits_is_given_at_once() -> None:
    """E2."""
    made = published(2)
    polls = [asyncio.create_task(made.after(2)) for _ in range(3)]
    await asyncio.sleep(0)
    made.publish(events(3, 4))
    assert [seqs(await poll) for poll in polls] == [[3, 4]] * 3


@in_loop
async def test_nothing_is_answered_before_it_is_known_where_the_publication_begins() -> None:
    made = Publication()
    poll = asyncio.create_task(made.after(3))
    await asyncio.sleep(0.01)
    assert not poll.done()
    made.start(7)
    assert (await poll) == Page(behind=True), "what went before is in the database"
    poll = asyncio.create_task(made.after(7))
    await asyncio.sleep(0)
    made.publish(events(8, 8))
    assert seqs(await poll) == [8]


@in_loop
async def test_a_second_start_changes_nothing() -> None:
    made = published(5)
    made.start(0)
    made.start(99)
    assert made.seq == 5
    assert seqs(await made.after(4)) == [5]


@in_loop
async def test_a_page_is_bounded_and_the_next_one_follows_it() -> None:
    made = published(2 * PAGE + 10)
    cursor, pages = 0, []
    while cursor < 2 * PAGE + 10:
        page = await made.after(cursor)
        pages.append(len(page.events))
        assert seqs(page)[0] == cursor + 1
        cursor = seqs(page)[-1]
    assert pages == [PAGE, PAGE, 10]


# ---------------------------------------------------------------- memory


@in_loop
async def test_memory_does_not_grow_with_the_log_and_who_is_too_late_reads_the_database() -> None:
    """E4."""
    made = published(1)
    for first in range(2, 40_000, 500):
        made.publish(events(first, first + 499))
        assert len(made._recent) <= 2 * RECENT_EVENTS + 500
    assert len(made._recent) <= 2 * RECENT_EVENTS
    assert await made.after(0) == Page(behind=True)
    last = made.seq
    assert seqs(await made.after(last - RECENT_EVENTS)) == list(range(last - RECENT_EVENTS + 1, last - RECENT_EVENTS + 1 + PAGE))


@in_loop
async def test_what_an_event_changes_is_not_kept() -> None:
    """It may hold whole results."""
    made = Publication()
    made.start(0)
    made.publish(events(1, 3, change="x" * 1_000))
    page = await made.after(0)
    assert {len(event) for event in page.events} == {len(Event._fields) - 1}
    assert not any("x" * 1_000 in map(str, event) for event in page.events)


@in_loop
async def test_answered_and_forgotten_polls_leave_nothing_behind() -> None:
    made = published(3)
    for _ in range(1_000):
        await made.after(0)
    polls = [asyncio.create_task(made.after(3)) for _ in range(100)]
    await asyncio.sleep(0)
    assert len(made._more._futures) == 100
    await cancelled(*polls)
    assert made._more._futures == set()


# ---------------------------------------------------------------- ends


@in_loop
async def test_a_closed_publication_gives_what_it_has_and_then_sends_away() -> None:
    """E6: an end is only ever announced."""
    made = published(3)
    waiting = asyncio.create_task(made.after(3))
    await asyncio.sleep(0)
    made.close(None)
    assert await waiting == Page(moved=True)
    assert seqs(await made.after(1)) == [2, 3]
    assert await made.after(3) == Page(moved=True)


@in_loop
async def test_a_publication_closed_before_it_began_sends_away() -> None:
    made = Publication()
    polls = [asyncio.create_task(made.after(0)), asyncio.create_task(made.final())]
    await asyncio.sleep(0)
    made.close(None)
    assert await polls[0] == Page(moved=True)
    assert await polls[1] == Found("gone")


@pytest.mark.parametrize(("final", "found"), [({"id": ROOT}, Found("here", {"id": ROOT})), (None, Found("gone"))])
@in_loop
async def test_the_end_is_told_to_all_who_wait_for_it_and_all_who_ask_later(final: dict[str, str] | None, found: Found) -> None:
    made = published(3)
    polls = [asyncio.create_task(made.final()) for _ in range(5)]
    await asyncio.sleep(0)
    made.publish(events(4, 5))
    await asyncio.sleep(0)
    assert not any(poll.done() for poll in polls), "an event is no end"
    made.close(final)
    assert await asyncio.gather(*polls) == [found] * 5
    assert await made.final() == found


@in_loop
async def test_a_poll_that_lasts_too_long_is_answered_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "POLL_SECONDS", (0.01, 0.02))
    made = published(3)
    assert await made.after(3) == Page()
    assert await made.final() == Found("waiting")
    assert made._more._futures == set()
    assert made._end._futures == set()
    made.publish(events(4, 4))
    assert seqs(await made.after(3)) == [4]


@in_loop
async def test_a_poll_is_not_made_longer_by_wakes_that_do_not_concern_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "POLL_SECONDS", (0.05, 0.05))
    made = published(3)
    poll = asyncio.create_task(made.after(1_000_000))
    seq = 3
    while not poll.done():
        seq += 1
        assert seq < 1_000
        made.publish(events(seq, seq))
        await asyncio.sleep(0.005)
    assert await poll == Page()


# ---------------------------------------------------------------- many, and two threads


@in_loop
async def test_500_who_wait_are_woken_by_one_event_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = published(3)
    polls = [asyncio.create_task(made.after(3)) for _ in range(500)]
    await asyncio.sleep(0)
    finished: list[int] = []
    finish = publication._finish
    monkeypatch.setattr(publication, "_finish", lambda waiting: (finished.append(len(waiting)), finish(waiting)))
    made.publish(events(4, 4))
    pages = await asyncio.gather(*polls)
    assert finished == [500], "one call into the loop for all"
    assert all(page is not None and seqs(page) == [4] for page in pages)


@in_loop
async def test_subscribers_in_one_thread_miss_nothing_of_what_another_publishes() -> None:
    """E1, E3."""
    made = Publication()
    last = 5_000

    def publish() -> None:
        made.start(0)
        for first in range(1, last, 7):
            made.publish(events(first, min(first + 6, last)))
        made.close({"id": ROOT})

    async def subscribe() -> list[int]:
        seen: list[int] = []
        while True:
            page = await made.after(seen[-1] if seen else 0)
            if page.behind:  # as a client would, from the database
                seen.append((seen[-1] if seen else 0) + 1)
                continue
            if page.moved:
                return seen
            seen += seqs(page)

    thread = threading.Thread(target=publish)
    subscribers = [asyncio.create_task(subscribe()) for _ in range(8)]
    final = asyncio.create_task(made.final())
    await asyncio.sleep(0)
    thread.start()
    async with asyncio.timeout(20):
        assert [await each for each in subscribers] == [list(range(1, last + 1))] * 8
        assert await final == Found("here", {"id": ROOT})
    thread.join()


@in_loop
async def test_a_wake_between_the_look_and_the_wait_is_not_lost() -> None:
    """The state changes just after it was looked at, before the look has returned."""
    waiting, looks = Waiting(), []

    async def look() -> bool | None:
        looks.append(len(looks))
        if len(looks) == 1:
            waker = threading.Thread(target=waiting.wake)
            waker.start()
            waker.join()
            return None
        return True

    async with asyncio.timeout(10):
        assert await waiting.until(look)
    assert looks == [0, 1]


@in_loop
async def test_a_subscriber_who_has_gone_does_not_keep_the_others_from_being_woken() -> None:
    made = published(3)
    polls = [asyncio.create_task(made.after(3)) for _ in range(10)]
    await asyncio.sleep(0)
    made.publish(events(4, 4))
    for poll in polls[:5]:
        poll.cancel()
    done = await asyncio.gather(*polls, return_exceptions=True)
    assert [seqs(page) for page in done[5:] if isinstance(page, Page)] == [[4]] * 5


# ---------------------------------------------------------------- whispers


def said(kind: str, text: str = "", number: int = 1) -> Whisper:
    return Whisper(f"bt_{number}", 1, kind, text)


@in_loop
async def test_whispers_are_heard_in_the_same_poll_as_events() -> None:
    made = published(2)
    assert await made.after(0, 0) == Page(events=(await made.after(0)).events, heard=0)
    poll = asyncio.create_task(made.after(2, 0))
    await asyncio.sleep(0)
    made.whisper([said("model")])
    assert await poll == Page(beside=(said("model"),), heard=1)
    made.whisper([said("text", "a")])
    made.publish(events(3, 3))
    page = await made.after(2, 1)
    assert (seqs(page), page.beside, page.heard) == ([3], (said("text", "a"),), 2)


@in_loop
async def test_who_does_not_listen_is_not_woken_by_whispers(monkeypatch: pytest.MonkeyPatch) -> None:
    made = published(2)
    deaf, listening = asyncio.create_task(made.after(2)), asyncio.create_task(made.after(2, 0))
    await asyncio.sleep(0)
    waiting = set(made._more._futures)
    for _ in range(100):
        made.whisper([said("text", "a"), said("model")])
    assert (await listening).heard > 0
    assert made._more._futures == waiting, "it was not looked at"
    assert not deaf.done()
    made.publish(events(3, 3))
    assert await deaf == Page(events=(await made.after(2)).events)


@in_loop
async def test_who_listens_is_told_of_events_ends_and_moves_as_everybody() -> None:
    made = published(1)
    made.whisper([said("model")])
    poll = asyncio.create_task(made.after(1, 1))
    await asyncio.sleep(0)
    made.publish(events(2, 2))
    assert seqs(await poll) == [2]
    poll = asyncio.create_task(made.after(2, 1))
    await asyncio.sleep(0)
    made.close(None)
    assert await poll == Page(moved=True, heard=1)


@in_loop
async def test_who_comes_late_hears_of_batons_in_flight_only() -> None:
    made = published(1)
    made.whisper([said("model", "round 1", 1), said("text", "so far", 1), said("tool", "search", 2)])
    made.publish([Event(2, EventType.COMPLETED, 0, ROOT, "bt_2", None, 0, 1, {})])
    page = await made.after(0, 0)
    assert page.beside == (said("model", "round 1", 1), said("text", "so far", 1))


@in_loop
async def test_a_poll_of_a_listener_that_lasts_too_long_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "POLL_SECONDS", (0.01, 0.02))
    made = published(3)
    made.whisper([said("model")])
    assert await made.after(3, 1) == Page(heard=1)
    assert made._more_or_heard._futures == set()


@in_loop
async def test_no_whispers_wake_nobody() -> None:
    made = published(1)
    poll = asyncio.create_task(made.after(1, 0))
    await asyncio.sleep(0)
    waiting = set(made._more_or_heard._futures)
    made.whisper([])
    assert made._more_or_heard._futures == waiting
    await cancelled(poll)
