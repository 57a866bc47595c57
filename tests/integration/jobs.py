"""Workers for the tests, as a user writes them in a file of the working directory."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from baton_actors import Baton, Child, Context, HandedOver, Retry, Spawned


def total(baton: Baton, ctx: Context) -> Any:
    """The sum of 1 to `to`, each number a child."""
    if ctx.breakdown:
        return sum(child.result for child in ctx.children)
    return Spawned([Child(f"give {number}", {"number": number}, worker="jobs:give") for number in range(1, baton.context["to"] + 1)])


def give(baton: Baton, ctx: Context) -> int:
    return int(baton.context["number"])


def chain(baton: Baton, ctx: Context) -> Any:
    """A line of `levels` batons, each the only child of the one above; the result counts them."""
    if ctx.breakdown:
        return 1 + ctx.children[0].result
    left = baton.context["levels"] - 1
    return Spawned([Child(f"{left} to go", {"levels": left})]) if left else 1


def empty(baton: Baton, ctx: Context) -> Any:
    return Spawned([], state="kept") if not ctx.breakdown else [ctx.breakdown, ctx.state, len(ctx.children)]


def thrice(baton: Baton, ctx: Context) -> Any:
    seen = [*(ctx.state or []), [child.result for child in ctx.children]]
    if ctx.breakdown == 3:
        return seen
    return Spawned([Child("give", {"number": 10 * ctx.breakdown + n}, worker="jobs:give") for n in range(2)], state=seen)


def wide(baton: Baton, ctx: Context) -> Any:
    """Two levels: `width` children, each with as many of its own, which take `seconds`."""
    if ctx.breakdown:
        return sum(child.result for child in ctx.children)
    width = baton.context["width"]
    if baton.depth == 2:
        time.sleep(baton.context["seconds"])
        return 1
    return Spawned([Child(f"part {n}", dict(baton.context)) for n in range(width)])


async def wait_for_file(baton: Baton, ctx: Context) -> str:
    """Waits on an event from outside, without holding a thread."""
    path = Path(baton.context["file"])
    while not path.exists():
        await asyncio.sleep(0.02)
    return path.read_text()


def spin_until_cancelled(baton: Baton, ctx: Context) -> str:
    """Tells when it began and when it was told to stop."""
    folder = Path(baton.context["folder"])
    (folder / f"began-{baton.id}").touch()
    while not ctx.cancelled:
        time.sleep(0.01)
    (folder / f"stopped-{baton.id}").touch()
    return "late"


def many(baton: Baton, ctx: Context) -> Any:
    """`count` children of the worker that `child` names, with its context."""
    if ctx.breakdown:
        return [child.error_kind or child.result for child in ctx.children]
    return Spawned([Child(f"part {n}", dict(baton.context), worker=baton.context["child"]) for n in range(baton.context["count"])])


def die(baton: Baton, ctx: Context) -> None:
    os.kill(os.getpid(), 9)


def one_dies(baton: Baton, ctx: Context) -> Any:
    """The child at index 7 kills its process, the others say where they ran."""
    if ctx.breakdown:
        return [child.error_kind or child.result for child in ctx.children]
    return Spawned([Child(f"part {n}", worker="jobs:die" if n == 7 else "jobs:linger") for n in range(30)])


def linger(baton: Baton, ctx: Context) -> str:
    time.sleep(0.05)
    return "alive"


def flaky(baton: Baton, ctx: Context) -> int:
    """Fails until its third attempt."""
    if ctx.attempt < 3:
        raise Retry(f"attempt {ctx.attempt}", after=0.01)
    return ctx.attempt


def relay(baton: Baton, ctx: Context) -> Any:
    """Goes on by hand-over, one step a window."""
    step = (ctx.state or 0) + 1
    return step if step == baton.context["steps"] else HandedOver(step)


def remember(baton: Baton, ctx: Context) -> Any:
    """Saves its progress, then dies once; goes on from where it was."""
    if ctx.state is None:
        ctx.checkpoint({"done": 1})
        flag = Path(baton.context["flag"])
        while not flag.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), 9)
    return ctx.state


def not_json(baton: Baton, ctx: Context) -> Any:
    return {"items": [1, {2, 3}]}


def raises(baton: Baton, ctx: Context) -> None:
    class Unpicklable(Exception):
        def __init__(self, *, why: str) -> None:
            super().__init__(why)
            self.lock = open(os.devnull)  # noqa: SIM115 - what cannot be pickled is the point

    raise Unpicklable(why="broken on purpose")


def process(baton: Baton, ctx: Context) -> int:
    return os.getpid()


def naps(baton: Baton, ctx: Context) -> Any:
    """Three parts of four children each, which end one after the other; the result counts them."""
    if ctx.breakdown:
        return sum(child.result for child in ctx.children)
    if baton.depth == 0:
        return Spawned([Child(f"part {part}", {"part": part}) for part in range(3)])
    if baton.depth == 1:
        part = baton.context["part"]
        return Spawned([Child(f"nap {n}", {"seconds": 0.06 * (4 * part + n + 1)}) for n in range(4)])
    time.sleep(baton.context["seconds"])
    return 1
