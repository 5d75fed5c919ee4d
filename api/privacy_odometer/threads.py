"""Waits on the event loop for work in threads, always with a time limit."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from anyio import to_thread

from odometer_accountant.errors import StoreUnavailable
from odometer_accountant.ledger.commands import Command
from odometer_accountant.writer.batch import Outcome
from odometer_accountant.writer.writer import LedgerWriter

log = logging.getLogger("odometer.api")

T = TypeVar("T")


async def in_thread(limit_s: float, work: Callable[..., T], *arguments: Any) -> T:
    """Run `work` in a worker thread and return its result. Raises StoreUnavailable above `limit_s` seconds.

    For the service's own work; the work of a request runs in a lane. Work whose caller gave up before it
    began is not begun.
    """
    late = False

    def begin() -> T:
        if late:
            raise StoreUnavailable("the caller has given up; nothing was done")
        return work(*arguments)

    task = asyncio.ensure_future(to_thread.run_sync(begin))
    await asyncio.wait({task}, timeout=limit_s)
    if task.done():
        return task.result()
    late = True
    task.add_done_callback(lambda late: late.cancelled() or late.exception())  # nobody listens any more
    raise StoreUnavailable(
        f"no answer from the ledger for {limit_s:g} s: this may or may not have taken effect; retry"
    )


class LoopSink:
    """Awaits the writer's outcomes on one event loop. The writer wakes it once per batch."""

    def __init__(self, writer: LedgerWriter, slow_after_s: float) -> None:
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._pending: set[asyncio.Future[Outcome]] = set()
        self.slow_after_s = slow_after_s
        self._watch = self._loop.create_task(self._fail_when_slow())

    async def ask(self, stream: str, command: Command) -> Outcome:
        """The command's outcome. Raises StoreUnavailable when the ledger is slow, Overloaded when full."""
        future: asyncio.Future[Outcome] = self._loop.create_future()
        self._pending.add(future)
        try:
            self._writer.submit(stream, command, self, future)
            return await future
        finally:
            self._pending.discard(future)

    def deliver(self, answers: Sequence[tuple[Any, Outcome]]) -> None:
        """Called by the writer, once per batch."""
        try:
            self._loop.call_soon_threadsafe(_resolve, answers)
        except RuntimeError:  # the loop is closed: the service is shutting down
            log.warning("answers came after the event loop had closed", extra={"count": len(answers)})

    def close(self) -> None:
        """Stop watching."""
        self._watch.cancel()

    async def _fail_when_slow(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self.slow_after_s / 4))
            stuck = self._writer.stuck_s
            if stuck > self.slow_after_s:
                slow = StoreUnavailable(
                    f"no answer from the ledger for {stuck:.0f} s: this may or may not have been charged; "
                    "retry with the same idempotency key"
                )
                for future in list(self._pending):
                    if not future.done():
                        future.set_exception(slow)


def _resolve(answers: Sequence[tuple[Any, Outcome]]) -> None:
    for future, outcome in answers:
        if not future.done():
            future.set_result(outcome)
