"""Options that several commands share, and the text forms of structured ones."""

import inspect
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from baton_actors.baton import AGENT, PASSIVE_WORKERS, BreakdownPolicy, Budget, Child, Notify, OnChildFailure, first_fault
from baton_actors.errors import InvalidInput
from baton_actors.references import check_signature, resolve
from baton_actors.settings import load_settings

DatabaseUrl = Annotated[
    str | None,
    typer.Option("--database-url", metavar="URL", help="sqlite:////path/file.db or postgresql://user@host/name.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Timeout = Annotated[float | None, typer.Option("--timeout", min=0, metavar="S", help="Stop waiting after so many seconds (exit code 4).")]
BatonId = Annotated[str, typer.Argument(metavar="ID", help="Id of a baton.", show_default=False)]
BudgetLimits = Annotated[
    list[str] | None,
    typer.Option("--budget", metavar="KEY=N", help="A limit of the tree: batons, rounds, tokens, cost or seconds. Repeatable."),
]


def database(url: str | None) -> str:
    """The URL of the database that a command works on."""
    return load_settings(database_url=url).database


def task_fields(
    goal: Annotated[str, typer.Argument(metavar="GOAL", help="What to do.", show_default=False)],
    worker: Annotated[
        str | None, typer.Option("--worker", metavar="REF", help="agent (the default), module:function, human or external.")
    ] = None,
    context: Annotated[str | None, typer.Option("--context", metavar="JSON|@FILE", help="A JSON object; @- reads standard input.")] = None,
    tool: Annotated[
        list[str] | None, typer.Option("--tool", metavar="NAME", help="A tool it may use: its name, or module:function. Repeatable.")
    ] = None,
    prompt: Annotated[str | None, typer.Option("--prompt", help="Extra instructions for this task.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="Name of the model for agents.")] = None,
    timeout_hint: Annotated[float | None, typer.Option("--timeout-hint", metavar="S", help="Seconds of one execution window.")] = None,
    max_rounds: Annotated[int | None, typer.Option("--max-rounds", metavar="N", help="Model calls.")] = None,
    breakdown: Annotated[BreakdownPolicy | None, typer.Option("--breakdown", help="Who decides on breaking the task down.")] = None,
    on_child_failure: Annotated[OnChildFailure | None, typer.Option("--on-child-failure", help="What a failed child leads to.")] = None,
    max_retries: Annotated[int | None, typer.Option("--max-retries", metavar="N", help="Tries after a retryable failure.")] = None,
    retry_on: Annotated[list[str] | None, typer.Option("--retry-on", metavar="CLASS", help="A retryable exception. Repeatable.")] = None,
    channel: Annotated[str | None, typer.Option("--channel", metavar="NAME:WHERE", help="Where to tell of it.")] = None,
    notify: Annotated[Notify | None, typer.Option("--notify", help="How much to tell.")] = None,
    idempotency_key: Annotated[str | None, typer.Option("--idempotency-key", metavar="KEY", help="Submit it once only.")] = None,
    budget: BudgetLimits = None,
) -> dict[str, Any]:
    """The arguments of `Client.submit`, checked as far as that goes without a database.

    Raises:
        InvalidInput: names the option that cannot be used.
    """
    task: dict[str, Any] = {
        "worker": _worker(worker),
        "context": None if context is None else _context(context),
        "tools": tool or None,
        "prompt": prompt,
        "model": model,
        "timeout_hint": timeout_hint,
        "max_rounds": max_rounds,
        "breakdown": breakdown,
        "on_child_failure": on_child_failure,
        "max_retries": max_retries,
        "retry_on": retry_on or None,
    }
    Child(goal, **task).spec(lambda function: function.__name__)
    tree = {"channel": channel, "notify": notify, "idempotency_key": idempotency_key, "budget": budget_limits(budget)}
    return {"goal": goal, **task, **tree}


def with_task_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Replace the parameter `task` of a command by the options of `task_fields`, which makes it from them."""
    own = inspect.signature(command)
    options = inspect.signature(task_fields).parameters

    @wraps(command)
    def with_options(**given: Any) -> Any:
        task = task_fields(**{name: given.pop(name) for name in options})
        return command(task=task, **given)

    others = [parameter for parameter in own.parameters.values() if parameter.name != "task"]
    signature = own.replace(parameters=[*options.values(), *others])
    with_options.__signature__ = signature  # type: ignore[attr-defined]  # read by inspect.signature
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in signature.parameters.values()}
    return with_options


def budget_limits(given: list[str] | None) -> dict[str, float] | None:
    """`["batons=100", "seconds=30"]` as a budget.

    Raises:
        InvalidInput: an unknown key, or not a positive number.
    """
    if not given:
        return None
    limits: dict[str, float] = {}
    for item in given:
        key, equals, amount = item.partition("=")
        if not equals or key not in Budget.model_fields:
            raise InvalidInput("--budget", f"{item!r} is not KEY=N with a key of {', '.join(Budget.model_fields)}")
        limits[key] = _number(item, amount)
    try:
        Budget.model_validate(limits)
    except ValidationError as error:
        raise InvalidInput("--budget", str(first_fault(error))) from None
    return limits


def json_or_text(value: str) -> Any:
    """An answer as typed: JSON if it is JSON, else the text itself."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def _number(item: str, text: str) -> float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise InvalidInput("--budget", f"{item!r}: {text!r} is not a number") from None


def _worker(reference: str | None) -> str:
    """The reference, if it leads to a function of (baton, ctx): said now and not after the start of Ray."""
    if reference is None or reference == AGENT:
        return AGENT
    if reference in PASSIVE_WORKERS or reference.startswith("code:"):
        return reference
    try:
        with redirect_stdout(sys.stderr):  # what a module prints while it is imported is no data
            check_signature(resolve(reference)[1], reference)
    except InvalidInput as error:
        raise InvalidInput("--worker", error.why) from None
    return reference


def _context(given: str) -> dict[str, Any]:
    text = _read(given[1:]) if given.startswith("@") else given
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("--context", f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidInput("--context", f"must be a JSON object, not {type(value).__name__}")
    return value


def _read(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InvalidInput("--context", f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
