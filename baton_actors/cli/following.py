"""`watch` and `resume`: trees that run already, or should."""

from typing import TYPE_CHECKING, Annotated

import typer

from baton_actors.baton import Baton, Status
from baton_actors.cli.database import opened
from baton_actors.cli.options import AsJson, BatonId, DatabaseUrl, Timeout
from baton_actors.cli.output import as_json as json_text
from baton_actors.cli.output import data_only, print_text, say, status_line
from baton_actors.cli.painting import ended, outcome
from baton_actors.cli.submitting import exit_code, tell
from baton_actors.cli.tailing import followed
from baton_actors.display import TreeView, headline
from baton_actors.errors import WaitTimeout

if TYPE_CHECKING:
    from baton_actors.client import TreeHandle


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command()(watch)
    app.command()(resume)


def watch(id: BatonId, timeout: Timeout = None, as_json: AsJson = False, database_url: DatabaseUrl = None) -> int:
    """Follow a tree to its end.

    Its result is printed then. Ctrl-C only stops watching."""
    with opened(database_url) as store:
        root_id = store.root_of(id)
        with followed(store, root_id, database_url) as tree:
            try:
                root = ended(tree, timeout, TreeView.from_snapshot(tree.snapshot()))
            except KeyboardInterrupt:
                say(f"no longer watching; {root_id} goes on")
                return 130
            return tell(tree, root, as_json)


def resume(
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this tree.", show_default=False)] = None,
    timeout: Timeout = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Finish trees whose cluster is gone.

    All of them or one, in the running cluster or a private one; a line is printed for each."""
    from baton_actors.client import connect

    with opened(database_url) as store:
        root_id = None if id is None else store.root_of(id)
    with status_line() as progress:
        client = connect(database_url=database_url, progress=progress)
    with data_only(), client:
        with status_line() as progress:
            trees = client.resume(root_id, progress=progress)
        if not trees:
            say("no unfinished trees")
        waiting = {tree.id for tree in trees if client.private and _waits_for_people(tree)}
        for id in waiting:
            say(f"{id} waits for an answer, which nobody can give to a private Ray: 'ray start --head', then 'baton answer'")
        codes = {_finished(tree, timeout, as_json) for tree in trees if tree.id not in waiting}
    return next((code for code in (130, 4, 1, 3) if code in codes), 0)


def _waits_for_people(tree: "TreeHandle") -> bool:
    """Whether nothing in a tree can go on without somebody outside."""
    live = [baton for baton in tree.snapshot().batons if baton.status in (Status.PENDING, Status.RUNNING)]
    return bool(live) and all(baton.passive and baton.status is Status.RUNNING for baton in live)


def _finished(tree: "TreeHandle", timeout: float | None, as_json: bool) -> int:
    try:
        root = ended(tree, timeout, TreeView.from_snapshot(tree.snapshot()))
    except WaitTimeout as error:
        say(f"error: {error}")
        return 4
    print_text(json_text(outcome(tree, root)) if as_json else _line(root))
    return exit_code(root)


def _line(root: Baton) -> str:
    if root.status is Status.COMPLETED:
        return f"{root.id}  completed  {root.result if isinstance(root.result, str) else json_text(root.result)}"
    return f"{root.id}  {root.status}  {root.error_kind}: {headline(root.error or '')}"
