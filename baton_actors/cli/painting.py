"""Showing a tree on standard error while a command waits for its end."""

import asyncio
import threading
import time
from collections.abc import AsyncIterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from rich.live import Live

from baton_actors.baton import Baton
from baton_actors.cli.output import animated, error_console, say
from baton_actors.display import LiveTree, Node, TreeView, counted, elapsed, harmless, headline
from baton_actors.events import TREE_ENDS, Event, EventType
from baton_actors.snapshot import Snapshot

#: Off a terminal: a tree of more batons gets a line of counts now and then instead of a line for each change.
MAX_TOLD = 200
#: Milliseconds between two lines of counts, by the times of the events.
SUMMARY_EVERY = 5_000
#: Seconds that the picture may take to catch up with a tree that has ended.
CATCH_UP = 3.0


class Followed(Protocol):
    """What is needed of a tree to show it and wait for it: a `TreeHandle`, or what stands for one."""

    id: str

    def wait(self, timeout: float | None = None) -> Baton:
        """The root when the tree has ended."""

    def events(self, after: int = 0) -> AsyncIterable[Event]:
        """Everything after a cursor, to the end of the tree."""

    def snapshot(self) -> Snapshot:
        """The tree as it stands."""


class Painter(Protocol):
    """Something that shows events."""

    def apply(self, event: Event) -> None:
        """Show one event."""


class LinePainter:
    """Plain lines, for a file or a pipe: one for each change of status, or counts when there are too many batons."""

    def __init__(self, view: TreeView) -> None:
        self._view = view
        self._said_at = 0

    def apply(self, event: Event) -> None:
        node = self._view.apply(event)
        if len(self._view.nodes) > MAX_TOLD:
            if event.at - self._said_at >= SUMMARY_EVERY or event.type in TREE_ENDS:
                self._said_at = event.at
                say(f"{len(self._view.nodes):,} batons: {counted(self._view.counts)}")
        elif node is not None and event.type is not EventType.CREATED:
            say("  ".join([f"{event.type.removeprefix('baton.'):<11} {harmless(node.goal)}", *_details(node, event)]))


def _details(node: Node, event: Event) -> Iterator[str]:
    if event.type is EventType.SPAWNED:
        yield f"{event.data.get('children', 0):,} children"
    if node.started is not None and node.ended is not None:
        yield elapsed(node.ended - node.started)
    if node.error is not None:
        yield f"{node.error_kind}: {headline(node.error)}"
    if node.note:
        yield harmless(node.note)


@contextmanager
def painter(view: TreeView) -> Iterator[Painter]:
    """A live tree on a terminal, plain lines elsewhere."""
    console = error_console()
    if not animated(console):
        yield LinePainter(view)
        return
    live_tree = LiveTree(view, _now)
    with Live(live_tree, console=console, refresh_per_second=5, redirect_stdout=False, redirect_stderr=False):
        yield live_tree


def ended(tree: Followed, timeout: float | None, view: TreeView | None = None) -> Baton:
    """The root when it has ended, its tree being shown until then.

    The wait and the picture are two things: a stream of events that breaks is told, and is no end.

    Raises:
        WaitTimeout: after `timeout` seconds.
    """
    view = view or TreeView(tree.id)
    with painter(view) as shown, _painting(tree, view.seq, shown) as picture:
        root = tree.wait(timeout)
        picture.join(CATCH_UP)
        return root


@contextmanager
def _painting(tree: Followed, after: int, shown: Painter) -> Iterator[threading.Thread]:
    """A thread that shows events, gone when the block is left.

    It waits in an event loop because that can be interrupted: Ray ends the whole process, with exit code 1, when it is shut
    down while a thread waits in `ray.get`.
    """
    loop = asyncio.new_event_loop()
    task = loop.create_task(_paint(tree, after, shown))
    thread = threading.Thread(target=_run, args=(loop, task), name="painter", daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        with suppress(RuntimeError):  # the loop has closed by itself
            loop.call_soon_threadsafe(task.cancel)
        thread.join(CATCH_UP)


def _run(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    with suppress(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


async def _paint(tree: Followed, after: int, shown: Painter) -> None:
    try:
        async for event in tree.events(after):
            shown.apply(event)
    except Exception as error:
        say(f"the picture stops here ({harmless(str(error))}); the task goes on")


def outcome(tree: Followed, root: Baton) -> dict[str, Any]:
    """What `--json` prints of a tree that was waited for."""
    snapshot = tree.snapshot()
    counts: dict[str, int] = {}
    usage: dict[str, float] = {}
    for baton in snapshot.batons:
        counts[baton.status] = counts.get(baton.status, 0) + 1
        for key, amount in baton.usage.items():
            usage[key] = usage.get(key, 0) + amount
    return {
        "id": root.id,
        "status": root.status,
        "result": root.result,
        "error": root.error,
        "error_kind": root.error_kind,
        "batons": counts,
        "events": snapshot.seq,
        "usage": usage,
        "duration_ms": root.updated_at - root.created_at,
        "partial": root.partial,
    }


def _now() -> int:
    return time.time_ns() // 1_000_000
