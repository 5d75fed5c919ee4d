"""Connections that do not get on are ended, and too many of them keep nobody out."""

import contextlib
import json
import socket
import time
from collections.abc import Iterator

import pytest
from serving import Live, live

from privacy_odometer import connections
from privacy_odometer.connections import Connection

HEAD = b"GET /healthz HTTP/1.1\r\nhost: x\r\n"
WHOLE = HEAD + b"\r\n"
KEPT_BY_NOBODY = (b"\r\ncache-control: no-store\r\n", b"\r\nx-content-type-options: nosniff\r\n")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    """A service whose times are short."""
    monkeypatch.setattr(connections, "LOOK_S", 0.02)
    monkeypatch.setattr(connections, "HEAD_S", 0.2)
    monkeypatch.setattr(connections, "_LIMITS", {"head": 0.2, "body": 0.3, "answer": 0.3})
    with live() as running:
        yield running


@contextlib.contextmanager
def connected(service: Live) -> Iterator[socket.socket]:
    """A connection, that waits for at most 20 s."""
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as one:
        yield one


def told(one: socket.socket) -> bytes:
    """All that comes until the other side ends the connection."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := one.recv(65536):
            parts.append(part)
    return b"".join(parts)


def charge_head(service: Live, length: int) -> bytes:
    lines = (
        "POST /v1/datasets/d/charges HTTP/1.1",
        "host: x",
        f"authorization: Bearer {service.keys['charger']}",
        "idempotency-key: k",
        f"content-length: {length}",
    )
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("sent", [b"", b"GET", HEAD], ids=["nothing", "verb", "head"])
def test_a_head_that_does_not_end_is_given_up(quick: Live, sent: bytes, second: bool) -> None:
    """Also that of a second request on a connection that was good before."""
    if second and not sent:
        return  # that is an idle connection
    with connected(quick) as one:
        if second:
            one.sendall(WHOLE)
            assert b"200 OK" in one.recv(65536)
        one.sendall(sent)
        last = told(one)
        assert last.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert last.endswith(b"\r\ncontent-length: 0\r\n\r\n")
        assert all(header in last for header in KEPT_BY_NOBODY)


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["words", "header", "TLS"],
)
def test_what_is_no_http_is_a_problem_that_is_kept_by_nobody(quick: Live, sent: bytes) -> None:
    with connected(quick) as one:
        one.sendall(sent)
        head, _, body = told(one).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert all(header in head + b"\r\n" for header in KEPT_BY_NOBODY)
    assert json.loads(body)["type"] == "/problems/malformed-body"


def test_a_head_that_comes_a_byte_at_a_time_is_given_up(quick: Live) -> None:
    """Each byte is new, and the request is as old as its first."""
    with connected(quick) as one, contextlib.suppress(OSError):
        started = time.monotonic()
        one.sendall(HEAD)
        one.settimeout(0.02)
        while time.monotonic() - started < 20:
            one.sendall(b"a")
            with contextlib.suppress(TimeoutError):
                if one.recv(100):
                    return
        pytest.fail("it is still there")


def test_a_body_that_does_not_end_is_given_up(quick: Live) -> None:
    """Of whoever has a key; nothing was charged."""
    quick.open("d")
    with connected(quick) as one:
        one.sendall(charge_head(quick, 100) + b"{")
        assert b"408" in told(one)
    assert quick.ask("GET", "/v1/datasets/d").json()["sequence"] == 1


def test_an_answer_that_is_not_taken_is_given_up(quick: Live) -> None:
    """Many pages are asked for, and not one byte of them is read."""
    host, port = quick.url.removeprefix("http://").split(":")
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.settimeout(20)
        one.connect((host, int(port)))
        ask = (
            f"GET /v1/mechanisms HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {quick.admin}\r\n\r\n".encode()
        )
        with contextlib.suppress(OSError):
            for _ in range(2000):
                one.sendall(ask)
        deadline = time.monotonic() + 20
        while quick.connections():
            assert time.monotonic() < deadline, "it is still there"
            time.sleep(0.02)


def test_an_idle_connection_stays(quick: Live) -> None:
    """Between two requests a client may be as slow as before."""
    with connected(quick) as one:
        one.sendall(WHOLE)
        assert b"200 OK" in one.recv(65536)
        time.sleep(0.6)  # three times what a head may take
        one.sendall(WHOLE)
        assert b"200 OK" in one.recv(65536)


def test_a_head_has_a_bound_in_bytes(quick: Live) -> None:
    """Headers without an end are not kept."""
    with connected(quick) as one:
        with contextlib.suppress(OSError):
            one.sendall(HEAD)
            for number in range(1000):
                one.sendall(b"x-%d: " % number + b"y" * 4000 + b"\r\n")
        assert told(one).startswith((b"HTTP/1.1 431", b""))


def test_too_many_connections_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits longest without a request gives way; a request that is sent is answered."""
    monkeypatch.setattr(Connection, "most", 20)
    with live() as service, contextlib.ExitStack() as stack:
        held = [stack.enter_context(connected(service)) for _ in range(100)]
        for one in held:
            with contextlib.suppress(OSError):
                one.sendall(b"GET /")
        assert service.ask("GET", "/healthz", None).status_code == 200
        deadline = time.monotonic() + 20
        while len(service.connections()) > 21:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_whoever_has_no_key_is_told_before_the_body_comes(quick: Live) -> None:
    """The answer is there when the head is, and the rest is thrown away."""
    with connected(quick) as one:
        one.sendall(charge_head(quick, 100_000_000).replace(b"po_", b"xx_"))
        head = one.recv(65536)
        assert head.startswith(b"HTTP/1.1 401")
        assert json.loads(head.split(b"\r\n\r\n")[1])["type"] == "/problems/unauthenticated"


def test_requests_that_are_sent_at_once_are_answered_in_order(quick: Live) -> None:
    """A hundred on one connection, without waiting: each has its answer, and none is lost."""
    quick.open("d")
    body = b'{"mechanism":{"kind":"gaussian","noise_multiplier":1},"count":1}'
    with connected(quick) as one:
        for number in range(100):
            head = charge_head(quick, len(body)).replace(b": k\r\n", b": k%d\r\n" % number)
            one.sendall(head + body)
        answers = b""
        while answers.count(b"HTTP/1.1 201") < 100:
            part = one.recv(65536)
            assert part, answers[-300:]
            answers += part
    assert quick.ask("GET", "/v1/datasets/d").json()["sequence"] == 101
