"""Trying again: retryable failures and their backoff."""

import pytest

from baton_actors.baton import ErrorKind, Status
from baton_actors.commands import Dispatch, End, Wake
from baton_actors.events import EventType
from tests.unit.drive import BEGIN, ROOT, Driver, spec, types

E = EventType

# ---------------------------------------------------------------- retryable failures


def test_a_retryable_failure_is_tried_again_after_a_backoff() -> None:
    driver = Driver(max_retries=2)
    driver.start()
    decision = driver.fail(error="429", kind=ErrorKind.ERROR, retryable=True, jitter=0.5)
    assert types(decision) == ["baton.retrying"]
    assert decision.events[0].data == {"reason": "error", "error": "429", "error_kind": "error", "not_before": BEGIN + 500}
    assert decision.effects == (Wake(ROOT, BEGIN + 500),)
    assert (driver.status(), driver.baton().error, driver.node().retries) == (Status.PENDING, None, 1)
    driver.later(0.5)
    assert driver.due().effects == (Dispatch(ROOT),)
    driver.start()
    driver.complete()
    assert driver.status() is Status.COMPLETED


def test_a_stale_start_does_not_cut_the_backoff_short() -> None:
    driver = Driver(max_retries=1)
    driver.start()
    driver.fail(retryable=True, after=10)
    decision = driver.start()
    assert (decision.events, decision.effects) == ((), (Wake(ROOT, BEGIN + 10_000),))


def test_the_backoff_doubles_up_to_a_minute() -> None:
    driver = Driver(max_retries=9)
    waits = []
    for _ in range(9):
        driver.start()
        waits.append(driver.fail(retryable=True, jitter=1.0).events[0].data["not_before"] - driver.now)
        driver.later(60)
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]


def test_200_batons_that_fail_together_come_back_apart() -> None:
    """A5: full jitter."""
    driver = Driver(check_every=50)
    children = driver.breakdown(ROOT, *[spec(max_retries=1)] * 200)
    driver.start(*children)
    for number, child in enumerate(children):
        driver.fail(child, retryable=True, jitter=number / 200)
    assert len({driver.baton(child).not_before for child in children}) == 200


@pytest.mark.parametrize(
    ("after", "jitter", "least", "most"),
    [(30, 0.0, 30_000, 30_000), (30, 0.9, 30_001, 31_000), (86_400, 0.5, 86_400_000, 86_401_000), (0, 0.0, 0, 0), (-5, 0.0, 0, 0)],
)
def test_a_wait_that_was_asked_for_is_kept_and_jittered_upwards(after: float, jitter: float, least: int, most: int) -> None:
    """A5."""
    driver = Driver(max_retries=1)
    driver.start()
    wait = driver.fail(retryable=True, after=after, jitter=jitter).events[0].data["not_before"] - driver.now
    assert least <= wait <= most


@pytest.mark.parametrize("after", [float("inf"), float("nan")])
def test_a_wait_without_end_is_left_to_the_backoff(after: float) -> None:
    driver = Driver(max_retries=1)
    driver.start()
    assert driver.fail(retryable=True, after=after, jitter=0.25).events[0].data["not_before"] == BEGIN + 250


def test_a_thousand_retries_do_not_overflow_the_backoff() -> None:
    driver = Driver(max_retries=1_000)
    for _ in range(1_000):
        driver.start()
        driver.fail(retryable=True)
    driver.start()
    assert driver.fail(retryable=True).effects == (End(Status.FAILED),)


def test_retries_end_and_the_error_says_so() -> None:
    driver = Driver(max_retries=2)
    for _ in range(2):
        driver.start()
        driver.fail(retryable=True)
    driver.start()
    assert types(driver.fail(error="busy", retryable=True)) == ["baton.failed", "tree.failed"]
    assert driver.baton().error == "busy (gave up after 2 retries)"
    assert driver.baton().attempt == 3


def test_a_retryable_failure_without_retries_says_what_is_missing() -> None:
    driver = Driver()
    driver.start()
    driver.fail(error="busy", retryable=True)
    assert driver.baton().error == "busy (asks to be retried, but max_retries is 0)"


def test_a_failure_that_is_not_retryable_is_final() -> None:
    driver = Driver(max_retries=5)
    driver.start()
    driver.fail(error="bad")
    assert (driver.status(), driver.baton().error) == (Status.FAILED, "bad")


def test_a_reported_failure_resets_losses() -> None:
    driver = Driver(max_retries=1)
    driver.start()
    driver.lose(cause="stuck")
    driver.start()
    driver.fail(retryable=True)
    assert driver.baton().losses == 0


def test_a_retried_attempt_keeps_the_checkpoint_and_the_children() -> None:
    """A4, A8: the same baton, the same children, nothing of it again."""
    driver = Driver(max_retries=1)
    (child,) = driver.breakdown(ROOT, "a", state="parked")
    driver.run(child)
    driver.start()
    driver.checkpoint(state="after the join")
    driver.fail(retryable=True)
    driver.start()
    assert driver.node().state == "after the join"
    assert driver.baton().children == [child]
    assert driver.status(child) is Status.COMPLETED
