"""What a tree may spend, how far a model may run away, and which tools a child may have."""

import pytest

from baton_actors.baton import Budget, ChildSpec, Guards, Status
from baton_actors.commands import Dispatch, End, Spending, Stop, Wake
from tests.unit.drive import BEGIN, NOTHING, ROOT, Driver, dispatched, named, spec, types

# ---------------------------------------------------------------- the pool: reserve, settle, write off


def test_a_reservation_is_taken_from_the_pool_and_settled_by_the_next_report() -> None:
    driver = Driver(budget=Budget(tokens=1_000))
    driver.start()
    decision = driver.reserve(rounds=1, tokens=600, cost=0.5)
    assert types(decision) == ["baton.progress"]
    assert decision.events[0].data == {"kind": "reserved", "rounds": 1, "tokens": 600, "cost": 0.5}
    assert decision.refused is None
    assert driver.tree.spent == {"rounds": 1, "tokens": 600, "cost": 0.5}
    driver.checkpoint(spent=Spending({"tokens_in": 100.0, "tokens_out": 20.0, "cost": 0.25}, rounds=1))
    assert driver.tree.spent == {"rounds": 1, "tokens": 120, "cost": 0.25}
    assert driver.node().reserved == {}
    assert (driver.baton().rounds, driver.baton().usage) == (1, {"tokens_in": 100, "tokens_out": 20, "cost": 0.25})


@pytest.mark.parametrize(("key", "limit"), [("rounds", 3), ("tokens", 3), ("cost", 3.0)])
def test_a_reservation_beyond_the_budget_is_refused(key: str, limit: float) -> None:
    driver = Driver(budget=Budget(**{key: limit}))
    driver.start()
    assert driver.reserve(**{key: 2}).refused is None
    refused = driver.reserve(**{key: 2})
    assert (refused.refused, refused.events) == (key, ())
    assert driver.reserve(**{key: 1}).refused is None
    assert driver.reserve(**{key: 0.001}).refused == key
    assert driver.tree.spent[key] == 3
    assert driver.status() is Status.RUNNING


def test_what_is_not_budgeted_is_never_refused() -> None:
    driver = Driver(budget=Budget(rounds=1))
    driver.start()
    assert driver.reserve(tokens=10**9, cost=10**9).refused is None


def test_the_pool_is_shared_by_the_tree() -> None:
    driver = Driver(budget=Budget(rounds=3))
    a, b = driver.breakdown(ROOT, "a", "b")
    driver.start(a, b)
    assert driver.reserve(a, rounds=2).refused is None
    assert driver.reserve(b, rounds=2).refused == "rounds"
    driver.complete(a, spent=Spending(rounds=1))
    assert driver.reserve(b, rounds=2).refused is None


def test_a_baton_that_does_not_run_reserves_nothing() -> None:
    driver = Driver()
    assert driver.reserve(attempt=0, rounds=1).refused == "attempt"
    driver.run(ROOT)
    assert driver.reserve(attempt=1, rounds=1).refused == "attempt"
    assert driver.reserve("bt_unknown", attempt=1, rounds=1).refused == "attempt"


def test_every_report_settles() -> None:
    spent = Spending({"tokens_in": 1.0}, rounds=1)
    reports = {
        "complete": lambda driver: driver.complete(spent=spent),
        "fail": lambda driver: driver.fail(spending=spent),
        "retry": lambda driver: driver.fail(retryable=True, spending=spent),
        "spawn": lambda driver: driver.spawn(ROOT, "a", spent=spent),
        "rejected": lambda driver: driver.spawn(ROOT, spec(tools=["steal"]), spent=spent),
        "hand over": lambda driver: driver.hand_over(state="x", spent=spent),
        "checkpoint": lambda driver: driver.checkpoint(spent=spent),
    }
    for name, report in reports.items():
        driver = Driver(max_retries=1, tools=["read"])
        driver.start()
        driver.reserve(rounds=5, tokens=500)
        report(driver)
        assert driver.tree.spent == {"rounds": 1, "tokens": 1, "cost": 0}, name
        assert driver.node().reserved == {}, name


def test_spending_adds_up_over_reports_and_attempts() -> None:
    driver = Driver()
    driver.start()
    driver.checkpoint(spent=Spending({"tokens_in": 1.0, "cached": 1.0}, rounds=1))
    driver.hand_over(state="x", spent=Spending({"tokens_in": 2.0, "tokens_out": 5.0}, rounds=2))
    driver.start()
    driver.complete(spent=Spending({"cost": 0.5}))
    assert (driver.baton().usage, driver.baton().rounds) == ({"tokens_in": 3, "cached": 1, "tokens_out": 5, "cost": 0.5}, 3)
    assert driver.tree.spent == {"rounds": 3, "tokens": 8, "cost": 0.5}


def test_what_a_lost_run_had_reserved_is_written_off() -> None:
    ends = {
        "lost": lambda driver: driver.lose(cause="node"),
        "shared": lambda driver: driver.lose(),
        "stuck": lambda driver: driver.lose(cause="stuck"),
        "recovered": lambda driver: driver.recover(),
        "cancelled": lambda driver: driver.cancel(),
        "timed out": lambda driver: driver.do_at_deadline(),
    }
    for name, end in ends.items():
        driver = _WithDeadline(deadline=BEGIN + 1_000)
        driver.start()
        driver.reserve(rounds=1, tokens=500)
        driver.reserve(rounds=1, tokens=100, cost=2)
        end(driver)
        assert driver.tree.spent == {"rounds": 2, "tokens": 600, "cost": 2}, name
        assert (driver.node().reserved, driver.baton().rounds, driver.baton().usage) == ({}, 2, {"tokens_lost": 600, "cost": 2}), name
        driver.reload()


class _WithDeadline(Driver):
    def do_at_deadline(self) -> None:
        self.later(1)
        self.due()


def test_what_a_cancelled_descendant_had_reserved_is_written_off() -> None:
    driver = Driver()
    (child,) = driver.breakdown(ROOT, "a")
    driver.start(child)
    driver.reserve(child, rounds=1)
    driver.cancel()
    assert (driver.baton(child).rounds, driver.tree.spent["rounds"]) == (1, 1)


def test_the_fourth_loss_is_written_off_too() -> None:
    driver = Driver()
    for _ in range(4):
        driver.start()
        driver.reserve(rounds=1)
        driver.lose(alone=True)
    assert (driver.status(), driver.tree.spent["rounds"]) == (Status.FAILED, 4)


def test_spent_budget_is_counted_again_from_the_rows() -> None:
    driver = Driver(budget=Budget(rounds=3))
    driver.start()
    driver.checkpoint(spent=Spending({"tokens_in": 4.0, "cost": 0.5}, rounds=2))
    driver.reserve(tokens=3)
    driver.reload()
    assert driver.tree.spent == {"rounds": 2, "tokens": 7, "cost": 0.5}
    assert driver.reserve(rounds=2).refused == "rounds"


# ---------------------------------------------------------------- seconds


def test_the_tree_ends_when_its_seconds_are_spent() -> None:
    driver = Driver(budget=Budget(seconds=60))
    assert driver.told == [Dispatch(ROOT), Wake(ROOT, BEGIN + 60_000)]
    (child,) = driver.breakdown(ROOT, "a")
    driver.start(child)
    driver.later(59.999)
    assert driver.due() == NOTHING
    driver.later(0.001)
    decision = driver.due()
    assert named(decision) == [(child, "baton.failed"), (ROOT, "baton.failed"), (ROOT, "tree.failed")]
    assert driver.kinds(ROOT, child) == ["budget", "cancelled"]
    assert driver.baton().error == "the budget of 60 seconds is spent"
    assert decision.effects == (Stop(child, 1), End(Status.FAILED))


def test_a_running_root_is_stopped_when_the_seconds_are_spent() -> None:
    driver = Driver(budget=Budget(seconds=1))
    driver.start()
    driver.later(1)
    assert driver.due().effects == (Stop(ROOT, 1), End(Status.FAILED))


def test_seconds_are_told_again_by_recovery() -> None:
    driver = Driver(budget=Budget(seconds=60))
    driver.reload()
    assert Wake(ROOT, BEGIN + 60_000) in driver.recover().effects


def test_a_time_of_a_child_does_not_spend_the_seconds_of_the_tree() -> None:
    driver = Driver(budget=Budget(seconds=60))
    (child,) = driver.breakdown(ROOT, spec(not_before=BEGIN + 70_000))
    driver.later(70)
    assert dispatched(driver.due(child)) == [child]


# ---------------------------------------------------------------- batons


def test_a_breakdown_beyond_the_budget_of_batons_fails() -> None:
    driver = Driver(budget=Budget(batons=4))
    driver.start()
    decision = driver.spawn(ROOT, "a", "b", "c", "d")
    assert types(decision) == ["baton.failed", "tree.failed"]
    assert (driver.baton().error_kind, len(driver.tree.nodes)) == ("budget", 1)
    assert driver.baton().error == "4 more children would make 5 batons, the budget is 4"


def test_a_breakdown_up_to_the_budget_of_batons_passes() -> None:
    driver = Driver(budget=Budget(batons=4))
    children = driver.breakdown(ROOT, "a", "b", "c")
    driver.start(children[0])
    driver.spawn(children[0], "d")
    assert driver.kinds(children[0]) == ["budget"]
    driver.start(children[1])
    driver.spawn(children[1])
    assert driver.status(children[1]) is Status.PENDING


# ---------------------------------------------------------------- guards


SMALL = Guards(batons=4, children=2, depth=2)


def test_a_model_is_guarded_against_too_many_batons() -> None:
    driver = Driver(worker="agent", guards=SMALL)
    a, b = driver.breakdown(ROOT, "a", "b")
    driver.start(a)
    driver.spawn(a, "c", "d")
    assert (driver.kinds(a), driver.baton(a).error) == (["rejected"], "5 batons in one tree, the guard is 4 (BATON_GUARD_BATONS)")
    driver.breakdown(b, "e")
    assert driver.status(b) is Status.SPAWNED


def test_a_model_is_guarded_against_too_many_children_at_once() -> None:
    driver = Driver(worker="agent", guards=SMALL)
    driver.start()
    driver.spawn(ROOT, "a", "b", "c")
    assert (driver.kinds(ROOT), driver.baton().error) == (["rejected"], "3 children at once, the guard is 2 (BATON_GUARD_CHILDREN)")


def test_a_model_is_guarded_against_too_much_depth() -> None:
    """B1: a model that always spawns."""
    driver = Driver(worker="agent", guards=SMALL)
    (a,) = driver.breakdown(ROOT, "a")
    (b,) = driver.breakdown(a, "b")
    driver.start(b)
    driver.spawn(b, "c")
    assert (driver.kinds(b), driver.baton(b).error) == (["rejected"], "children at depth 3, the guard is 2 (BATON_GUARD_DEPTH)")
    assert driver.status(a) is Status.PENDING


@pytest.mark.parametrize("goal", ["Sum the column", "  sum the COLUMN\n"])
def test_a_model_may_not_delegate_its_own_goal(goal: str) -> None:
    """B2."""
    driver = Driver(worker="agent", goal="Sum the column")
    driver.start()
    driver.spawn(ROOT, goal)
    assert (driver.kinds(ROOT), driver.baton().error) == (["rejected"], "its only child has its own goal; it must do that task itself")


def test_a_child_of_several_may_have_its_parents_goal() -> None:
    driver = Driver(worker="agent")
    driver.breakdown(ROOT, "all", "other")
    assert driver.status() is Status.SPAWNED


def test_functions_are_not_guarded() -> None:
    driver = Driver(guards=SMALL, goal="same")
    level = driver.breakdown(ROOT, "a", "b", "c", "d", "e")
    for _ in range(5):
        level = driver.breakdown(level[0], "same")
    (only,) = driver.breakdown(level[0], "same")
    assert driver.status(only) is Status.PENDING


def test_a_model_that_spawns_nothing_is_resumed_however_large_the_tree() -> None:
    driver = Driver(guards=SMALL)
    model, *_ = driver.breakdown(ROOT, spec(worker="agent"), "b", "c", "d", "e")
    driver.start(model)
    assert types(driver.spawn(model)) == ["baton.spawned", "baton.resumed"]


def test_the_default_guards_are_those_of_the_design() -> None:
    assert Guards() == Guards(batons=1_000, children=64, depth=64)


# ---------------------------------------------------------------- tools


@pytest.mark.parametrize(
    ("parent", "child", "allowed"),
    [
        (None, None, True),
        (None, ["write"], True),
        (None, [], True),
        (["read", "write"], ["read"], True),
        (["read", "write"], None, True),
        (["read"], [], True),
        (["read"], ["write"], False),
        (["read"], ["read", "write"], False),
        ([], ["read"], False),
    ],
)
@pytest.mark.parametrize("worker", ["agent", "work:run"])
def test_the_tools_of_a_child_are_a_subset_of_its_parents(
    parent: list[str] | None, child: list[str] | None, allowed: bool, worker: str
) -> None:
    """B7."""
    driver = Driver(worker=worker, tools=parent)
    driver.start()
    driver.spawn(ROOT, "first", ChildSpec(goal="second", tools=child))
    if allowed:
        assert driver.baton(driver.baton().children[1]).tools == (parent if child is None else child)
    else:
        foreign = min(set(child or ()) - set(parent or ()))
        assert driver.kinds(ROOT) == ["rejected"]
        assert driver.baton().error == f"child 1 asks for the tool {foreign!r}, which its parent does not have"
