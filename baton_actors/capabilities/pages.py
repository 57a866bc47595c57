"""Pages of the web, for a model: fetched from permitted hosts only, reduced to readable text.

An address is looked up once, checked, and connected to as it was checked: a name that resolves to something else the next
time leads nowhere. The environment's proxies are not used, since they would look names up themselves.
"""

import codecs
import contextlib
import http.client
import ipaddress
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urljoin, urlsplit

from baton_actors.capabilities.readable import readable
from baton_actors.errors import InvalidInput

#: Seconds for a page, redirects and all.
FETCH_SECONDS = 20.0
MAX_PAGE_BYTES = 2_000_000
_MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_BLOCK_BYTES = 65_536
_PORTS = {"http": 80, "https": 443}
_TEXTUAL = re.compile(r"text/.*|application/(.*\+)?(json|xml|yaml|javascript|ecmascript)|application/x-(yaml|sh|javascript|ndjson)|")
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_CHARSET_IN_HTML = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
#: RFC 6052: IPv4 addresses as gateways translate them.
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
_HEADERS = {"User-Agent": "baton_actors", "Accept": "text/html, text/*;q=0.9, application/json;q=0.9, */*;q=0.1", "Connection": "close"}

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class _Target:
    """An address of the web, taken apart. `path` is what is asked of the server."""

    url: str
    secure: bool
    host: str
    port: int
    path: str


@dataclass(frozen=True, slots=True)
class _Page:
    """What a server answered. `cut`: there was more than MAX_PAGE_BYTES."""

    url: str
    status: int
    reason: str
    location: str | None
    kind: str
    charset: str | None
    encoding: str
    body: bytes
    cut: bool


def page_text(url: str, patterns: Sequence[str]) -> str:
    """The text of a page.

    Args:
        url: http or https. patterns: hosts that may be fetched from, `*` standing for any characters; with `:port` only at that port.
            An address that is not public is fetched only for a host that is listed as it is.

    Raises:
        InvalidInput: not permitted, it cannot be fetched in 20 s, the server refuses, or it is no text.
    """
    end = time.monotonic() + FETCH_SECONDS
    base = ""
    for _ in range(_MOST_REDIRECTS + 1):
        page = _fetched(_target(url, base), patterns, end)
        if page.status not in _REDIRECTS or page.location is None:
            return _text(page)
        url, base = page.location, page.url
    raise InvalidInput("url", f"more than {_MOST_REDIRECTS} redirects, the last one to {url[:200]}")


def _text(page: _Page) -> str:
    if page.encoding not in ("", "identity"):
        raise InvalidInput("url", f"{page.url} is packed as {page.encoding[:40]}, which was not asked for")
    if not _TEXTUAL.fullmatch(page.kind) or (b"\x00" in page.body[:1_024] and not page.body.startswith(_UTF16)):
        raise InvalidInput("url", f"{page.url} is no text ({page.kind or 'of unknown type'}, {len(page.body):,} bytes)")
    text = _decoded(page)
    if page.kind in _HTML or (not page.kind and "<html" in text[:1_000].lower()):
        text = readable(text, page.url)
    if page.status >= 400:
        raise InvalidInput("url", f"{page.url} answered {page.status} {page.reason[:100]}: {_in_a_line(text[:500])}".rstrip(": "))
    return f"{text}\n[only the first {MAX_PAGE_BYTES:,} bytes were read]" if page.cut else text


def _decoded(page: _Page) -> str:
    told = _CHARSET_IN_HTML.search(page.body[:2_048]) if page.kind in _HTML else None
    marked = "utf-16" if page.body.startswith(_UTF16) else None
    for charset in (marked, page.charset, told and told[1].decode("ascii", "replace")):
        if charset:
            try:
                return page.body.decode(charset, "replace")
            except (LookupError, UnicodeError):  # no such encoding, or none of texts
                continue
    try:
        return page.body.decode("utf-8-sig", "replace" if page.cut else "strict")
    except UnicodeDecodeError:
        return page.body.decode("cp1252", "replace")


def _in_a_line(text: str) -> str:
    return " ".join(text.split())


# ---------------------------------------------------------------- where to


def _target(url: str, base: str = "") -> _Target:
    """An address taken apart; a relative one is completed by `base`.

    Raises:
        InvalidInput: it is none of the web.
    """
    try:
        parts = urlsplit(urljoin(base, url.strip()))
        host = (parts.hostname or "").rstrip(".")
        if not host.isascii():
            host = host.encode("idna").decode()
        port = parts.port
    except ValueError as error:  # of which UnicodeError is one
        raise InvalidInput("url", f"{url[:200]!r} is no address: {error}") from None
    if parts.scheme not in _PORTS or not host:
        raise InvalidInput("url", f"{url[:200]!r} cannot be fetched; give http://host/… or https://host/…")
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~") + (f"?{quote(parts.query, safe='/%:@!$&()*+,;=~?[]')}" if parts.query else "")
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
    return _Target(shown, parts.scheme == "https", host, port or _PORTS[parts.scheme], path)


def _addresses(target: _Target, patterns: Sequence[str]) -> list[str]:
    """The numbers to connect to.

    Raises:
        InvalidInput: the host is not permitted, is unknown, or leads to an address that is not public.
    """
    shown = f"[{target.host}]" if ":" in target.host else target.host
    names = {target.host, shown, f"{shown}:{target.port}"}
    listed = [pattern.strip().lower() for pattern in patterns]
    if not any(_matches(pattern, name) for pattern in listed for name in names):
        allowed = ", ".join(listed[:10]) or "none"
        raise InvalidInput("url", f"host {target.host!r} (port {target.port}) may not be fetched from; allowed by BATON_FETCH: {allowed}")
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise InvalidInput("url", f"host {target.host!r} is not found: {getattr(error, 'strerror', None) or error}") from None
    numbers = list(dict.fromkeys(str(each[4][0]) for each in found))
    literal = names.intersection(pattern for pattern in listed if "*" not in pattern)  # a host may be called `*.inner`, too
    if not literal and not all(map(_is_public, numbers)):
        raise InvalidInput(
            "url", f"host {target.host!r} leads to an address that is not public; BATON_FETCH must list it by its whole name"
        )
    return numbers


def _matches(pattern: str, name: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None


def _is_public(number: str) -> bool:
    return all(address.is_global and not address.is_multicast for address in _meant(ipaddress.ip_address(number)))


def _meant(address: Address) -> Iterator[Address]:
    """The address and those that are written inside it."""
    yield address
    if isinstance(address, ipaddress.IPv6Address):
        inner = ipaddress.IPv4Address(address.packed[-4:]) if address in _TRANSLATED else None
        yield from (each for each in (address.ipv4_mapped, address.sixtofour, inner) if each is not None)


# ---------------------------------------------------------------- the exchange


def _fetched(target: _Target, patterns: Sequence[str], end: float) -> _Page:
    addresses = _addresses(target, patterns)
    try:
        sock = _connected(addresses, target, end)
        # A server that sends a byte now and then would keep us for ever: at the end the line is cut.
        timer = threading.Timer(max(0.0, end - time.monotonic()), _cut, [sock])
        timer.daemon = True
        timer.start()
        try:
            page = _exchange(target, sock)
            if time.monotonic() >= end:
                raise TimeoutError
            return page
        finally:
            timer.cancel()
            sock.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        if time.monotonic() >= end:
            raise InvalidInput("url", f"{target.url} did not answer within {FETCH_SECONDS:g} s") from None
        raise InvalidInput("url", f"{target.url} cannot be fetched: {type(error).__name__}: {_in_a_line(str(error))}") from None


def _connected(addresses: list[str], target: _Target, end: float) -> socket.socket:
    """A line to the first address that takes one; over TLS its handshake is still to be done."""
    for left, number in zip(range(len(addresses) - 1, -1, -1), addresses, strict=True):
        try:
            sock = socket.create_connection((number, target.port), max(0.1, (end - time.monotonic()) / (left + 1)))
        except OSError:
            if not left:
                raise
            continue
        sock.settimeout(FETCH_SECONDS)
        if not target.secure:
            return sock
        return ssl.create_default_context().wrap_socket(sock, server_hostname=target.host, do_handshake_on_connect=False)
    raise OSError("the host has no address")


def _cut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # closed already
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not TLS's own, which takes the state from under a read in another thread


def _exchange(target: _Target, sock: socket.socket) -> _Page:
    kind_of_connection = http.client.HTTPSConnection if target.secure else http.client.HTTPConnection
    connection = kind_of_connection(target.host, target.port)
    connection.sock, connection.auto_open = sock, 0
    if isinstance(sock, ssl.SSLSocket):
        sock.do_handshake()
    connection.request("GET", target.path, headers=_HEADERS)
    response = connection.getresponse()
    body = bytearray()
    while len(body) <= MAX_PAGE_BYTES and (block := response.read1(_BLOCK_BYTES)):
        body += block
    if response.length and len(body) <= MAX_PAGE_BYTES:
        raise http.client.IncompleteRead(b"", response.length)
    kind = response.headers.get_content_type() if response.headers.get("Content-Type") else ""
    return _Page(
        target.url,
        response.status,
        response.reason,
        response.headers.get("Location"),
        kind,
        response.headers.get_content_charset(),
        response.headers.get("Content-Encoding", "").strip().lower(),
        bytes(body[:MAX_PAGE_BYTES]),
        len(body) > MAX_PAGE_BYTES,
    )
