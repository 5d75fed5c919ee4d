"""Tests whether a charge could be recorded now, by writing to the store."""

import asyncio
import time
from typing import Final

from odometer_accountant.errors import OdometerError, StoreUnavailable
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.service.api_keys import KeyRing
from odometer_accountant.stores import Note
from privacy_odometer.threads import in_thread

KEPT_S: Final = 1.0
"""Seconds for which a successful write counts, so that frequent checks do not load the store."""
PROBE: Final = "~ready"
"""The name of the note that is written. No principal can have it."""


class Readiness:
    """Reads the keys and writes a note, as durably as a charge. For one event loop."""

    def __init__(self, accountant: Accountant, ring: KeyRing, slow_after_s: float) -> None:
        self._accountant = accountant
        self._ring = ring
        self._slow_after_s = slow_after_s
        self._written_at = -KEPT_S
        self._trying: asyncio.Task[OdometerError | None] | None = None

    async def error(self) -> OdometerError | None:
        """The error that a charge would get now; None when it could be recorded."""
        writer = self._accountant.writer
        if not writer.alive:
            return StoreUnavailable("the ledger writer has stopped: the service is shutting down")
        if writer.stuck_s > self._slow_after_s:
            return StoreUnavailable(f"no answer from the ledger for {writer.stuck_s:.0f} s")
        if self._trying is None or self._trying.done():
            self._trying = asyncio.ensure_future(self._try())
        return await asyncio.shield(self._trying)

    async def _try(self) -> OdometerError | None:
        try:
            await in_thread(self._slow_after_s, self._accountant.store.ping)
            await in_thread(self._slow_after_s, self._ring.refresh)
            if time.monotonic() - self._written_at >= KEPT_S:
                await in_thread(self._slow_after_s, self._write)
                self._written_at = time.monotonic()
        except OdometerError as error:
            return error
        return None

    def _write(self) -> None:
        # Each write needs space until the store's next checkpoint, so a full disk is found.
        self._accountant.store.put_note(PROBE, Note("", f"{time.time():.6f}"))
