"""Where output goes: data to standard output, words to standard error, and a status line while something takes its time."""

import json
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO

from rich.console import Console
from rich.status import Status

from baton_actors.display import harmless

#: Standard output, while everything else that is printed goes to standard error.
_kept: TextIO | None = None


@contextmanager
def data_only() -> Iterator[None]:
    """While this lasts, only what is printed here reaches standard output: Ray prints its warnings there, whatever it was told."""
    global _kept
    before = _kept
    _kept = before or sys.stdout
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _kept = before


def _data() -> TextIO:
    return _kept or sys.stdout


def print_json(value: Any) -> None:
    """One JSON value on standard output: indented for a person, in one line for a program."""
    print_text(as_json(value, indent=2 if _data().isatty() else None))


def as_json(value: Any, indent: int | None = None) -> str:
    """JSON text in the characters that standard output has."""
    return json.dumps(value, ensure_ascii=not _speaks_unicode(), indent=indent)


def print_text(text: str) -> None:
    """One piece of data on standard output, as it is."""
    _data().write(f"{text}\n")
    _data().flush()


def print_result(value: Any) -> None:
    """A result for a person or a pipe: text as it is, anything else as indented JSON."""
    print_text(value if isinstance(value, str) else as_json(value, indent=2))


def say(text: str) -> None:
    """One line for a person, on standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def folded(text: str) -> str:
    """A long line for a person, broken between words at the width of the terminal; elsewhere it stays one line."""
    console = error_console()
    return textwrap.fill(text, console.width, break_long_words=False, break_on_hyphens=False) if console.is_terminal else text


def error_console() -> Console:
    """Standard error as rich knows it; `NO_COLOR` and `TERM=dumb` are kept by rich."""
    return Console(stderr=True, highlight=False)


def animated(console: Console) -> bool:
    """Whether lines may be drawn over: only on a terminal that can."""
    return console.is_terminal and not console.is_dumb_terminal


def output_width() -> int | None:
    """The width to cut lines of data to; None (do not cut) when standard output is not a terminal."""
    return Console(file=_data()).width if _data().isatty() else None


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """A function that says what is being done: one line that changes on a terminal, a line each elsewhere."""
    console = error_console()
    if not animated(console):
        yield lambda text: say(harmless(text))
        return
    status = Status("", console=console)

    def show(text: str) -> None:
        status.update(harmless(text).replace("[", r"\["))
        status.start()

    try:
        yield show
    finally:
        status.stop()


def _speaks_unicode() -> bool:
    return (_data().encoding or "").lower().replace("-", "").startswith("utf")
