"""The way to a directory that restarts, dies for good, or says nothing; the directory is played."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError

from baton_actors.errors import ClusterUnusable
from baton_actors.runtime import reaching
from baton_actors.runtime.publication import Found
from baton_actors.runtime.reaching import Reach

RESTARTING = ActorUnavailableError("restarting", None)
SILENCE = object()


def directory(*answers: Any) -> Any:
    """A handle that gives these answers, the last of them again and again."""
    left = list(answers)

    def remote(*_: Any) -> Any:
        answer: Future[Any] = Future()
        given = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(given, Exception):
            answer.set_exception(given)
        elif given is not SILENCE:
            answer.set_result(given)
        return SimpleNamespace(future=lambda: answer)

    return SimpleNamespace(where=SimpleNamespace(remote=remote), submit=SimpleNamespace(remote=remote))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(reference: Any, timeout: float | None = None) -> Any:
        try:
            return reference.future().result(timeout)
        except TimeoutError:
            raise GetTimeoutError from None

    monkeypatch.setattr("baton_actors.runtime.reaching.ray.get", get)
    monkeypatch.setattr(reaching, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(reaching, "WHERE_SECONDS", 0.05)
    monkeypatch.setattr(reaching, "ORDER_SECONDS", 0.05)


def where(reach: Reach) -> Found:
    return reach.where("bt_root")


def where_async(reach: Reach) -> Found:
    return asyncio.run(reach.where_async("bt_root"))


both_ways = pytest.mark.parametrize("look", [where, where_async])


@both_ways
def test_a_restart_is_waited_for_and_a_tree_without_owner_is_asked_for_again(look: Callable[[Reach], Found]) -> None:
    reach = Reach(directory(RESTARTING, Found("waiting"), RESTARTING, Found("waiting"), Found("gone")), find=lambda: pytest.fail("found"))
    assert look(reach) == Found("gone")


@both_ways
def test_in_the_place_of_one_that_is_dead_another_is_asked(look: Callable[[Reach], Found]) -> None:
    second = directory(Found("gone"))
    reach = Reach(directory(ActorDiedError()), find=lambda: second)
    assert look(reach) == Found("gone")
    assert reach.handle is second


@both_ways
@pytest.mark.parametrize("last", [RESTARTING, ActorDiedError(), SILENCE])
def test_who_asks_is_told_when_no_directory_answers(look: Callable[[Reach], Found], last: Any) -> None:
    dead = directory(last)
    with pytest.raises(ClusterUnusable, match=r"the directory actor: .*'baton doctor' looks closer"):
        look(Reach(dead, find=lambda: dead))


@both_ways
def test_who_asks_is_told_why_there_can_be_no_other(look: Callable[[Reach], Found]) -> None:
    def find() -> Any:
        raise ClusterUnusable("Ray", "nothing answers")

    with pytest.raises(ClusterUnusable, match="nothing answers"):
        look(Reach(directory(ActorDiedError()), find))


def test_many_who_find_it_dead_at_once_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def find() -> Any:
        found.append(directory("done"))
        return found[-1]

    reach = Reach(directory(ActorDiedError()), find)
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda _: reach.ask("submit"), range(8))) == ["done"] * 8
    assert len(found) == 1


@pytest.mark.parametrize("answer", [SILENCE, RESTARTING, Found("waiting")])
def test_a_wait_of_its_own_length_ends_with_it(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "WHERE_SECONDS", 60.0)
    with pytest.raises(GetTimeoutError):
        Reach(directory(answer), find=lambda: pytest.fail("found")).where("bt_root", until=time.monotonic() + 0.02)
