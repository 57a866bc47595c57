"""Random lives of random trees: every command, also late, repeated and senseless ones, and what must be true after each."""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from baton_actors.baton import AGENT, ENDED, LIVE, Baton, Budget, ChildSpec, ErrorKind, Guards, Status
from baton_actors.commands import (
    Answer,
    Cancel,
    Checkpoint,
    Command,
    Complete,
    Decision,
    Dispatch,
    Due,
    End,
    Fail,
    HandOver,
    Lose,
    Recover,
    Release,
    Reserve,
    Retry,
    Spawn,
    Spending,
    Start,
    Stop,
    Submit,
    Wake,
)
from baton_actors.errors import NotAllowed, NotFound
from baton_actors.events import TREE_ENDS, EventType
from baton_actors.machine import TRANSITIONS, Node, decide, room, validate
from tests.unit.drive import BEGIN, NOTHING, ROOT, Driver, assert_same_tree, fingerprint, spec

E = EventType
#: Function workers have no guard, so the rules stop growing a tree here.
MOST_BATONS = 80

picks = st.integers(0, 10_000)
seconds = st.sampled_from([0.0, 0.5, 1.0, 1.0, 5.0, 30.0])
states = st.sampled_from([None, 0, 1, {"page": 1}])
rarely = st.sampled_from([True, False, False, False, False])
spendings = st.builds(
    Spending,
    st.dictionaries(st.sampled_from(["tokens_in", "tokens_out", "cached", "cost"]), st.sampled_from([1.0, 2.5, 40.0]), max_size=3),
    st.integers(0, 2),
)
tool_lists = st.sampled_from([None, None, None, [], ["read"], ["read", "write"]])
unlimited = st.just(Budget())
limited = st.builds(
    Budget,
    batons=st.sampled_from([None, None, 12]),
    rounds=st.sampled_from([None, 2, 9]),
    tokens=st.sampled_from([None, 200]),
    cost=st.sampled_from([None, 5.0]),
    seconds=st.sampled_from([None, None, 60.0, 300.0]),
)
budgets = unlimited | limited
constraints = {
    "on_child_failure": st.sampled_from(["resume", "resume", "fail_fast"]),
    "max_retries": st.sampled_from([0, 0, 1, 2]),
}
child = st.fixed_dictionaries(
    {
        "goal": st.sampled_from(["all", "part", "other"]),
        "tools": tool_lists,
        "worker": st.sampled_from([None, None, None, None, "agent", "work:run", "human", "external"]),
        "held": rarely,
        "delay": st.sampled_from([None, None, None, None, 0.0, 5.0]),
        "patience": st.sampled_from([None, None, None, None, None, 1.0, 30.0]),
        **constraints,
    }
)
children = st.lists(child, max_size=5)


def alive(machine: "TreeMachine") -> bool:
    """Whether the tree goes on."""
    return machine.driver.status() in LIVE


def at_work(machine: "TreeMachine") -> bool:
    """Whether a worker has, or could have, one of its batons."""
    return any(_for_worker(node.baton) for node in machine.driver.tree.nodes.values())


def _for_worker(baton: Baton) -> bool:
    return not baton.passive and (baton.status is Status.RUNNING or (baton.status is Status.PENDING and not baton.held))


def has(*statuses: Status, passive: bool | None = None) -> Callable[["TreeMachine"], bool]:
    """Whether any baton is in one of these statuses."""
    return lambda machine: bool(machine.those(*statuses, passive=passive))


class TreeMachine(RuleBasedStateMachine):
    """One random tree. What each rule does by chance, `carry` checks by what is always true."""

    @initialize(
        worker=st.sampled_from(["agent", "agent", "work:run", "work:run", "work:run", "human"]),
        tools=tool_lists,
        bounds=st.fixed_dictionaries(constraints),
        held=rarely,
        patience=st.sampled_from([None, None, None, 60.0, 300.0]),
        budget=budgets,
        guards=st.sampled_from([Guards(), Guards(batons=15, children=4, depth=3)]),
        parts=st.lists(child, min_size=1, max_size=5),
    )
    def submit(self, worker: str, bounds: dict[str, Any], patience: float | None, parts: list[dict[str, Any]], **given: Any) -> None:
        deadline = None if patience is None else BEGIN + round(1000 * patience)
        self.driver = Driver(submit=False, worker=worker, deadline=deadline, **given, **bounds)
        self.statuses: dict[str, Status] = {}
        self.attempts: dict[str, int] = {}
        self.resumes: set[tuple[str, int, int]] = set()
        self.awaited: set[Dispatch | Wake] = set()
        self.spoken: dict[str, int] = {}
        self.seq = 0
        self.carry(Submit(BEGIN, self.driver.root))
        if self.carry(Start(BEGIN, ROOT)).events:
            self.spawn_from(ROOT, parts)

    # ------------------------------------------------------------ choosing

    def those(self, *statuses: Status, passive: bool | None = None) -> list[str]:
        nodes = self.driver.tree.nodes
        return [id for id, node in nodes.items() if node.baton.status in statuses and passive in (None, node.baton.passive)]

    def some(self, pick: int, *statuses: Status, passive: bool | None = None) -> str:
        """A baton in one of these statuses."""
        fitting = self.those(*statuses, passive=passive)
        return fitting[pick % len(fitting)]

    def run(self, pick: int, late: bool) -> tuple[str, int]:
        """A baton and an attempt of it: mostly one under way, started if need be, else an earlier or a later one."""
        if late:
            id = self.some(pick, *Status)
            return id, max(0, self.driver.baton(id).attempt - 1 + pick % 3)
        fitting = [id for id, node in self.driver.tree.nodes.items() if _for_worker(node.baton)]
        id = fitting[pick % len(fitting)]
        self.carry(Start(self.driver.now, id))
        return id, self.driver.baton(id).attempt

    # ------------------------------------------------------------ rules

    @precondition(at_work)
    @rule(pick=picks)
    def start(self, pick: int) -> None:
        self.run(pick, late=False)

    @precondition(alive)
    @rule()
    def start_everything(self) -> None:
        for id in list(self.driver.tree.nodes):
            self.carry(Start(self.driver.now, id))

    @precondition(at_work)
    @rule(pick=picks, late=rarely, value=states, partial=st.booleans(), spent=spendings)
    def complete(self, pick: int, late: bool, value: Any, partial: bool, spent: Spending) -> None:
        self.report(Complete(self.driver.now, *self.run(pick, late), value, partial, spent))

    @precondition(at_work)
    @rule(
        pick=picks,
        late=rarely,
        retryable=st.booleans(),
        after=st.sampled_from([None, 0.0, 3.0]),
        jitter=st.floats(0, 0.99),
        spent=spendings,
    )
    def fail(self, pick: int, late: bool, retryable: bool, after: float | None, jitter: float, spent: Spending) -> None:
        self.report(Fail(self.driver.now, *self.run(pick, late), "broken", ErrorKind.ERROR, retryable, after, jitter, spent))

    @precondition(at_work)
    @rule(pick=picks, late=rarely, parts=children, state=states, spent=spendings)
    def spawn(self, pick: int, late: bool, parts: list[dict[str, Any]], state: Any, spent: Spending) -> None:
        id, attempt = self.run(pick, late)
        self.spawn_from(id, parts, attempt, state, spent)

    @precondition(at_work)
    @rule(pick=picks, parts=st.lists(child, min_size=2, max_size=5))
    def spawn_well(self, pick: int, parts: list[dict[str, Any]]) -> None:
        """Nothing in it that is refused by tools or goal."""
        id, attempt = self.run(pick, late=False)
        self.spawn_from(id, [{**part, "tools": None} for part in parts], attempt, "parked")

    def spawn_from(self, id: str, parts: list[dict[str, Any]], attempt: int = 1, state: Any = None, spent: Spending = Spending()) -> None:
        if len(self.driver.tree.nodes) < MOST_BATONS:
            self.report(Spawn(self.driver.now, id, attempt, tuple(self.spec(**part) for part in parts), state, spent))

    def spec(self, *, delay: float | None, patience: float | None, **given: Any) -> ChildSpec:
        times = {"not_before": delay, "deadline": patience}
        return spec(**given, **{name: None if time is None else self.driver.now + round(1000 * time) for name, time in times.items()})

    @precondition(at_work)
    @rule(pick=picks, late=rarely, state=states, spent=spendings)
    def hand_over(self, pick: int, late: bool, state: Any, spent: Spending) -> None:
        self.report(HandOver(self.driver.now, *self.run(pick, late), state, spent))

    @precondition(at_work)
    @rule(pick=picks, late=rarely, state=states, spent=spendings)
    def checkpoint(self, pick: int, late: bool, state: Any, spent: Spending) -> None:
        self.report(Checkpoint(self.driver.now, *self.run(pick, late), state, {"kind": "round"}, spent))

    @precondition(at_work)
    @rule(pick=picks, late=rarely, rows=st.integers(0, 3), spent=spendings, back=st.sampled_from([0, 0, 0, 1, 2]))
    def save(self, pick: int, late: bool, rows: int, spent: Spending, back: int) -> None:
        """An agent's, sometimes at a place that is taken already, and always once more: the same save counts once."""
        id, attempt = self.run(pick, late)
        place = self.spoken.get(id, 0)
        save = Checkpoint(self.driver.now, id, attempt, "saved", {"kind": "round"}, spent, place - back, ("{}",) * rows)
        under_way, before = self.under_way(id, attempt), self.driver.baton(id)
        accepted = bool(self.carry(save).events)
        assert accepted == (under_way and back == 0)
        if accepted:
            self.spoken[id] = place + max(1, rows)
            assert self.driver.baton(id).rounds == before.rounds + spent.rounds
        assert self.driver.node(id).spoken == self.spoken.get(id, 0)
        assert self.carry(save) == NOTHING

    @precondition(lambda self: any(node.baton.worker == AGENT for node in self.driver.tree.nodes.values()))
    @rule(pick=picks)
    def ask_for_room(self, pick: int) -> None:
        """As many children as there is room for are accepted, one more is not."""
        agents = [id for id, node in self.driver.tree.nodes.items() if node.baton.worker == AGENT]
        id = agents[pick % len(agents)]
        self.carry(Start(self.driver.now, id))
        baton = self.driver.baton(id)
        if not self.under_way(id, baton.attempt):
            return
        free = room(self.driver.tree, baton)
        parts = tuple(spec(f"part {number}") for number in range(free + 1))
        fits, bursts = (decide(self.driver.tree, Spawn(self.driver.now, id, baton.attempt, some)) for some in (parts[:free], parts))
        assert free == 0 or fits.events[0].type is E.SPAWNED
        assert (id, E.FAILED) in [(event.baton_id, event.type) for event in bursts.events]

    @precondition(at_work)
    @rule(
        pick=picks,
        late=rarely,
        amounts=st.dictionaries(st.sampled_from(["rounds", "tokens", "cost"]), st.sampled_from([1, 2, 30]), min_size=1),
    )
    def reserve(self, pick: int, late: bool, amounts: dict[str, float]) -> None:
        id, attempt = self.run(pick, late)
        spent, limits = dict(self.driver.tree.spent), dict(self.driver.tree.budget)
        decision = self.carry(Reserve(self.driver.now, id, attempt, amounts))
        fits = all(limits[key] is None or spent[key] + amount <= limits[key] for key, amount in amounts.items())
        assert (decision.refused is None) == (fits and self.under_way(id, attempt))

    @precondition(at_work)
    @rule(
        pick=picks,
        late=rarely,
        cause=st.sampled_from(["process", "node", "owner", "stuck", "idle"]),
        alone=st.booleans(),
        times=st.sampled_from([1, 1, 1, 4]),
    )
    def lose(self, pick: int, late: bool, cause: Any, alone: bool, times: int) -> None:
        id, attempt = self.run(pick, late)
        for _ in range(times):
            losses, counts = self.driver.baton(id).losses, cause in ("stuck", "idle") or (cause == "process" and alone)
            if self.report(Lose(self.driver.now, id, attempt, cause, alone)).events:
                assert self.driver.baton(id).losses == losses + counts
                assert (self.driver.status(id) is Status.FAILED) == (counts and losses == 3)
            self.carry(Start(self.driver.now, id))
            attempt = self.driver.baton(id).attempt

    @precondition(alive)
    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        """The root only now and then."""
        live = self.those(*LIVE)
        self.carry(Cancel(self.driver.now, (live[1:] or live)[pick % max(1, len(live) - 1)] if pick % 8 else ROOT, "unwanted"))

    @precondition(has(*ENDED))
    @rule(pick=picks)
    def cancel_what_has_ended(self, pick: int) -> None:
        assert self.carry(Cancel(self.driver.now, self.some(pick, *ENDED), "unwanted")) == NOTHING

    @precondition(has(Status.FAILED))
    @rule(pick=picks, budget=budgets)
    def retry(self, pick: int, budget: Budget) -> None:
        self.carry(Retry(self.driver.now, self.some(pick, Status.FAILED), budget))

    @precondition(lambda self: self.driver.status() is Status.FAILED)
    @rule(budget=budgets)
    def retry_root(self, budget: Budget) -> None:
        assert self.carry(Retry(self.driver.now, ROOT, budget)).events

    @precondition(lambda self: any(node.baton.held for node in self.driver.tree.nodes.values()))
    @rule(pick=picks)
    def release(self, pick: int) -> None:
        held = [id for id, node in self.driver.tree.nodes.items() if node.baton.held]
        self.carry(Release(self.driver.now, held[pick % len(held)]))

    @precondition(has(Status.RUNNING, passive=True))
    @rule(pick=picks, value=states)
    def answer(self, pick: int, value: Any) -> None:
        assert self.carry(Answer(self.driver.now, self.some(pick, Status.RUNNING, passive=True), value)).events

    @rule(pick=picks, value=states)
    def release_and_answer_anything(self, pick: int, value: Any) -> None:
        id = self.some(pick, *Status)
        self.carry(Release(self.driver.now, id))
        self.carry(Answer(self.driver.now, id, value))

    @rule(pick=picks, passed=seconds)
    def time_passes(self, pick: int, passed: float) -> None:
        self.driver.later(passed)
        self.carry(Due(self.driver.now, self.some(pick, *Status)))

    @rule()
    def clock_is_set_back(self) -> None:
        self.driver.later(-2)

    @precondition(alive)
    @rule(passed=seconds)
    def all_alarms_ring(self, passed: float) -> None:
        self.driver.later(passed)
        due = [each for each in self.awaited if isinstance(each, Wake) and each.at <= self.driver.now]
        for wake in sorted(due, key=lambda each: (each.at, each.baton_id)):
            self.awaited.discard(wake)
            self.carry(Due(self.driver.now, wake.baton_id))

    @rule(kept=st.integers(0, 3))
    def owner_reloads(self, kept: int) -> None:
        """Its effects are forgotten; some of its runs may still be known."""
        self.driver.reload()
        self.awaited.clear()
        runs = [(id, self.driver.baton(id).attempt) for id in self.those(Status.RUNNING)]
        self.carry(Recover(self.driver.now, frozenset(runs[:kept])))

    @rule(command=st.sampled_from([Start, Release, Due, None]))
    def say_what_is_known_or_ask_for_what_is_unknown(self, command: Callable[[int, str], Command] | None) -> None:
        now = self.driver.now
        assert self.carry(Submit(now, self.driver.root) if command is None else command(now, "bt_unknown")) == NOTHING

    # ------------------------------------------------------------ what is always true

    def under_way(self, id: str, attempt: int) -> bool:
        baton = self.driver.baton(id)
        return baton.status is Status.RUNNING and baton.attempt == attempt and not baton.passive

    def report(self, command: Any) -> Decision:
        """Carry out what a worker says, or what is said of it: it counts only while that attempt is under way."""
        under_way = self.under_way(command.baton_id, command.attempt)
        decision = self.carry(command)
        assert bool(decision.events) == under_way
        assert under_way or decision == NOTHING
        return decision

    def carry(self, command: Command) -> Decision:
        """Carry out a command; a refusal changes nothing. `Driver.do` checks the tree, the rows, and that deciding changed nothing."""
        batons = {id: node.baton for id, node in self.driver.tree.nodes.items()}
        unchanged = fingerprint(self.driver.tree)
        logged = len(self.driver.log)
        try:
            decision = self.driver.do(command)
        except (NotAllowed, NotFound):
            assert fingerprint(self.driver.tree) == unchanged
            return NOTHING
        for event in self.driver.log[logged:]:
            self.follow(event)
        self.check_effects(command, decision, batons)
        return decision

    def follow(self, event: Any) -> None:
        """One event continues the story that the earlier ones told."""
        assert event.seq == self.seq + 1, f"seq {event.seq} after {self.seq}"
        self.seq = event.seq
        json.dumps(event.to_wire(), allow_nan=False)
        if not event.type.startswith("baton."):
            return
        id, before = event.baton_id, self.statuses.get(event.baton_id)
        self.statuses[id] = TRANSITIONS[before, event.type]
        if before in ENDED:
            assert event.type in (E.RETRYING, E.SPAWNED), f"{id} left {before} by {event.type}"
            assert event.data["reason"] == "retry", f"{id} left {before} by {event.data}"
        if event.type in (E.STARTED, E.WAITING):
            assert event.attempt == self.attempts.get(id, 0) + 1
            assert (event.type is E.WAITING) == self.driver.baton(id).passive
            self.attempts[id] = event.attempt
        else:
            assert event.attempt == self.attempts.get(id, 0)
        if event.type is E.RESUMED:
            resume = (id, event.data["generation"], event.data["breakdown"])
            assert resume not in self.resumes, f"resumed twice: {resume}"
            self.resumes.add(resume)

    def check_effects(self, command: Command, decision: Decision, before: dict[str, Baton]) -> None:
        """What the runtime is told is enough, and not more than enough where more would do harm."""
        batons = {id: node.baton for id, node in self.driver.tree.nodes.items()}
        if isinstance(command, Start):
            self.awaited.discard(Dispatch(command.baton_id))
        self.awaited.update(effect for effect in decision.effects if isinstance(effect, Dispatch | Wake))
        stopped = {effect for effect in decision.effects if isinstance(effect, Stop)}
        at_workers = [was for was in before.values() if was.status is Status.RUNNING and not was.passive]
        gone = {Stop(was.id, was.attempt) for was in at_workers if batons[was.id].status in ENDED}
        if isinstance(command, Complete | Fail | Spawn | HandOver | Lose):
            gone.discard(Stop(command.baton_id, command.attempt))
            stopped.discard(Stop(command.baton_id, command.attempt))
        assert stopped == gone
        ends = [effect.status for effect in decision.effects if isinstance(effect, End)]
        root_ended = any(event.type in TREE_ENDS for event in decision.events)
        assert ends == ([self.driver.status()] if root_ended else [])
        assert not any(event.type in TREE_ENDS for event in decision.events[:-1]), "a terminal event is the last of its run"

    @invariant()
    def nothing_that_can_go_on_is_forgotten(self) -> None:
        """Whatever waits for a worker or for a time has told so since the owner last forgot."""
        for id, node in self.driver.tree.nodes.items():
            baton = node.baton
            assert self.statuses[id] is baton.status
            if baton.status not in LIVE:
                continue
            if baton.deadline is not None:
                assert Wake(id, baton.deadline) in self.awaited
            if baton.status is Status.PENDING and not baton.held:
                assert {Dispatch(id), Wake(id, baton.not_before or 0)} & self.awaited
        tree = self.driver.tree
        if tree.budget.seconds is not None and tree.live:
            assert Wake(ROOT, tree.budget_since + round(1000 * tree.budget.seconds)) in self.awaited

    @invariant()
    def an_ended_tree_is_still(self) -> None:
        if not alive(self):
            assert self.driver.tree.live == 0
            assert self.driver.log[-1].type in TREE_ENDS

    def teardown(self) -> None:
        """Every tree can be brought to its end, and is then what its rows say."""
        if not hasattr(self, "driver"):
            return
        self.driver.reload()
        for _ in range(20 * MOST_BATONS):
            if self.driver.status() in ENDED:
                break
            for id, node in list(self.driver.tree.nodes.items()):
                self.bring_on(id, node)
        assert self.driver.status() in ENDED, "the tree does not end"
        validate(self.driver.tree)
        assert_same_tree(self.driver.tree, self.driver.rows.load())

    def bring_on(self, id: str, node: Node) -> None:
        now, baton = self.driver.now, node.baton
        if baton.held and baton.status is Status.PENDING:
            self.carry(Release(now, id))
        elif baton.status is Status.PENDING:
            self.driver.now = max(now, baton.not_before or 0)
            self.carry(Due(self.driver.now, id))
            self.carry(Start(self.driver.now, id))
        elif baton.status is Status.RUNNING:
            self.carry(Answer(now, id, None) if baton.passive else Complete(now, id, baton.attempt, None))


def _run(examples: int, phases: Sequence[Phase] = tuple(Phase)) -> None:
    chosen = settings(
        max_examples=examples,
        phases=phases,
        stateful_step_count=60,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    run_state_machine_as_test(TreeMachine, settings=chosen)


def test_invariants_hold_in_300_random_lives() -> None:
    """Mutants live fewer lives (`BATON_PROPERTY_EXAMPLES`), and are not shrunk when they fail."""
    if examples := os.environ.get("BATON_PROPERTY_EXAMPLES"):
        _run(int(examples), [Phase.generate])
    else:
        _run(300)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_invariants_hold_in_10000_random_lives() -> None:
    _run(10_000)
