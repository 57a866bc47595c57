"""The command tree, and what becomes of an error: one line and an exit code."""

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from baton_actors import __version__
from baton_actors.cli import changing, checking, following, reading, submitting, tools
from baton_actors.cli.options import DatabaseUrl
from baton_actors.cli.output import say
from baton_actors.display import harmless
from baton_actors.errors import BatonCancelled, BatonError, CannotConnect, InvalidInput, WaitTimeout

USAGE = 2
INTERRUPTED = 130

app = typer.Typer(
    name="baton",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done or completed, 1 failed, not found or refused, 2 usage, 3 cancelled, 4 wait timed out, "
    "5 cannot connect, 130 interrupted.",
)
for group in (submitting, reading, following, changing, tools, checking):
    group.add_to(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"baton_actors {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    database_url: DatabaseUrl = None,
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Durable trees of tasks on Ray."""
    if database_url:
        # Over the environment and `.env` for every command; a command's own option stands over it.
        os.environ["BATON_DATABASE_URL"] = database_url


def execute(arguments: Sequence[str]) -> int:
    """Run one command; the exit code. An error is one line on standard error, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal or a pipe that is not UTF-8 gets \\u escapes instead of an exception.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        outcome = app(arguments, standalone_mode=False, prog_name="baton")
    except typer.TyperException as error:
        say(_usage(error))
        return error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BatonError as error:
        say(f"error: {harmless(str(error))}")
        return exit_code_of(error)
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        say(f"error: {harmless(f'{type(error).__name__}: {error}')} ({at.filename}:{at.lineno}); please report it, this is a fault of ours")
        return 1
    return outcome if isinstance(outcome, int) else 0


def exit_code_of(error: BatonError) -> int:
    """The exit code that stands for an error."""
    match error:
        case InvalidInput():
            return USAGE
        case CannotConnect():
            return 5
        case WaitTimeout():
            return 4
        case BatonCancelled():
            return 3
        case _:
            return 1


def _usage(error: typer.TyperException) -> str:
    text = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the whole help
        return text
    command = getattr(getattr(error, "ctx", None), "command_path", "baton")
    return f"error: {harmless(text).rstrip('.')}; see '{command} --help'"
