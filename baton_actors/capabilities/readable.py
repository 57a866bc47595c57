"""HTML as text that a model can read: paragraphs, headings, lists, cells, links; no scripts, no markup."""

import time
from html.parser import HTMLParser
from urllib.parse import urljoin

#: Seconds for the markup of a page. Tags that never close take the parser quadratic time: 40 kB of `<a ` were 14 s.
MARKUP_SECONDS = 3.0
#: What is never text, or not for reading.
_SKIPPED = frozenset({"script", "style", "template", "noscript", "svg", "iframe", "object", "select", "textarea", "button"})
_BLOCKS = frozenset(
    {"address", "article", "aside", "blockquote", "body", "dd", "details", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer"}
    | {"form", "header", "hr", "li", "main", "nav", "ol", "p", "pre", "section", "summary", "table", "title", "tr", "ul"}
    | {"h1", "h2", "h3", "h4", "h5", "h6"}
)
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}


def readable(html: str, url: str) -> str:
    """The text of a page, up to where its markup takes too long; links stand as `[text](address)`, completed by the page's own `url`."""
    page = _Page(url, time.monotonic() + MARKUP_SECONDS)
    try:
        page.feed(html)
        page.close()
    except (TimeoutError, AssertionError):  # the parser asserts on declarations such as `<![x[`
        return f"{page.text()}\n[the rest of the page is malformed]"
    return page.text()


class _Page(HTMLParser):
    """Collects lines; white space is one space, except in `pre`."""

    def __init__(self, url: str, end: float) -> None:
        super().__init__(convert_charrefs=True)
        self._url = url
        self._end = end
        self._lines: list[str] = []
        self._line: list[str] = []
        self._skipping: list[str] = []
        self._preformatted = 0
        self._link: str | None = None

    def text(self) -> str:
        """What was collected, without empty lines."""
        self._end_line()
        return "\n".join(self._lines)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag opens."""
        self._check_time()
        if tag in _SKIPPED:
            self._skipping.append(tag)
        if self._skipping:
            return
        if tag in _BLOCKS or tag == "br":
            self._end_line()
        self._preformatted += tag == "pre"
        if tag in _HEADINGS:
            self._line.append(_HEADINGS[tag])
        elif tag == "li":
            self._line.append("- ")
        elif tag in ("td", "th") and self._line:
            self._line.append(" | ")
        elif tag == "a":
            self._end_link()
            self._link = self._address(dict(attrs).get("href") or "")
            self._line += ["["] if self._link else []

    def handle_endtag(self, tag: str) -> None:
        """A tag closes; one that was never opened is nothing."""
        if self._skipping:
            if tag == self._skipping[-1]:
                self._skipping.pop()
            return
        if tag == "a":
            self._end_link()
        if tag in _BLOCKS:
            self._end_line()
        if tag == "pre":
            self._preformatted = max(0, self._preformatted - 1)

    def handle_data(self, data: str) -> None:
        """Text between tags."""
        self._check_time()
        if self._skipping:
            return
        if not self._preformatted:
            self._line.append(data)
            return
        first, *others = data.split("\n")
        self._line.append(first)
        for line in others:
            self._end_line()
            self._line.append(line)

    def _check_time(self) -> None:
        if time.monotonic() > self._end:
            raise TimeoutError

    def _end_link(self) -> None:
        if self._link and self._line[-1] == "[":  # a picture, or nothing
            self._line.pop()
        elif self._link:
            self._line.append(f"]({self._link})")
        self._link = None

    def _end_line(self) -> None:
        self._end_link()
        text = "".join(self._line)
        self._line.clear()
        line = text.rstrip() if self._preformatted else " ".join(text.split())
        if line.strip(" #-|"):
            self._lines.append(line)

    def _address(self, href: str) -> str | None:
        """A link's whole address; None for what leads nowhere else."""
        try:
            address = urljoin(self._url, href.strip())
        except ValueError:
            return None
        return address if address.startswith(("http://", "https://")) and not href.startswith("#") else None
