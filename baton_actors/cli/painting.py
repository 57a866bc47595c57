"""Showing a tree on standard error while a command waits for its end."""

import asyncio
import threading
import time
from collections.abc import AsyncIterable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from rich.live import Live

from baton_actors.baton import Baton
from baton_actors.cli.output import animated, error_console, say
from baton_actors.display import LiveTree, Node, Spent, TreeView, Verdict, counted, elapsed, harmless, headline
from baton_actors.events import TREE_ENDS, Event, EventType, Whisper
from baton_actors.snapshot import Snapshot

#: Off a terminal: a tree of more batons gets a line of counts now and then instead of a line for each change.
MAX_TOLD = 200
#: Milliseconds between two lines of counts, by the times of the events.
SUMMARY_EVERY = 5_000
#: Characters of a goal, a reason or a name on such a line.
_TEXT = 200
#: Seconds; what a function tells as longer is no duration.
_LONGEST = 1e9
#: Seconds that the picture may take to catch up with a tree that has ended.
CATCH_UP = 3.0


class Followed(Protocol):
    """What is needed of a tree to show it and wait for it: a `TreeHandle`, or what stands for one."""

    id: str

    def wait(self, timeout: float | None = None) -> Baton:
        """The root when the tree has ended."""

    def events(self, after: int = 0, beside: Callable[[Whisper], None] | None = None) -> AsyncIterable[Event]:
        """Everything after a cursor, to the end of the tree; what is only heard goes to `beside`."""

    def snapshot(self) -> Snapshot:
        """The tree as it stands."""


class Painter(Protocol):
    """Something that shows events."""

    def apply(self, event: Event) -> None:
        """Show one event."""

    @property
    def beside(self) -> Callable[[Whisper], None] | None:
        """Shows what is going on in a run; None where nobody wants to hear of it."""


class LinePainter:
    """Plain lines, for a file or a pipe: one for each change of status and each step of an agent; counts when there are too many."""

    beside: None = None

    def __init__(self, view: TreeView) -> None:
        self._view = view
        self._said_at = 0

    def apply(self, event: Event) -> None:
        node = self._view.apply(event)
        if len(self._view.nodes) > MAX_TOLD:
            if event.at - self._said_at >= SUMMARY_EVERY or event.type in TREE_ENDS:
                self._said_at = event.at
                counts = f"{len(self._view.nodes):,} batons: {counted(self._view.counts)}"
                say("  ".join([counts, *_used(self._view.spent)]))
        elif node is not None and event.type is EventType.PROGRESS:
            if line := _step(node, event):
                say(line)
        elif node is not None and event.type is not EventType.CREATED:
            spent = self._view.spent if node.parent is None else node.spent
            say("  ".join([_begun(event.type.removeprefix("baton."), node), *_details(node, event, spent)]))


def _begun(word: str, node: Node) -> str:
    return f"{word:<11} {harmless(node.goal, _TEXT)}"


def _details(node: Node, event: Event, spent: Spent) -> Iterator[str]:
    if event.type is EventType.SPAWNED:
        yield f"{event.data.get('children', 0):,} children"
    if node.started is not None and node.ended is not None:
        yield elapsed(node.ended - node.started)
    if node.ended is not None:
        yield from _used(spent)
    if node.error is not None:
        yield f"{node.error_kind}: {headline(node.error)}"
    if node.note:
        yield harmless(node.note)


def _step(node: Node, event: Event) -> str | None:
    """The line of an agent's decision, model call or tool call; None of any other progress."""
    data = event.data
    match data.get("kind"):
        case "decision":
            return f"{_begun('decided', node)}: {Verdict.of(event).words()}"
        case "round":
            purpose = str(data.get("purpose", "round"))  # "judgement" and "closing" are rounds too
            word = f"round {data.get('round', '')}" if purpose == "round" else purpose
            return "  ".join([_begun(harmless(word, _TEXT), node), *_seconds(data), *_used(Spent.of(data, 0))])
        case "tool":
            name = harmless(str(data.get("name", "")), _TEXT)
            return "  ".join([_begun("tool", node), name, *_seconds(data), *(["failed"] if data.get("failed") else [])])
        case _:
            return None


def _used(spent: Spent) -> Iterator[str]:
    return filter(None, spent.words())


def _seconds(data: dict[str, Any]) -> Iterator[str]:
    seconds = data.get("seconds")
    if isinstance(seconds, int | float) and 0 <= seconds < _LONGEST:
        yield elapsed(round(1000 * seconds))


@contextmanager
def painter(view: TreeView) -> Iterator[Painter]:
    """A live tree on a terminal, plain lines elsewhere."""
    console = error_console()
    if not animated(console):
        yield LinePainter(view)
        return
    live_tree = LiveTree(view, _now)
    with Live(live_tree, console=console, refresh_per_second=5, redirect_stdout=False, redirect_stderr=False):
        try:
            yield live_tree
        finally:
            live_tree.close()


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
        async for event in tree.events(after, shown.beside):
            shown.apply(event)
    except Exception as error:
        say(f"the picture stops here ({harmless(str(error))}); the task goes on")


def outcome(tree: Followed, root: Baton) -> dict[str, Any]:
    """What `--json` prints of a tree that was waited for.

    `batons` counts them by status. `rounds` is the sum of all model calls, `usage` of `Baton.usage`: `tokens_in`,
    `tokens_out`, `tokens_cached` (among those in), and `cost` where it is known; empty if no model was called.
    """
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
        "rounds": sum(baton.rounds for baton in snapshot.batons),
        "usage": usage,
        "duration_ms": root.updated_at - root.created_at,
        "partial": root.partial,
    }


def _now() -> int:
    return time.time_ns() // 1_000_000
