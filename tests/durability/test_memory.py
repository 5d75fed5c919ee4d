"""The real service keeps little of what it was asked: memory does not grow with what callers make up.

MEMORY_REQUESTS says how many of each kind (5,000 of all by default; `make long` asks for 100,000 of each).
"""

import itertools
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.test_readiness import opened, served

NUMBER = int(os.environ.get("MEMORY_REQUESTS", "5000"))
MOST_MB = 50.0
WARM = 500
Made = Callable[[int], bytes]


def rss_mb(pid: int) -> float:
    """Memory that a process has, in 10^6 bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def request(path: str, token: str, body: Any = None, key: str = "k", pad: int = 0) -> bytes:
    text = json.dumps(body).encode() if body is not None else b""
    text += b" " * pad
    lines = (
        f"{'POST' if body is not None else 'GET'} {path} HTTP/1.1",
        "host: x",
        f"authorization: Bearer {token}",
        f"idempotency-key: {key}",
        f"content-length: {len(text)}",
    )
    return "\r\n".join([*lines, "", ""]).encode() + text


def step(number: int, items: int = 1) -> dict[str, Any]:
    """A request that no other is equal to."""
    one = {"mechanism": {"kind": "gaussian", "noise_multiplier": 1000 + number / 7}, "count": 1}
    return {"charges": [one] * items}


def kinds(token: str) -> dict[str, Made]:
    d = "/v1/datasets/d"
    return {
        "bodies that are charged": lambda n: request(f"{d}/charges", token, step(n), f"a{n}"),
        "bodies to datasets that do not exist": lambda n: request(
            f"/v1/datasets/no-{n}/charges", token, step(n, 30), f"b{n}"
        ),
        "checks": lambda n: request(f"{d}/checks", token, {**step(n)["charges"][0], "count": 10**9}),
        "idempotency keys": lambda n: request(f"{d}/charges", token, step(0), f"c{n}"),
        "datasets that do not exist": lambda n: request(f"/v1/datasets/nope-{n}/odometer", token),
        "tokens that nobody has": lambda n: request(f"{d}/charges", f"po_{n}", step(0)),
        "paths and queries": lambda n: request(f"/v1/{n}/x?{n}={n}", token),
        "keys of the same body that is not valid": lambda n: request(f"{d}/holds", token, {f"k{n}": n}),
    }


def asked(port: int, requests: Iterator[bytes]) -> set[int]:
    """Send requests over one connection; what they were told."""
    told: set[int] = set()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as one:
        stream = one.makefile("rb")
        for text in requests:
            one.sendall(text)
            told.add(int(stream.readline()[9:12]))
            length = 0
            while line := stream.readline().strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            stream.read(length)
    return told


def test_memory_does_not_grow_with_what_callers_make_up(tmp_path: Path) -> None:
    """Distinct bodies, idempotency keys, tokens, names and paths leave at most 50 MB, all together."""
    with served(f"sqlite:///{tmp_path}/ledger.sqlite", tmp_path / "log") as (process, client):
        opened(client)
        port, token = client.base_url.port or 0, client.headers["authorization"].split()[1]
        made = kinds(token)
        each = NUMBER // len(made) if NUMBER == 5000 else NUMBER
        for kind in made.values():
            asked(port, map(kind, range(10**7, 10**7 + WARM // len(made))))
        before = rss_mb(process.pid)
        grown: dict[str, float] = {}
        for name, kind in made.items():
            told = asked(port, map(kind, range(each)))
            assert not any(status >= 500 for status in told), (name, told)
            grown[name] = round(rss_mb(process.pid) - before, 1)
        print(f"{each} of each kind; {before:.0f} MB before, and grown by", grown)
    assert max(grown.values()) <= MOST_MB, grown


@pytest.mark.parametrize("items", [1, 10, 28])
def test_what_is_kept_of_a_request_is_counted_in_full(items: int) -> None:
    """The bound on what is kept in memory holds if each is counted for at least what it takes."""
    import tracemalloc

    from odometer_accountant.ledger.prepared import prepare
    from privacy_odometer.routes.charges import _bytes_of

    bodies = [
        json.dumps(
            {
                "charges": [
                    {
                        "mechanism": {"kind": "gaussian", "noise_multiplier": 1 + n + one / 97},
                        "count": 1 + one,
                    }
                    for one in range(items)
                ]
            }
        ).encode()
        for n in range(20)
    ]
    prepare(bodies[0], json.loads(bodies[0])).precompute()
    tracemalloc.start()
    try:
        kept = [prepare(body, json.loads(body)).precompute() for body in bodies]
        for number, one in itertools.product(range(64), kept):
            one.affected(f"p{number}", None)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    counted = sum(_bytes_of(body, one) for body, one in zip(bodies, kept, strict=True))
    assert taken <= counted, (taken / 20, counted / 20)
