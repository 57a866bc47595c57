"""The picture of a tree in memory, kept up to date by events. It decides nothing: it believes what the log says.

Counts and the groups of children are kept with each event, so that showing twenty lines of 100,000 batons looks at twenty.
Whispers tell what runs under a baton right now; they may come before the events that they belong to, after them, or not at all.
"""

from enum import StrEnum
from typing import NamedTuple

from baton_actors.baton import Baton, ErrorKind, Status
from baton_actors.display.spending import NOTHING_SPENT, Spent
from baton_actors.display.wording import harmless
from baton_actors.events import Event, EventType, Whisper
from baton_actors.snapshot import Snapshot

#: Characters that are kept of what a run does and of a name, and of why a task was broken down or not.
_ACTIVITY = 100
_REASON = 500
#: Characters of the answer's end that are kept; up to twice as many, so that its beginning moves seldom and lines stay where they are.
_ANSWER = 4_000
#: Batons whose work is kept though their creation was not yet heard of.
_UNBORN = 1_000


class Mark(StrEnum):
    """What a person is told about a baton: its status, with two that are told apart."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    """Running, with a human or an outside system."""
    SPAWNED = "spawned"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED_MARKS = frozenset({Mark.COMPLETED, Mark.FAILED, Mark.CANCELLED})

_AFTER = {
    EventType.STARTED: Mark.RUNNING,
    EventType.WAITING: Mark.WAITING,
    EventType.SPAWNED: Mark.SPAWNED,
    EventType.RESUMED: Mark.PENDING,
    EventType.RETRYING: Mark.PENDING,
    EventType.HANDED_OVER: Mark.PENDING,
    EventType.COMPLETED: Mark.COMPLETED,
    EventType.FAILED: Mark.FAILED,
}
_TREE_EVENTS = frozenset({EventType.TREE_COMPLETED, EventType.TREE_FAILED, EventType.TREE_REOPENED})


class Activity(NamedTuple):
    """What was told last of a run.

    Attributes:
        what: `model: round 2`, `tool: read_file`; empty between two of them. since: milliseconds since 1970.
    """

    attempt: int
    what: str
    since: int


class Verdict(NamedTuple):
    """Whether an agent broke its task down, and why."""

    broken_down: bool
    reason: str

    @classmethod
    def of(cls, event: Event) -> "Verdict":
        """What an event of the kind "decision" says."""
        return cls(event.data.get("broken_down") is True, str(event.data.get("reason") or "")[:_REASON])

    def words(self) -> str:
        """`broken down into parts (reason)`, `not broken down (reason)`; harmless."""
        return f"{'broken down into parts' if self.broken_down else 'not broken down'}{self.reason and f' ({harmless(self.reason)})'}"


class Node:
    """One baton of the picture.

    Attributes:
        index: its place in spawn order, over the whole tree. started, ended: milliseconds since 1970, None if it has not.
        note: why it waits or is run again. error: why it failed.
        groups: its children by mark; each group in the order in which they came to it.
        attempt: of its last run. spent: by itself. model: of its last round. verdict: of its last decision about a breakdown.
    """

    __slots__ = (
        "_activity", "attempt", "ended", "error", "error_kind", "goal", "groups", "id", "index", "level", "mark", "model", "note",
        "parent", "spent", "started", "verdict",
    )  # fmt: skip

    def __init__(self, id: str, goal: str, index: int, parent: "Node | None") -> None:
        self.id = id
        self.goal = goal
        self.index = index
        self.parent = parent
        self.level: int = 0 if parent is None else parent.level + 1
        self.mark = Mark.PENDING
        self.started: int | None = None
        self.ended: int | None = None
        self.note = ""
        self.error: str | None = None
        self.error_kind: str | None = None
        self.groups: dict[Mark, dict[str, Node]] | None = None
        self.attempt = 0
        self.spent = NOTHING_SPENT
        self.model: str | None = None
        self.verdict: Verdict | None = None
        self._activity: Activity | None = None

    @property
    def activity(self) -> Activity | None:
        """What runs under it right now, as far as it was told."""
        current = self._activity
        return current if current and current.what and self.mark is Mark.RUNNING and current.attempt == self.attempt else None

    @property
    def child_count(self) -> int:
        """How many children it has, of all breakdowns."""
        return 0 if self.groups is None else sum(map(len, self.groups.values()))

    def children(self) -> list["Node"]:
        """All children in spawn order."""
        if self.groups is None:
            return []
        return sorted((child for group in self.groups.values() for child in group.values()), key=lambda child: child.index)

    def _group(self, mark: Mark) -> "dict[str, Node]":
        if self.groups is None:
            self.groups = {}
        return self.groups.setdefault(mark, {})


class TreeView:
    """The picture of one tree.

    Attributes:
        seq: of the last event that is in it. ended: whether the last thing heard of the tree was its end.
        counts: batons by mark. spent: by all batons.
        answer: the end of the text that the root's model is writing; empty when there is none to be seen.
    """

    def __init__(self, root_id: str) -> None:
        self.root_id = root_id
        self.seq = 0
        self.ended = False
        self.nodes: dict[str, Node] = {}
        self.counts: dict[Mark, int] = dict.fromkeys(Mark, 0)
        self.spent = NOTHING_SPENT
        self.answer = ""
        self._unborn: dict[str, Activity] = {}  # what batons do whose creation was not yet heard of

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> "TreeView":
        """The picture of a stored tree; times of starts are not stored, so those of creation stand for them."""
        view = cls(snapshot.root_id)
        for baton in snapshot.batons:
            view._take(baton)
        view.seq = snapshot.seq
        view.ended = view.root is not None and view.root.mark in ENDED_MARKS
        return view

    @property
    def root(self) -> Node | None:
        """The root; None before its creation was heard of."""
        return self.nodes.get(self.root_id)

    def apply(self, event: Event) -> Node | None:
        """Take in one event and return the baton that it is about; one that is in the picture already changes nothing."""
        if event.seq <= self.seq:
            return None
        self.seq = event.seq
        if event.type in _TREE_EVENTS:
            self.ended = event.type is not EventType.TREE_REOPENED
            self.answer = ""
            return None
        if event.type is EventType.CREATED:
            return self._create(event)
        node = self.nodes.get(event.baton_id)
        if node is None:
            return None
        if event.type is EventType.PROGRESS:
            self._progress(node, event)
        else:
            self._change(node, event)
        return node

    def hear(self, whisper: Whisper, now: int) -> None:
        """Take in what is going on in a run; of one that has ended, nothing is of interest any more.

        Args:
            now: milliseconds since 1970.
        """
        id, attempt, kind, text = whisper
        node = self.nodes.get(id)
        if self.ended or (node is not None and attempt < (node.attempt if node.mark is Mark.RUNNING else node.attempt + 1)):
            return
        match kind:
            case "model" | "tool":
                self._act(id, Activity(attempt, f"{kind}: {text[:_ACTIVITY]}" if text else kind, now))
            case "text":
                known = self._unborn.get(id) if node is None else node._activity
                if known is None or known.attempt != attempt:  # the beginning of the call was not heard
                    self._act(id, Activity(attempt, "model", now))
                if id == self.root_id:
                    answer = self.answer + text
                    self.answer = answer if len(answer) <= 2 * _ANSWER else answer[-_ANSWER:]
            case "idle":
                self._act(id, Activity(attempt, "", now), self.answer)

    def _act(self, id: str, activity: Activity | None, answer: str = "") -> None:
        """Something else begins, or nothing does; what the root's model has said before is no longer its answer, unless it is given."""
        if id == self.root_id:
            self.answer = answer
        if node := self.nodes.get(id):
            node._activity = activity
        elif activity:
            self._unborn[id] = activity
            if len(self._unborn) > _UNBORN:
                del self._unborn[next(iter(self._unborn))]

    def _progress(self, node: Node, event: Event) -> None:
        match event.data.get("kind"):
            case "released":
                node.note = ""
            case "decision":
                node.verdict = Verdict.of(event)
            case "round":
                spent = Spent.of(event.data, 1)
                node.spent = node.spent.plus(spent)
                self.spent = self.spent.plus(spent)
                node.model = str(event.data.get("model") or "")[:_ACTIVITY] or node.model

    def _create(self, event: Event) -> Node:
        node = self._add(event.baton_id, str(event.data.get("goal", "")), event.parent_id)
        if event.data.get("held"):
            node.note = "held"
        node._activity = self._unborn.pop(node.id, None)
        return node

    def _change(self, node: Node, event: Event) -> None:
        data = event.data
        mark = _AFTER[event.type]
        if mark is Mark.FAILED and data.get("error_kind") == ErrorKind.CANCELLED:
            mark = Mark.CANCELLED
        node.note = _note(node, event)
        node.attempt = event.attempt
        over = event.attempt - 1 if event.type is EventType.STARTED else event.attempt
        if node._activity and node._activity.attempt <= over:
            self._act(node.id, None)
        if data.get("reason") == "retry":
            node.started = None
        if mark in (Mark.RUNNING, Mark.WAITING) and node.started is None:
            node.started = event.at
        node.ended = event.at if mark in ENDED_MARKS else None
        node.error = str(data.get("error", "")) if mark in (Mark.FAILED, Mark.CANCELLED) else None
        node.error_kind = data.get("error_kind") if node.error is not None else None
        self._move(node, mark)

    def _take(self, baton: Baton) -> None:
        node = self._add(baton.id, baton.goal, baton.parent_id)
        mark = Mark(baton.status)
        if baton.status is Status.RUNNING and baton.passive:
            mark = Mark.WAITING
            node.note = f"baton answer {baton.id}"
        elif baton.error_kind is ErrorKind.CANCELLED:
            mark = Mark.CANCELLED
        if mark is not Mark.PENDING or baton.attempt:
            node.started = baton.created_at
        if mark in ENDED_MARKS:
            node.ended = baton.updated_at
            node.error, node.error_kind = baton.error, baton.error_kind
        if baton.held and mark is Mark.PENDING:
            node.note = "held"
        node.attempt, node.model = baton.attempt, baton.model
        node.spent = Spent.of(baton.usage, baton.rounds)
        self.spent = self.spent.plus(node.spent)
        self._move(node, mark)

    def _add(self, id: str, goal: str, parent_id: str | None) -> Node:
        parent = self.nodes.get(parent_id) if parent_id is not None else None
        node = Node(id, goal, len(self.nodes), parent)
        self.nodes[id] = node
        self.counts[Mark.PENDING] += 1
        if parent is not None:
            parent._group(Mark.PENDING)[id] = node
        return node

    def _move(self, node: Node, mark: Mark) -> None:
        if mark is node.mark:
            return
        self.counts[node.mark] -= 1
        self.counts[mark] += 1
        if node.parent is not None:
            del node.parent._group(node.mark)[node.id]
            node.parent._group(mark)[node.id] = node
        node.mark = mark


def _note(node: Node, event: Event) -> str:
    data = event.data
    if event.type is EventType.STARTED:
        return node.note  # why it is run again stays of interest while it runs
    if event.type is EventType.WAITING:
        return f"baton answer {node.id}"
    if event.type is EventType.RETRYING and data.get("reason") == "error":
        return f"again after: {data.get('error', '')}"
    if event.type is EventType.RETRYING and data.get("reason") == "lost":
        return f"again, its run was lost ({data.get('cause', 'unknown')})"
    if event.type is EventType.COMPLETED and data.get("partial"):
        return "partial"
    return ""
