"""The picture of a tree in memory, kept up to date by events. It decides nothing: it believes what the log says.

Counts and the groups of children are kept with each event, so that showing twenty lines of 100,000 batons looks at twenty.
"""

from enum import StrEnum

from baton_actors.baton import Baton, ErrorKind, Status
from baton_actors.events import Event, EventType
from baton_actors.snapshot import Snapshot


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


class Node:
    """One baton of the picture.

    Attributes:
        index: its place in spawn order, over the whole tree. started, ended: milliseconds since 1970, None if it has not.
        note: why it waits or is run again. error: why it failed.
        groups: its children by mark; each group in the order in which they came to it.
    """

    __slots__ = ("ended", "error", "error_kind", "goal", "groups", "id", "index", "level", "mark", "note", "parent", "started")

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
        counts: batons by mark.
    """

    def __init__(self, root_id: str) -> None:
        self.root_id = root_id
        self.seq = 0
        self.ended = False
        self.nodes: dict[str, Node] = {}
        self.counts: dict[Mark, int] = dict.fromkeys(Mark, 0)

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
        """Take in one event and return the baton it changed; one that is in the picture already changes nothing."""
        if event.seq <= self.seq:
            return None
        self.seq = event.seq
        if event.type in _TREE_EVENTS:
            self.ended = event.type is not EventType.TREE_REOPENED
            return None
        if event.type is EventType.CREATED:
            return self._create(event)
        node = self.nodes.get(event.baton_id)
        if node is None:
            return None
        if event.type is EventType.PROGRESS:
            if event.data.get("kind") == "released":
                node.note = ""
            return None
        self._change(node, event)
        return node

    def _create(self, event: Event) -> Node:
        node = self._add(event.baton_id, str(event.data.get("goal", "")), event.parent_id)
        if event.data.get("held"):
            node.note = "held"
        return node

    def _change(self, node: Node, event: Event) -> None:
        data = event.data
        mark = _AFTER[event.type]
        if mark is Mark.FAILED and data.get("error_kind") == ErrorKind.CANCELLED:
            mark = Mark.CANCELLED
        node.note = _note(node, event)
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
