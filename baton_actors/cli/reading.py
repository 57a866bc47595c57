"""`ls`, `show`, `tree` and `events`: what the database holds, read without starting Ray."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from baton_actors.baton import AGENT, Baton, Status
from baton_actors.cli.database import opened
from baton_actors.cli.options import AsJson, BatonId, DatabaseUrl
from baton_actors.cli.output import as_json as json_text
from baton_actors.cli.output import output_width, print_json, print_text, say
from baton_actors.cli.tailing import StoredTree, followed
from baton_actors.display import Node, TreeView, elapsed, harmless, layout, mermaid, plain_line, rich_line, shortened, usage_in_words
from baton_actors.errors import InvalidInput
from baton_actors.events import Event

if TYPE_CHECKING:
    from baton_actors.store import Store

#: Characters of a goal that are looked at for a line of the list.
_TEXT = 2_000
#: Fields that `show` prints in a place or a form of their own.
_TOLD_APART = frozenset(
    {"id", "status", "root_id", "parent_id", "goal", "worker", "created_at", "updated_at", "not_before", "deadline"}
    | {"children", "model", "usage", "result"}
)


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    for command in (ls, show, tree, events):
        app.command()(command)


def ls(
    status: Annotated[Status | None, typer.Option("--status", help="Only trees whose root has this status.")] = None,
    waiting: Annotated[bool, typer.Option("--waiting", help="The batons that wait for a human or an outside system.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=0, metavar="N", help="At most so many, the newest; 0: all.")] = 100,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List the trees, newest first."""
    if waiting and status is not None:
        raise InvalidInput("--status", "does not go with --waiting: what waits for an answer is running")
    with opened(database_url) as store:
        batons = store.waiting() if waiting else store.trees(status, limit + 1 if limit else None)
    if limit and len(batons) > limit:
        say(f"the first {limit:,} of more; --limit 0 shows all")
        batons = batons[:limit]
    if as_json:
        print_json([baton.model_dump(mode="json") for baton in batons])
        return
    width, now = output_width(), _now()
    for baton in batons:
        line = f"{baton.id}  {_word(baton):<9}  {elapsed(now - baton.created_at):>12} ago  {harmless(baton.goal, _TEXT)}"
        print_text(line if width is None else shortened(line, width))


def show(id: BatonId, as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Show one baton with all that is known of it."""
    with opened(database_url) as store:
        baton = store.baton(id)
        waits = _waits_for(store, baton)
        agent = None if as_json or baton.worker != AGENT else _as_logged(store, baton)
    if as_json:
        print_json(baton.model_dump(mode="json"))
        return
    for name, value in _fields(baton, waits, agent):
        print_text(f"{name:<12} {value}")


def tree(
    id: BatonId,
    as_json: AsJson = False,
    as_mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid diagram.")] = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Show the tree that a baton belongs to."""
    with opened(database_url) as store:
        snapshot = store.snapshot(store.root_of(id))
    if as_json:
        print_json(snapshot.to_wire())
        return
    view = TreeView.from_snapshot(snapshot)
    if as_mermaid:
        print_text(mermaid(view))
        return
    width, now = output_width(), _now()
    if width is None:
        for line in layout(view):
            print_text(plain_line(line, now, ids=True))
        return
    from rich.console import Console

    console = Console(highlight=False)
    words = console.no_color or console.options.ascii_only
    for line in layout(view):
        if words:
            print_text(plain_line(line, now, width=width, ids=True))
        else:
            console.print(rich_line(line, now, width=width, ids=True))


def events(
    id: BatonId,
    after: Annotated[int, typer.Option("--after", min=0, metavar="N", help="Only what follows event number N.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until the tree ends.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines: what is printed anyway.", hidden=True)] = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Print the events of a tree as JSON lines."""
    with opened(database_url) as store:
        root_id = store.root_of(id)
        last = store.tree(root_id).seq
        if after > last:
            raise InvalidInput("--after", f"{after} is beyond the end: the last event of {root_id} is {last}")
        for event in StoredTree(store, root_id).stored(after):
            after = event.seq
            _print_event(event)
        if follow and store.tree(root_id).status == "open":
            with followed(store, root_id, database_url) as tree:
                for event in tree.events(after):
                    _print_event(event)


def _print_event(event: Event) -> None:
    print_text(json_text(event.to_wire()))


def _word(baton: Baton) -> str:
    if baton.passive and baton.status is Status.RUNNING:
        return "waiting"
    return baton.error_kind if baton.error_kind == "cancelled" else baton.status


def _waits_for(store: "Store", baton: Baton) -> str | None:
    """Why a live baton does not run right now, in words."""
    if baton.status is Status.SPAWNED:
        return "its children"
    if baton.passive and baton.status is Status.RUNNING:
        return f"an answer: baton answer {baton.id} VALUE"
    if baton.status is not Status.PENDING:
        return None
    if baton.held:
        return "its release (it is held)"
    if baton.not_before is not None and baton.not_before > _now():
        return f"its time, {_when(baton.not_before)}"
    if store.tree(baton.root_id).owner is None:
        left = store.lease_left(baton.root_id)
        if not left:
            return f"a cluster: none works for its tree; baton resume {baton.root_id}"
        return "an owner: as many trees are active as BATON_MAX_TREES allows"
    return "a worker"


def _as_logged(store: "Store", baton: Baton) -> Node | None:
    """What the log tells of an agent's work: its decision and its model are in no column."""
    view = TreeView(baton.root_id)
    for event in StoredTree(store, baton.root_id).stored():
        view.apply(event)
    return view.nodes.get(baton.id)


def _fields(baton: Baton, waits: str | None, agent: Node | None) -> Iterator[tuple[str, str]]:
    """What `show` prints: names and values, only what says something."""
    simple = baton.model_dump(mode="json", exclude_defaults=True)
    yield "id", baton.id
    yield "status", _word(baton)
    if waits:
        yield "waits for", waits
    for name in ("root_id", "parent_id"):
        if (value := simple.get(name)) and value != baton.id:
            yield name, str(value)
    yield "goal", harmless(baton.goal)
    yield "worker", baton.worker
    yield "created", _when(baton.created_at)
    yield "updated", f"{_when(baton.updated_at)}, {elapsed(baton.updated_at - baton.created_at)} later"
    for name in ("not_before", "deadline"):
        if value := simple.get(name):
            yield name, _when(value)
    if baton.children:
        yield "children", f"{len(baton.children):,}: baton tree {baton.id}"
    if agent and agent.verdict:
        yield "decided", agent.verdict.words()
    if model := baton.model or (agent and agent.model):
        yield "model", harmless(model)
    for name, value in simple.items():
        if name not in _TOLD_APART:
            yield name, _shown(value)
    if baton.usage:
        yield "usage", usage_in_words(baton.usage)
    if baton.status is Status.COMPLETED:
        yield "result", _shown(baton.result)


def _shown(value: Any) -> str:
    """A value over as many lines as it has, those after the first set in."""
    text = value if isinstance(value, str) else json_text(value, indent=2)
    return "\n             ".join(harmless(line) if line.strip() != line or not line.isprintable() else line for line in text.splitlines())


def _when(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(" ", "seconds").replace("+00:00", " UTC")


def _now() -> int:
    return time.time_ns() // 1_000_000
