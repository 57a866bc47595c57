"""Ends that reach beyond one baton: cancel, fail_fast, deadlines."""

import pytest

from baton_actors.baton import ErrorKind, Status
from baton_actors.commands import Dispatch, End, Stop, Wake
from baton_actors.errors import NotAllowed, NotFound
from baton_actors.events import EventType
from baton_actors.machine import validate
from tests.unit.drive import BEGIN, NOTHING, ROOT, Driver, dispatched, named, spec, types

E = EventType

# ---------------------------------------------------------------- cancel


def test_cancel_ends_every_descendant_and_stops_what_runs() -> None:
    """C1: a tree of depth 4 with running leaves."""
    driver = Driver()
    level = [ROOT]
    for _ in range(3):
        level = [child for id in level for child in driver.breakdown(id, "a", "b")]
    driver.start(*level)
    decision = driver.cancel(reason="changed my mind")
    assert {node.baton.error_kind for node in driver.tree.nodes.values()} == {"cancelled"}
    assert {node.baton.error for node in driver.tree.nodes.values()} == {"changed my mind"}
    assert sorted(e.baton_id for e in decision.effects if isinstance(e, Stop)) == sorted(level)
    assert types(decision) == ["baton.failed"] * 15 + ["tree.failed"]
    assert decision.events[-1].data == {"error": "changed my mind", "error_kind": "cancelled"}
    assert decision.effects[-1] == End(Status.FAILED)


def test_children_end_before_their_parents() -> None:
    driver = Driver()
    a, b = driver.breakdown(ROOT, "a", "b")
    c, d = driver.breakdown(a, "c", "d")
    ended = [id for id, type in named(driver.cancel()) if type == "baton.failed"]
    assert ended.index(c) < ended.index(a) < ended.index(ROOT)
    assert ended.index(d) < ended.index(a)
    assert ended.index(b) < ended.index(ROOT)


def test_cancel_of_a_subtree_ends_it_and_resumes_the_parent_if_it_was_the_last() -> None:
    driver = Driver()
    a, b = driver.breakdown(ROOT, "a", "b")
    (leaf,) = driver.breakdown(a, "leaf")
    driver.start(leaf)
    decision = driver.cancel(a)
    assert named(decision) == [(leaf, "baton.failed"), (a, "baton.failed")]
    assert decision.effects == (Stop(leaf, 1),)
    assert driver.kinds(leaf, a, b, ROOT) == ["cancelled", "cancelled", None, None]
    decision = driver.cancel(b)
    assert named(decision) == [(b, "baton.failed"), (ROOT, "baton.resumed")]
    assert decision.effects == (Dispatch(ROOT),)


def test_a_running_baton_is_stopped_by_its_attempt() -> None:
    driver = Driver()
    driver.start()
    driver.lose(cause="node")
    driver.start()
    assert Stop(ROOT, 2) in driver.cancel().effects


def test_a_pending_baton_needs_no_stop() -> None:
    assert Driver().cancel().effects == (End(Status.FAILED),)


def test_a_resumed_parent_is_cancelled_without_its_ended_children() -> None:
    driver = Driver()
    a, b = driver.breakdown(ROOT, "a", "b")
    driver.run(a, b)
    driver.start()
    assert named(driver.cancel()) == [(ROOT, "baton.failed"), (ROOT, "tree.failed")]
    assert [driver.status(id) for id in (a, b)] == ["completed"] * 2


def test_the_late_result_of_a_cancelled_baton_is_dropped() -> None:
    """C2, C3."""
    driver = Driver()
    a, _ = driver.breakdown(ROOT, "a", "b")
    driver.start(a)
    driver.cancel(a)
    assert driver.complete(a, attempt=1) == NOTHING
    driver.cancel()
    assert driver.complete(a, attempt=1) == NOTHING


def test_a_breakdown_reported_after_the_cancel_creates_nothing() -> None:
    driver = Driver()
    driver.start()
    driver.cancel()
    assert driver.spawn(ROOT, "a", "b", attempt=1) == NOTHING
    assert len(driver.tree.nodes) == 1


def test_cancelling_twice_answers_as_before() -> None:
    """C4."""
    driver = Driver()
    a, _ = driver.breakdown(ROOT, "a", "b")
    driver.cancel(a)
    assert driver.cancel(a) == NOTHING
    driver.cancel()
    assert driver.cancel() == NOTHING
    assert driver.cancel(a) == NOTHING


def test_cancelling_an_ended_tree_says_that_it_has_ended() -> None:
    """C4."""
    driver = Driver()
    driver.run(ROOT)
    with pytest.raises(NotAllowed, match=r"has already ended \(completed\)"):
        driver.cancel()
    failed = Driver()
    failed.start()
    failed.fail()
    with pytest.raises(NotAllowed, match=r"has already ended \(failed\)"):
        failed.cancel()


def test_cancelling_an_unknown_baton_says_that_there_is_none() -> None:
    """C4."""
    with pytest.raises(NotFound):
        Driver().cancel("bt_unknown")


def test_cancelling_an_ended_child_says_that_it_has_ended() -> None:
    driver = Driver()
    a, _ = driver.breakdown(ROOT, "a", "b")
    driver.run(a)
    with pytest.raises(NotAllowed):
        driver.cancel(a)
    assert driver.status(a) is Status.COMPLETED


def test_cancel_of_a_chain_of_5000_levels_needs_no_recursion() -> None:
    """J9."""
    driver = Driver(check_every=1_700)
    chain = [ROOT]
    while len(chain) <= 5_000:
        chain += driver.breakdown(chain[-1], "next")
    driver.start(chain[-1])
    decision = driver.cancel()
    assert [id for id, _ in named(decision)] == [*reversed(chain), ROOT]
    assert driver.tree.live == 0
    validate(driver.tree)


# ---------------------------------------------------------------- fail_fast


def test_with_fail_fast_the_siblings_are_cancelled_and_the_parent_resumed_once() -> None:
    driver = Driver(on_child_failure="fail_fast")
    bad, running, pending, done, parent = driver.breakdown(ROOT, "bad", "running", "pending", "done", "parent")
    driver.run(done)
    (leaf,) = driver.breakdown(parent, "leaf")
    driver.start(bad, running, leaf)
    decision = driver.fail(bad, "broken")
    assert named(decision)[0] == (bad, "baton.failed")
    assert named(decision)[-1] == (ROOT, "baton.resumed")
    assert types(decision) == ["baton.failed"] * 5 + ["baton.resumed"]
    assert driver.kinds(bad, running, pending, parent, leaf, done) == ["error"] + ["cancelled"] * 4 + [None]
    assert [e for e in decision.effects if isinstance(e, Stop)] == [Stop(running, 1), Stop(leaf, 1)]
    assert decision.effects[-1] == Dispatch(ROOT)
    assert dispatched(decision) == [ROOT]
    assert [each.status for each in driver.tree.child_results(ROOT)] == ["failed", "failed", "failed", "completed", "failed"]


def test_without_fail_fast_the_siblings_go_on() -> None:
    driver = Driver()
    bad, good = driver.breakdown(ROOT, "bad", "good")
    driver.start(bad, good)
    assert named(driver.fail(bad)) == [(bad, "baton.failed")]
    assert driver.status(good) is Status.RUNNING


def test_fail_fast_is_of_the_parent_not_of_the_child() -> None:
    driver = Driver()
    bad, good = driver.breakdown(ROOT, spec("bad", on_child_failure="fail_fast"), "good")
    driver.start(bad)
    driver.fail(bad)
    assert driver.status(good) is Status.PENDING


def test_fail_fast_leaves_earlier_breakdowns_and_other_branches_alone() -> None:
    driver = Driver()
    branch, other = driver.breakdown(ROOT, spec("branch", on_child_failure="fail_fast"), "other")
    (old,) = driver.breakdown(branch, "old")
    driver.run(old)
    bad, sibling = driver.breakdown(branch, "bad", "sibling")
    driver.start(bad)
    driver.fail(bad)
    assert driver.kinds(old, other, sibling) == [None, None, "cancelled"]
    assert driver.status(branch) is Status.PENDING


def test_a_cancelled_child_does_not_cancel_its_siblings() -> None:
    driver = Driver(on_child_failure="fail_fast")
    unwanted, good = driver.breakdown(ROOT, "unwanted", "good")
    driver.cancel(unwanted)
    assert driver.status(good) is Status.PENDING


def test_a_retryable_failure_does_not_cancel_siblings_before_it_is_final() -> None:
    driver = Driver(on_child_failure="fail_fast")
    flaky, good = driver.breakdown(ROOT, spec("flaky", max_retries=1), "good")
    driver.start(flaky)
    driver.fail(flaky, retryable=True)
    assert driver.status(good) is Status.PENDING
    driver.later(1)
    driver.start(flaky)
    driver.fail(flaky, retryable=True)
    assert driver.kinds(good) == ["cancelled"]


@pytest.mark.parametrize("end", ["crashed", "timeout", "rejected"])
def test_every_way_to_fail_is_a_failure_to_fail_fast(end: str) -> None:
    driver = Driver(on_child_failure="fail_fast")
    bad, good = driver.breakdown(ROOT, spec("bad", deadline=BEGIN + 1_000, tools=[]), "good")
    for _ in range(4 if end == "crashed" else 1):
        driver.start(bad)
        if end == "crashed":
            driver.lose(bad, alone=True)
    if end == "timeout":
        driver.later(1)
        driver.due(bad)
    elif end == "rejected":
        driver.spawn(bad, spec(tools=["steal"]))
    assert driver.kinds(bad, good) == [end, "cancelled"]
    assert driver.status() is Status.PENDING


def test_a_retried_sibling_can_fail_fast_again() -> None:
    driver = Driver(on_child_failure="fail_fast")
    bad, good = driver.breakdown(ROOT, "bad", "good")
    driver.start(bad)
    driver.fail(bad)
    driver.start()
    driver.fail()
    driver.retry()
    driver.start(bad)
    driver.fail(bad)
    assert driver.kinds(bad, good) == ["error", "cancelled"]
    assert len(driver.events(E.RESUMED)) == 2


# ---------------------------------------------------------------- deadlines


def test_a_deadline_is_told_at_birth() -> None:
    driver = Driver(deadline=BEGIN + 9_000)
    assert driver.told == [Wake(ROOT, BEGIN + 9_000), Dispatch(ROOT)]


def test_a_running_baton_is_stopped_at_its_deadline() -> None:
    driver = Driver(deadline=BEGIN + 9_000)
    driver.start()
    driver.later(8.999)
    assert driver.due() == NOTHING
    driver.later(0.001)
    decision = driver.due()
    assert types(decision) == ["baton.failed", "tree.failed"]
    assert decision.effects == (Stop(ROOT, 1), End(Status.FAILED))
    assert (driver.baton().error_kind, driver.baton().error) == (ErrorKind.TIMEOUT, "its deadline has passed")


def test_a_waiting_parent_takes_its_descendants_with_it_at_its_deadline() -> None:
    driver = Driver()
    parent, other = driver.breakdown(ROOT, spec("parent", deadline=BEGIN + 1_000), "other")
    a, b = driver.breakdown(parent, "a", "b")
    driver.run(a)
    driver.start(b)
    driver.later(1)
    decision = driver.due(parent)
    assert named(decision) == [(b, "baton.failed"), (parent, "baton.failed")]
    assert driver.kinds(a, b, parent, other) == [None, "cancelled", "timeout", None]
    assert decision.effects == (Stop(b, 1),)
    assert driver.baton(b).error == "its parent failed (timeout)"


@pytest.mark.parametrize("given", [{}, {"held": True}, {"not_before": BEGIN + 5_000}])
def test_a_pending_baton_has_a_deadline_too(given: dict[str, object]) -> None:
    driver = Driver(deadline=BEGIN + 1_000, **given)
    driver.later(1)
    driver.due()
    assert driver.baton().error_kind == "timeout"


def test_the_last_child_that_runs_out_of_time_resumes_its_parent() -> None:
    driver = Driver()
    (child,) = driver.breakdown(ROOT, spec("a", deadline=BEGIN + 1_000))
    driver.later(1)
    assert dispatched(driver.due(child)) == [ROOT]


def test_a_deadline_of_what_has_ended_does_nothing() -> None:
    driver = Driver(deadline=BEGIN + 1_000)
    driver.run(ROOT)
    driver.later(2)
    assert driver.due() == NOTHING
