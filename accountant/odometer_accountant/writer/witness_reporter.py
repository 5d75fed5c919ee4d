"""Reports the known heads of this process to the witness, once a second."""

import logging
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from odometer_accountant.errors import OdometerError
from odometer_accountant.ledger.snapshot import KnownHead
from odometer_accountant.stores import EMPTY_HEAD, Store
from odometer_accountant.writer.witness import KEYS, Sighting, Witness, first_hash
from odometer_accountant.writer.writer import LedgerWriter

log = logging.getLogger("odometer.witness")

PERIOD_S: Final = 1.0
"""How far the witness may lag behind the ledger while the service runs, in seconds."""


class WitnessReporter:
    """A thread that reports new known heads to the witness. `close` reports the last ones."""

    def __init__(
        self, witness: Witness, store: Store, writer: LedgerWriter, period_s: float = PERIOD_S
    ) -> None:
        self._witness, self._store, self._writer, self._period_s = witness, store, writer, period_s
        self._reported: dict[str, KnownHead] = {}
        self._firsts: dict[str, str] = {}
        self._failing = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, then report what is new."""
        self._ended.set()
        self._thread.join()
        self._report()

    def _run(self) -> None:
        while not self._ended.wait(self._period_s):
            self._report()

    def _report(self) -> None:
        try:
            new = dict(self._new())
            self._witness.append(
                {stream: Sighting(self._firsts[stream], seen) for stream, seen in new.items()}
            )
        except OSError as error:
            if not self._failing:
                log.warning(
                    "the witness cannot be written (%s): an older copy of the ledger would not be found",
                    error,
                )
            self._failing = True
            return
        self._failing = False
        self._reported |= new

    def _new(self) -> Iterator[tuple[str, KnownHead]]:
        seen = {stream: one for stream in self._writer.streams() if (one := self._writer.known(stream))}
        with suppress(OdometerError):  # a store that cannot be reached is asked again in the next period
            head, _ = self._store.load(KEYS, [])
            if head != EMPTY_HEAD:
                seen[KEYS] = KnownHead(head)
        for stream, one in seen.items():
            if self._reported.get(stream) == one:
                continue
            with suppress(OdometerError):
                first = self._firsts.get(stream) or first_hash(self._store, stream)
                if first:
                    self._firsts[stream] = first
                    yield stream, one
