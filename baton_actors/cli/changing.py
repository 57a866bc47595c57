"""`answer`, `cancel` and `retry`: what is asked of a tree that exists."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from baton_actors.cli.database import opened
from baton_actors.cli.options import AsJson, BatonId, BudgetLimits, DatabaseUrl, budget_limits, json_or_text
from baton_actors.cli.output import data_only, print_json, say, status_line
from baton_actors.errors import ClusterUnusable
from baton_actors.settings import ray_address

if TYPE_CHECKING:
    from baton_actors.client import TreeHandle


_ELSEWHERE = (
    "the private Ray of another command works on it, which nobody else can reach; if that command is gone, try again in {left:.0f} s "
    "(for trees that several commands reach, start one cluster: 'ray start --head')"
)


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    for command in (answer, cancel, retry):
        app.command()(command)


def answer(
    id: BatonId,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="JSON, or plain text.", show_default=False)],
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Answer a baton that waits for somebody."""
    with _tree_of(id, database_url) as tree:
        tree.answer(id, json_or_text(value))
    _done(id, "answered", as_json, database_url)


def cancel(
    id: BatonId,
    reason: Annotated[str, typer.Option("--reason", help="Kept as the error of what is cancelled.")] = "cancelled by the user",
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Cancel a baton and all below it."""
    with _tree_of(id, database_url) as tree:
        tree.cancel(reason, id)
    _done(id, "cancelled", as_json, database_url)


def retry(id: BatonId, budget: BudgetLimits = None, as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Start a failed baton again.

    What completed below it keeps its result.
    """
    more: Any = budget_limits(budget)
    with _tree_of(id, database_url) as tree:
        tree.retry(id, budget=more)
    _done(id, "started again", as_json, database_url)


@contextmanager
def _tree_of(id: str, database_url: str | None) -> Iterator["TreeHandle"]:
    """The tree of a baton, in a cluster that may change it.

    Raises:
        NotFound: there is no such baton; Ray was not started for that.
        ClusterUnusable: another program's private Ray works on it, which nobody else can reach.
    """
    with opened(database_url) as store:
        root_id = store.root_of(id)
        if ray_address() is None and (left := store.lease_left(root_id)):
            raise ClusterUnusable(f"tree {root_id}", _ELSEWHERE.format(left=left))
    from baton_actors.client import connect

    with status_line() as progress:
        client = connect(database_url=database_url, progress=progress)
    with data_only(), client:
        yield client.get(id)


def _done(id: str, what: str, as_json: bool, database_url: str | None) -> None:
    if as_json:
        print_json({"id": id, "done": what})
    else:
        say(f"{id} {what}")
    with opened(database_url) as store:
        root_id = store.root_of(id)
        if ray_address() is None and store.tree(root_id).status == "open":
            say(f"no cluster is running to go on with it: 'baton resume {root_id}'")
