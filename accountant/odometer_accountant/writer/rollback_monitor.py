"""Compares the store regularly with the heads that this process knows, to find a rollback early.

A rolled back ledger is also found when it is next used. This finds it when this process gets no more requests
for it while other processes, which never saw the lost entries, go on admitting charges.
"""

import threading
from contextlib import suppress
from typing import Final

from odometer_accountant.errors import OdometerError
from odometer_accountant.stores import Head, Store
from odometer_accountant.writer.writer import LedgerWriter

PERIOD_S: Final = 1.0
STREAMS_AT_ONCE: Final = 64
"""How many streams are compared in one period; the next period goes on with the following ones."""


class RollbackMonitor:
    """A thread that compares heads, and has the writer check a stream that changed. `close` ends it."""

    def __init__(self, store: Store, writer: LedgerWriter, period_s: float = PERIOD_S) -> None:
        self._store = store
        self._writer = writer
        self._period_s = period_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rollback-monitor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; waits for it."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        start = 0
        while not self._ended.wait(self._period_s) and self._writer.alive:
            with suppress(OdometerError):
                self._store.ping()  # also finds, and leaves, a server that stopped writing to disk
            streams = self._writer.streams()
            for place in range(min(len(streams), STREAMS_AT_ONCE)):
                if self._ended.is_set():
                    return
                self._compare(streams[(start + place) % len(streams)])
            start += STREAMS_AT_ONCE

    def _compare(self, stream: str) -> None:
        known = self._writer.known(stream)
        if known is None:
            return
        with suppress(OdometerError):  # a store that cannot be reached is compared in the next period
            head, _ = self._store.load(stream, [])
            if head == known.head or self._continues(stream, head, known.head):
                return
            self._writer.check(stream)

    def _continues(self, stream: str, head: Head, known: Head) -> bool:
        """Whether the stream only has new entries after the known head: other processes write it too."""
        rows = self._store.entries(stream, known.sequence - 1, 1) if head.sequence > known.sequence else []
        return [(row.sequence, row.hash) for row in rows] == [(known.sequence, known.hash)]
