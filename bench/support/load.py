"""A load generator: raw connections that each send the next request when the answer is in."""

import asyncio
import itertools
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """One run: requests per second, the generator's own CPU seconds per request, and the answers' times."""

    rate: float
    own_cpu_s: float
    statuses: dict[int, int]
    p99_s: float
    by_port: dict[int, int]
    """Answers from each port."""


class _Connection(asyncio.Protocol):
    def __init__(
        self,
        requests: Iterator[bytes],
        done: "asyncio.Future[None]",
        statuses: dict[int, int],
        took: list[float],
    ) -> None:
        self._requests, self._done, self._statuses, self._took = requests, done, statuses, took
        self._buffer, self._sent = b"", 0.0

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
            self._sent = time.perf_counter()
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
        self._took.append(time.perf_counter() - self._sent)
        status = int(self._buffer[9:12])
        self._statuses[status] = self._statuses.get(status, 0) + 1
        self._buffer = b""
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(exc or ConnectionError("closed early"))


async def _run(lines: Mapping[int, Iterator[bytes]], number: int, connections: int) -> Load:
    loop = asyncio.get_running_loop()
    statuses: dict[int, int] = {}
    took: dict[int, list[float]] = {port: [] for port in lines}
    done = [loop.create_future() for _ in range(connections)]
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    for future, port in zip(done, itertools.cycle(lines), strict=False):
        await loop.create_connection(
            lambda future=future, port=port: _Connection(lines[port], future, statuses, took[port]),
            "127.0.0.1",
            port,
        )
    await asyncio.gather(*done)
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    each = sorted(itertools.chain(*took.values()))
    return Load(
        number / seconds,
        cpu / number,
        statuses,
        each[len(each) * 99 // 100],
        {port: len(some) for port, some in took.items()},
    )


def run(ports: Sequence[int], requests: list[bytes], connections: int) -> Load:
    """Send all `requests` over `connections` kept-alive connections, one at a time on each.

    The connections are spread evenly over `ports`; each takes the next request, whatever it is.
    """
    shared = iter(requests)
    return _run_lines(dict.fromkeys(ports, shared), len(requests), connections)


def run_routed(lines: Mapping[int, Sequence[bytes]], connections: int) -> Load:
    """As `run`, but each port has requests of its own, as behind a proxy that knows where each goes."""
    number = sum(map(len, lines.values()))
    return _run_lines({port: iter(line) for port, line in lines.items()}, number, connections)


def _run_lines(lines: Mapping[int, Iterator[bytes]], number: int, connections: int) -> Load:
    try:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_run(lines, number, connections))
    except ImportError:
        return asyncio.run(_run(lines, number, connections))


def charge_requests(
    number: int, datasets: Sequence[str], token: str, body: bytes, keys: Iterator[str]
) -> list[bytes]:
    """`number` charge requests with keys of their own, on the datasets in turn."""
    heads = [
        (
            f"POST /v1/datasets/{dataset}/charges HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            "content-type: application/json\r\n"
            f"authorization: Bearer {token}\r\ncontent-length: {len(body)}\r\nidempotency-key: "
        ).encode()
        for dataset in datasets
    ]
    which = itertools.cycle(heads)
    return [
        head + key.encode() + b"\r\n\r\n" + body
        for head, key in zip(which, itertools.islice(keys, number), strict=False)
    ]
