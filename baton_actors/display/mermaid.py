"""A tree as a Mermaid flowchart, for Markdown and notebooks."""

from collections.abc import Iterator

from baton_actors.display.view import Mark, Node, TreeView
from baton_actors.display.wording import harmless

#: Mermaid refuses more than 500 edges and 50,000 characters by default.
MAX_NODES = 300
_GOAL = 60
_COLOURS = {
    Mark.PENDING: "fill:#eee,stroke:#999",
    Mark.RUNNING: "fill:#cdf,stroke:#36c",
    Mark.WAITING: "fill:#ecf,stroke:#83a",
    Mark.SPAWNED: "fill:#def,stroke:#69c",
    Mark.COMPLETED: "fill:#cfc,stroke:#393",
    Mark.FAILED: "fill:#fcc,stroke:#c33",
    Mark.CANCELLED: "fill:#fec,stroke:#a73",
}


def mermaid(view: TreeView) -> str:
    """The diagram's text. Levels are filled from the top; what does not fit is told in one node per parent."""
    lines = ["flowchart TD"]
    names: dict[str, str] = {}
    for node in _from_the_top(view):
        name = names[node.id] = f"n{len(names)}"
        lines.append(f'    {name}["{_escaped(node)}"]:::{node.mark}')
        if node.parent is not None:
            lines.append(f"    {names[node.parent.id]} --> {name}")
    if len(names) < len(view.nodes):
        lines += _rest(view, names)
    lines += [f"    classDef {mark} {colours},color:#000" for mark, colours in _COLOURS.items()]
    return "\n".join(lines)


def _from_the_top(view: TreeView) -> Iterator[Node]:
    level = [view.root] if view.root else []
    left = MAX_NODES
    while level and left > 0:
        yield from level[:left]
        left -= len(level)
        level = [child for node in level for child in node.children()] if left > 0 else []


def _rest(view: TreeView, names: dict[str, str]) -> Iterator[str]:
    for id, name in names.items():
        node = view.nodes[id]
        hidden = sum(child.id not in names for child in node.children())
        if hidden:
            yield f'    {name} --> {name}more["… {hidden:,} more"]'


def _escaped(node: Node) -> str:
    """A label as Mermaid's entity codes want it: quotes, markup and Markdown signs would end or restyle it."""
    label = harmless(node.goal, _GOAL)
    return "".join(char if char.isalnum() or char in " .,:;-_/()…?!" else f"#{ord(char)};" for char in label)
