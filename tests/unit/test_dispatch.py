"""Which baton goes to which run: by plain bookkeeping, no process needed."""

from typing import Any

import pytest

from baton_actors.baton import Baton
from baton_actors.runtime.dispatch import (
    AGENTS,
    AGENTS_A_PROCESS,
    ALONE,
    OWN_PROCESS_RUNS,
    SHARED,
    SHARED_LIMIT,
    Dispatcher,
    Flight,
    Run,
    Shape,
    shape_of,
)

OWN = Shape((("num_cpus", 1.0), ("num_gpus", 1.0)), 1)
FRESH = Shape((("num_cpus", 1.0),), 1, fresh=True)


def baton(**resources: Any) -> Baton:
    return Baton(id="bt_x", root_id="bt_x", goal="all", worker="jobs:work", resources=resources)


class Scene:
    """A dispatcher whose plans are carried out at once."""

    def __init__(self, cores: int) -> None:
        self.dispatcher = Dispatcher(cores)
        self.number = 0

    def ready(self, count: int, shape: Shape = SHARED) -> None:
        for _ in range(count):
            self.dispatcher.ready(f"b{self.number}", shape)
            self.number += 1

    def plan(self) -> list[tuple[str, int]]:
        planned = []
        for baton_id, run in self.dispatcher.plan():
            run.in_flight[baton_id] = Flight(1, 60.0)
            run.served += 1
            planned.append((baton_id, run.id))
        return planned

    def connect(self, *runs: Run) -> None:
        for run in runs or self.runs:
            run.started = run.connected = True

    @property
    def runs(self) -> list[Run]:
        return list(self.dispatcher.runs.values())

    @property
    def loads(self) -> list[int]:
        return [len(run.in_flight) for run in self.runs]


# ---------------------------------------------------------------- shapes


def test_a_baton_without_wishes_shares_a_process_and_after_a_crash_has_one_alone() -> None:
    assert shape_of(baton(), alone=False) == SHARED
    assert shape_of(baton(), alone=True) == ALONE
    assert (SHARED.limit, ALONE.limit) == (SHARED_LIMIT, 1)
    assert dict(SHARED.resources)["num_cpus"] > 0, "with none, Ray starts a process for each task"


@pytest.mark.parametrize("alone", [False, True])
def test_a_baton_with_resources_has_a_process_with_them_to_itself(alone: bool) -> None:
    assert shape_of(baton(num_gpus=1), alone) == OWN
    assert shape_of(baton(num_gpus=1, num_cpus=1), alone) == OWN, "the same wish, the same processes"
    assert shape_of(baton(licence=2, num_cpus=0.5), alone) == Shape((("licence", 2.0), ("num_cpus", 0.5)), 1)
    assert shape_of(baton(isolate=True), alone) == FRESH
    assert shape_of(baton(isolate=False), alone) == Shape((("num_cpus", 1.0),), 1)


# ---------------------------------------------------------------- shared processes


def test_the_first_run_of_all_gets_its_share_with_its_start() -> None:
    scene = Scene(cores=4)
    scene.ready(1)
    assert scene.plan() == [("b0", 1)]
    assert len(scene.runs) == 1, "one baton needs one process"


def test_batons_spread_over_all_cores_before_a_process_fills() -> None:
    scene = Scene(cores=2)
    scene.ready(10)
    assert len(scene.plan()) == 5, "the first takes its share, the rest waits for the second"
    assert len(scene.runs) == 2
    scene.connect()
    assert len(scene.plan()) == 5
    assert scene.loads == [5, 5]


def test_a_run_that_has_not_connected_is_given_nothing_and_no_second_one_is_started_in_its_place() -> None:
    scene = Scene(cores=2)
    scene.ready(4)
    scene.plan()
    scene.connect(scene.runs[0])
    for _ in range(3):
        scene.plan()
    assert len(scene.runs) == 2
    assert scene.loads == [2, 0]
    assert not scene.runs[1].in_flight


def test_what_waits_for_a_second_process_goes_to_the_first_when_that_is_free() -> None:
    scene = Scene(cores=2)
    scene.ready(2)
    scene.plan()
    first = scene.runs[0]
    scene.connect(first)
    first.in_flight.clear()
    assert scene.plan() == [("b1", first.id)]


def test_no_more_shared_runs_than_cores_and_no_more_batons_than_the_limit() -> None:
    scene = Scene(cores=3)
    scene.ready(3 * SHARED_LIMIT + 50)
    for _ in range(5):
        scene.plan()
        scene.connect()
    assert scene.loads == [SHARED_LIMIT] * 3
    assert scene.dispatcher.waits(SHARED)
    scene.runs[1].in_flight.popitem()
    assert [run for _, run in scene.plan()] == [2]


def test_a_cluster_of_no_cores_has_one_run() -> None:
    scene = Scene(cores=0)
    scene.ready(5)
    assert len(scene.plan()) == 5
    assert len(scene.runs) == 1


def test_the_least_busy_run_takes_the_next() -> None:
    scene = Scene(cores=2)
    scene.ready(8)
    scene.plan()
    scene.connect()
    scene.plan()
    _first, second = scene.runs
    for baton_id in list(second.in_flight)[:3]:
        del second.in_flight[baton_id]
    scene.ready(2)
    assert [run for _, run in scene.plan()] == [second.id] * 2
    assert scene.loads == [4, 3]


@pytest.mark.parametrize("state", ["closing", "stuck"])
def test_a_run_that_ends_or_is_stuck_is_given_nothing_and_another_is_opened(state: str) -> None:
    scene = Scene(cores=1)
    scene.ready(1)
    scene.plan()
    scene.connect()
    setattr(scene.runs[0], state, True)
    scene.ready(2)
    assert scene.plan() == [("b1", 2), ("b2", 2)]


# ---------------------------------------------------------------- processes of their own


def test_own_processes_are_opened_for_each_baton_up_to_a_limit_and_take_one_at_a_time() -> None:
    scene = Scene(cores=2)
    scene.ready(OWN_PROCESS_RUNS + 10, OWN)
    assert scene.plan() == [], "nothing counts as started that has no process"
    assert len(scene.runs) == OWN_PROCESS_RUNS
    scene.connect()
    assert len(scene.plan()) == OWN_PROCESS_RUNS
    assert set(scene.loads) == {1}
    assert scene.plan() == []
    assert len(scene.runs) == OWN_PROCESS_RUNS


def test_batons_that_run_alone_after_a_crash_have_a_few_processes_for_each_core() -> None:
    scene = Scene(cores=2)
    scene.ready(50, ALONE)
    scene.plan()
    assert len(scene.runs) == 8


def test_an_own_process_takes_the_next_of_its_shape_and_a_fresh_one_does_not() -> None:
    for shape, expected in ((OWN, [1]), (FRESH, [])):
        scene = Scene(cores=1)
        scene.ready(1, shape)
        scene.plan()
        scene.connect()
        scene.plan()
        scene.runs[0].in_flight.clear()
        scene.ready(1, shape)
        assert [run for _, run in scene.plan()] == expected
        assert len(scene.runs) == (1 if expected else 2)


def test_agents_share_processes_and_none_is_held_back_until_another_has_started() -> None:
    agent = Baton(id="bt_x", root_id="bt_x", goal="all")
    assert (shape_of(agent, alone=False), shape_of(agent, alone=True)) == (AGENTS, ALONE)
    assert AGENTS.process == SHARED, "the same processes as functions have"
    scene = Scene(cores=4)
    scene.ready(1, AGENTS)
    scene.plan()
    scene.connect()
    scene.ready(9, AGENTS)
    scene.plan()
    assert scene.loads == [10], "they wait for their model, side by side at once"
    scene.ready(2 * AGENTS_A_PROCESS, AGENTS)
    scene.plan()
    assert scene.loads == [10 + 2 * AGENTS_A_PROCESS, 0, 0], "those that come later are shared out"
    scene.connect()
    scene.ready(1, AGENTS)
    scene.plan()
    assert scene.loads[1:] == [1, 0]
    scene.ready(1, AGENTS)
    assert scene.dispatcher.waits(SHARED)
    assert len(scene.dispatcher.take_ready(SHARED)) == 1


def test_shapes_do_not_take_each_others_batons() -> None:
    scene = Scene(cores=1)
    scene.ready(1)
    scene.ready(1, OWN)
    scene.plan()
    scene.connect()
    scene.plan()
    assert [(run.shape, list(run.in_flight)) for run in scene.runs] == [(SHARED, ["b0"]), (OWN, ["b1"])]


# ---------------------------------------------------------------- the book


def test_idle_means_nothing_ready_and_nothing_in_flight() -> None:
    scene = Scene(cores=1)
    assert scene.dispatcher.idle
    scene.ready(1)
    assert not scene.dispatcher.idle
    scene.plan()
    assert not scene.dispatcher.idle
    scene.runs[0].in_flight.clear()
    assert scene.dispatcher.idle


def test_what_is_ready_can_be_taken_away_or_forgotten() -> None:
    scene = Scene(cores=1)
    scene.ready(2, OWN)
    scene.ready(1, FRESH)
    assert scene.dispatcher.take_ready(OWN) == ["b0", "b1"]
    assert scene.dispatcher.take_ready(OWN) == []
    assert (scene.dispatcher.waits(OWN), scene.dispatcher.waits(FRESH)) == (False, True)
    scene.dispatcher.forget_ready()
    assert scene.dispatcher.idle


def test_the_holder_of_a_baton_is_the_run_it_is_in() -> None:
    scene = Scene(cores=1)
    scene.ready(1)
    scene.plan()
    assert scene.dispatcher.holder("b0") is scene.runs[0]
    assert scene.dispatcher.holder("b1") is None


def test_ids_of_runs_are_never_given_twice() -> None:
    scene = Scene(cores=1)
    first = scene.dispatcher.open(SHARED)
    del scene.dispatcher.runs[first.id]
    assert scene.dispatcher.open(SHARED).id != first.id
