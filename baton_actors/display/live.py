"""The tree as something that rich shows again and again while events come in."""

import threading
from collections.abc import Callable

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from baton_actors.display.layout import Line, layout
from baton_actors.display.text import plain_line, rich_line
from baton_actors.display.view import TreeView
from baton_actors.events import Event


class LiveTree:
    """A renderable that follows a tree; events may come from one thread while another draws.

    It fits the height of the terminal, one line left free for the cursor. Without colour, or where the terminal knows
    ASCII only, the marks are words.

    Args:
        view: the picture to begin with. clock: milliseconds since 1970.
    """

    def __init__(self, view: TreeView, clock: Callable[[], int]) -> None:
        self._view = view
        self._clock = clock
        self._lock = threading.Lock()

    def apply(self, event: Event) -> None:
        """Take in one event."""
        with self._lock:
            self._view.apply(event)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = max(1, (options.height or console.height) - 1)
        words = console.no_color or options.ascii_only
        now = self._clock()
        with self._lock:
            lines = [self._line(line, now, options.max_width, words) for line in layout(self._view, height)]
        yield Text("\n", no_wrap=True, overflow="crop").join(lines)

    @staticmethod
    def _line(line: Line, now: int, width: int, words: bool) -> Text:
        return Text(plain_line(line, now, width=width)) if words else rich_line(line, now, width=width)
