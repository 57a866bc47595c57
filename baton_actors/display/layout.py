"""Which lines of a tree are shown, and what is folded when there are fewer lines than batons.

Lines are chosen from the root downwards, so the work is that of what is shown, not of what there is. Folded first are
batons that have ended ("12 done"), then siblings ("37 more pending"), then levels of which each holds a single baton.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from baton_actors.display.spending import Spent
from baton_actors.display.view import Mark, Node, TreeView

#: The groups of children that are shown one by one in a folded tree, the most urgent first.
_SHOWN = (Mark.WAITING, Mark.RUNNING, Mark.SPAWNED, Mark.FAILED, Mark.PENDING)
#: Levels in a row, each a single baton, that are worth a line of their own instead.
_MIN_GAP = 2
_MAX_GAP = 10_000


@dataclass(frozen=True, slots=True)
class BatonLine:
    """One baton. On the root's line stand `counts` and `spent` of the whole tree."""

    level: int
    node: Node
    counts: dict[Mark, int] | None = None
    spent: Spent | None = None


@dataclass(frozen=True, slots=True)
class ReasonLine:
    """Why the baton above failed."""

    level: int
    node: Node


@dataclass(frozen=True, slots=True)
class FoldLine:
    """Siblings that are not shown, by mark."""

    level: int
    counts: dict[Mark, int]


@dataclass(frozen=True, slots=True)
class GapLine:
    """Levels that are not shown, each of a single baton."""

    level: int
    hidden: int


Line = BatonLine | ReasonLine | FoldLine | GapLine


def layout(view: TreeView, height: int | None = None) -> Iterator[Line]:
    """The lines of a tree from top to bottom; with a height, at most that many (but one, at least)."""
    root = view.root
    if root is None:
        return iter(())
    if height is None or len(view.nodes) + view.counts[Mark.FAILED] <= height:
        return _everything(view, root)
    return _emit(view, root, _plan(root, height), height)


def _everything(view: TreeView, root: Node) -> Iterator[Line]:
    stack = [root]
    while stack:
        node = stack.pop()
        yield from _of_baton(view, node, node.level)
        stack.extend(reversed(node.children()))


def _of_baton(view: TreeView, node: Node, level: int) -> Iterator[Line]:
    yield BatonLine(level, node, view.counts, view.spent) if node.parent is None else BatonLine(level, node)
    if node.mark is Mark.FAILED and node.error:
        yield ReasonLine(level + 1, node)


@dataclass(slots=True)
class _Expansion:
    """What is shown below one baton: levels that are skipped, then children, then what is folded."""

    children: list[Node] = field(default_factory=list)
    folded: dict[Mark, int] = field(default_factory=dict)
    gap: int = 0

    @property
    def cost(self) -> int:
        return sum(map(_cost, self.children)) + bool(self.folded) + bool(self.gap)


def _cost(node: Node) -> int:
    return 2 if node.mark is Mark.FAILED and node.error else 1


def _plan(root: Node, height: int) -> dict[str, _Expansion]:
    """What is shown below each baton: level by level, each level sharing what the ones above it left."""
    plan: dict[str, _Expansion] = {}
    left = height - _cost(root)
    level = [root]
    while level and left > 0:
        below: list[Node] = []
        for place, parent in enumerate(level):
            expansion = _expand(parent, left // (len(level) - place))
            plan[parent.id] = expansion
            left -= expansion.cost
            below += (child for child in expansion.children if child.groups and child.mark is Mark.SPAWNED)
        level = below
    return plan


def _expand(parent: Node, room: int) -> _Expansion:
    if room < 1 or not parent.groups:
        return _Expansion()
    hidden, end = _single_line_of_descent(parent)
    if hidden >= _MIN_GAP and room >= 2:
        return _Expansion([end], gap=hidden)
    groups = parent.groups
    total = sum(_group_cost(group) for group in groups.values())
    if total > room or groups.get(Mark.COMPLETED) or groups.get(Mark.CANCELLED):
        room -= 1
    children = _chosen(groups, room)
    shown = dict.fromkeys(Mark, 0)
    for child in children:
        shown[child.mark] += 1
    folded = {mark: len(groups[mark]) - shown[mark] for mark in Mark if mark in groups and len(groups[mark]) > shown[mark]}
    return _Expansion(sorted(children, key=lambda child: child.index), folded)


def _group_cost(group: dict[str, Node]) -> int:
    return sum(map(_cost, islice(group.values(), 1))) * len(group)


def _chosen(groups: dict[Mark, dict[str, Node]], room: int) -> list[Node]:
    """The children to show: some failures in any case, because they have a reason to tell; then by urgency."""
    children = _first(groups.get(Mark.FAILED, {}).values(), room // 3)
    some_failed = len(children)
    room -= sum(map(_cost, children))
    for mark in _SHOWN:
        group = groups.get(mark, {})
        more = _first(islice(group.values(), some_failed if mark is Mark.FAILED else 0, None), room)
        room -= sum(map(_cost, more))
        children += more
    return children


def _first(nodes: Iterable[Node], room: int) -> list[Node]:
    """As many of the first as have room."""
    fitting: list[Node] = []
    for node in nodes:
        room -= _cost(node)
        if room < 0:
            break
        fitting.append(node)
    return fitting


def _single_line_of_descent(parent: Node) -> tuple[int, Node]:
    """How many batons below have no sibling and wait for a single child of the same kind, and the one that ends the line."""
    hidden = -1
    node = parent
    while hidden < _MAX_GAP and node.child_count == 1 and node.groups and node.groups.get(Mark.SPAWNED):
        node = next(iter(node.groups[Mark.SPAWNED].values()))
        hidden += 1
    return hidden, node


def _emit(view: TreeView, root: Node, plan: dict[str, _Expansion], height: int) -> Iterator[Line]:
    """The planned lines, each baton before what is below it."""
    stack: list[tuple[int, Node] | FoldLine] = [(0, root)]
    room = height
    while stack and room > 0:
        item = stack.pop()
        lines: list[Line] = [item] if isinstance(item, FoldLine) else list(_of_baton(view, item[1], item[0]))
        if not isinstance(item, FoldLine) and (expansion := plan.get(item[1].id)):
            level = item[0] + 1
            if expansion.folded:
                stack.append(FoldLine(level, expansion.folded))
            if expansion.gap:
                lines.append(GapLine(level, expansion.gap))
                level += 1
            stack.extend((level, child) for child in reversed(expansion.children))
        yield from lines[:room]
        room -= len(lines)
