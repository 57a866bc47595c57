"""Lines of a tree as characters: words for a file, marks and colours for a terminal."""

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple, assert_never

from rich.cells import cell_len
from rich.text import Text

from baton_actors.display.layout import BatonLine, FoldLine, GapLine, Line, ReasonLine, layout
from baton_actors.display.view import Mark, Node, TreeView
from baton_actors.display.wording import elapsed, harmless, headline, shortened

#: Deeper levels are named by number instead of by more white space.
_MAX_INDENT = 16
#: Characters of a goal or an error that are looked at; a line holds fewer, except in a file.
_MAX_TEXT = 1_000
#: What is kept for a goal, however much stands behind it: one part in so many of the line, and at least so many cells.
_GOAL_SHARE = 4
_MIN_GOAL = 12
#: Cells of what a run does; tools that are called together may be many.
_MAX_ACTIVITY = 24
#: Cells below which a part that may be cut is rather left out.
_MIN_PART = 6

_SIGNS = {
    Mark.PENDING: ("○", "dim"),
    Mark.RUNNING: ("●", "cyan"),
    Mark.WAITING: ("?", "bold magenta"),
    Mark.SPAWNED: ("◆", "blue"),
    Mark.COMPLETED: ("✓", "green"),
    Mark.FAILED: ("✗", "bold red"),
    Mark.CANCELLED: ("⊘", "yellow"),
}
_COUNTED = {
    Mark.COMPLETED: "done",
    Mark.FAILED: "failed",
    Mark.CANCELLED: "cancelled",
    Mark.WAITING: "waiting",
    Mark.RUNNING: "running",
    Mark.SPAWNED: "spawned",
    Mark.PENDING: "pending",
}
_WORD_WIDTH = max(map(len, Mark))


class Rank(IntEnum):
    """What stands behind a goal, the most important first: where room is short, the last goes first."""

    ID = 0
    NOTE = 1
    COUNTS = 2
    TOTAL = 3
    """Tokens of the whole tree: what it costs is of more interest than what its root does."""
    ACTIVITY = 4
    TOKENS = 5
    COST = 6
    ELAPSED = 7
    ROUNDS = 8


class _Part(NamedTuple):
    rank: Rank
    text: str


#: Parts that say something even without their end.
_MAY_BE_CUT = frozenset({Rank.NOTE, Rank.COUNTS, Rank.ACTIVITY})


def text_lines(view: TreeView, now: int, *, width: int | None = None, height: int | None = None, ids: bool = False) -> Iterator[str]:
    """The tree as plain lines.

    Args:
        now: milliseconds since 1970, for the times of what still runs.
        width: in cells; None cuts nothing. height: in lines; None folds nothing.
        ids: whether each baton's id stands on its line.
    """
    return (plain_line(line, now, width=width, ids=ids) for line in layout(view, height))


def plain_line(line: Line, now: int, *, width: int | None = None, ids: bool = False) -> str:
    """One line in words, without colour: `completed  count the files  1.2 s`."""
    match line:
        case BatonLine():
            head = f"{_indent(line.level, width)}{line.node.mark:<{_WORD_WIDTH}} "
            goal, parts = _fitted(head, line, now, width, ids)
            return _cut(f"{head}{goal}{''.join(f'  {part.text}' for part in parts)}".rstrip(), width)
        case ReasonLine():
            return _cut(f"{_indent(line.level, width)}{_reason(line.node)}", width)
        case FoldLine():
            return _cut(f"{_indent(line.level, width)}{counted(line.counts, more=True)}", width)
        case GapLine():
            return _cut(f"{_indent(line.level, width)}({line.hidden:,} levels of one baton each)", width)
        case _:
            assert_never(line)


def rich_line(line: Line, now: int, *, width: int, ids: bool = False) -> Text:
    """One line with marks and colours, never wider than `width` cells."""
    indent = _indent(line.level, width)
    match line:
        case BatonLine():
            sign, style = _SIGNS[line.node.mark]
            head = _cut(f"{indent}{sign} ", width)
            goal, parts = _fitted(head, line, now, width, ids)
            behind = [(f"  {part.text}", "cyan" if part.rank is Rank.ACTIVITY else "dim") for part in parts]
            text = Text.assemble((head, style), (goal, "dim" if line.node.mark is Mark.PENDING else ""), *behind)
        case ReasonLine():
            text = Text(_cut(f"{indent}{_reason(line.node)}", width), "red")
        case FoldLine():
            done = line.counts.get(Mark.COMPLETED)
            text = Text(_cut(f"{indent}{'✓' if done else '…'} {counted(line.counts, more=True)}", width), "dim")
        case GapLine():
            text = Text(_cut(f"{indent}⋮ {line.hidden:,} levels of one baton each", width), "dim")
        case _:
            assert_never(line)
    text.no_wrap = True
    text.overflow = "crop"
    return text


def counted(counts: dict[Mark, int], *, more: bool = False) -> str:
    """Counts in words, ended ones first: `12 done · 1 failed · 37 pending`; with `more`, `37 more pending`."""
    between = " more " if more else " "
    return " · ".join(
        f"{counts[mark]:,}{' ' if mark is Mark.COMPLETED else between}{word}" for mark, word in _COUNTED.items() if counts.get(mark)
    )


def _fitted(head: str, line: BatonLine, now: int, width: int | None, ids: bool) -> tuple[str, list[_Part]]:
    """The goal and what stands behind it, in the room that the head leaves."""
    goal = harmless(line.node.goal, _MAX_TEXT)
    parts = list(_behind(line, now, ids))
    if width is None:
        return goal, parts
    room = width - cell_len(head)
    parts = _chosen(parts, room - min(max(_MIN_GOAL, room // _GOAL_SHARE), cell_len(goal)))
    return shortened(goal, room - sum(2 + cell_len(part.text) for part in parts)), parts


def _chosen(parts: list[_Part], room: int) -> list[_Part]:
    """The most important parts that have room, two cells before each; after the first that has none, no other is looked at."""
    chosen: dict[int, _Part] = {}
    for place in sorted(range(len(parts)), key=lambda place: parts[place].rank):
        rank, text = parts[place]
        if cell_len(text) > room - 2 and rank in _MAY_BE_CUT and room - 2 >= _MIN_PART:
            text = shortened(text, room - 2)
        if cell_len(text) > room - 2:
            break
        chosen[place] = _Part(rank, text)
        room -= 2 + cell_len(text)
    return [chosen[place] for place in sorted(chosen)]


def _behind(line: BatonLine, now: int, ids: bool) -> Iterator[_Part]:
    node = line.node
    if line.counts is not None and node.groups:
        yield _Part(Rank.COUNTS, counted({**line.counts, node.mark: line.counts[node.mark] - 1}))
    elif node.mark is Mark.SPAWNED:
        yield _Part(Rank.COUNTS, _children(node))
    if node.started is not None and node.mark is not Mark.PENDING:
        yield _Part(Rank.ELAPSED, elapsed((now if node.ended is None else node.ended) - node.started))
    if node.activity:
        yield _Part(Rank.ACTIVITY, f"{shortened(harmless(node.activity.what), _MAX_ACTIVITY)} ({elapsed(now - node.activity.since)})")
    rounds, tokens, cost = (line.spent or node.spent).words()
    used = (
        (Rank.ROUNDS, "" if node.activity else rounds),
        (Rank.TOTAL if line.spent else Rank.TOKENS, tokens),
        (Rank.COST, cost if line.spent else ""),
    )
    yield from (_Part(rank, words) for rank, words in used if words)
    if ids:
        yield _Part(Rank.ID, node.id)
    if node.note:
        yield _Part(Rank.NOTE, harmless(node.note, _MAX_TEXT))
    if node.mark is Mark.CANCELLED and node.error:
        yield _Part(Rank.NOTE, headline(node.error[:_MAX_TEXT]))


def _children(node: Node) -> str:
    groups = node.groups or {}
    ended = sum(len(groups.get(mark, ())) for mark in (Mark.COMPLETED, Mark.FAILED, Mark.CANCELLED))
    return f"{ended:,} of {node.child_count:,} children ended"


def _reason(node: Node) -> str:
    return f"{node.error_kind}: {headline((node.error or '')[:_MAX_TEXT])}"


def _indent(level: int, width: int | None) -> str:
    """Two cells a level; what would push the goal out of the line is said by a number."""
    most = _MAX_INDENT if width is None else min(_MAX_INDENT, width // 6)
    return "  " * level if level <= most else f"{'  ' * most}[{level}] "


def _cut(text: str, width: int | None) -> str:
    return text if width is None else shortened(text, width)
