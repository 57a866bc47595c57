"""The picture that follows events: it agrees with the state machine after every event, and with a snapshot."""

import random

import pytest

from baton_actors.baton import ErrorKind, Status
from baton_actors.display import Mark, TreeView
from baton_actors.snapshot import Snapshot
from tests.unit.drive import ROOT, Driver, spec


def followed(driver: Driver) -> TreeView:
    view = TreeView(ROOT)
    for event in driver.log:
        view.apply(event)
    return view


def snapshot_of(driver: Driver) -> Snapshot:
    ordered, stack = [], [ROOT]
    while stack:
        baton = driver.baton(stack.pop())
        ordered.append(baton)
        stack.extend(reversed(baton.children))
    return Snapshot(ROOT, driver.status(), driver.tree.seq, ordered)


def marks(view: TreeView) -> dict[str, str]:
    return {id: str(node.mark) for id, node in view.nodes.items()}


def assert_agrees(view: TreeView, driver: Driver) -> None:
    """Statuses, counts and groups are those of the tree itself."""
    assert view.nodes.keys() == driver.tree.nodes.keys()
    for id, node in view.nodes.items():
        baton = driver.baton(id)
        expected = {Status.RUNNING: {"running", "waiting"}, Status.FAILED: {"failed", "cancelled"}}.get(baton.status, {str(baton.status)})
        assert str(node.mark) in expected
        assert (node.error, node.error_kind) == (baton.error, baton.error_kind)
        assert [child.id for child in node.children()] == baton.children
        assert (node.ended is not None) == (baton.status in (Status.COMPLETED, Status.FAILED))
    for mark in Mark:
        assert view.counts[mark] == sum(node.mark is mark for node in view.nodes.values())


def random_story(seed: int) -> Driver:
    dice = random.Random(seed)
    driver = Driver(on_child_failure=dice.choice(["resume", "fail_fast"]), max_retries=1)
    for _ in range(120):
        driver.later(dice.random())
        id = dice.choice(list(driver.tree.nodes))
        match driver.status(id), dice.random():
            case Status.PENDING, _:
                driver.due(id)
                driver.start(id)
            case Status.RUNNING, chance if chance < 0.35 and len(driver.tree.nodes) < 60:
                driver.spawn(id, *(spec(f"part {n}", worker=dice.choice([None, "human"])) for n in range(dice.randint(0, 4))))
            case Status.RUNNING, _ if driver.baton(id).passive:
                driver.answer(id)
            case Status.RUNNING, chance if chance < 0.6:
                driver.complete(id)
            case Status.RUNNING, chance if chance < 0.7:
                driver.lose(id, alone=dice.random() < 0.5)
            case Status.RUNNING, chance if chance < 0.8:
                driver.checkpoint(id, dice.random())
            case Status.RUNNING, _:
                driver.fail(id, retryable=dice.random() < 0.5)
            case Status.SPAWNED, chance if chance < 0.05:
                driver.cancel(id)
            case Status.FAILED, chance if chance < 0.3 and id == ROOT:
                driver.retry(id)
    return driver


@pytest.mark.parametrize("seed", range(30))
def test_the_picture_agrees_with_the_tree_after_any_story(seed: int) -> None:
    driver = random_story(seed)
    view = followed(driver)
    assert_agrees(view, driver)
    assert view.ended == (driver.status() in (Status.COMPLETED, Status.FAILED))


@pytest.mark.parametrize("seed", range(30))
def test_a_snapshot_in_the_middle_and_the_events_after_it_give_the_same_picture(seed: int) -> None:
    driver = random_story(seed)
    whole = followed(driver)
    view = TreeView.from_snapshot(snapshot_of(driver))
    assert_agrees(view, driver)
    assert (marks(view), view.counts, view.seq, view.ended) == (marks(whole), whole.counts, whole.seq, whole.ended)
    for event in driver.log:  # known already
        assert view.apply(event) is None
    assert marks(view) == marks(whole)


def test_what_is_told_twice_changes_nothing() -> None:
    driver = Driver()
    children = driver.breakdown(ROOT, "a", "b")
    driver.run(children[0])
    view = followed(driver)
    before = marks(view), dict(view.counts)
    for event in driver.log:
        view.apply(event)
    assert (marks(view), view.counts) == before


def test_a_cancelled_baton_is_told_from_a_failed_one() -> None:
    driver = Driver()
    first, second = driver.breakdown(ROOT, "a", "b")
    driver.start(first)
    driver.fail(first, error="no such file")
    driver.cancel(ROOT, "changed my mind")
    view = followed(driver)
    assert [view.nodes[id].mark for id in (ROOT, first, second)] == [Mark.CANCELLED, Mark.FAILED, Mark.CANCELLED]
    assert view.nodes[first].error_kind == ErrorKind.ERROR


def test_a_baton_that_waits_for_a_person_says_how_to_answer_it() -> None:
    driver = Driver(worker="human")
    view = followed(driver)
    assert (view.nodes[ROOT].mark, view.nodes[ROOT].note) == (Mark.WAITING, f"baton answer {ROOT}")
    assert TreeView.from_snapshot(snapshot_of(driver)).nodes[ROOT].note == f"baton answer {ROOT}"


def test_a_held_baton_says_so_until_it_is_released() -> None:
    driver = Driver(held=True)
    assert followed(driver).nodes[ROOT].note == "held"
    driver.release()
    assert followed(driver).nodes[ROOT].note == ""


def test_a_new_life_is_timed_from_its_own_start() -> None:
    driver = Driver()
    driver.start()
    driver.fail()
    driver.later(3600)
    driver.retry()
    driver.later(1)
    driver.start()
    assert followed(driver).nodes[ROOT].started == driver.now


def test_events_of_a_tree_whose_beginning_was_missed_are_no_error() -> None:
    driver = Driver()
    driver.run(ROOT)
    view = TreeView(ROOT)
    for event in driver.log[1:]:
        view.apply(event)
    assert (view.root, view.ended) == (None, True)


def test_a_snapshot_is_flat_json() -> None:
    driver = Driver()
    driver.breakdown(ROOT, "a")
    wire = snapshot_of(driver).to_wire()
    assert (wire["root_id"], wire["status"], wire["seq"]) == (ROOT, "spawned", driver.tree.seq)
    assert [(baton["depth"], baton["goal"]) for baton in wire["batons"]] == [(0, "all"), (1, "a")]
