"""Sign-ins of the dashboard: random, short, and ended by signing out, in every process, or with their key."""

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable
from typing import Final

from odometer_accountant.service.api_keys import Identity, KeyRing
from odometer_accountant.stores import Note, Store

AT_ONCE: Final = 16
"""Browsers that one key can be signed in with; one more ends the oldest sign-in."""
_SKEW_S: Final = 300
"""By so much the clocks of two processes may differ, in seconds."""
_TICKET = re.compile(r"(k_[0-9a-f]{16})\.([0-9]{1,2})\.([A-Za-z0-9_-]{43})")


class SignIns:
    """Tickets for browsers: what a browser keeps instead of its API key.

    A ticket is `key id . place . 256 random bits`. The store keeps the hash of it and when it began, in one
    of `AT_ONCE` notes of its key: so all processes know it, it outlives a restart, and nothing grows. Of two
    sign-ins that take one place at the same moment, one has to sign in again. Who reads the store cannot make
    a ticket of what is there.
    """

    def __init__(
        self, store: Store, ring: KeyRing, length_s: float, now: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._ring = ring
        self._length_s = length_s
        self._now = now

    def open(self, token: str) -> str | None:
        """A new ticket for the key that has this token; None when there is none, or it was revoked."""
        who = self._ring.identify(token)
        if who is None:
            return None
        names = [_note(who.key, place) for place in range(AT_ONCE)]
        notes = self._store.notes(names)
        began = [self._began(notes.get(name)) for name in names]
        place = began.index(min(began))
        ticket = f"{who.key}.{place}.{secrets.token_urlsafe(32)}"
        self._store.put_note(names[place], Note(_hash(ticket), repr(self._now())))
        return ticket

    def identify(self, ticket: str) -> Identity | None:
        """The caller of a ticket; None when unknown or ended. Reads the store each time."""
        found = _TICKET.fullmatch(ticket)
        if found is None or int(found[2]) >= AT_ONCE:
            return None
        name = _note(found[1], int(found[2]))
        note = self._store.notes([name]).get(name)
        if note is None or not self._began(note) or not hmac.compare_digest(note.salt, _hash(ticket)):
            return None
        return self._ring.holder(found[1])

    def close(self, ticket: str) -> None:
        """End a sign-in, in every process. One that ended already stays ended."""
        if self.identify(ticket) is not None:
            key, place, _ = ticket.split(".")
            self._store.erase_note(_note(key, int(place)))

    def _began(self, note: Note | None) -> float:
        """When the sign-in of a note (hash of the ticket, and this time) began, in seconds since 1970.

        0 when it has ended, or cannot be read.
        """
        try:
            began = float(note.text) if note is not None else 0.0
        except ValueError:
            return 0.0
        # One that begins in the future was made before the clock went back: it would last too long.
        return began if -_SKEW_S <= self._now() - began < self._length_s else 0.0


def _note(key: str, place: int) -> str:
    """The name of a note; no principal has such a one."""
    return f"~sign-in/{key}/{place}"


def _hash(ticket: str) -> str:
    return hashlib.sha256(ticket.encode()).hexdigest()
