"""Waiting on the event loop for what threads do: always with a bound."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from anyio import CapacityLimiter, to_thread

from accountant.book import Outcome
from accountant.commands import Command
from accountant.errors import StoreUnavailable
from accountant.teller import Teller

log = logging.getLogger("odometer.api")

T = TypeVar("T")


class Lane:
    """At most so many threads for work that computes long: all other work keeps its own threads.

    Curves of new mechanisms and advice may take seconds. Without a lane, a few callers who ask for much of
    that would hold every worker thread, and no key could be looked up for a charge that costs nothing.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._limiters: WeakKeyDictionary[asyncio.AbstractEventLoop, CapacityLimiter] = WeakKeyDictionary()

    def limiter(self) -> CapacityLimiter:
        """The limit in the running loop."""
        loop = asyncio.get_running_loop()
        return self._limiters.setdefault(loop, CapacityLimiter(self._threads))


COMPUTING: Final = Lane(2)
"""Checks, conversions, advice, and the weights of new budgets."""
PREPARING: Final = Lane(2)
"""The curves of new charges: what readers ask for does not stand in their way."""
SURVEYING: Final = Lane(2)
"""Reads that evaluate much of a dataset: a page of scopes, a history. Checks and settlements pass them."""


async def in_thread(limit_s: float, work: Callable[..., T], *arguments: Any, lane: Lane | None = None) -> T:
    """What `work` returns, from a worker thread. Raises StoreUnavailable when it takes above `limit_s`.

    A thread that hangs on the store is not given up: it keeps its place among the worker threads, so
    that a store that answers nobody holds a bounded number of them, and every caller still hears 503.
    Work whose caller was told so before it began is not begun.
    """
    late = False

    def begin() -> T:
        if late:
            raise StoreUnavailable("nobody waits for this any more")
        return work(*arguments)

    task = asyncio.ensure_future(to_thread.run_sync(begin, limiter=lane.limiter() if lane else None))
    await asyncio.wait({task}, timeout=limit_s)
    if task.done():
        return task.result()
    late = True
    task.add_done_callback(lambda late: late.cancelled() or late.exception())  # nobody listens any more
    raise StoreUnavailable(
        f"the ledger has not answered for {limit_s:g} s: whether this took effect is not known; ask again"
    )


class LoopSink:
    """Awaits outcomes on one event loop: the teller wakes it up once per batch."""

    def __init__(self, teller: Teller, slow_after_s: float) -> None:
        self._teller = teller
        self._loop = asyncio.get_running_loop()
        self._pending: set[asyncio.Future[Outcome]] = set()
        self.slow_after_s = slow_after_s
        self._watch = self._loop.create_task(self._fail_when_slow())

    async def ask(self, stream: str, command: Command) -> Outcome:
        """The command's outcome. Raises StoreUnavailable when the ledger is slow, Overloaded when full."""
        future: asyncio.Future[Outcome] = self._loop.create_future()
        self._pending.add(future)
        try:
            self._teller.submit(stream, command, self, future)
            return await future
        finally:
            self._pending.discard(future)

    def deliver(self, answers: Sequence[tuple[Any, Outcome]]) -> None:
        """Called by the teller, once per batch."""
        try:
            self._loop.call_soon_threadsafe(_resolve, answers)
        except RuntimeError:  # the loop is closed: the service is ending, and nobody waits any more
            log.warning("answers came after the loop had ended", extra={"count": len(answers)})

    def close(self) -> None:
        """Stop watching."""
        self._watch.cancel()

    async def _fail_when_slow(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self.slow_after_s / 4))
            stuck = self._teller.stuck_s
            if stuck > self.slow_after_s:
                slow = StoreUnavailable(
                    f"the ledger has not answered for {stuck:.0f} s: whether this was charged is not known; "
                    "ask again with the same key"
                )
                for future in list(self._pending):
                    if not future.done():
                        future.set_exception(slow)


def _resolve(answers: Sequence[tuple[Any, Outcome]]) -> None:
    for future, outcome in answers:
        if not future.done():
            future.set_result(outcome)
