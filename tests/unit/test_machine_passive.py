"""Workers that wait for somebody outside: a human, another system."""

import pytest

from baton_actors.baton import Status
from baton_actors.commands import Dispatch, End, Wake
from baton_actors.errors import NotAllowed, NotFound
from tests.unit.drive import BEGIN, NOTHING, ROOT, Driver, dispatched, named, spec, types

both = pytest.mark.parametrize("worker", ["human", "external"])


@both
def test_a_passive_baton_waits_at_once_and_is_never_dispatched(worker: str) -> None:
    driver = Driver(worker=worker)
    assert [event.type for event in driver.log] == ["baton.created", "baton.waiting"]
    assert driver.log[1].data == {"worker": worker}
    assert (driver.status(), driver.baton().attempt) == (Status.RUNNING, 1)
    assert driver.told == []
    assert driver.start() == NOTHING


@both
def test_an_answer_completes_it(worker: str) -> None:
    driver = Driver()
    (asked,) = driver.breakdown(ROOT, spec("may I?", worker=worker))
    decision = driver.answer(asked, {"yes": True})
    assert named(decision) == [(asked, "baton.completed"), (ROOT, "baton.resumed")]
    assert decision.effects == (Dispatch(ROOT),)
    assert driver.tree.child_results(ROOT)[0].result == {"yes": True}


def test_an_answered_root_ends_the_tree() -> None:
    driver = Driver(worker="human")
    assert driver.answer().effects == (End(Status.COMPLETED),)


def test_the_same_answer_twice_is_harmless_another_is_not_allowed() -> None:
    driver = Driver(worker="human")
    driver.answer(value="yes")
    assert driver.answer(value="yes") == NOTHING
    with pytest.raises(NotAllowed, match="does not wait for an answer: it is completed"):
        driver.answer(value="no")


def test_answering_what_does_not_wait_is_not_allowed() -> None:
    driver = Driver()
    with pytest.raises(NotAllowed):
        driver.answer()
    driver.start()
    with pytest.raises(NotAllowed, match="it is running"):
        driver.answer()
    driver.complete(value="yes")
    with pytest.raises(NotAllowed):
        driver.answer(value="yes")
    with pytest.raises(NotFound):
        driver.answer("bt_unknown")


def test_answering_before_it_is_asked_or_after_it_was_cancelled_is_not_allowed() -> None:
    driver = Driver(worker="human", held=True)
    with pytest.raises(NotAllowed, match="it is pending"):
        driver.answer()
    driver.cancel()
    with pytest.raises(NotAllowed, match="it is failed"):
        driver.answer()


@both
def test_it_is_never_lost_and_reports_of_workers_are_none_of_its(worker: str) -> None:
    driver = Driver(worker=worker)
    for cause in ("process", "node", "owner", "stuck", "idle"):
        assert driver.lose(cause=cause, alone=True) == NOTHING
    assert driver.hand_over(state="x") == NOTHING
    assert driver.spawn(ROOT, "a") == NOTHING
    assert driver.complete() == NOTHING
    assert driver.fail(retryable=True) == NOTHING
    assert driver.checkpoint() == NOTHING
    assert driver.reserve(rounds=1).refused == "attempt"
    assert driver.status() is Status.RUNNING


def test_recovery_leaves_a_question_open() -> None:
    driver = Driver(worker="human", deadline=BEGIN + 1_000)
    driver.reload()
    decision = driver.recover()
    assert (decision.events, decision.effects) == ((), (Wake(ROOT, BEGIN + 1_000),))
    driver.answer()
    assert driver.status() is Status.COMPLETED


def test_a_held_question_is_asked_when_released() -> None:
    driver = Driver(worker="human", held=True)
    assert types(driver.release()) == ["baton.progress", "baton.waiting"]
    assert driver.told == []


def test_a_delayed_question_is_asked_at_its_time() -> None:
    driver = Driver(worker="human", not_before=BEGIN + 1_000)
    assert driver.told == [Wake(ROOT, BEGIN + 1_000)]
    driver.later(1)
    assert types(driver.due()) == ["baton.waiting"]
    assert driver.due() == NOTHING


def test_a_delayed_question_is_not_started_by_a_worker() -> None:
    driver = Driver(worker="human", not_before=BEGIN + 1_000)
    driver.later(1)
    assert driver.start() == NOTHING


def test_a_question_has_only_its_own_deadline() -> None:
    driver = Driver()
    asked, open_ended = driver.breakdown(ROOT, spec(worker="human", deadline=BEGIN + 1_000), spec(worker="human"))
    driver.later(1)
    decision = driver.due(asked)
    assert (driver.kinds(asked), decision.effects) == (["timeout"], ())
    driver.later(1e9)
    assert driver.due(open_ended) == NOTHING


def test_cancelling_a_question_stops_no_worker() -> None:
    driver = Driver(worker="human")
    assert driver.cancel().effects == (End(Status.FAILED),)


def test_a_retried_question_is_asked_again() -> None:
    driver = Driver()
    (asked,) = driver.breakdown(ROOT, spec(worker="human"))
    driver.cancel(asked)
    driver.run(ROOT)
    decision = driver.retry(asked)
    assert types(decision) == ["tree.reopened", "baton.spawned", "baton.retrying", "baton.waiting"]
    assert dispatched(decision) == []
    assert driver.baton(asked).attempt == 2
    driver.answer(asked)
    assert driver.status() is Status.PENDING


def test_children_of_a_human_do_not_exist_but_its_siblings_work_on() -> None:
    driver = Driver()
    asked, work = driver.breakdown(ROOT, spec(worker="human"), "work")
    assert dispatched(driver.run(work)) == []
    assert dispatched(driver.answer(asked)) == [ROOT]
