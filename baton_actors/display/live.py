"""The tree as something that rich shows again and again while events come in, and below it the answer while it is written."""

import threading
from collections.abc import Callable

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from baton_actors.display.layout import Line, layout
from baton_actors.display.text import plain_line, rich_line
from baton_actors.display.view import TreeView
from baton_actors.display.wording import harmless_lines
from baton_actors.events import Event, Whisper

#: The answer has at most one line in so many.
_SHARE = 3
#: Stands before each line of the answer: in a terminal's characters, and in ASCII.
_BAR, _ASCII_BAR = "│ ", "| "
#: Cells below which an answer cannot be read.
_MIN_WIDTH = 12
#: What our own words hold beyond ASCII, for terminals that know no more.
_TO_ASCII = str.maketrans({"…": "~", "·": "-"})


class LiveTree:
    """A renderable that follows a tree; events and whispers may come from one thread while another draws.

    It fits the height of the terminal, one line left free for the cursor. Without colour, or where the terminal knows
    ASCII only, the marks are words.

    Args:
        view: the picture to begin with. clock: milliseconds since 1970.
    """

    def __init__(self, view: TreeView, clock: Callable[[], int]) -> None:
        self._view = view
        self._clock = clock
        self._lock = threading.Lock()
        self._closed = False

    def apply(self, event: Event) -> None:
        """Take in one event."""
        with self._lock:
            self._view.apply(event)

    def beside(self, whisper: Whisper) -> None:
        """Take in what is going on in a run."""
        with self._lock:
            self._view.hear(whisper, self._clock())

    def close(self) -> None:
        """Show the tree alone from now on: what comes next is the answer itself."""
        with self._lock:
            self._closed = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = max(1, (options.height or console.height) - 1)
        width = options.max_width
        words = console.no_color or options.ascii_only
        now = self._clock()
        with self._lock:
            answer = [] if self._closed else _wrapped(self._view.answer, width - len(_BAR), height // _SHARE, console)
            lines = [self._line(line, now, width, words) for line in layout(self._view, height - len(answer))]
        bar = _ASCII_BAR if options.ascii_only else _BAR
        lines += [Text.assemble((bar, "" if words else "dim"), line) for line in answer]
        if options.ascii_only:
            lines = [Text(_ascii(line.plain)[:width]) for line in lines]
        yield Text("\n", no_wrap=True, overflow="crop").join(lines)

    @staticmethod
    def _line(line: Line, now: int, width: int, words: bool) -> Text:
        return Text(plain_line(line, now, width=width)) if words else rich_line(line, now, width=width)


def _wrapped(text: str, width: int, most: int, console: Console) -> list[str]:
    """The last lines of a text, harmless, none wider than `width`; wrapped from the beginning of each, so that they stay as they are."""
    wrapped: list[str] = []
    if width < _MIN_WIDTH:
        return wrapped
    for line in reversed(harmless_lines(text)):
        if len(wrapped) >= most:
            break
        wrapped += [part.plain for part in reversed(Text(line).wrap(console, width, overflow="fold"))]
    return list(reversed(wrapped[:most]))


def _ascii(text: str) -> str:
    """The text with a question mark for each character that such a terminal does not know."""
    return text.translate(_TO_ASCII).encode("ascii", "replace").decode()
