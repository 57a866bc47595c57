"""Births, starts, joins: the straight ways through the transition table."""

import random

import pytest

from baton_actors.baton import ErrorKind, Status, child_id
from baton_actors.commands import Dispatch, End, Start, Submit, Wake
from baton_actors.errors import NotAllowed
from baton_actors.events import EventType
from baton_actors.machine import validate
from tests.unit.drive import BEGIN, NOTHING, ROOT, Driver, dispatched, named, spec, types

E = EventType

# ---------------------------------------------------------------- birth and start


def test_a_submitted_root_is_pending_and_dispatched() -> None:
    driver = Driver(submit=False)
    decision = driver.do(Submit(driver.now, driver.root))
    assert types(decision) == ["baton.created"]
    assert decision.effects == (Dispatch(ROOT),)
    assert driver.status() is Status.PENDING
    assert decision.events[0].data == {"goal": "all", "worker": "work:run"}


def test_submitting_twice_makes_one_tree() -> None:
    driver = Driver()
    assert driver.do(Submit(driver.now, driver.root)) == NOTHING


def test_a_started_baton_runs_its_next_attempt() -> None:
    driver = Driver()
    decision = driver.start()
    assert types(decision) == ["baton.started"]
    assert decision.events[0].attempt == driver.baton().attempt == 1
    assert driver.status() is Status.RUNNING
    assert decision.effects == ()


def test_starting_twice_begins_one_attempt() -> None:
    driver = Driver()
    driver.start()
    assert driver.start() == NOTHING
    assert driver.baton().attempt == 1


def test_starting_what_nobody_knows_does_nothing() -> None:
    assert Driver().do(Start(BEGIN, "bt_unknown")) == NOTHING


def test_a_completed_root_ends_the_tree() -> None:
    driver = Driver()
    driver.start()
    decision = driver.complete(value={"sum": 3}, partial=True)
    assert types(decision) == ["baton.completed", "tree.completed"]
    assert decision.events[0].data == {"partial": True}
    assert decision.effects == (End(Status.COMPLETED),)
    assert (driver.baton().result, driver.baton().partial) == ({"sum": 3}, True)
    assert (driver.tree.live, driver.tree.ended) == (0, 1)


def test_a_failed_root_ends_the_tree() -> None:
    driver = Driver()
    driver.start()
    decision = driver.fail(error="no such file", kind=ErrorKind.REFUSED)
    assert types(decision) == ["baton.failed", "tree.failed"]
    assert all(event.data == {"error": "no such file", "error_kind": "refused"} for event in decision.events)
    assert decision.effects == (End(Status.FAILED),)
    assert (driver.baton().error, driver.baton().error_kind) == ("no such file", "refused")


def test_a_result_is_never_in_an_event() -> None:
    driver = Driver()
    driver.start()
    assert "secret" not in str([event.to_wire() for event in driver.complete(value="secret").events])


def test_long_goals_and_errors_are_cut_in_events_and_errors_in_the_row() -> None:
    driver = Driver(goal="g" * 300)
    assert len(driver.log[0].data["goal"]) == 200
    driver.start()
    decision = driver.fail(error="e" * 9_000)
    assert [len(event.data["error"]) for event in decision.events] == [500, 500]
    assert len(driver.baton().error or "") == 8_000


# ---------------------------------------------------------------- held, delayed


def test_a_held_baton_waits_for_its_release() -> None:
    driver = Driver(held=True)
    assert driver.told == []
    assert driver.log[0].data["held"] is True
    assert driver.start() == NOTHING
    decision = driver.release()
    assert types(decision) == ["baton.progress"]
    assert decision.events[0].data == {"kind": "released"}
    assert decision.effects == (Dispatch(ROOT),)
    assert not driver.baton().held
    driver.start()
    assert driver.status() is Status.RUNNING


def test_releasing_again_is_harmless() -> None:
    driver = Driver(held=True)
    driver.release()
    assert driver.release() == NOTHING
    driver.start()
    assert driver.release() == NOTHING


def test_releasing_a_cancelled_baton_is_not_allowed() -> None:
    driver = Driver(held=True)
    driver.cancel()
    with pytest.raises(NotAllowed, match="already ended"):
        driver.release()


def test_a_held_child_keeps_its_parent_waiting() -> None:
    driver = Driver()
    now, held = driver.breakdown(ROOT, "now", spec("later", held=True))
    assert dispatched(driver.run(now)) == []
    assert driver.status() is Status.SPAWNED
    driver.release(held)
    assert dispatched(driver.run(held)) == [ROOT]


def test_a_delayed_baton_is_dispatched_at_its_time() -> None:
    driver = Driver(not_before=BEGIN + 5_000)
    assert driver.told == [Wake(ROOT, BEGIN + 5_000)]
    driver.later(4.999)
    assert driver.due() == NOTHING
    driver.later(0.001)
    assert driver.due().effects == (Dispatch(ROOT),)
    driver.start()
    assert driver.status() is Status.RUNNING


def test_a_start_before_its_time_waits_for_that_time() -> None:
    driver = Driver(not_before=BEGIN + 5_000)
    decision = driver.start()
    assert (decision.events, decision.effects) == ((), (Wake(ROOT, BEGIN + 5_000),))


def test_a_delay_that_has_passed_is_none() -> None:
    driver = Driver(not_before=BEGIN)
    assert driver.told == [Dispatch(ROOT)]


def test_a_delay_is_over_once_the_baton_has_started() -> None:
    """A clock that is set back, or another machine's, must not delay what was started once already."""
    driver = Driver(not_before=BEGIN + 5_000)
    driver.later(5)
    driver.start()
    driver.later(-5)
    driver.lose(cause="owner")
    driver.start()
    assert driver.status() is Status.RUNNING


def test_a_held_and_delayed_baton_waits_for_both() -> None:
    driver = Driver(held=True, not_before=BEGIN + 5_000)
    driver.later(6)
    assert driver.due() == NOTHING
    driver.later(-3)
    assert driver.release().effects == (Wake(ROOT, BEGIN + 5_000),)


def test_a_time_that_no_longer_matters_does_nothing() -> None:
    driver = Driver(not_before=BEGIN + 5_000)
    driver.later(5)
    driver.start()
    assert driver.due() == NOTHING
    driver.complete()
    assert driver.due() == NOTHING
    assert driver.due("bt_unknown") == NOTHING


# ---------------------------------------------------------------- breakdown and join


def test_children_are_created_with_the_breakdown() -> None:
    driver = Driver()
    driver.start()
    decision = driver.spawn(ROOT, "a", "b", state={"step": 1})
    a, b = driver.baton().children
    assert named(decision) == [(ROOT, "baton.spawned"), (a, "baton.created"), (b, "baton.created")]
    assert decision.events[0].data == {"children": 2, "breakdown": 1, "generation": 0}
    assert decision.effects == (Dispatch(a), Dispatch(b))
    assert driver.status() is Status.SPAWNED
    assert [(driver.baton(id).goal, driver.status(id), driver.baton(id).depth) for id in (a, b)] == [
        ("a", "pending", 1),
        ("b", "pending", 1),
    ]
    assert driver.node().unfinished == 2


def test_children_take_worker_model_and_tools_from_their_parent_unless_named() -> None:
    driver = Driver(model="small", tools=["read", "write"], max_retries=3)
    same, other = driver.breakdown(ROOT, "same", spec("other", worker="agent", model="big", tools=["read"], max_retries=1))
    assert (driver.baton(same).worker, driver.baton(same).model, driver.baton(same).tools) == ("work:run", "small", ["read", "write"])
    assert (driver.baton(other).worker, driver.baton(other).model, driver.baton(other).tools) == ("agent", "big", ["read"])
    assert [driver.baton(id).constraints.max_retries for id in (same, other)] == [0, 1]
    assert all(driver.baton(id).created_at == driver.now for id in (same, other))


def test_a_child_keeps_all_that_its_spec_says() -> None:
    driver = Driver()
    given = {
        "context": {"n": 1},
        "prompt": "be brief",
        "result_type": {"type": "string"},
        "resources": {"num_cpus": 2},
        "held": True,
        "not_before": BEGIN + 1,
        "deadline": BEGIN + 2,
    }
    (child,) = driver.breakdown(ROOT, spec("a", timeout_hint=3, **given))
    assert {name: getattr(driver.baton(child), name) for name in given} == given
    assert driver.baton(child).constraints.timeout_hint == 3
    assert driver.events(E.CREATED, child)[0].data == {
        "goal": "a",
        "worker": "work:run",
        "held": True,
        "not_before": BEGIN + 1,
        "deadline": BEGIN + 2,
    }


def test_ids_of_children_are_the_same_in_every_run() -> None:
    first, second = Driver(), Driver()
    ids = first.breakdown(ROOT, "a", "b")
    assert ids == second.breakdown(ROOT, "a", "b") == [child_id(ROOT, 0, 1, 0), child_id(ROOT, 0, 1, 1)]
    assert all(id[:13] == ROOT[:13] and len(id) == len(ROOT) for id in ids)


def test_parent_resumes_with_its_last_child_only() -> None:
    driver = Driver()
    a, b, c = driver.breakdown(ROOT, "a", "b", "c", state="parked")
    driver.start(a, b, c)
    for child in (c, a):
        decision = driver.complete(child)
        assert types(decision) == ["baton.completed"]
        assert decision.effects == ()
        assert driver.status() is Status.SPAWNED
    decision = driver.complete(b)
    assert named(decision) == [(b, "baton.completed"), (ROOT, "baton.resumed")]
    assert decision.events[1].data == {"breakdown": 1, "generation": 0}
    assert decision.effects == (Dispatch(ROOT),)
    assert driver.status() is Status.PENDING
    assert driver.node().state == "parked"


def test_parent_resumes_once_when_children_end_together() -> None:
    """J1: 100 children in random order, 200 times."""
    for seed in range(200):
        driver = Driver(check_every=67)
        children = driver.breakdown(ROOT, *["part"] * 100)
        random.Random(seed).shuffle(children)
        driver.start(*children)
        for child in children:
            driver.complete(child)
        assert len(driver.events(E.RESUMED, ROOT)) == 1
        assert driver.log[-1].type is E.RESUMED
        validate(driver.tree)


def test_300_children_cause_one_resume_and_one_dispatch_of_the_parent() -> None:
    """J2."""
    driver = Driver()
    children = driver.breakdown(ROOT, *["part"] * 300)
    told = len(driver.told)
    driver.run(*children)
    assert driver.told[told:] == [Dispatch(ROOT)]
    assert len(driver.events(E.RESUMED)) == 1


def test_failed_and_cancelled_children_count_as_ended_and_results_keep_spawn_order() -> None:
    """J4."""
    driver = Driver()
    a, b, c, d = driver.breakdown(ROOT, "a", "b", "c", "d")
    driver.start(d, b)
    driver.complete(d, 4)
    driver.fail(b, "bad")
    driver.cancel(c, "unwanted")
    assert dispatched(driver.run(a, value=1)) == [ROOT]
    results = driver.tree.child_results(ROOT)
    assert [(each.id, each.goal, each.status, each.result, each.error, each.error_kind) for each in results] == [
        (a, "a", "completed", 1, None, None),
        (b, "b", "failed", None, "bad", "error"),
        (c, "c", "failed", None, "unwanted", "cancelled"),
        (d, "d", "completed", 4, None, None),
    ]


def test_waiting_for_children_is_no_idleness() -> None:
    """J5: nothing but a deadline or a budget of its own ends a parent that waits."""
    driver = Driver()
    driver.breakdown(ROOT, "a")
    driver.later(86_400 * 365)
    assert driver.due() == NOTHING
    assert driver.lose() == NOTHING
    assert driver.status() is Status.SPAWNED


def test_an_attempt_after_a_crash_sees_the_same_children_again() -> None:
    """J8."""
    driver = Driver()
    a, b = driver.breakdown(ROOT, "a", "b", state="parked")
    driver.run(a, b)
    driver.start()
    before = driver.tree.child_results(ROOT)
    driver.lose(cause="node")
    driver.start()
    assert driver.tree.child_results(ROOT) == before
    assert driver.node().state == "parked"
    assert driver.baton().attempt == 3


def test_spawning_nothing_resumes_at_once() -> None:
    driver = Driver()
    driver.start()
    decision = driver.spawn(ROOT, state="next")
    assert types(decision) == ["baton.spawned", "baton.resumed"]
    assert decision.events[1].data == {"breakdown": 1, "generation": 0}
    assert decision.effects == (Dispatch(ROOT),)
    assert driver.status() is Status.PENDING
    assert driver.tree.child_results(ROOT) == []
    driver.start()
    assert driver.node().state == "next"


def test_three_breakdowns_of_one_baton() -> None:
    driver = Driver()
    seen: list[str] = []
    for number in (1, 2, 3):
        children = driver.breakdown(ROOT, f"a{number}", f"b{number}", state=number)
        assert children == [child_id(ROOT, 0, number, index) for index in (0, 1)]
        seen += children
        driver.run(*children, value=number)
        assert [each.goal for each in driver.tree.child_results(ROOT)] == [f"a{number}", f"b{number}"]
    assert driver.baton().children == seen
    assert [event.data["breakdown"] for event in driver.events(E.RESUMED)] == [1, 2, 3]
    driver.run(ROOT)
    assert driver.status() is Status.COMPLETED


def test_a_tree_of_depth_three_joins_from_below() -> None:
    driver = Driver()
    (middle,) = driver.breakdown(ROOT, "middle")
    (leaf,) = driver.breakdown(middle, "leaf")
    assert dispatched(driver.run(leaf)) == [middle]
    assert driver.status() is Status.SPAWNED
    assert dispatched(driver.run(middle)) == [ROOT]
    assert driver.run(ROOT).effects == (End(Status.COMPLETED),)


def test_a_chain_of_5000_levels_needs_no_recursion() -> None:
    """J9."""
    driver = Driver(check_every=1_700)
    chain = [ROOT]
    while len(chain) <= 5_000:
        chain += driver.breakdown(chain[-1], "next")
    assert driver.baton(chain[-1]).depth == 5_000
    driver.run(*reversed(chain))
    assert driver.status() is Status.COMPLETED
    assert len(driver.events(E.RESUMED)) == 5_000
    validate(driver.tree)
    driver.reload()
