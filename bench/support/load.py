"""A load generator: raw connections that each send the next request when the answer is in."""

import asyncio
import itertools
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """One run: requests per second, and the generator's own CPU seconds per request."""

    rate: float
    own_cpu_s: float
    statuses: dict[int, int]


class _Connection(asyncio.Protocol):
    def __init__(
        self, requests: Iterator[bytes], done: "asyncio.Future[None]", statuses: dict[int, int]
    ) -> None:
        self._requests, self._done, self._statuses = requests, done, statuses
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._next()

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._transport.close()
            if not self._done.done():
                self._done.set_result(None)
        else:
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self._buffer.lower().find(b"content-length:", 0, head)
        length = int(self._buffer[at + 15 : self._buffer.index(b"\r\n", at)])
        if len(self._buffer) < head + 4 + length:
            return
        status = int(self._buffer[9:12])
        self._statuses[status] = self._statuses.get(status, 0) + 1
        self._buffer = b""
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(exc or ConnectionError("closed early"))


async def _run(port: int, requests: list[bytes], connections: int) -> Load:
    loop = asyncio.get_running_loop()
    statuses: dict[int, int] = {}
    shared = iter(requests)
    done = [loop.create_future() for _ in range(connections)]
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    for future in done:
        await loop.create_connection(
            lambda future=future: _Connection(shared, future, statuses), "127.0.0.1", port
        )
    await asyncio.gather(*done)
    took = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Load(len(requests) / took, cpu / len(requests), statuses)


def run(port: int, requests: list[bytes], connections: int) -> Load:
    """Send all `requests` over `connections` kept-alive connections, one at a time on each."""
    try:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_run(port, requests, connections))
    except ImportError:
        return asyncio.run(_run(port, requests, connections))


def charge_requests(number: int, dataset: str, token: str, body: bytes, keys: Iterator[str]) -> list[bytes]:
    """`number` charge requests with keys of their own."""
    head = (
        f"POST /v1/datasets/{dataset}/charges HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        "content-type: application/json\r\n"
        f"authorization: Bearer {token}\r\ncontent-length: {len(body)}\r\nidempotency-key: "
    ).encode()
    return [head + key.encode() + b"\r\n\r\n" + body for key in itertools.islice(keys, number)]
