"""From the teller's thread back to the event loop: one wake-up per batch."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from accountant.commands import Command
from accountant.errors import StoreUnavailable
from accountant.teller import Outcome, Teller

log = logging.getLogger("odometer.api")


class LoopSink:
    """Awaits outcomes on one event loop."""

    def __init__(self, teller: Teller, slow_after_s: float) -> None:
        self._teller = teller
        self._loop = asyncio.get_running_loop()
        self._pending: set[asyncio.Future[Outcome]] = set()
        self._slow_after_s = slow_after_s
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
            await asyncio.sleep(min(1.0, self._slow_after_s / 4))
            stuck = self._teller.stuck_s
            if stuck > self._slow_after_s:
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
