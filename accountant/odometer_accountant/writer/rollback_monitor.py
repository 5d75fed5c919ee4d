"""Looks, now and then, whether the histories that this process saw are still there.

A ledger that went back is found when it is next asked for. This finds it too when nobody asks this process
for it any more, while others, who never saw what was lost, go on admitting.
"""

import threading
from contextlib import suppress
from typing import Final

from odometer_accountant.errors import OdometerError
from odometer_accountant.stores import Head, Store
from odometer_accountant.writer.writer import LedgerWriter

PERIOD_S: Final = 1.0
STREAMS_AT_ONCE: Final = 64
"""Streams looked at in one period, in turn."""


class RollbackMonitor:
    """A thread that compares heads, and asks the writer to look where one moved. `close` ends it."""

    def __init__(self, store: Store, writer: LedgerWriter, period_s: float = PERIOD_S) -> None:
        self._store = store
        self._writer = writer
        self._period_s = period_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; waits for it."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        turn = 0
        while not self._ended.wait(self._period_s) and self._writer.alive:
            with suppress(OdometerError):
                self._store.ping()  # a server that no longer writes all to disk is found, and left
            streams = self._writer.streams()
            for place in range(min(len(streams), STREAMS_AT_ONCE)):
                if self._ended.is_set():
                    return
                self._compare(streams[(turn + place) % len(streams)])
            turn += STREAMS_AT_ONCE

    def _compare(self, stream: str) -> None:
        seen = self._writer.seen(stream)
        if seen is None:
            return
        with suppress(OdometerError):  # a store that is away now is looked at again
            head, _ = self._store.load(stream, [])
            if head == seen.head or self._goes_on(stream, head, seen.head):
                return
            self._writer.look(stream)

    def _goes_on(self, stream: str, head: Head, seen: Head) -> bool:
        """Whether the stream only went on from where it was seen: others write it too."""
        rows = self._store.entries(stream, seen.sequence - 1, 1) if head.sequence > seen.sequence else []
        return [(row.sequence, row.hash) for row in rows] == [(seen.sequence, seen.hash)]
