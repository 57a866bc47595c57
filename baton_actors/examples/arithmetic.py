"""Workers whose results are known beforehand: the smallest use of each way a run can end."""

from itertools import pairwise
from typing import Any

from baton_actors import Baton, Child, Context, Spawned

#: Numbers that are summed without a breakdown, unless the context names another `leaf`.
LEAF = 100
#: Children of one breakdown of `sum_range`.
PARTS = 4


def sum_range(baton: Baton, ctx: Context) -> Spawned | int:
    """The sum of the integers from `start` up to but not with `stop`, through children until a part has at most `leaf` numbers."""
    if ctx.breakdown:
        return sum(int(child.result) for child in ctx.children)
    start, stop = baton.context["start"], baton.context["stop"]
    leaf = max(1, baton.context.get("leaf", LEAF))
    if stop - start <= leaf:
        return sum(range(start, stop))
    edges = [start + (stop - start) * part // PARTS for part in range(PARTS + 1)]
    return Spawned(
        [Child(f"sum {low} to {high}", {"start": low, "stop": high, "leaf": leaf}) for low, high in pairwise(edges) if low < high]
    )


def chain(baton: Baton, ctx: Context) -> Spawned | int:
    """A line of `levels` batons below this one, each the only child of the one above; the result is how many batons there were."""
    if ctx.breakdown:
        return 1 + int(ctx.children[0].result)
    levels = baton.context["levels"]
    if levels <= 0:
        return 1
    return Spawned([Child(f"{levels - 1} levels to go", {"levels": levels - 1})])


def empty(baton: Baton, ctx: Context) -> Spawned | dict[str, Any]:
    """A breakdown without children resumes at once."""
    if ctx.breakdown == 0:
        return Spawned([], state="kept")
    return {"breakdown": ctx.breakdown, "children": len(ctx.children), "state": ctx.state}


def thrice(baton: Baton, ctx: Context) -> Spawned | list[int]:
    """Three breakdowns one after the other: each run adds what its children brought to what the state holds."""
    squares = [*(ctx.state or []), *(child.result for child in ctx.children)]
    if ctx.breakdown == 3:
        return squares
    first = 2 * ctx.breakdown + 1
    children = [Child(f"square {number}", {"number": number}, worker=square) for number in (first, first + 1)]
    return Spawned(children, state=squares)


def square(baton: Baton, ctx: Context) -> int:
    """The square of `number`."""
    return int(baton.context["number"] ** 2)
