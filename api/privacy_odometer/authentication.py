"""Checks the API key of a request, before its body is read."""

import asyncio

from odometer_accountant.service.api_keys import Identity, KeyRing, Role, allowed
from privacy_odometer.threads import in_thread


class Authenticator:
    """Checks API keys for one event loop. A key in memory needs no thread.

    However many unknown tokens come, at most one read of the store is under way.
    """

    def __init__(self, ring: KeyRing, limit_s: float) -> None:
        self._ring = ring
        self._limit_s = limit_s
        self._looking: asyncio.Task[None] | None = None

    async def admit(self, token: str | None, role: Role) -> Identity:
        """The identity behind a token. Raises Unauthenticated, Forbidden, StoreUnavailable."""
        if token is not None and not self._ring.settled(token):
            await self._look(token)
        return allowed(self._ring.cached(token), role)

    async def _look(self, token: str) -> None:
        """Read the keys that other processes have changed.

        A read that began before this request may have missed a key that was made or revoked since. So the
        request waits for the next read, which all waiting requests share.
        """
        before = self._looking
        if before is not None and not before.done():
            await asyncio.wait({before})
            if self._ring.settled(token):
                return
        if self._looking is before or self._looking is None:
            self._looking = asyncio.ensure_future(in_thread(self._limit_s, self._ring.refresh))
        await asyncio.shield(self._looking)
