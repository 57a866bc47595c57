"""Drives one tree through the pure machine as an owner does: decide, apply, keep the rows; and checks it after each command.

Beside `validate` it checks what the owner and the store rely on: deciding changes nothing, and the rows that `apply`
returns, folded, are the tree.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from baton_actors.baton import Baton, Budget, ChildSpec, Constraints, Guards, Status, root_id
from baton_actors.commands import (
    Answer,
    Cancel,
    Checkpoint,
    Command,
    Complete,
    Decision,
    Dispatch,
    Due,
    Fail,
    HandOver,
    Lose,
    LossCause,
    Recover,
    Release,
    Reserve,
    Retry,
    Spawn,
    Spending,
    Start,
    Submit,
)
from baton_actors.events import Event, EventType
from baton_actors.machine import Node, Row, Tree, apply, decide, validate

#: Milliseconds since 1970 at which every driven tree begins.
BEGIN = 1_764_500_000_000
ROOT = root_id(BEGIN, bytes(10))
NOTHING = Decision()

#: Fields of a node that rows carry; `unfinished` is counted, and `progressed` is of a run that does not outlive its owner.
_KEPT = {field.name: field for field in fields(Node) if field.name not in ("baton", "unfinished", "progressed")}


def spec(goal: str = "part", **given: Any) -> ChildSpec:
    """A child to be; the fields of `Constraints` stand beside the others, as in `Child`."""
    bounds = {name: given.pop(name) for name in list(given) if name in Constraints.model_fields}
    return ChildSpec(goal=goal, constraints=Constraints(**bounds), **given)


class Rows:
    """The rows of one tree as a store would hold them: what `apply` returned, folded."""

    def __init__(self, *, budget: Budget, guards: Guards) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.seq = 0
        self.budget = budget
        self.budget_since = BEGIN
        self.guards = guards

    def keep(self, events: Sequence[Event], rows: Sequence[Row]) -> None:
        """Write down what one decision changed."""
        for row in rows:
            assert row.created == (row.id not in self.rows), f"{row.id}: created is {row.created}"
            self.rows.setdefault(row.id, {}).update(row.values)
        for event in events:
            self.seq = event.seq
            if event.type is EventType.TREE_REOPENED:
                self.budget = event.change.get("budget", self.budget)
                self.budget_since = event.change.get("budget_since", self.budget_since)

    def node(self, id: str) -> Node:
        """One node as the database would give it back; the values are validated again."""
        values = self.rows[id]
        kept = {name: values[name] for name in _KEPT if name in values}
        return Node(Baton(**{name: value for name, value in values.items() if name not in _KEPT}), **kept)

    def load(self) -> Tree:
        """The tree that an owner would load."""
        nodes = [self.node(id) for id in self.rows]
        return Tree.load(ROOT, self.seq, nodes, budget=self.budget, budget_since=self.budget_since, guards=self.guards)


def fingerprint(tree: Tree) -> tuple[Any, ...]:
    """Differs after any change of the tree; cheap, since batons are frozen and replaced as a whole."""
    nodes = [(id, *_looks(node)) for id, node in tree.nodes.items()]
    return tree.seq, tree.live, tree.ended, tree.budget, tree.budget_since, tuple(tree.spent.items()), nodes


def _looks(node: Node) -> tuple[Any, ...]:
    baton = node.baton
    kept = (
        node.breakdown,
        node.since,
        node.unfinished,
        node.retries,
        node.alone,
        id(node.state),
        id(node.parked),
        node.progressed,
        node.spoken,
    )
    return id(baton), len(baton.children), tuple(baton.usage.items()), tuple(node.reserved.items()), *kept


def assert_same_node(one: Node, other: Node) -> None:
    """Two nodes agree in all that rows carry."""
    assert one.baton == other.baton
    for name in _KEPT:
        assert getattr(one, name) == getattr(other, name), f"{one.baton.id}: {name}"


def assert_same_tree(one: Tree, other: Tree) -> None:
    """Two trees agree in all that outlives an owner."""
    assert list(one.nodes) == list(other.nodes)
    for id, node in one.nodes.items():
        assert_same_node(node, other.nodes[id])
        assert node.unfinished == other.nodes[id].unfinished
    for name in ("seq", "live", "ended", "budget", "budget_since"):
        assert getattr(one, name) == getattr(other, name), name
    for key, amount in one.spent.items():
        assert abs(amount - other.spent[key]) < 1e-6, key


class Driver:
    """One tree under test.

    Attributes:
        now: milliseconds; every command made here carries it. log: all events. told: all effects, in order.
        check_every: validate after each n-th command; 1 except where a test is about size.
    """

    def __init__(
        self, *, budget: Budget = Budget(), guards: Guards = Guards(), check_every: int = 1, submit: bool = True, **root: Any
    ) -> None:
        self.now = BEGIN
        self.check_every = check_every
        self.tree = Tree(ROOT, budget=budget, budget_since=BEGIN, guards=guards)
        self.rows = Rows(budget=budget, guards=guards)
        self.log: list[Event] = []
        self.told: list[Any] = []
        self._commands = 0
        bounds = {name: root.pop(name) for name in list(root) if name in Constraints.model_fields}
        given: dict[str, Any] = {"goal": "all", "worker": "work:run", "constraints": Constraints(**bounds), **root}
        self.root = Baton(id=ROOT, root_id=ROOT, created_at=BEGIN, updated_at=BEGIN, **given)
        if submit:
            self.do(Submit(self.now, self.root))

    def do(self, command: Command) -> Decision:
        """Decide and apply one command, then check the tree."""
        self._commands += 1
        checked = self._commands % self.check_every == 0
        before = fingerprint(self.tree) if checked else None
        try:
            decision = decide(self.tree, command)
        finally:
            assert not checked or fingerprint(self.tree) == before, "deciding has changed the tree"
        rows = apply(self.tree, decision.events)
        self.rows.keep(decision.events, rows)
        self.log += decision.events
        self.told += decision.effects
        if checked:
            validate(self.tree)
            for id in {row.id for row in rows}:
                assert_same_node(self.rows.node(id), self.tree.nodes[id])
        return decision

    def reload(self) -> None:
        """Go on with the tree as the rows have it."""
        loaded = self.rows.load()
        validate(loaded)
        assert_same_tree(self.tree, loaded)
        self.tree = loaded

    # ------------------------------------------------------------ looking

    def node(self, id: str = ROOT) -> Node:
        return self.tree.nodes[id]

    def baton(self, id: str = ROOT) -> Baton:
        return self.tree.nodes[id].baton

    def status(self, id: str = ROOT) -> Status:
        return self.tree.nodes[id].baton.status

    def kinds(self, *ids: str) -> list[str | None]:
        return [self.baton(id).error_kind for id in ids]

    def events(self, type: EventType, id: str | None = None) -> list[Event]:
        """The events of a type so far, of one baton or of all."""
        return [event for event in self.log if event.type is type and id in (None, event.baton_id)]

    # ------------------------------------------------------------ commands, at `now`

    def later(self, seconds: float) -> int:
        """Let time pass; the new time."""
        self.now += round(1000 * seconds)
        return self.now

    def start(self, *ids: str) -> Decision:
        decision = NOTHING
        for id in ids or (ROOT,):
            decision = self.do(Start(self.now, id))
        return decision

    def _attempt(self, id: str, attempt: int | None) -> int:
        return self.baton(id).attempt if attempt is None else attempt

    def complete(
        self, id: str = ROOT, value: Any = "done", *, attempt: int | None = None, partial: bool = False, spent: Spending = Spending()
    ) -> Decision:
        return self.do(Complete(self.now, id, self._attempt(id, attempt), value, partial, spent))

    def fail(self, id: str = ROOT, error: str = "broken", *, attempt: int | None = None, **given: Any) -> Decision:
        return self.do(Fail(self.now, id, self._attempt(id, attempt), error, **given))

    def spawn(
        self, id: str, *children: str | ChildSpec, state: Any = None, attempt: int | None = None, spent: Spending = Spending()
    ) -> Decision:
        specs = tuple(spec(child) if isinstance(child, str) else child for child in children)
        return self.do(Spawn(self.now, id, self._attempt(id, attempt), specs, state, spent))

    def breakdown(self, id: str, *children: str | ChildSpec, state: Any = None) -> list[str]:
        """Start a baton and break it down; the ids of its new children."""
        self.start(id)
        self.spawn(id, *children, state=state)
        return self.node(id).current_children

    def hand_over(self, id: str = ROOT, state: Any = None, *, attempt: int | None = None, spent: Spending = Spending()) -> Decision:
        return self.do(HandOver(self.now, id, self._attempt(id, attempt), state, spent))

    def checkpoint(
        self, id: str = ROOT, state: Any = "saved", *, attempt: int | None = None, spent: Spending = Spending(), **data: Any
    ) -> Decision:
        return self.do(Checkpoint(self.now, id, self._attempt(id, attempt), state, data, spent))

    def save(
        self,
        id: str = ROOT,
        *rows: str,
        first_row: int | None = None,
        attempt: int | None = None,
        spent: Spending = Spending(),
        **data: Any,
    ) -> Decision:
        """What an agent saves, at the place where its conversation stands."""
        place = self.node(id).spoken if first_row is None else first_row
        return self.do(Checkpoint(self.now, id, self._attempt(id, attempt), "saved", data, spent, place, rows))

    def reserve(self, id: str = ROOT, *, attempt: int | None = None, **amounts: float) -> Decision:
        return self.do(Reserve(self.now, id, self._attempt(id, attempt), amounts))

    def lose(self, id: str = ROOT, cause: LossCause = "process", *, alone: bool = False, attempt: int | None = None) -> Decision:
        return self.do(Lose(self.now, id, self._attempt(id, attempt), cause, alone))

    def cancel(self, id: str = ROOT, reason: str = "not needed any more") -> Decision:
        return self.do(Cancel(self.now, id, reason))

    def retry(self, id: str = ROOT, budget: Budget = Budget()) -> Decision:
        return self.do(Retry(self.now, id, budget))

    def release(self, id: str = ROOT) -> Decision:
        return self.do(Release(self.now, id))

    def answer(self, id: str = ROOT, value: Any = "yes") -> Decision:
        return self.do(Answer(self.now, id, value))

    def due(self, id: str = ROOT) -> Decision:
        return self.do(Due(self.now, id))

    def recover(self) -> Decision:
        return self.do(Recover(self.now))

    def run(self, *ids: str, value: Any = "done") -> Decision:
        """Start and complete each; the last decision."""
        decision = NOTHING
        for id in ids:
            self.start(id)
            decision = self.complete(id, value)
        return decision


def types(decision: Decision) -> list[str]:
    """The event types of a decision, in order."""
    return [event.type.value for event in decision.events]


def dispatched(decision: Decision) -> list[str]:
    """The batons that a decision sends to workers."""
    return [effect.baton_id for effect in decision.effects if isinstance(effect, Dispatch)]


def named(decision: Decision) -> list[tuple[str, str]]:
    """The (baton, event type) pairs of a decision, in order."""
    return [(event.baton_id, event.type.value) for event in decision.events]
