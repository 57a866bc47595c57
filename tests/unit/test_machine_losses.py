"""Runs that end without a report, and windows that close."""

import pytest

from baton_actors.baton import Status
from baton_actors.commands import Dispatch, End, LossCause, Spending, Stop
from baton_actors.machine import MAX_LOSSES
from tests.unit.drive import NOTHING, ROOT, Driver, dispatched, types

# ---------------------------------------------------------------- losses


def test_dying_in_a_shared_process_is_nobodys_fault_and_goes_on_alone() -> None:
    driver = Driver()
    for _ in range(10):
        driver.start()
        decision = driver.lose(cause="process", alone=False)
        assert types(decision) == ["baton.retrying"]
        assert decision.events[0].data == {"reason": "lost", "cause": "process"}
        assert decision.effects == (Dispatch(ROOT),)
    assert (driver.baton().losses, driver.node().alone) == (0, True)
    assert driver.start().events[0].data == {"alone": True}


def test_dying_alone_is_counted() -> None:
    driver = Driver()
    driver.start()
    decision = driver.lose(cause="process", alone=True)
    assert decision.events[0].data == {"reason": "lost", "cause": "process", "losses": 1}
    assert driver.baton().losses == 1
    assert driver.start().events[0].data == {}


@pytest.mark.parametrize(
    ("cause", "words"),
    [("process", "its process died"), ("stuck", "no progress; checkpoint more often"), ("idle", "handed over without progress")],
)
def test_four_losses_in_a_row_are_a_crash(cause: LossCause, words: str) -> None:
    """A3."""
    driver = Driver()
    for number in range(1, MAX_LOSSES):
        driver.start()
        driver.lose(cause=cause, alone=True)
        assert (driver.status(), driver.baton().losses) == (Status.PENDING, number)
    driver.start()
    decision = driver.lose(cause=cause, alone=True)
    assert types(decision) == ["baton.failed", "tree.failed"]
    assert decision.effects[-1] == End(Status.FAILED)
    assert (driver.baton().error_kind, driver.baton().losses) == ("crashed", 4)
    assert words in (driver.baton().error or "")
    assert MAX_LOSSES == 4


@pytest.mark.parametrize("cause", ["owner", "node"])
@pytest.mark.parametrize("alone", [False, True])
def test_losses_of_owner_and_node_count_nothing(cause: LossCause, alone: bool) -> None:
    driver = Driver()
    for _ in range(10):
        driver.start()
        decision = driver.lose(cause=cause, alone=alone)
        assert decision.events[0].data == {"reason": "lost", "cause": cause}
        assert decision.effects == (Dispatch(ROOT),)
    assert (driver.status(), driver.baton().losses, driver.node().alone) == (Status.PENDING, 0, False)


def test_losses_of_owner_and_node_do_not_interrupt_the_row() -> None:
    driver = Driver()
    for cause in ("stuck", "owner", "process", "node", "idle"):
        driver.start()
        driver.lose(cause=cause, alone=True)
    assert driver.baton().losses == 3


def test_a_run_that_is_stuck_is_told_to_stop() -> None:
    """A7: its process hangs, but may wake up."""
    driver = Driver()
    driver.start()
    assert driver.lose(cause="stuck").effects == (Stop(ROOT, 1), Dispatch(ROOT))


def test_a_run_that_is_stuck_for_the_last_time_is_told_to_stop() -> None:
    driver = Driver()
    for _ in range(MAX_LOSSES):
        driver.start()
        decision = driver.lose(cause="stuck")
    assert decision.effects == (Stop(ROOT, 4), End(Status.FAILED))


def test_being_stuck_counts_in_a_shared_process_too() -> None:
    driver = Driver()
    driver.start()
    driver.lose(cause="stuck", alone=False)
    assert (driver.baton().losses, driver.node().alone) == (1, False)


def test_progress_resets_losses() -> None:
    driver = Driver()
    for number in range(3 * MAX_LOSSES):
        driver.start()
        driver.checkpoint(state=number)
        driver.lose(cause="stuck")
        assert driver.baton().losses == 1
        assert driver.node().state == number


def test_a_breakdown_resets_losses() -> None:
    driver = Driver()
    driver.start()
    driver.lose(cause="stuck")
    driver.breakdown(ROOT, "a")
    assert driver.baton().losses == 0


def test_a_crash_of_one_child_leaves_the_others_unharmed() -> None:
    """A3."""
    driver = Driver()
    killer, *others = driver.breakdown(ROOT, "killer", "b", "c")
    driver.start(killer, *others)
    for id in (killer, *others):
        driver.lose(id, alone=False)
    for _ in range(MAX_LOSSES):
        driver.start(killer)
        driver.lose(killer, alone=True)
    assert driver.kinds(killer, *others) == ["crashed", None, None]
    assert dispatched(driver.run(*others)) == [ROOT]


def test_a_lost_run_goes_on_from_its_last_checkpoint() -> None:
    driver = Driver()
    driver.start()
    driver.checkpoint(state={"page": 7})
    driver.lose(cause="node")
    driver.reload()
    driver.start()
    assert driver.node().state == {"page": 7}


def test_losing_what_does_not_run_does_nothing() -> None:
    driver = Driver()
    assert driver.lose() == NOTHING
    driver.run(ROOT)
    assert driver.lose() == NOTHING
    assert driver.lose("bt_unknown", attempt=1) == NOTHING


# ---------------------------------------------------------------- checkpoints


def test_a_checkpoint_is_an_event_with_the_workers_own_data() -> None:
    driver = Driver()
    driver.start()
    decision = driver.checkpoint(state="half", kind="round", tool="search")
    assert types(decision) == ["baton.progress"]
    assert decision.events[0].data == {"kind": "round", "tool": "search"}
    assert driver.checkpoint(state="more").events[0].data == {"kind": "checkpoint"}
    assert decision.effects == ()
    assert (driver.status(), driver.node().state) == (Status.RUNNING, "more")


# ---------------------------------------------------------------- handing over


def test_handing_over_with_new_state_goes_on_elsewhere() -> None:
    driver = Driver()
    driver.start()
    decision = driver.hand_over(state=1, spent=Spending(rounds=2))
    assert types(decision) == ["baton.handed_over"]
    assert decision.events[0].data == {"rounds": 2}
    assert decision.effects == (Dispatch(ROOT),)
    assert (driver.status(), driver.node().state, driver.baton().losses) == (Status.PENDING, 1, 0)


def test_handing_over_after_a_checkpoint_goes_on_from_it() -> None:
    driver = Driver()
    driver.start()
    driver.checkpoint(state="half")
    assert types(driver.hand_over()) == ["baton.handed_over"]
    assert driver.node().state == "half"


def test_handing_over_without_progress_is_a_loss() -> None:
    driver = Driver()
    driver.start()
    decision = driver.hand_over()
    assert types(decision) == ["baton.retrying"]
    assert decision.events[0].data == {"reason": "lost", "cause": "idle", "losses": 1}
    assert decision.effects == (Dispatch(ROOT),)


def test_handing_over_the_same_state_is_no_progress() -> None:
    driver = Driver()
    driver.start()
    driver.hand_over(state={"page": 1})
    for _ in range(MAX_LOSSES):
        assert driver.status() is Status.PENDING
        driver.start()
        driver.hand_over(state={"page": 1})
    assert driver.baton().error_kind == "crashed"


def test_progress_of_an_earlier_attempt_is_none_of_this_one() -> None:
    driver = Driver()
    driver.start()
    driver.checkpoint(state="half")
    driver.hand_over()
    driver.start()
    assert types(driver.hand_over()) == ["baton.retrying"]


def test_setting_aside_a_budget_is_no_progress() -> None:
    driver = Driver()
    for _ in range(MAX_LOSSES):
        driver.start()
        driver.reserve(rounds=1)
        driver.hand_over()
    assert driver.baton().error_kind == "crashed"


def test_handing_over_with_progress_resets_losses() -> None:
    driver = Driver()
    for number in range(3 * MAX_LOSSES):
        driver.start()
        driver.hand_over(state=number // 2)
    assert driver.status() is Status.PENDING


def test_handing_over_without_progress_still_pays() -> None:
    driver = Driver()
    driver.start()
    driver.reserve(rounds=1, tokens=1_000)
    driver.hand_over(spent=Spending({"tokens_in": 40.0}, rounds=1))
    assert (driver.baton().rounds, driver.baton().usage, driver.node().reserved) == (1, {"tokens_in": 40.0}, {})
    assert driver.tree.spent == {"rounds": 1, "tokens": 40, "cost": 0}
