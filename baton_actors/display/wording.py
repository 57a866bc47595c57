"""Words and numbers for people: text made harmless, cut to a width, times."""

from rich.cells import cell_len, set_cell_size

#: Zero-width joiners: not printable by Python's rule, but Persian, Hindi and family emoji are made with them.
_JOINERS = "\u200c\u200d"
#: Cells between two stops of a tabulator.
_TAB = 4


def harmless(text: str, limit: int | None = None) -> str:
    """The text in one line that can do nothing to a terminal.

    Line ends and other white space become one space; control characters, escape sequences and marks that turn the writing
    direction become `\N{REPLACEMENT CHARACTER}`. `limit` is in characters.
    """
    if limit is not None and len(text) > limit:
        text = text[:limit] + "…"
    return _printable(" ".join(text.split()))


def harmless_lines(text: str) -> list[str]:
    """As `harmless`, but line ends are kept, and so is the white space inside a line: as spaces."""
    return [_printable("".join(" " if char.isspace() else char for char in line.expandtabs(_TAB))) for line in text.splitlines()]


def _printable(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() or char in _JOINERS else "\N{REPLACEMENT CHARACTER}" for char in line)


def headline(text: str) -> str:
    """The first line that says something, made harmless: of an error with its traceback, the error."""
    return harmless(text.strip().partition("\n")[0])


def shortened(text: str, width: int) -> str:
    """The text cut to a width in terminal cells; characters of Chinese, Japanese and Korean take two."""
    if len(text) * 2 <= width or cell_len(text) <= width:
        return text
    return set_cell_size(text[:width], max(0, width - 1)).rstrip() + "…" if width > 0 else ""


def elapsed(milliseconds: int) -> str:
    """A duration for people: `0.4 s`, `12 s`, `3 min 05 s`, `2 h 10 min`, `4 d 3 h`."""
    seconds = max(0, milliseconds) / 1000
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"
