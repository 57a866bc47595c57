"""What an agent saves: its conversation grows, and what it spent is counted, once for each save however often it is decided."""

import pytest

from baton_actors.baton import Baton, Budget, Guards
from baton_actors.commands import Spawn, Spending
from baton_actors.machine import decide, room
from tests.unit.drive import NOTHING, ROOT, Driver, spec, types

SPENT = Spending({"tokens_in": 10, "tokens_out": 2, "cost": 0.5}, 1)


def account(driver: Driver, id: str = ROOT) -> tuple[dict[str, float], int, int]:
    """Usage, rounds, and where the conversation stands."""
    return driver.baton(id).usage, driver.baton(id).rounds, driver.node(id).spoken


def test_a_save_grows_the_conversation_and_the_account() -> None:
    driver = Driver(worker="agent")
    driver.start()
    driver.save(ROOT, '{"a":1}', '{"b":2}', spent=SPENT, kind="round")
    assert account(driver) == ({"tokens_in": 10, "tokens_out": 2, "cost": 0.5}, 1, 2)
    driver.save(ROOT, '{"c":3}', spent=SPENT)
    assert account(driver) == ({"tokens_in": 20, "tokens_out": 4, "cost": 1.0}, 2, 3)
    assert driver.node().state == "saved"
    assert driver.tree.spent == {"rounds": 2, "tokens": 24, "cost": 1.0}
    assert [event.data for event in driver.log[-2:]] == [{"kind": "round"}, {"kind": "checkpoint"}]


@pytest.mark.parametrize("rows", [(), ('{"a":1}',), ('{"a":1}', '{"b":2}')])
@pytest.mark.parametrize("reloaded", [False, True])
def test_a_save_that_is_decided_again_changes_nothing(rows: tuple[str, ...], reloaded: bool) -> None:
    """O3: its commit was in doubt, and had come through."""
    driver = Driver(worker="agent")
    driver.start()
    driver.save(ROOT, '{"first":1}')
    driver.save(ROOT, *rows, first_row=1, spent=SPENT)
    before = account(driver)
    if reloaded:
        driver.reload()
    assert driver.save(ROOT, *rows, first_row=1, spent=SPENT) == NOTHING
    assert account(driver) == before
    assert driver.save(ROOT, *rows, first_row=before[2]).events


def test_saves_without_rows_have_places_of_their_own() -> None:
    driver = Driver(worker="agent")
    driver.start()
    for place in range(3):
        driver.save(ROOT, first_row=place, spent=Spending({}, 1))
    assert (driver.baton().rounds, driver.node().spoken) == (3, 3)
    assert driver.save(ROOT, first_row=0, spent=Spending({}, 1)) == NOTHING


def test_a_save_beyond_the_end_of_the_conversation_leaves_no_hole() -> None:
    driver = Driver(worker="agent")
    driver.start()
    assert driver.save(ROOT, '{"a":1}', first_row=1) == NOTHING


def test_a_save_of_a_superseded_attempt_changes_nothing() -> None:
    """A1."""
    driver = Driver(worker="agent")
    driver.start()
    driver.lose(cause="node")
    driver.start()
    assert driver.save(ROOT, '{"a":1}', attempt=1, spent=SPENT) == NOTHING
    assert account(driver) == ({}, 0, 0)


def test_a_conversation_goes_on_over_attempts_breakdowns_and_lives() -> None:
    driver = Driver(worker="agent")
    driver.start()
    driver.save(ROOT, '{"a":1}')
    driver.lose(cause="node")
    (child,) = driver.breakdown(ROOT, "part")
    driver.run(child)
    driver.start()
    driver.save(ROOT, '{"b":2}')
    driver.fail()
    driver.retry()
    driver.start()
    assert driver.node().spoken == 2
    assert driver.save(ROOT, '{"c":3}', first_row=2).events


def test_a_functions_checkpoint_has_no_place_and_may_be_repeated() -> None:
    driver = Driver()
    driver.start()
    driver.checkpoint(state=1)
    assert types(driver.checkpoint(state=1)) == ["baton.progress"]
    assert driver.node().spoken == 0


def test_a_save_is_progress() -> None:
    driver = Driver(worker="agent")
    driver.start()
    driver.lose(cause="stuck")
    driver.start()
    driver.save(ROOT)
    assert driver.baton().losses == 0
    assert types(driver.hand_over()) == ["baton.handed_over"]


# ---------------------------------------------------------------- room


@pytest.mark.parametrize(
    ("budget", "guards", "depth", "expected"),
    [
        (Budget(), Guards(), 0, 64),
        (Budget(), Guards(children=3), 0, 3),
        (Budget(batons=5), Guards(), 0, 4),
        (Budget(batons=1), Guards(), 0, 0),
        (Budget(batons=50), Guards(batons=9), 0, 8),
        (Budget(batons=6), Guards(batons=9), 0, 5),
        (Budget(), Guards(depth=1, children=8), 0, 8),
        (Budget(), Guards(depth=1, children=8), 1, 0),
        (Budget(), Guards(depth=2, children=8), 1, 8),
        (Budget(batons=3), Guards(), 1, 1),
    ],
)
def test_a_model_has_room_for_as_many_children_as_would_be_accepted(budget: Budget, guards: Guards, depth: int, expected: int) -> None:
    driver = Driver(worker="agent", budget=budget, guards=guards)
    id = driver.breakdown(ROOT, "level")[0] if depth else ROOT
    driver.start(id)
    assert room(driver.tree, driver.baton(id)) == expected
    assert expected == 0 or first_event(driver, id, expected) == "baton.spawned"
    assert first_event(driver, id, expected + 1) == "baton.failed"


def first_event(driver: Driver, id: str, children: int) -> str:
    """What a breakdown into so many would begin with."""
    parts = tuple(spec(f"part {number}") for number in range(children))
    return types(decide(driver.tree, Spawn(driver.now, id, driver.baton(id).attempt, parts)))[0]


def test_there_is_no_room_in_a_tree_that_functions_have_filled() -> None:
    driver = Driver(guards=Guards(batons=3))
    driver.breakdown(ROOT, "a", "b", "c", "d")
    model: Baton = driver.baton().model_copy(update={"worker": "agent"})
    assert room(driver.tree, model) == 0
