"""Calling an owner: however long it takes while it is alive, and not a moment longer than it takes to know that it has stopped."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError

from baton_actors.errors import NotFound
from baton_actors.runtime import calling
from baton_actors.runtime.calling import called, patiently_called


class Reference:
    """What a call returns at once."""

    def __init__(self) -> None:
        self.answer: Future[Any] = Future()

    def future(self) -> "Future[Any]":
        return self.answer


class Owner:
    """An actor's handle. `on_call` is told of every call, by name, with what will be its answer."""

    def __init__(self, on_call: Callable[[str, "Future[Any]"], None]) -> None:
        self._on_call = on_call
        self.calls: list[str] = []
        self.pending: list[Future[Any]] = []

    def __getattr__(self, name: str) -> Any:
        class Method:
            @staticmethod
            def remote(*_: Any) -> Reference:
                reference = Reference()
                self.calls.append(name)
                self.pending.append(reference.answer)
                self._on_call(name, reference.answer)
                return reference

        return Method


@pytest.fixture(autouse=True)
def killed(monkeypatch: pytest.MonkeyPatch) -> list[Owner]:
    """Owners that were ended through Ray; their calls fail then."""
    ended: list[Owner] = []

    def kill(owner: Owner) -> None:
        ended.append(owner)
        for answer in owner.pending:
            if not answer.done():
                answer.set_exception(ActorDiedError())

    monkeypatch.setattr("baton_actors.runtime.calling.ray.kill", kill)
    monkeypatch.setattr(calling, "LOOK_SECONDS", 0.002)
    monkeypatch.setattr(calling, "LONGEST_PULSE_SECONDS", 0.004)
    monkeypatch.setattr(calling, "RESTART_PAUSE_SECONDS", 0.0)
    return ended


def test_an_owner_that_is_alive_is_waited_for(killed: list[Owner]) -> None:
    """Its loop may be busy with a large tree for long: another thread says that it is alive."""
    work: list[Future[Any]] = []

    def on_call(name: str, answer: "Future[Any]") -> None:
        if name == "take":
            work.append(answer)
        else:
            answer.set_result(None)
            if owner.calls.count("alive") == 20:
                work[0].set_result("taken")

    owner = Owner(on_call)
    assert asyncio.run(called(owner, "take", pulse=0.001)) == "taken"
    assert killed == []


def test_an_owner_that_has_stopped_is_ended(killed: list[Owner]) -> None:
    owner = Owner(lambda name, answer: None)
    with pytest.raises(ActorDiedError):
        asyncio.run(called(owner, "begin", pulse=0.001))
    assert killed == [owner]


def test_an_owner_that_answers_is_never_asked_whether_it_is_alive(killed: list[Owner]) -> None:
    owner = Owner(lambda name, answer: answer.set_result(name))
    assert asyncio.run(called(owner, "status")) == "status"
    assert owner.calls == ["status"]


def test_an_answer_that_comes_while_the_sign_of_life_is_late_counts(killed: list[Owner]) -> None:
    def on_call(name: str, answer: "Future[Any]") -> None:
        if name == "alive":
            owner.pending[0].set_result("late")

    owner = Owner(on_call)
    assert asyncio.run(called(owner, "order", pulse=0.001)) == "late"
    assert killed == []


def test_an_owner_that_is_being_restarted_has_not_stopped(killed: list[Owner]) -> None:
    def on_call(name: str, answer: "Future[Any]") -> None:
        if owner.calls.count("released") < 3:
            answer.set_exception(ActorUnavailableError("restarting", None))
        else:
            answer.set_result("ended")

    owner = Owner(on_call)
    assert asyncio.run(patiently_called(owner, "released", pulse=0.001)) == "ended"
    assert killed == []


def test_an_exception_of_ours_comes_out_as_itself(killed: list[Owner]) -> None:
    error = RayTaskError("order", "trace", NotFound("bt_unknown"))
    owner = Owner(lambda name, answer: answer.set_exception(error))
    with pytest.raises(NotFound, match="bt_unknown"):
        asyncio.run(called(owner, "order"))
