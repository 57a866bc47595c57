"""The state machine of one tree: everything that changes a status lives here, and nothing else does.

`decide(tree, command)` says which events a command leads to and what the runtime must then do; it changes nothing.
`apply(tree, events)` makes them true in memory and returns the changed rows. Both are O(1) per transition in the size
of the tree: a parent counts its unfinished children, nobody rescans siblings, nothing recurses.
Never here: Ray, SQL, a model, a clock, a random number, a log.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from types import MappingProxyType
from typing import Any, NamedTuple, assert_never

from baton_actors.baton import AGENT, ENDED, LIVE, Baton, Budget, ChildResult, ChildSpec, ErrorKind, Guards, Status, child_id
from baton_actors.commands import (
    Answer,
    Cancel,
    Checkpoint,
    Command,
    Complete,
    Decision,
    Dispatch,
    Due,
    Effect,
    End,
    Fail,
    HandOver,
    Lose,
    LossCause,
    Recover,
    Release,
    Report,
    Reserve,
    Retry,
    Spawn,
    Spending,
    Start,
    Stop,
    Submit,
    Wake,
)
from baton_actors.errors import InvalidTransition, NotAllowed, NotFound
from baton_actors.events import Event, EventType

#: A baton that is lost this often in a row, alone in its process or without progress, has crashed for good.
MAX_LOSSES = 4
#: Backoff of a retryable failure: a random part of `BACKOFF_SECONDS * 2**retries`, at most `BACKOFF_LIMIT` seconds.
BACKOFF_SECONDS = 1.0
BACKOFF_LIMIT = 60.0
#: Characters of an error that are kept in its row, and of an error or a goal in an event.
ERROR_CHARACTERS = 8_000
EVENT_ERROR_CHARACTERS = 500
EVENT_GOAL_CHARACTERS = 200

#: The whole of the state machine: from a status (None: not yet born), on an event, to a status.
TRANSITIONS: Mapping[tuple[Status | None, EventType], Status] = MappingProxyType(
    {
        (None, EventType.CREATED): Status.PENDING,
        (Status.PENDING, EventType.STARTED): Status.RUNNING,
        (Status.PENDING, EventType.WAITING): Status.RUNNING,
        (Status.PENDING, EventType.PROGRESS): Status.PENDING,
        (Status.PENDING, EventType.FAILED): Status.FAILED,
        (Status.RUNNING, EventType.PROGRESS): Status.RUNNING,
        (Status.RUNNING, EventType.COMPLETED): Status.COMPLETED,
        (Status.RUNNING, EventType.FAILED): Status.FAILED,
        (Status.RUNNING, EventType.RETRYING): Status.PENDING,
        (Status.RUNNING, EventType.HANDED_OVER): Status.PENDING,
        (Status.RUNNING, EventType.SPAWNED): Status.SPAWNED,
        (Status.SPAWNED, EventType.RESUMED): Status.PENDING,
        (Status.SPAWNED, EventType.FAILED): Status.FAILED,
        (Status.FAILED, EventType.RETRYING): Status.PENDING,
        (Status.FAILED, EventType.SPAWNED): Status.SPAWNED,
        (Status.COMPLETED, EventType.SPAWNED): Status.SPAWNED,
    }
)
_TREE_EVENTS = frozenset({EventType.TREE_COMPLETED, EventType.TREE_FAILED, EventType.TREE_REOPENED})


@dataclass(slots=True)
class Node:
    """A baton and what its owner knows beside it.

    Attributes:
        breakdown: how often it has spawned. since: where in `baton.children` the current breakdown begins.
        unfinished: children that are live. retries: retryable failures in this generation.
        alone: it is to run in a process of its own, after a shared one crashed.
        state: what the next run is handed. parked: the state as it stood when it last spawned.
        reborn_at: when its last retry began; None in its first life.
        reserved: what a model call under way may spend at most. progressed: the attempt that last saved a state.
        spoken: places that are taken in its conversation, in all its lives; where the next save begins.
    """

    baton: Baton
    breakdown: int = 0
    since: int = 0
    unfinished: int = 0
    retries: int = 0
    alone: bool = False
    state: Any = None
    parked: Any = None
    reborn_at: int | None = None
    reserved: dict[str, float] = field(default_factory=dict)
    progressed: int = 0
    spoken: int = 0

    @property
    def current_children(self) -> list[str]:
        """The children of the current breakdown, in spawn order."""
        return self.baton.children[self.since :]


#: Fields that stand in the node; the others that an event may change are the baton's.
_NODE_FIELDS = frozenset({"breakdown", "since", "retries", "alone", "state", "parked", "reborn_at", "reserved", "spoken"})
#: Fields that a change of the pool shows in; see `_spending`.
_ACCOUNT_FIELDS = frozenset({"reserved", "usage", "rounds"})


class Row(NamedTuple):
    """What changed of one baton: field names and values. A created one comes whole."""

    id: str
    created: bool
    values: dict[str, Any]


class Tree:
    """The state of one tree, in the memory of its one owner.

    Attributes:
        seq: of the last event. live, ended: how many batons. spent: what the pool has given out, per budget key.
    """

    def __init__(self, root_id: str, *, budget: Budget = Budget(), budget_since: int = 0, guards: Guards = Guards()) -> None:
        self.root_id = root_id
        self.seq = 0
        self.nodes: dict[str, Node] = {}
        self.live = 0
        self.ended = 0
        self.budget = budget
        self.budget_since = budget_since
        self.guards = guards
        self.spent: dict[str, float] = {"rounds": 0, "tokens": 0, "cost": 0}

    @classmethod
    def load(cls, root_id: str, seq: int, nodes: Iterable[Node], *, budget: Budget, budget_since: int, guards: Guards) -> "Tree":
        """The tree as the database holds it; parents before children."""
        tree = cls(root_id, budget=budget, budget_since=budget_since, guards=guards)
        tree.seq = seq
        for node in nodes:
            tree._add(node)
            tree._spend({}, _spending(node))
        return tree

    @property
    def root(self) -> Node:
        """The root's node; KeyError before the tree was submitted."""
        return self.nodes[self.root_id]

    def node(self, baton_id: str) -> Node:
        """The node of a baton.

        Raises:
            NotFound: the tree has no such baton.
        """
        node = self.nodes.get(baton_id)
        if node is None:
            raise NotFound(baton_id)
        return node

    def child_results(self, baton_id: str) -> list[ChildResult]:
        """What the last breakdown of a baton brought, in spawn order."""
        batons = (self.nodes[child].baton for child in self.nodes[baton_id].current_children)
        return [ChildResult(b.id, b.goal, b.status, b.result, b.error, b.error_kind) for b in batons]

    def _add(self, node: Node) -> None:
        self.nodes[node.baton.id] = node
        if node.baton.status in LIVE:
            self._count(node.baton, 1)
        else:
            self.ended += 1

    def _count(self, baton: Baton, born: int) -> None:
        """One more is live (1), or one less (-1), and of its parent's children too."""
        self.live += born
        if baton.parent_id is not None:
            self.nodes[baton.parent_id].unfinished += born

    def _spend(self, before: dict[str, float], after: dict[str, float]) -> None:
        for key in self.spent:
            self.spent[key] += after.get(key, 0) - before.get(key, 0)


def decide(tree: Tree, command: Command) -> Decision:
    """What a command leads to; the tree is not changed.

    A report of a superseded attempt, a start of what no longer waits and a time that no longer matters lead to nothing.

    Raises:
        NotFound, NotAllowed: a person asked for what the state does not permit.
    """
    draft = _Draft(tree, command.at)
    match command:
        case Submit():
            _submit(draft, command)
        case Start():
            _start(draft, command)
        case Complete() | Fail() | Spawn() | HandOver() | Checkpoint():
            _report(draft, command)
        case Reserve():
            _reserve(draft, command)
        case Lose():
            if node := _running(tree, command.baton_id, command.attempt):
                _lose(draft, node, command.cause, _written_off(node), alone=command.alone)
        case Cancel():
            _cancel(draft, command)
        case Retry():
            _retry(draft, command)
        case Release():
            _release(draft, tree.node(command.baton_id).baton)
        case Answer():
            _answer(draft, command)
        case Due():
            _due(draft, command)
        case Recover():
            _recover(draft, command)
        case _:
            assert_never(command)
    return Decision(tuple(draft.events), tuple(draft.effects), draft.refused)


def apply(tree: Tree, events: Iterable[Event]) -> list[Row]:
    """Make events true, in order, and return what changed.

    Raises:
        InvalidTransition: the table has no way from a baton's status on its event; the tree must then be loaded again.
    """
    rows = []
    for event in events:
        if event.seq != tree.seq + 1:
            raise InvalidTransition(event.baton_id, f"at seq {tree.seq}", f"{event.type} of seq {event.seq}")
        if event.type in _TREE_EVENTS:
            _apply_to_tree(tree, event)
        else:
            rows.append(_apply_to_baton(tree, event))
        tree.seq = event.seq
    return rows


def validate(tree: Tree) -> None:
    """Check every invariant by looking at the whole tree; for tests.

    Raises:
        AssertionError: names the invariant and the baton.
    """
    nodes = tree.nodes
    assert tree.live == sum(node.baton.status in LIVE for node in nodes.values()), "count of live batons"
    assert tree.ended == sum(node.baton.status in ENDED for node in nodes.values()), "count of ended batons"
    listed = {child: id for id, node in nodes.items() for child in node.baton.children}
    assert len(listed) == sum(len(node.baton.children) for node in nodes.values()), "a child is listed twice"
    for id, node in nodes.items():
        baton = node.baton
        live_children = sum(nodes[child].baton.status in LIVE for child in baton.children)
        assert node.unfinished == live_children, f"{id}: {node.unfinished} unfinished counted, {live_children} are"
        assert (baton.status is Status.SPAWNED) == (live_children > 0), f"{id} is {baton.status} with {live_children} live children"
        assert (baton.error_kind is not None) == (baton.status is Status.FAILED), f"{id} is {baton.status} of kind {baton.error_kind}"
        if baton.parent_id is None:
            assert id == tree.root_id, f"{id} has no parent and is not the root"
        else:
            assert listed.get(id) == baton.parent_id, f"{id} is listed by {listed.get(id)}, its parent is {baton.parent_id}"
            assert baton.depth == nodes[baton.parent_id].baton.depth + 1, f"{id}: depth"
        earlier = baton.children[: node.since]
        assert all(nodes[child].baton.status in ENDED for child in earlier), f"{id}: a child of an earlier breakdown is live"
        assert not node.reserved or baton.status is Status.RUNNING, f"{id} is {baton.status} and has a reservation"
        assert not (baton.passive and baton.children), f"{id} is {baton.worker} and has children"
    if nodes and tree.root.baton.status in ENDED:
        assert tree.live == 0, "something lives under an ended root"
    for key in tree.spent:
        total = sum(_spending(node)[key] for node in nodes.values())
        assert abs(tree.spent[key] - total) < 1e-6, f"spent {key}: {tree.spent[key]} counted, {total} are"


class _Draft:
    """Events and effects of one decision, in the making."""

    __slots__ = ("at", "effects", "events", "refused", "tree")

    def __init__(self, tree: Tree, at: int) -> None:
        self.tree = tree
        self.at = at
        self.events: list[Event] = []
        self.effects: list[Effect] = []
        self.refused: str | None = None

    def add(
        self, type: EventType, baton: Baton, data: dict[str, Any], change: dict[str, Any] | None = None, *, attempt: int | None = None
    ) -> None:
        """One more event of a baton; it is the attempt's own unless another is named."""
        seq = self.tree.seq + len(self.events) + 1
        attempt = baton.attempt if attempt is None else attempt
        self.events.append(
            Event(seq, type, self.at, self.tree.root_id, baton.id, baton.parent_id, baton.depth, attempt, data, change or {})
        )


def _running(tree: Tree, baton_id: str, attempt: int) -> Node | None:
    """The node, if exactly this attempt of it is under way at a worker: the fence against late reports."""
    node = tree.nodes.get(baton_id)
    if node is None or node.baton.status is not Status.RUNNING or node.baton.attempt != attempt or node.baton.passive:
        return None
    return node


# ---------------------------------------------------------------- births and starts


def _submit(draft: _Draft, command: Submit) -> None:
    if draft.tree.nodes:
        return
    _create(draft, command.root)
    if draft.tree.budget.seconds is not None:
        draft.effects.append(Wake(command.root.id, _seconds_end(draft.tree.budget, draft.tree.budget_since)))


def _create(draft: _Draft, baton: Baton) -> None:
    data: dict[str, Any] = {"goal": baton.goal[:EVENT_GOAL_CHARACTERS], "worker": baton.worker}
    if baton.held:
        data["held"] = True
    if baton.not_before is not None:
        data["not_before"] = baton.not_before
    if baton.deadline is not None:
        data["deadline"] = baton.deadline
    draft.add(EventType.CREATED, baton, data, {"baton": baton})
    if baton.deadline is not None:
        draft.effects.append(Wake(baton.id, baton.deadline))
    _make_ready(draft, baton)


def _make_ready(draft: _Draft, baton: Baton) -> None:
    """A pending baton goes to a worker, to somebody outside, or waits for its time."""
    if baton.held:
        return
    if baton.not_before is not None and baton.not_before > draft.at:
        draft.effects.append(Wake(baton.id, baton.not_before))
    elif baton.passive:
        draft.add(EventType.WAITING, baton, {"worker": baton.worker}, _delay_over(baton), attempt=baton.attempt + 1)
    else:
        draft.effects.append(Dispatch(baton.id))


def _start(draft: _Draft, command: Start) -> None:
    node = draft.tree.nodes.get(command.baton_id)
    if node is None or node.baton.status is not Status.PENDING or node.baton.held or node.baton.passive:
        return
    baton = node.baton
    if baton.not_before is not None and baton.not_before > draft.at:  # dispatched before it failed and was put off
        draft.effects.append(Wake(baton.id, baton.not_before))
        return
    draft.add(EventType.STARTED, baton, {"alone": True} if node.alone else {}, _delay_over(baton), attempt=baton.attempt + 1)


def _delay_over(baton: Baton) -> dict[str, Any]:
    """Once begun, it must not wait for that time again: after a move to another machine the clock may be behind it."""
    return {} if baton.not_before is None else {"not_before": None}


def _release(draft: _Draft, baton: Baton) -> None:
    if not baton.held:
        return
    if baton.status in ENDED:
        raise NotAllowed(baton.id, f"has already ended ({baton.status})")
    draft.add(EventType.PROGRESS, baton, {"kind": "released"}, {"held": False})
    _make_ready(draft, _changed(baton, {"held": False}))


# ---------------------------------------------------------------- reports


def _report(draft: _Draft, report: Report) -> None:
    node = _running(draft.tree, report.baton_id, report.attempt)
    if node is None or _is_repeated(node, report):
        return
    change = _settled(node, report.spending)
    match report:
        case Complete():
            _complete(draft, node.baton, report.value, report.partial, change)
        case Fail():
            _fail(draft, node, report, change)
        case Spawn():
            _spawn(draft, node, report, change)
        case HandOver():
            _hand_over(draft, node, report, change)
        case Checkpoint():
            change |= {"state": report.state, "losses": 0}
            if report.first_row is not None:
                change["spoken"] = report.first_row + max(1, len(report.rows))
            draft.add(EventType.PROGRESS, node.baton, {"kind": "checkpoint", **report.data}, change)
        case _:
            assert_never(report)


def _is_repeated(node: Node, report: Report) -> bool:
    """Whether a save has been made true already, and what it spent has been counted: its place in the conversation is taken."""
    return isinstance(report, Checkpoint) and report.first_row is not None and report.first_row != node.spoken


def _complete(draft: _Draft, baton: Baton, value: Any, partial: bool, change: dict[str, Any]) -> None:
    change |= {"result": value, "partial": partial}
    draft.add(EventType.COMPLETED, baton, {"partial": True} if partial else {}, change)
    if baton.parent_id is None:
        draft.add(EventType.TREE_COMPLETED, baton, {})
        draft.effects.append(End(Status.COMPLETED))
    else:
        _child_ended(draft, baton.parent_id, 1)


def _fail(draft: _Draft, node: Node, report: Fail, change: dict[str, Any]) -> None:
    baton = node.baton
    limit = baton.constraints.max_retries
    if report.retryable and node.retries < limit:
        not_before = draft.at + round(1000 * _backoff(node.retries, report.after, report.jitter))
        change |= {"not_before": not_before, "retries": node.retries + 1, "losses": 0}
        data = {"reason": "error", "error": report.error[:EVENT_ERROR_CHARACTERS], "error_kind": report.kind, "not_before": not_before}
        draft.add(EventType.RETRYING, baton, data, change)
        draft.effects.append(Wake(baton.id, not_before))
        return
    error = report.error
    if report.retryable:
        error = f"{error} (gave up after {limit} retries)" if limit else f"{error} (asks to be retried, but max_retries is 0)"
    _end_failed(draft, node, error, report.kind, change)


def _backoff(retries: int, after: float | None, jitter: float) -> float:
    """Seconds to wait: full jitter below a doubling limit; a wait that was asked for is kept, and jittered upwards only."""
    spread = jitter * min(BACKOFF_LIMIT, BACKOFF_SECONDS * 2.0**retries)
    return spread if after is None or not isfinite(after) else max(0.0, after) + spread


def _spawn(draft: _Draft, node: Node, report: Spawn, change: dict[str, Any]) -> None:
    baton = node.baton
    if objection := _objection(draft.tree, node, report.children):
        _end_failed(draft, node, objection[1], objection[0], change)
        return
    breakdown = node.breakdown + 1
    ids = [child_id(baton.id, baton.generation, breakdown, index) for index in range(len(report.children))]
    change |= {
        "children": baton.children + ids,
        "breakdown": breakdown,
        "since": len(baton.children),
        "state": report.state,
        "parked": report.state,
        "losses": 0,
    }
    place = {"breakdown": breakdown, "generation": baton.generation}
    draft.add(EventType.SPAWNED, baton, {"children": len(ids), **place}, change)
    for child in _children(baton, ids, report.children, draft.at):
        _create(draft, child)
    if not ids:
        draft.add(EventType.RESUMED, baton, place)
        draft.effects.append(Dispatch(baton.id))


def _children(parent: Baton, ids: list[str], specs: tuple[ChildSpec, ...], at: int) -> Iterator[Baton]:
    """New batons, copied from a first one: a spec has been checked already, and checking 100,000 of them again takes seconds."""
    first = Baton(id="", root_id=parent.root_id, parent_id=parent.id, depth=parent.depth + 1, goal="", created_at=at, updated_at=at)
    for id, spec in zip(ids, specs, strict=True):
        fields = {**vars(spec), "id": id, "worker": spec.worker or parent.worker, "model": spec.model or parent.model}
        if spec.tools is None:
            fields["tools"] = parent.tools
        yield _changed(first, fields)


def _objection(tree: Tree, node: Node, children: tuple[ChildSpec, ...]) -> tuple[ErrorKind, str] | None:
    """Why a breakdown is not allowed: budget, guards against a model that runs away, tools that the parent lacks."""
    if not children:
        return None
    baton = node.baton
    total = len(tree.nodes) + len(children)
    if tree.budget.batons is not None and total > tree.budget.batons:
        return ErrorKind.BUDGET, f"{len(children)} more children would make {total} batons, the budget is {tree.budget.batons}"
    if baton.tools is not None:
        allowed = set(baton.tools)
        for index, spec in enumerate(children):
            if foreign := set(spec.tools or ()) - allowed:
                return ErrorKind.REJECTED, f"child {index} asks for the tool {min(foreign)!r}, which its parent does not have"
    if baton.worker != AGENT:
        return None
    if total > tree.guards.batons:
        return ErrorKind.REJECTED, f"{total} batons in one tree, the guard is {tree.guards.batons} (BATON_GUARD_BATONS)"
    if len(children) > tree.guards.children:
        return ErrorKind.REJECTED, f"{len(children)} children at once, the guard is {tree.guards.children} (BATON_GUARD_CHILDREN)"
    if baton.depth + 1 > tree.guards.depth:
        return ErrorKind.REJECTED, f"children at depth {baton.depth + 1}, the guard is {tree.guards.depth} (BATON_GUARD_DEPTH)"
    if len(children) == 1 and children[0].goal.strip().casefold() == baton.goal.strip().casefold():
        return ErrorKind.REJECTED, "its only child has its own goal; it must do that task itself"
    return None


def room(tree: Tree, baton: Baton) -> int:
    """How many children a model's baton may spawn now by number alone: one more, and `_objection` refuses them all."""
    guards, limit = tree.guards, tree.budget.batons
    if baton.depth + 1 > guards.depth:
        return 0
    batons = guards.batons if limit is None else min(limit, guards.batons)
    return max(0, min(guards.children, batons - len(tree.nodes)))


def _hand_over(draft: _Draft, node: Node, report: HandOver, change: dict[str, Any]) -> None:
    moved_on = node.progressed == node.baton.attempt or (report.state is not None and report.state != node.state)
    if not moved_on:
        _lose(draft, node, "idle", change)
        return
    if report.state is not None:
        change["state"] = report.state
    change["losses"] = 0
    draft.add(EventType.HANDED_OVER, node.baton, {"rounds": change.get("rounds", node.baton.rounds)}, change)
    draft.effects.append(Dispatch(node.baton.id))


def _answer(draft: _Draft, command: Answer) -> None:
    baton = draft.tree.node(command.baton_id).baton
    if baton.passive and baton.status is Status.RUNNING:
        _complete(draft, baton, command.value, False, {})
    elif not (baton.passive and baton.status is Status.COMPLETED and baton.result == command.value):
        raise NotAllowed(baton.id, f"does not wait for an answer: it is {baton.status}")


def _lose(draft: _Draft, node: Node, cause: LossCause, change: dict[str, Any], *, alone: bool = False) -> None:
    """A run is gone. Only what the baton did by itself counts: dying alone in its process, or making no progress."""
    baton = node.baton
    data: dict[str, Any] = {"reason": "lost", "cause": cause}
    if cause == "stuck":  # it hangs, and may yet wake up
        _stop_if_running(draft, baton)
    if cause == "process" and not alone:
        change["alone"] = True
    elif cause not in ("owner", "node"):
        change["losses"] = baton.losses + 1
        data["losses"] = baton.losses + 1
        if baton.losses + 1 >= MAX_LOSSES:
            _end_failed(draft, node, f"lost {MAX_LOSSES} times in a row, at last because {_CAUSES[cause]}", ErrorKind.CRASHED, change)
            return
    draft.add(EventType.RETRYING, baton, data, change)
    draft.effects.append(Dispatch(baton.id))


_CAUSES: dict[LossCause, str] = {
    "process": "its process died",
    "node": "its node died",
    "owner": "its owner died",
    "stuck": "it showed no progress; checkpoint more often, or raise timeout_hint",
    "idle": "it handed over without progress",
}


# ---------------------------------------------------------------- ends, joins, cascades


def _end_failed(draft: _Draft, node: Node, error: str, kind: ErrorKind, change: dict[str, Any] | None = None) -> None:
    """A baton fails: what lives below it is cancelled, with `fail_fast` its siblings too, and then its parent is told once."""
    baton = node.baton
    _cancel_descendants(draft, node, f"its parent failed ({kind})")
    _add_failed(draft, baton, error, kind, change)
    if baton.parent_id is None:
        _end_tree(draft, baton, error, kind)
        return
    ended = 1
    parent = draft.tree.nodes[baton.parent_id]
    if parent.baton.constraints.on_child_failure == "fail_fast" and kind is not ErrorKind.CANCELLED:
        for sibling in parent.current_children:
            if sibling != baton.id and draft.tree.nodes[sibling].baton.status in LIVE:
                _cancel_subtree(draft, draft.tree.nodes[sibling], "a sibling failed (fail_fast)")
                ended += 1
    _child_ended(draft, baton.parent_id, ended)


def _add_failed(draft: _Draft, baton: Baton, error: str, kind: ErrorKind, change: dict[str, Any] | None = None) -> None:
    fields = {"error": error[:ERROR_CHARACTERS], "error_kind": kind}
    draft.add(EventType.FAILED, baton, {"error": error[:EVENT_ERROR_CHARACTERS], "error_kind": kind}, {**(change or {}), **fields})


def _end_tree(draft: _Draft, root: Baton, error: str, kind: ErrorKind) -> None:
    draft.add(EventType.TREE_FAILED, root, {"error": error[:EVENT_ERROR_CHARACTERS], "error_kind": kind})
    draft.effects.append(End(Status.FAILED))


def _child_ended(draft: _Draft, parent_id: str, count: int) -> None:
    """`count` children of a parent ended in this decision; the last one resumes it."""
    parent = draft.tree.nodes[parent_id]
    if parent.baton.status is Status.SPAWNED and parent.unfinished == count:
        draft.add(EventType.RESUMED, parent.baton, {"breakdown": parent.breakdown, "generation": parent.baton.generation})
        draft.effects.append(Dispatch(parent_id))


def _cancel(draft: _Draft, command: Cancel) -> None:
    node = draft.tree.node(command.baton_id)
    baton = node.baton
    if baton.error_kind is ErrorKind.CANCELLED:
        return
    if baton.status in ENDED:
        raise NotAllowed(baton.id, f"has already ended ({baton.status})")
    _cancel_subtree(draft, node, command.reason)
    if baton.parent_id is None:
        _end_tree(draft, baton, command.reason, ErrorKind.CANCELLED)
    else:
        _child_ended(draft, baton.parent_id, 1)


def _cancel_subtree(draft: _Draft, node: Node, reason: str) -> None:
    _cancel_descendants(draft, node, reason)
    _stop_if_running(draft, node.baton)
    _add_failed(draft, node.baton, reason, ErrorKind.CANCELLED, _written_off(node))


def _cancel_descendants(draft: _Draft, node: Node, reason: str) -> None:
    """Everything live below a node, children before parents."""
    for below in reversed(list(_live_below(draft.tree, node))):
        _stop_if_running(draft, below.baton)
        _add_failed(draft, below.baton, reason, ErrorKind.CANCELLED, _written_off(below))


def _live_below(tree: Tree, node: Node) -> Iterator[Node]:
    """The live descendants, parents before children. All of them stand in the current breakdown of one that is `spawned`."""
    stack = [node] if node.baton.status is Status.SPAWNED else []
    while stack:
        for child in stack.pop().current_children:
            below = tree.nodes[child]
            if below.baton.status in LIVE:
                yield below
            if below.baton.status is Status.SPAWNED:
                stack.append(below)


def _stop_if_running(draft: _Draft, baton: Baton) -> None:
    if baton.status is Status.RUNNING and not baton.passive:
        draft.effects.append(Stop(baton.id, baton.attempt))


# ---------------------------------------------------------------- times, recovery


def _due(draft: _Draft, command: Due) -> None:
    node = draft.tree.nodes.get(command.baton_id)
    if node is None or node.baton.status in ENDED:
        return
    baton = node.baton
    seconds = draft.tree.budget.seconds
    if baton.parent_id is None and seconds is not None and draft.at >= _seconds_end(draft.tree.budget, draft.tree.budget_since):
        _stop_if_running(draft, baton)
        _end_failed(draft, node, f"the budget of {seconds:g} seconds is spent", ErrorKind.BUDGET, _written_off(node))
    elif baton.deadline is not None and draft.at >= baton.deadline:
        _stop_if_running(draft, baton)
        _end_failed(draft, node, "its deadline has passed", ErrorKind.TIMEOUT, _written_off(node))
    elif baton.status is Status.PENDING and baton.not_before is not None and draft.at >= baton.not_before:
        _make_ready(draft, baton)


def _seconds_end(budget: Budget, since: int) -> int:
    return since + round(1000 * (budget.seconds or 0))


def _recover(draft: _Draft, command: Recover) -> None:
    tree = draft.tree
    if not tree.nodes or tree.root.baton.status in ENDED:
        return
    if tree.budget.seconds is not None:
        draft.effects.append(Wake(tree.root_id, _seconds_end(tree.budget, tree.budget_since)))
    for node in tree.nodes.values():
        baton = node.baton
        if baton.status in LIVE and baton.deadline is not None:
            draft.effects.append(Wake(baton.id, baton.deadline))
        if baton.status is Status.PENDING:
            _make_ready(draft, baton)
        elif baton.status is Status.RUNNING and not baton.passive and (baton.id, baton.attempt) not in command.known:
            _lose(draft, node, "owner", _written_off(node))


# ---------------------------------------------------------------- retry


def _retry(draft: _Draft, command: Retry) -> None:
    tree = draft.tree
    node = tree.node(command.baton_id)
    if node.baton.status is not Status.FAILED:
        raise NotAllowed(node.baton.id, f"is {node.baton.status}; only a failed one can be retried")
    above = _ended_ancestors(tree, node)
    _reopen_tree(draft, command)
    for ancestor in above:
        _reopen_spawned(draft, ancestor, 1)
    stack = [node]
    while stack:
        failed = stack.pop()
        children = [tree.nodes[child] for child in failed.current_children]
        again = [child for child in children if child.baton.status is Status.FAILED]
        if again:
            _reopen_spawned(draft, failed, len(again))
            stack.extend(reversed(again))
        else:
            _reopen_pending(draft, failed)


def _reopen_tree(draft: _Draft, command: Retry) -> None:
    """An ended tree goes on, its seconds beginning anew; one that lives only takes more budget, if there is any."""
    tree = draft.tree
    ended = tree.root.baton.status in ENDED
    added = {key: value for key, value in command.budget if value is not None}
    if not ended and not added:
        return
    budget, since = tree.budget.plus(command.budget), draft.at if ended else tree.budget_since
    data = {"baton_id": command.baton_id, **({"budget": added} if added else {})}
    draft.add(EventType.TREE_REOPENED, tree.root.baton, data, {"budget": budget, "budget_since": since})
    if budget.seconds is not None:
        draft.effects.append(Wake(tree.root_id, _seconds_end(budget, since)))


def _ended_ancestors(tree: Tree, node: Node) -> list[Node]:
    """The ended ones above a node, the highest first.

    Raises:
        NotAllowed: one above has gone on without the node's result, and would have to forget what it does now.
    """
    above: list[Node] = []
    below = node
    while below.baton.parent_id is not None:
        parent = tree.nodes[below.baton.parent_id]
        if below.baton.id not in parent.current_children:
            raise NotAllowed(node.baton.id, f"belongs to an earlier breakdown of {parent.baton.id}, which has gone on; retry that one")
        if parent.baton.status is Status.SPAWNED:
            break
        if parent.baton.status in LIVE:
            goes_on = f"{parent.baton.id} above it is {parent.baton.status}"
            raise NotAllowed(node.baton.id, f"cannot be retried while {goes_on}; wait, or cancel that one")
        above.append(parent)
        below = parent
    return above[::-1]


def _new_life(draft: _Draft, node: Node) -> dict[str, Any]:
    """What a retry changes; a deadline is as far away as it was at the start of the life that has ended."""
    baton = node.baton
    began = baton.created_at if node.reborn_at is None else node.reborn_at
    deadline = None if baton.deadline is None else draft.at + baton.deadline - began
    if deadline is not None:
        draft.effects.append(Wake(baton.id, deadline))
    return {
        "generation": baton.generation + 1,
        "result": None,
        "partial": False,
        "error": None,
        "error_kind": None,
        "losses": 0,
        "retries": 0,
        "not_before": None,
        "held": False,
        "deadline": deadline,
        "reborn_at": draft.at,
    }


def _reopen_pending(draft: _Draft, node: Node) -> None:
    change = _new_life(draft, node)
    draft.add(EventType.RETRYING, node.baton, {"reason": "retry", "generation": change["generation"]}, change)
    _make_ready(draft, _changed(node.baton, {"held": False, "not_before": None}))


def _reopen_spawned(draft: _Draft, node: Node, children: int) -> None:
    """An ended parent waits again; it will be resumed from where it stood when it parked."""
    change = {**_new_life(draft, node), "state": node.parked}
    data = {"children": children, "breakdown": node.breakdown, "generation": change["generation"], "reason": "retry"}
    draft.add(EventType.SPAWNED, node.baton, data, change)


# ---------------------------------------------------------------- the budget pool


def limited(tree: Tree) -> bool:
    """Whether the pool has a limit that a model call may run into: only then must it be reserved before."""
    budget = tree.budget
    return any(limit is not None for limit in (budget.rounds, budget.tokens, budget.cost))


def _reserve(draft: _Draft, command: Reserve) -> None:
    node = _running(draft.tree, command.baton_id, command.attempt)
    if node is None:
        draft.refused = "attempt"
        return
    for key, amount in command.amounts.items():
        limit = getattr(draft.tree.budget, key)
        if limit is not None and draft.tree.spent[key] + amount > limit:
            draft.refused = key
            return
    reserved = {key: node.reserved.get(key, 0) + amount for key, amount in command.amounts.items()}
    draft.add(EventType.PROGRESS, node.baton, {"kind": "reserved", **command.amounts}, {"reserved": reserved})


def _settled(node: Node, spending: Spending) -> dict[str, Any]:
    """What a report changes of a baton's account: the reservation goes, what was really used comes."""
    change: dict[str, Any] = {}
    if node.reserved:
        change["reserved"] = {}
    if spending.usage:
        change["usage"] = _added(node.baton.usage, spending.usage)
    if spending.rounds:
        change["rounds"] = node.baton.rounds + spending.rounds
    return change


def _written_off(node: Node) -> dict[str, Any]:
    """A run that will not report may have used all it reserved, so it is charged for that."""
    if not node.reserved:
        return {}
    lost = {"tokens_lost": node.reserved.get("tokens", 0), "cost": node.reserved.get("cost", 0)}
    return {
        "reserved": {},
        "usage": _added(node.baton.usage, {key: amount for key, amount in lost.items() if amount}),
        "rounds": node.baton.rounds + int(node.reserved.get("rounds", 0)),
    }


def _added(usage: dict[str, float], more: dict[str, float]) -> dict[str, float]:
    return {**usage, **{key: usage.get(key, 0) + amount for key, amount in more.items()}}


def _spending(node: Node) -> dict[str, float]:
    """What a baton has taken from the pool, reservations included, per budget key."""
    usage, reserved = node.baton.usage, node.reserved
    tokens = usage.get("tokens_in", 0) + usage.get("tokens_out", 0) + usage.get("tokens_lost", 0)
    return {
        "rounds": node.baton.rounds + reserved.get("rounds", 0),
        "tokens": tokens + reserved.get("tokens", 0),
        "cost": usage.get("cost", 0) + reserved.get("cost", 0),
    }


# ---------------------------------------------------------------- making events true


def _apply_to_tree(tree: Tree, event: Event) -> None:
    if event.change:
        tree.budget = event.change["budget"]
        tree.budget_since = event.change["budget_since"]


def _apply_to_baton(tree: Tree, event: Event) -> Row:
    node = tree.nodes.get(event.baton_id)
    if node is None:
        return _apply_birth(tree, event)
    before = node.baton.status
    after = TRANSITIONS.get((before, event.type))
    if after is None:
        raise InvalidTransition(event.baton_id, before, event.type)
    change = event.change
    account = None if _ACCOUNT_FIELDS.isdisjoint(change) else _spending(node)
    own: dict[str, Any] = {"status": after, "attempt": event.attempt, "updated_at": event.at}
    row = {**change, **own}
    for name, value in change.items():
        if name in _NODE_FIELDS:
            setattr(node, name, value)
        else:
            own[name] = value
    node.baton = _changed(node.baton, own)
    if "state" in change:
        node.progressed = event.attempt
    if account is not None:
        tree._spend(account, _spending(node))
    if (before in ENDED) is not (after in ENDED):
        born = -1 if after in ENDED else 1
        tree._count(node.baton, born)
        tree.ended -= born
    return Row(event.baton_id, False, row)


def _apply_birth(tree: Tree, event: Event) -> Row:
    baton: Baton | None = event.change.get("baton")
    if baton is None or TRANSITIONS.get((None, event.type)) is not baton.status:
        raise InvalidTransition(event.baton_id, "not born", event.type)
    if baton.parent_id is not None and baton.parent_id not in tree.nodes:
        raise InvalidTransition(baton.id, f"a child of {baton.parent_id}, which is not here", event.type)
    tree._add(Node(baton))
    return Row(baton.id, True, dict(vars(baton)))


def _changed(baton: Baton, fields: dict[str, Any]) -> Baton:
    """`model_copy(update=fields)` in less time and memory: the set of fields once given, which nobody reads, is shared."""
    copy = Baton.__new__(Baton)
    values = {**vars(baton), **fields}
    given = baton.model_fields_set
    copy.__setstate__({"__dict__": values, "__pydantic_fields_set__": given, "__pydantic_extra__": None, "__pydantic_private__": None})
    return copy
