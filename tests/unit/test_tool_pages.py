"""`fetch_url` against real servers: only permitted hosts, each redirect checked anew, nothing private by a wildcard."""

import asyncio
import gzip
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from baton_actors.capabilities import pages
from baton_actors.capabilities.answer import ToolAnswer
from baton_actors.capabilities.builtin import fetch_url
from baton_actors.capabilities.pages import page_text
from baton_actors.capabilities.tool import ToolContext, tool_of
from baton_actors.errors import InvalidInput

#: Key and certificate of nobody, for `localhost` until 2120.
CERTIFICATE = """
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg0pPsa9C7gt9r4uHg
00FXjlwUKbSgW/WYPNG8m/aJktehRANCAASEJvFKbd7E2PQBdF+NjTv4mpyosNF0
VLOBi+As9F/bX4EaAsEsGR/RPEAhdClSJHy7/JJqcm1NOZwSs1V6WfKR
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBZjCCAQ2gAwIBAgIBATAKBggqhkjOPQQDAjAPMQ0wCwYDVQQDDAR0ZXN0MCAX
DTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAwMDAwWjAPMQ0wCwYDVQQDDAR0ZXN0
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEhCbxSm3exNj0AXRfjY07+JqcqLDR
dFSzgYvgLPRf21+BGgLBLBkf0TxAIXQpUiR8u/ySanJtTTmcErNVelnykaNYMFYw
FAYDVR0RBA0wC4IJbG9jYWxob3N0MA8GA1UdEwEB/wQFMAMBAf8wDgYDVR0PAQH/
BAQDAgKEMB0GA1UdDgQWBBT7vv+Hhe7AAKMDblKBwXPrFH5TyzAKBggqhkjOPQQD
AgNHADBEAiB9NPxJ4b44k5H+EDJTQIoAJkyNSSlHoKYaWOQSNX4VIQIgDETJoEMk
LdGidXDjGZJQbB7UhemimuZgewV07tDdcSY=
-----END CERTIFICATE-----
"""

Answer = tuple[int, dict[str, str], bytes]
TEXT = {"Content-Type": "text/plain"}


@contextmanager
def serving(answers: dict[str, Answer | Callable[[Any], None]], tls: ssl.SSLContext | None = None) -> Iterator[tuple[int, list[str]]]:
    """A server on a free port of 127.0.0.1; the paths that it was asked for, and the Host header."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.headers['Host']} {self.path}")
            answer = answers[self.path.partition("?")[0]]
            if callable(answer):
                answer(self)
                return
            status, headers, body = answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_address[1], asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def refused(url: str, *patterns: str) -> str:
    """Why a page is not fetched."""
    with pytest.raises(InvalidInput) as caught:
        page_text(url, patterns)
    assert caught.value.what == "url"
    assert "\n" not in caught.value.why
    return caught.value.why


def here(url: str) -> str:
    """The text of a page of this machine."""
    return page_text(url, ["127.0.0.1"])


# ---------------------------------------------------------------- what is fetched


def test_a_page_is_fetched_as_readable_text_in_pages() -> None:
    html = b"<html><title>T</title><p>gr\xc3\xbc\xc3\x9fe <a href='/x'>x</a>" + b"<p>more" * 4_000

    async def no_result(*_: Any) -> None:
        return None

    def call(port: int, offset: int) -> ToolAnswer:
        context = ToolContext(
            idempotency_key="k",
            baton_id="bt_1",
            goal="g",
            context={},
            fetch=(f"127.0.0.1:{port}",),
            read_result=no_result,
            cancelled=lambda: False,
        )
        arguments = {"url": f"http://127.0.0.1:{port}/page?q=a b#part", "offset": offset}
        return asyncio.run(tool_of(fetch_url, "fetch_url").call(arguments, context))

    with serving({"/page": (200, {"Content-Type": "text/html; charset=utf-8"}, html)}) as (port, asked):
        first, second = call(port, 0), call(port, 16_000)
        assert asked == [f"127.0.0.1:{port} /page?q=a%20b"] * 2
    text = f"T\ngrüße [x](http://127.0.0.1:{port}/x)" + "\nmore" * 4_000
    assert first == ToolAnswer(f"{text[:16_000]}\n[characters 0 to 16,000 of {len(text):,}; go on with offset=16000]")
    assert second == ToolAnswer(f"{text[16_000:]}\n[characters 16,000 to {len(text):,} of {len(text):,}; that is the end]")


BODIES = [
    ("text/plain; charset=iso-8859-1", "größe".encode("latin-1"), "größe"),
    ("text/plain", "größe".encode("cp1252"), "größe"),
    ("text/plain", b"\xef\xbb\xbfBOM", "BOM"),
    ("text/plain; charset=no-such", "漢字".encode(), "漢字"),
    ("text/plain; charset=base64", b"aGk=", "aGk="),
    ("text/csv", "漢字".encode("utf-16"), "漢字"),
    ("text/html", '<meta charset="shift_jis"><p>漢字'.encode("shift_jis"), "漢字"),
    ("application/json", b'{"a": 1}', '{"a": 1}'),
    ("application/problem+json", b"{}", "{}"),
    ("", b"<!doctype html><html><p>sniffed", "sniffed"),
]


@pytest.mark.parametrize(("kind", "body", "text"), BODIES)
def test_texts_of_all_kinds_and_encodings_are_read(kind: str, body: bytes, text: str) -> None:
    with serving({"/": (200, {"Content-Type": kind} if kind else {}, body)}) as (port, _):
        assert here(f"http://127.0.0.1:{port}") == text


@pytest.mark.parametrize(
    ("headers", "body", "why"),
    [
        ({"Content-Type": "image/png"}, b"\x89PNG", "is no text (image/png, 4 bytes)"),
        ({"Content-Type": "text/plain"}, b"a\x00b", "is no text (text/plain, 3 bytes)"),
        ({"Content-Type": "text/plain", "Content-Encoding": "gzip"}, gzip.compress(b"x"), "is packed as gzip, which was not asked for"),
        ({"Content-Type": "text/plain", "Content-Length": "10"}, b"short", "cannot be fetched: IncompleteRead"),
    ],
)
def test_what_is_no_whole_text_is_described(headers: dict[str, str], body: bytes, why: str) -> None:
    with serving({"/": (200, headers, body)}) as (port, _):
        assert why in refused(f"http://127.0.0.1:{port}/", "127.0.0.1")


def test_an_error_of_the_server_is_told_with_its_words() -> None:
    with serving({"/": (404, {"Content-Type": "text/html"}, b"<h1>Not here</h1>")}) as (port, _):
        assert refused(f"http://127.0.0.1:{port}/", "127.0.0.1").endswith("answered 404 Not Found: # Not here")


def test_a_page_without_end_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MAX_PAGE_BYTES", 200_000)

    def endless(handler: Any) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        try:
            while True:
                handler.wfile.write(b"x" * 65_536)
        except OSError:
            return

    with serving({"/": endless}) as (port, _):
        assert here(f"http://127.0.0.1:{port}/") == "x" * 200_000 + "\n[only the first 200,000 bytes were read]"


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nbegun"])
def test_a_server_that_never_ends_is_left_after_the_time(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "FETCH_SECONDS", 0.2)
    left = threading.Event()

    def hang(handler: Any) -> None:
        handler.wfile.write(begun)
        left.wait()

    with serving({"/": hang}) as (port, _):
        try:
            assert refused(f"http://127.0.0.1:{port}/", "127.0.0.1").endswith("did not answer within 0.2 s")
        finally:
            left.set()


# ---------------------------------------------------------------- who may be asked


@pytest.mark.parametrize(
    "url",
    [
        "",
        "file:///etc/passwd",
        "ftp://host/",
        "//host/x",
        "host/x",
        "http://",
        "http:///x",
        "http://[::1",
        "http://a:99999/",
        "data:,x",
        "http://ü.:x/",
    ],
)
def test_only_addresses_of_the_web_are_fetched(url: str) -> None:
    why = refused(url, "*")
    assert "is no address: " in why or "cannot be fetched; give http://host/… or https://host/…" in why


@pytest.mark.parametrize(
    ("host", "patterns"),
    [
        ("example.org", []),
        ("example.org", ["example.com", "*.example.org", "example.org:8080", "example.or"]),
        ("evil-example.org", ["*.example.org", "example.org"]),
        ("example.org.evil.net", ["example.org", "*.example.org", "example.org*.com"]),
        ("example.org@evil.net", ["example.org", "example.org@*"]),
    ],
)
def test_hosts_that_no_pattern_covers_are_refused_before_any_look_up(
    host: str, patterns: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", None)
    assert "may not be fetched from; allowed by BATON_FETCH: " in refused(f"http://{host}/", *patterns)


@pytest.mark.parametrize(
    ("url", "pattern"),
    [
        ("http://EXAMPLE.org./", "Example.ORG"),
        ("http://a.b.example.org/", "*.example.org"),
        ("http://example.org:8080/", "example.org:8080"),
        ("http://bücher.example/", "xn--bcher-kva.example"),
        ("http://user:word@example.org/", "example.org"),
        ("http://example.org/", "*"),
    ],
)
def test_hosts_that_a_pattern_covers_are_asked(url: str, pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert "is not found: Name or service not known" in refused(url, pattern)


NOT_PUBLIC = [
    "127.0.0.1",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1",
    "fd00::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
]


@pytest.mark.parametrize("number", NOT_PUBLIC)
def test_a_name_that_leads_to_an_address_that_is_not_public_is_refused_by_a_wildcard(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    public = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.215.14", 80))
    private = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (number, 80))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [public, private])
    monkeypatch.setattr(socket, "create_connection", None)
    for patterns in (["*"], ["*.example.org"], ["inner.example.or*"]):
        assert refused("http://inner.example.org/", *patterns).endswith("is not public; BATON_FETCH must list it by its whole name")


def test_a_host_that_is_called_like_a_pattern_is_not_listed_literally(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 80))])
    assert "is not public" in refused("http://*.example.org/", "*.example.org")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001"])
def test_this_machine_is_never_reached_by_a_wildcard_however_it_is_written(host: str) -> None:
    with serving({"/": (200, TEXT, b"inside")}) as (port, asked):
        assert "is not public" in refused(f"http://{host}:{port}/", "*")
        assert asked == []


@pytest.mark.parametrize("pattern", ["localhost", "localhost:{port}", "LOCALHOST"])
def test_this_machine_is_reached_if_it_is_listed_literally(pattern: str) -> None:
    with serving({"/": (200, TEXT, b"inside")}) as (port, asked):
        assert page_text(f"http://localhost:{port}/", [pattern.format(port=port)]) == "inside"
        assert asked == [f"localhost:{port} /"]


def test_the_address_that_was_checked_is_the_one_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that answers with another address the second time leads nowhere: there is no second time."""
    looked_up: list[str] = []
    genuine = socket.getaddrinfo

    def once(host: str, *rest: Any, **more: Any) -> Any:
        looked_up.append(host)
        return genuine("127.0.0.1", *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", once)
    with serving({"/": (200, TEXT, b"inside")}) as (port, asked):
        assert page_text(f"http://name.example:{port}/", ["name.example"]) == "inside"
        assert asked == [f"name.example:{port} /"]
    assert looked_up == ["name.example", "127.0.0.1"]


# ---------------------------------------------------------------- redirects


def redirect(where: str, status: int = 302) -> Answer:
    return status, {"Location": where}, b""


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed_to_where_one_may_go(status: int) -> None:
    with serving({"/a": redirect("b/c", status), "/b/c": redirect("/end?x=1"), "/end": (200, TEXT, b"there")}) as (port, asked):
        assert here(f"http://127.0.0.1:{port}/a") == "there"
        assert [each.split()[1] for each in asked] == ["/a", "/b/c", "/end?x=1"]


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("http://127.0.0.1:{other}/", "(port {other}) may not be fetched from"),
        ("http://localhost:{other}/", "host 'localhost' (port {other}) may not be fetched from"),
        ("//localhost:{other}/", "host 'localhost' (port {other}) may not be fetched from"),
        ("http://169.254.169.254/latest/meta-data", "host '169.254.169.254' (port 80) may not be fetched from"),
        ("file:///etc/passwd", "cannot be fetched; give http://host/"),
        ("http://[", "is no address: "),
    ],
)
def test_a_redirect_to_where_one_may_not_go_is_refused(where: str, why: str) -> None:
    with serving({"/": (200, TEXT, b"secret")}) as (other, asked_there):
        target = where.format(other=other)
        with serving({"/": redirect(target)}) as (port, _):
            assert why.format(other=other) in refused(f"http://127.0.0.1:{port}/", f"127.0.0.1:{port}")
        assert asked_there == []


def test_a_redirect_to_this_machine_is_refused_where_only_a_wildcard_covers_it() -> None:
    with serving({"/": (200, TEXT, b"secret")}) as (other, asked_there):
        with serving({"/": redirect(f"http://127.0.0.1:{other}/")}) as (port, _):
            assert "is not public" in refused(f"http://localhost:{port}/", "localhost", "*")
        assert asked_there == []


def test_redirects_in_a_circle_come_to_an_end() -> None:
    with serving({"/": redirect("/")}) as (port, asked):
        assert "more than 5 redirects" in refused(f"http://127.0.0.1:{port}/", "127.0.0.1")
        assert len(asked) == 6


# ---------------------------------------------------------------- TLS and broken lines


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's side, and the file that makes it trusted."""
    file = tmp_path / "certificate.pem"
    file.write_text(CERTIFICATE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context, file


def test_pages_come_over_tls_from_a_server_that_is_trusted(tls: tuple[ssl.SSLContext, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tls[1]))
    with serving({"/": (200, TEXT, b"safe")}, tls[0]) as (port, asked):
        assert page_text(f"https://localhost:{port}/", ["localhost"]) == "safe"
        assert asked == [f"localhost:{port} /"]
        assert "CERTIFICATE_VERIFY_FAILED" in refused(f"https://127.0.0.1:{port}/", "127.0.0.1")


def test_a_server_that_nobody_vouches_for_is_not_read(tls: tuple[ssl.SSLContext, Path]) -> None:
    with serving({"/": (200, TEXT, b"unsafe")}, tls[0]) as (port, asked):
        assert "CERTIFICATE_VERIFY_FAILED" in refused(f"https://localhost:{port}/", "localhost")
        assert asked == []


def test_a_line_that_breaks_or_is_no_http_is_said() -> None:
    def nonsense(handler: Any) -> None:
        handler.wfile.write(b"SSH-2.0-nonsense\r\n")

    with serving({"/": nonsense, "/nothing": lambda _: None}) as (port, _):
        assert "BadStatusLine" in refused(f"http://127.0.0.1:{port}/", "127.0.0.1")
        assert "cannot be fetched: RemoteDisconnected" in refused(f"http://127.0.0.1:{port}/nothing", "127.0.0.1")
    assert "Connection refused" in refused(f"http://127.0.0.1:{port}/", "127.0.0.1")
