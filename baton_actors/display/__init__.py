"""Pictures of a tree: text, live on a terminal, Mermaid. Pure: no database, no Ray, no clock.

    TreeView    the picture in memory: made from a snapshot, kept up to date by events and whispers
    layout      which lines are shown, and what is folded when the height is short
    text, rich  the lines, for a file and for a terminal
    mermaid     a diagram for Markdown

What is shown of a goal or an error is made harmless here, so callers need not think of it.
"""

from baton_actors.display.layout import BatonLine, Line, layout
from baton_actors.display.live import LiveTree
from baton_actors.display.mermaid import mermaid
from baton_actors.display.spending import Spent, usage_in_words
from baton_actors.display.text import counted, plain_line, rich_line, text_lines
from baton_actors.display.view import Mark, Node, TreeView, Verdict
from baton_actors.display.wording import elapsed, harmless, headline, shortened

__all__ = [
    "BatonLine",
    "Line",
    "LiveTree",
    "Mark",
    "Node",
    "Spent",
    "TreeView",
    "Verdict",
    "counted",
    "elapsed",
    "harmless",
    "headline",
    "layout",
    "mermaid",
    "plain_line",
    "rich_line",
    "shortened",
    "text_lines",
    "usage_in_words",
]
