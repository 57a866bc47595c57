"""What changes nothing: late reports, illegal events; and what an owner's recovery tells again."""

import pytest

from baton_actors.baton import ENDED, LIVE, Budget, Status
from baton_actors.commands import Dispatch, Recover, Wake
from baton_actors.errors import InvalidTransition, NotFound
from baton_actors.events import Event, EventType
from baton_actors.machine import TRANSITIONS, apply
from tests.unit.drive import BEGIN, NOTHING, ROOT, Driver, dispatched, fingerprint, named, spec, types

E = EventType

# ---------------------------------------------------------------- fences


def test_late_reports_of_a_superseded_attempt_change_nothing() -> None:
    """A1."""
    driver = Driver()
    driver.start()
    driver.lose(cause="node")
    driver.start()
    for late in _every_report(driver, attempt=1):
        assert late == NOTHING
    assert driver.reserve(attempt=1, rounds=1).refused == "attempt"
    assert driver.lose(attempt=1) == NOTHING
    assert driver.baton().attempt == 2


def test_reports_of_a_future_attempt_change_nothing() -> None:
    driver = Driver()
    driver.start()
    for early in _every_report(driver, attempt=2):
        assert early == NOTHING


def test_an_ended_baton_absorbs_late_reports() -> None:
    """A2, C3."""
    driver = Driver()
    driver.run(ROOT)
    for late in _every_report(driver, attempt=1):
        assert late == NOTHING
    assert driver.start() == NOTHING


def test_a_waiting_parent_absorbs_late_reports() -> None:
    driver = Driver()
    driver.breakdown(ROOT, "a")
    for late in _every_report(driver, attempt=1):
        assert late == NOTHING


def test_reports_of_what_nobody_knows_change_nothing() -> None:
    driver = Driver()
    for stray in _every_report(driver, id="bt_unknown", attempt=1):
        assert stray == NOTHING


def _every_report(driver: Driver, *, attempt: int, id: str = ROOT) -> list[object]:
    return [
        driver.complete(id, attempt=attempt),
        driver.fail(id, attempt=attempt, retryable=True),
        driver.spawn(id, "a", attempt=attempt),
        driver.hand_over(id, "state", attempt=attempt),
        driver.checkpoint(id, attempt=attempt),
    ]


# ---------------------------------------------------------------- illegal events


@pytest.mark.parametrize("type", [type for type in EventType if type.startswith("baton.")])
@pytest.mark.parametrize("status", [None, *Status])
def test_an_event_that_the_table_does_not_know_raises_and_changes_nothing(status: Status | None, type: EventType) -> None:
    driver = _driver_at(status)
    change = {"baton": driver.root} if type is E.CREATED or status is None else {"error_kind": None}
    event = Event(
        driver.tree.seq + 1, type, driver.now, ROOT, ROOT, None, 0, driver.tree.nodes[ROOT].baton.attempt if status else 0, {}, change
    )
    before = fingerprint(driver.tree)
    if (status, type) in TRANSITIONS:
        apply(driver.tree, [event])
        assert driver.status() is TRANSITIONS[status, type]
        return
    with pytest.raises(InvalidTransition) as caught:
        apply(driver.tree, [event])
    assert (caught.value.id, caught.value.event) == (ROOT, type)
    assert fingerprint(driver.tree) == before


def _driver_at(status: Status | None) -> Driver:
    driver = Driver(submit=status is not None)
    if status in (Status.RUNNING, Status.COMPLETED, Status.FAILED):
        driver.start()
    if status is Status.SPAWNED:
        driver.breakdown(ROOT, "a")
    elif status is Status.COMPLETED:
        driver.complete()
    elif status is Status.FAILED:
        driver.fail()
    assert status is None or driver.status() is status
    return driver


@pytest.mark.parametrize("gap", [-1, 1])
def test_an_event_out_of_order_raises_and_changes_nothing(gap: int) -> None:
    driver = Driver()
    event = Event(driver.tree.seq + 1 + gap, E.STARTED, driver.now, ROOT, ROOT, None, 0, 1, {})
    before = fingerprint(driver.tree)
    with pytest.raises(InvalidTransition):
        apply(driver.tree, [event])
    assert fingerprint(driver.tree) == before


def test_a_child_of_an_unknown_parent_is_not_born() -> None:
    driver = Driver()
    orphan = driver.root.model_copy(update={"id": "bt_orphan", "parent_id": "bt_unknown"})
    before = fingerprint(driver.tree)
    with pytest.raises(InvalidTransition):
        apply(driver.tree, [Event(2, E.CREATED, driver.now, ROOT, orphan.id, orphan.parent_id, 1, 0, {}, {"baton": orphan})])
    assert fingerprint(driver.tree) == before


def test_the_table_leaves_an_ended_status_only_by_retry() -> None:
    assert {type for status, type in TRANSITIONS if status in ENDED} == {E.RETRYING, E.SPAWNED}
    assert set(Status) == LIVE | ENDED
    assert not LIVE & ENDED


def test_asking_for_an_unknown_baton_says_so() -> None:
    driver = Driver()
    with pytest.raises(NotFound):
        driver.tree.node("bt_unknown")
    with pytest.raises(NotFound):
        driver.release("bt_unknown")


# ---------------------------------------------------------------- recovery


def test_recovery_tells_every_effect_again() -> None:
    driver = Driver(deadline=BEGIN + 90_000)
    running, pending, held, delayed, parent, asked, ended = driver.breakdown(
        ROOT,
        "running",
        "pending",
        spec("held", held=True),
        spec("delayed", not_before=BEGIN + 60_000),
        spec("parent", deadline=BEGIN + 80_000),
        spec("asked", worker="human", deadline=BEGIN + 70_000),
        spec("ended", deadline=BEGIN + 50_000),
    )
    driver.start(running)
    (leaf,) = driver.breakdown(parent, "leaf")
    driver.run(ended)
    driver.reload()
    decision = driver.recover()
    assert named(decision) == [(running, "baton.retrying")]
    assert decision.events[0].data == {"reason": "lost", "cause": "owner"}
    assert sorted(decision.effects, key=str) == sorted(
        [
            Dispatch(running),
            Dispatch(pending),
            Dispatch(leaf),
            Wake(delayed, BEGIN + 60_000),
            Wake(asked, BEGIN + 70_000),
            Wake(parent, BEGIN + 80_000),
            Wake(ROOT, BEGIN + 90_000),
        ],
        key=str,
    )
    assert driver.status(held) is Status.PENDING
    assert driver.status(asked) is Status.RUNNING


def test_recovery_leaves_runs_alone_that_are_known() -> None:
    """The tree was loaded again by the owner that started them."""
    driver = Driver()
    known, former, unknown = driver.breakdown(ROOT, "known", "former", "unknown")
    driver.start(known, former, unknown)
    driver.reload()
    decision = driver.do(Recover(driver.now, frozenset({(known, 1), (former, 0)})))
    assert named(decision) == [(former, "baton.retrying"), (unknown, "baton.retrying")]
    assert dispatched(decision) == [former, unknown]


def test_recovery_counts_no_loss_however_often_it_happens() -> None:
    driver = Driver()
    for _ in range(10):
        driver.start()
        driver.reload()
        driver.recover()
    assert (driver.status(), driver.baton().losses, driver.baton().attempt) == (Status.PENDING, 0, 10)


def test_recovery_keeps_the_backoff() -> None:
    """A5: the backoff survives the owner's restart."""
    driver = Driver(max_retries=1)
    driver.start()
    driver.fail(retryable=True, after=30)
    driver.reload()
    assert driver.recover().effects == (Wake(ROOT, BEGIN + 30_000),)


def test_recovery_asks_a_human_whose_time_has_come() -> None:
    driver = Driver(worker="human", not_before=BEGIN + 1_000)
    driver.reload()
    driver.later(2)
    assert types(driver.recover()) == ["baton.waiting"]


def test_recovery_of_an_ended_tree_does_nothing() -> None:
    """It is lent to an owner only to be retried."""
    driver = Driver(budget=Budget(seconds=60))
    driver.run(ROOT)
    driver.reload()
    assert driver.recover() == NOTHING


def test_recovery_of_nothing_does_nothing() -> None:
    assert Driver(submit=False).recover() == NOTHING


def test_recovery_after_the_join_dispatches_the_parent() -> None:
    driver = Driver()
    (child,) = driver.breakdown(ROOT, "a", state="parked")
    driver.run(child)
    driver.reload()
    assert driver.recover().effects == (Dispatch(ROOT),)
    assert driver.tree.child_results(ROOT)[0].result == "done"
