"""`run` and `submit`: a goal goes in."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from baton_actors.baton import PASSIVE_WORKERS, Baton, ErrorKind, Status
from baton_actors.cli.database import opened
from baton_actors.cli.options import AsJson, DatabaseUrl, Timeout, with_task_options
from baton_actors.cli.output import data_only, folded, print_json, print_result, print_text, say, status_line
from baton_actors.cli.painting import Followed, ended, outcome
from baton_actors.display import headline
from baton_actors.errors import BatonCancelled, BatonFailed, NotAllowed, WaitTimeout
from baton_actors.settings import load_settings

if TYPE_CHECKING:
    from baton_actors.client import Client, TreeHandle

#: Seconds that an interrupted `run` waits for the cancelled tree to end.
_CANCEL_WAIT = 10.0


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command()(with_task_options(run))
    app.command()(with_task_options(submit))


def run(task: dict[str, Any], timeout: Timeout = None, as_json: AsJson = False, database_url: DatabaseUrl = None) -> int:
    """Run a task and print its result.

    Ctrl-C cancels it. A private Ray is started unless RAY_ADDRESS names one or 'ray start' started one here.
    """
    from baton_actors.client import connect, introduction, prepared

    with status_line() as progress:  # what is wrong with the task is said before Ray is started
        wanted = prepared(load_settings(database_url=database_url), **task, progress=progress)
    if introduced := introduction(wanted):
        say(folded(introduced))
    with status_line() as progress:
        client = connect(database_url=database_url, progress=progress)
    with data_only(), client:
        if client.private:
            _tell_of_unfinished(database_url)
        tree = client.hand_in(wanted)
        if client.private and task["worker"] in PASSIVE_WORKERS:
            say("nobody else can reach this private Ray to answer; start a cluster with 'ray start --head', then 'baton submit'")
        return _awaited(client, tree, timeout, as_json)


def submit(
    task: dict[str, Any],
    hold: Annotated[bool, typer.Option("--hold", help="Create it without starting it.")] = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Hand a task to a running cluster.

    Its id is printed; 'baton watch ID' follows it."""
    from baton_actors.client import connect, introduction, prepared

    with status_line() as progress:
        wanted = prepared(load_settings(database_url=database_url), **task, hold=hold, progress=progress)
        client = connect(database_url=database_url, start=False, progress=progress)
    if introduced := introduction(wanted):
        say(folded(introduced))
    with data_only(), client:
        tree = client.hand_in(wanted)
        if as_json:
            print_json({"id": tree.id})
        else:
            print_text(tree.id)


def _tell_of_unfinished(database_url: str | None) -> None:
    """Trees that nobody works on any more: a private Ray adopts none by itself."""
    with opened(database_url) as store:
        left = store.abandoned()
    if len(left) == 1:
        say(f"1 unfinished tree: baton resume {left[0]}")
    elif left:
        say(f"{len(left):,} unfinished trees: baton resume, or for one of them baton resume {left[0]}")


def _awaited(client: "Client", tree: "TreeHandle", timeout: float | None, as_json: bool) -> int:
    try:
        root = ended(tree, timeout)
    except WaitTimeout as error:
        say(f"error: {_unfinished(tree.id) if client.private else error}")
        if as_json:
            print_json(outcome(tree, tree.snapshot().batons[0]))
        return 4
    except KeyboardInterrupt:
        _cancel(tree, as_json)
        return 130
    return tell(tree, root, as_json)


def tell(tree: Followed, root: Baton, as_json: bool) -> int:
    """Print what became of a tree; the exit code for it."""
    if as_json:
        print_json(outcome(tree, root))
    elif root.status is Status.COMPLETED:
        print_result(root.result)
    if root.status is not Status.COMPLETED:
        say(f"error: {_failure(root)}")
    return exit_code(root)


def _failure(root: Baton) -> str:
    """What `TreeHandle.result` would raise, without the traceback: that is for 'baton show'."""
    failure = BatonCancelled if root.error_kind is ErrorKind.CANCELLED else BatonFailed
    return str(failure(root.id, headline(root.error or ""), root.error_kind or ErrorKind.ERROR))


def exit_code(root: Baton) -> int:
    """0 completed, 1 failed, 3 cancelled."""
    if root.status is Status.COMPLETED:
        return 0
    return 3 if root.error_kind is ErrorKind.CANCELLED else 1


def _unfinished(id: str) -> str:
    return f"baton {id} has not ended in time, and stops here with the Ray that this command started; 'baton resume {id}' goes on"


def _cancel(tree: "TreeHandle", as_json: bool) -> None:
    say(f"interrupted: cancelling {tree.id} (once more to leave at once)")
    try:
        tree.cancel("interrupted by the user")
        root = tree.wait(_CANCEL_WAIT)
    except NotAllowed:
        say(f"{tree.id} had already ended: 'baton show {tree.id}'")
    except WaitTimeout:
        say(f"{tree.id} is being cancelled")
    else:
        say(f"cancelled {tree.id}; 'baton retry {tree.id}' starts it again")
        if as_json:
            print_json(outcome(tree, root))
