"""The command `retry`: what has failed for good is started again, and what has ended above it goes on."""

import pytest

from baton_actors.baton import Budget, Status
from baton_actors.commands import Dispatch, End, Wake
from baton_actors.errors import NotAllowed, NotFound
from baton_actors.events import EventType
from tests.unit.drive import BEGIN, NOTHING, ROOT, Driver, dispatched, named, types

E = EventType

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


@pytest.mark.parametrize("retries", [1, 3])
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
