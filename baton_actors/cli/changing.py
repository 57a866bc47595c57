"""`answer`, `cancel` and `retry`: what is asked of a tree that exists."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from baton_actors.cli.options import AsJson, BatonId, BudgetLimits, DatabaseUrl, budget_limits, json_or_text
from baton_actors.cli.output import print_json, say, status_line

if TYPE_CHECKING:
    from baton_actors.client import Client


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
    with _connected(database_url) as client:
        client.get(id).answer(id, json_or_text(value))
    _done(id, "answered", as_json)


def cancel(
    id: BatonId,
    reason: Annotated[str, typer.Option("--reason", help="Kept as the error of what is cancelled.")] = "cancelled by the user",
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Cancel a baton and all below it."""
    with _connected(database_url) as client:
        client.get(id).cancel(reason, id)
    _done(id, "cancelled", as_json)


def retry(id: BatonId, budget: BudgetLimits = None, as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Start a failed baton again.

    What completed below it keeps its result."""
    more: Any = budget_limits(budget)
    with _connected(database_url) as client:
        client.get(id).retry(id, budget=more)
    _done(id, "started again", as_json)


def _connected(database_url: str | None) -> "Client":
    from baton_actors.client import connect

    with status_line() as progress:
        return connect(database_url=database_url, progress=progress)


def _done(id: str, what: str, as_json: bool) -> None:
    if as_json:
        print_json({"id": id, "done": what})
    else:
        say(f"{id} {what}")
