"""What a subscriber asks for and is given: events once and in order, and beside them what is whispered; the owner is played."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError

from baton_actors.client import EventStream, TreeHandle
from baton_actors.events import Event, EventType, Whisper
from baton_actors.runtime.publication import Found, Page
from baton_actors.runtime.reaching import Reach

ROOT = "bt_root"


def event(seq: int, type: EventType = EventType.PROGRESS) -> tuple[Any, ...]:
    return Event(seq, type, 0, ROOT, ROOT, None, 0, 1, {})[:-1]


def said(text: str) -> Whisper:
    return Whisper(ROOT, 1, "text", text)


class Played:
    """A client and an owner that answers polls with these pages, or raises them.

    Attributes:
        asked: cursor and number of the last whisper, of each poll.
    """

    def __init__(self, *pages: Page | Exception, places: tuple[Found, ...] = (), stored: tuple[Event, ...] = ()) -> None:
        self.asked: list[tuple[int, int | None]] = []
        self._pages = list(pages)
        self._places = list(places)
        self._owner = SimpleNamespace(events=SimpleNamespace(remote=self._poll))
        directory: Any = SimpleNamespace(where=SimpleNamespace(remote=self._where))
        client: Any = SimpleNamespace(
            _reach=Reach(directory, find=lambda: directory),
            _read=lambda name, *asked: [each for each in stored if each.seq > asked[1]] if name == "events" else SimpleNamespace(seq=9),
        )
        self.tree = TreeHandle(client, ROOT, None)

    def _where(self, root: str, after: int) -> "Answer":
        return Answer(self._places.pop(0) if self._places else Found("here", self._owner))

    def _poll(self, root: str, cursor: int, heard: int | None) -> "Answer":
        self.asked.append((cursor, heard))
        return Answer(self._pages.pop(0))


class Answer:
    """What a call of an actor returns."""

    def __init__(self, given: Any) -> None:
        self._given = given

    def value(self) -> Any:
        if isinstance(self._given, Exception):
            raise self._given
        return self._given

    def future(self) -> Future[Any]:
        made: Future[Any] = Future()
        if isinstance(self._given, Exception):
            made.set_exception(self._given)
        else:
            made.set_result(self._given)
        return made


@pytest.fixture(autouse=True)
def answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baton_actors.runtime.reaching.ray.get", lambda answer, timeout=None: answer.value())


def all_of(stream: EventStream) -> list[int]:
    return [each.seq for each in stream]


def all_of_async(stream: EventStream) -> list[int]:
    async def collect() -> list[int]:
        return [each.seq async for each in stream]

    return asyncio.run(collect())


both_ways = pytest.mark.parametrize("read", [all_of, all_of_async])


@both_ways
def test_whispers_are_told_as_they_come_and_asked_for_from_where_they_stand(read: Callable[[EventStream], list[int]]) -> None:
    played = Played(
        Page(beside=(said("a"),), heard=1),
        Page(events=(event(1),), heard=1),
        Page(heard=1),
        Page(events=(event(9, EventType.TREE_COMPLETED),), beside=(said("b"), said("c")), heard=3),
    )
    heard: list[str] = []
    assert read(played.tree.events(beside=lambda whisper: heard.append(whisper.text))) == [1, 9]
    assert heard == ["a", "b", "c"]
    assert played.asked == [(0, 0), (0, 1), (1, 1), (1, 1)]


@pytest.mark.parametrize("end", [Page(moved=True, heard=7), ActorDiedError()])
@both_ways
def test_the_next_owner_is_asked_from_the_beginning_of_its_whispers(
    read: Callable[[EventStream], list[int]], end: Page | Exception
) -> None:
    played = Played(
        Page(events=(event(5),), beside=(said("a"),), heard=7),
        end,
        Page(events=(event(9, EventType.TREE_FAILED),), beside=(said("b"),), heard=1),
    )
    heard: list[str] = []
    assert read(played.tree.events(beside=lambda whisper: heard.append(whisper.text))) == [5, 9]
    assert (heard, played.asked) == (["a", "b"], [(0, 0), (5, 7), (5, 0)])


@both_ways
def test_who_does_not_listen_asks_for_no_whispers(read: Callable[[EventStream], list[int]]) -> None:
    played = Played(Page(moved=True), Page(events=(event(9, EventType.TREE_COMPLETED),)))
    assert read(played.tree.events()) == [9]
    assert played.asked == [(0, None), (0, None)]


@both_ways
def test_what_is_stored_of_a_tree_that_nobody_owns_comes_before_the_wait_for_an_owner(read: Callable[[EventStream], list[int]]) -> None:
    stored = tuple(Event(*event(seq)) for seq in (1, 2))
    last = Page(events=(event(9, EventType.TREE_COMPLETED),))
    played = Played(last, places=(Found("news"), Found("waiting")), stored=stored)
    assert read(played.tree.events()) == [1, 2, 9]
    assert [cursor for cursor, _ in played.asked] == [2]
