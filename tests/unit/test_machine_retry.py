"""Trying again: retryable failures with their backoff, and the retry of what has failed for good."""

import pytest
from tests.unit.drive import BEGIN, NOTHING, ROOT, Driver, dispatched, named, spec, types

from baton_actors.baton import Budget, ErrorKind, Status
from baton_actors.commands import Dispatch, End, Wake
from baton_actors.errors import NotAllowed, NotFound
from baton_actors.events import EventType

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


@pytest.mark.parametrize(("after", "jitter", "least", "most"), [(30, 0.0, 30_000, 30_000), (30, 0.9, 30_001, 31_000), (86_400, 0.5, 86_400_000, 86_401_000), (0, 0.0, 0, 0), (-5, 0.0, 0, 0)])
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


# ---------------------------------------------------------------- retry of what failed by itself


def test_retry_begins_a_new_generation_at_the_last_checkpoint() -> None:
    driver = Driver(max_retries=1)
    driver.start()
    driver.checkpoint(state="half")
    driver.fail(retryable=True)
    driver.start()
    driver.lose(cause="stuck")
    driver.start()
    driver.fail(error="bad")
    decision = driver.retry()
    assert types(decision) == ["tree.reopened", "baton.retrying"]
    assert decision.events[0].data == {"baton_id": ROOT}
    assert decision.events[1].data == {"reason": "retry", "generation": 1}
    assert decision.effects == (Dispatch(ROOT),)
    baton, node = driver.baton(), driver.node()
    assert (baton.status, baton.generation, baton.error, baton.error_kind) == (Status.PENDING, 1, None, None)
    assert (baton.losses, node.retries, baton.not_before, node.state) == (0, 0, None, "half")
    driver.start()
    assert driver.baton().attempt == 4
    driver.fail(retryable=True)
    assert driver.status() is Status.PENDING


def test_children_of_a_new_generation_are_new() -> None:
    driver = Driver()
    first = driver.breakdown(ROOT, "a")
    driver.run(*first)
    driver.start()
    driver.fail()
    driver.retry()
    second = driver.breakdown(ROOT, "a")
    assert not set(first) & set(second)
    assert driver.baton().children == first + second


def test_a_new_generation_keeps_the_results_of_the_last_breakdown() -> None:
    driver = Driver()
    (child,) = driver.breakdown(ROOT, "a", state="parked")
    driver.run(child, value=7)
    driver.start()
    driver.checkpoint(state="half")
    driver.fail()
    driver.retry()
    assert [each.result for each in driver.tree.child_results(ROOT)] == [7]
    assert driver.node().state == "half"
    assert driver.status() is Status.PENDING


def test_retrying_what_has_not_failed_is_not_allowed() -> None:
    driver = Driver()
    for status in (Status.PENDING, Status.RUNNING, Status.COMPLETED):
        assert driver.status() is status
        with pytest.raises(NotAllowed, match=f"is {status}; only a failed one"):
            driver.retry()
        driver.complete() if status is Status.RUNNING else driver.start()
    with pytest.raises(NotFound):
        driver.retry("bt_unknown")


def test_retrying_twice_is_not_allowed_while_it_runs() -> None:
    driver = Driver()
    driver.start()
    driver.fail()
    driver.retry()
    with pytest.raises(NotAllowed):
        driver.retry()


def test_a_cancelled_root_can_be_retried() -> None:
    driver = Driver()
    driver.start()
    driver.cancel()
    driver.retry()
    driver.run(ROOT)
    assert driver.status() is Status.COMPLETED


def test_late_reports_of_the_former_generation_change_nothing() -> None:
    driver = Driver()
    driver.start()
    driver.cancel()
    driver.retry()
    driver.start()
    assert driver.complete(attempt=1) == NOTHING


def test_a_held_baton_that_was_cancelled_starts_when_it_is_retried() -> None:
    driver = Driver(held=True)
    driver.cancel()
    assert dispatched(driver.retry()) == [ROOT]
    driver.start()
    assert driver.status() is Status.RUNNING


def test_a_delayed_baton_that_was_cancelled_starts_when_it_is_retried() -> None:
    driver = Driver(not_before=BEGIN + 60_000)
    driver.cancel()
    assert dispatched(driver.retry()) == [ROOT]


@pytest.mark.parametrize("retries", [1, pytest.param(3, marks=pytest.mark.xfail(strict=True, reason="needs a column that keeps the first span"))])
def test_a_retried_baton_gets_as_long_as_at_first(retries: int) -> None:
    driver = Driver(deadline=BEGIN + 10_000)
    driver.later(10)
    driver.due()
    for _ in range(retries):
        driver.later(100)
        decision = driver.retry()
        assert driver.baton().deadline == driver.now + 10_000
        assert decision.effects == (Wake(ROOT, driver.now + 10_000), Dispatch(ROOT))
        driver.later(10)
        driver.due()
        assert driver.baton().error_kind == "timeout"


# ---------------------------------------------------------------- retry of a parent


def test_retry_of_a_parent_retries_its_failed_children_and_keeps_the_completed() -> None:
    driver = Driver()
    good, bad, unwanted = driver.breakdown(ROOT, "good", "bad", "unwanted", state="parked")
    driver.run(good, value=1)
    driver.start(bad)
    driver.fail(bad)
    driver.cancel(unwanted)
    driver.start()
    driver.checkpoint(state="after the join")
    driver.fail()
    decision = driver.retry()
    assert named(decision) == [(ROOT, "tree.reopened"), (ROOT, "baton.spawned"), (bad, "baton.retrying"), (unwanted, "baton.retrying")]
    assert decision.events[1].data == {"children": 2, "breakdown": 1, "generation": 1, "reason": "retry"}
    assert dispatched(decision) == [bad, unwanted]
    assert driver.status() is Status.SPAWNED
    assert driver.baton(good).result == 1
    assert driver.node().state == "parked"
    driver.run(bad)
    assert dispatched(driver.run(unwanted)) == [ROOT]
    assert [(e.data["generation"], e.data["breakdown"]) for e in driver.events(E.RESUMED)] == [(0, 1), (1, 1)]
    driver.run(ROOT)
    assert driver.status() is Status.COMPLETED


def test_retry_of_a_cancelled_tree_goes_down_to_what_was_cancelled() -> None:
    driver = Driver()
    middle, done = driver.breakdown(ROOT, "middle", "done")
    leaf, ready = driver.breakdown(middle, "leaf", "ready")
    driver.run(done, ready)
    driver.start(leaf)
    driver.cancel()
    decision = driver.retry()
    assert named(decision)[1:] == [(ROOT, "baton.spawned"), (middle, "baton.spawned"), (leaf, "baton.retrying")]
    assert dispatched(decision) == [leaf]
    assert [driver.status(id) for id in (done, ready)] == ["completed"] * 2
    driver.run(leaf, middle, ROOT)
    assert driver.status() is Status.COMPLETED


def test_children_of_an_earlier_breakdown_are_not_retried_with_their_parent() -> None:
    driver = Driver()
    (old,) = driver.breakdown(ROOT, "old")
    driver.start(old)
    driver.fail(old)
    (new,) = driver.breakdown(ROOT, "new")
    driver.run(new)
    driver.start()
    driver.fail()
    assert named(driver.retry())[1:] == [(ROOT, "baton.retrying")]
    assert driver.status(old) is Status.FAILED


# ---------------------------------------------------------------- retry of a child


def test_retry_of_a_child_reopens_its_finished_ancestors() -> None:
    driver = Driver()
    middle, other = driver.breakdown(ROOT, "middle", "other", state="root parked")
    bad, good = driver.breakdown(middle, "bad", "good", state="middle parked")
    driver.run(other, good)
    driver.start(bad)
    driver.fail(bad)
    for id in (middle, ROOT):
        driver.start(id)
        driver.checkpoint(id, "later")
        driver.complete(id, "old answer")
    decision = driver.retry(bad)
    assert named(decision) == [(ROOT, "tree.reopened"), (ROOT, "baton.spawned"), (middle, "baton.spawned"), (bad, "baton.retrying")]
    assert decision.events[0].data == {"baton_id": bad}
    assert [event.data["children"] for event in decision.events[1:3]] == [1, 1]
    assert dispatched(decision) == [bad]
    assert [driver.baton(id).result for id in (ROOT, middle)] == [None, None]
    assert [driver.node(id).state for id in (ROOT, middle)] == ["root parked", "middle parked"]
    assert [driver.baton(id).generation for id in (ROOT, middle, bad, good, other)] == [1, 1, 1, 0, 0]
    assert dispatched(driver.run(bad)) == [middle]
    assert dispatched(driver.run(middle)) == [ROOT]
    assert driver.run(ROOT).effects == (End(Status.COMPLETED),)


def test_a_reopened_parent_is_not_partial_any_more() -> None:
    driver = Driver()
    (bad,) = driver.breakdown(ROOT, "bad")
    driver.start(bad)
    driver.fail(bad)
    driver.start()
    driver.complete(partial=True)
    driver.retry(bad)
    assert (driver.baton().partial, driver.baton().result) == (False, None)


def test_retry_of_a_child_while_its_parent_waits_needs_no_reopening() -> None:
    driver = Driver()
    bad, slow = driver.breakdown(ROOT, "bad", "slow")
    driver.start(bad, slow)
    driver.fail(bad)
    decision = driver.retry(bad)
    assert named(decision) == [(bad, "baton.retrying")]
    assert driver.node().unfinished == 2
    driver.complete(slow)
    assert driver.status() is Status.SPAWNED
    assert dispatched(driver.run(bad)) == [ROOT]


def test_retry_under_a_parent_that_goes_on_is_not_allowed() -> None:
    driver = Driver()
    (middle,) = driver.breakdown(ROOT, "middle")
    (bad,) = driver.breakdown(middle, "bad")
    driver.start(bad)
    driver.fail(bad)
    with pytest.raises(NotAllowed, match=f"while {middle} above it is pending"):
        driver.retry(bad)
    driver.start(middle)
    with pytest.raises(NotAllowed, match=f"while {middle} above it is running"):
        driver.retry(bad)
    driver.complete(middle)
    with pytest.raises(NotAllowed, match=f"while {ROOT} above it is pending"):
        driver.retry(bad)


def test_retry_of_a_child_of_an_earlier_breakdown_is_not_allowed() -> None:
    driver = Driver()
    (old,) = driver.breakdown(ROOT, "old")
    driver.start(old)
    driver.fail(old)
    (new,) = driver.breakdown(ROOT, "new")
    with pytest.raises(NotAllowed, match="earlier breakdown"):
        driver.retry(old)
    driver.run(new, ROOT)
    with pytest.raises(NotAllowed, match="earlier breakdown"):
        driver.retry(old)


def test_retry_at_the_end_of_a_chain_of_2000_levels() -> None:
    driver = Driver(check_every=700)
    chain = [ROOT]
    while len(chain) <= 2_000:
        chain += driver.breakdown(chain[-1], "next")
    driver.cancel()
    driver.retry(chain[-1])
    assert [driver.status(id) for id in chain] == ["spawned"] * 2_000 + ["pending"]
    driver.cancel()
    driver.retry()
    assert [driver.status(id) for id in chain] == ["spawned"] * 2_000 + ["pending"]
    driver.run(*reversed(chain))
    assert driver.status() is Status.COMPLETED


# ---------------------------------------------------------------- retry with more budget


def test_a_retry_may_bring_more_budget() -> None:
    driver = Driver(budget=Budget(rounds=2, tokens=10))
    driver.start()
    driver.fail()
    decision = driver.retry(budget=Budget(rounds=3))
    assert decision.events[0].data == {"baton_id": ROOT, "budget": {"rounds": 3}}
    assert driver.tree.budget == Budget(rounds=5, tokens=10)


def test_a_limit_that_was_absent_stays_absent() -> None:
    driver = Driver()
    driver.start()
    driver.fail()
    driver.retry(budget=Budget(rounds=3))
    assert driver.tree.budget == Budget()


def test_a_retry_of_a_child_brings_its_budget_to_a_tree_that_lives() -> None:
    driver = Driver(budget=Budget(rounds=2, seconds=60))
    bad, _ = driver.breakdown(ROOT, "bad", "slow")
    driver.start(bad)
    driver.fail(bad)
    driver.later(30)
    decision = driver.retry(bad, budget=Budget(rounds=3, seconds=60))
    assert driver.tree.budget == Budget(rounds=5, seconds=120)
    assert named(decision) == [(ROOT, "tree.reopened"), (bad, "baton.retrying")]
    assert decision.events[0].data == {"baton_id": bad, "budget": {"rounds": 3, "seconds": 60.0}}
    assert Wake(ROOT, BEGIN + 120_000) in decision.effects
    driver.later(30)
    assert driver.due() == NOTHING
    driver.later(60)
    assert driver.due().effects[-1] == End(Status.FAILED)


def test_the_seconds_of_a_reopened_tree_begin_anew() -> None:
    driver = Driver(budget=Budget(seconds=60))
    driver.later(60)
    driver.due()
    assert driver.baton().error_kind == "budget"
    driver.later(600)
    decision = driver.retry()
    assert Wake(ROOT, driver.now + 60_000) in decision.effects
    driver.later(59.999)
    assert driver.due() == NOTHING or driver.status() is Status.PENDING
    driver.later(0.001)
    driver.due()
    assert (driver.status(), driver.baton().error_kind) == (Status.FAILED, "budget")
    driver.reload()
