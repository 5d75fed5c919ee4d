"""Reads and appends the stream of principals and API keys."""

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from odometer_accountant.errors import (
    Forbidden,
    LedgerCorrupt,
    StoreUnavailable,
)
from odometer_accountant.ledger.entries import FORMAT, LATEST, check_format, entry_hash, seal
from odometer_accountant.ledger.principals import Key, Register, Role, is_minted
from odometer_accountant.service.identity import Identity, allowed
from odometer_accountant.service.principal_names import NameBook
from odometer_accountant.service.tokens import token_hash
from odometer_accountant.stores import EMPTY_HEAD, Head, Store, Write
from odometer_accountant.writer.writer import utc_now

log = logging.getLogger("odometer.api")

STREAM: Final = "~keys"
"""The stream of principals and keys. It is no slug, so no dataset can have this name."""
_ATTEMPTS: Final = 20
_PAGE: Final = 1000
_MISS_REFRESH_S: Final = 0.05
"""For unknown tokens the service reads the store at most this often."""
_MAY_END_AN_ADMIN: Final = ("key_revoked", "key_rotated", "principal_changed")
"""Types of entry that can take the last admin away."""

NewEntries = Sequence[dict[str, Any]]
"""Entries to append, in order and all at once."""


class KeyStream:
    """The cached entries of principals and keys, re-read when the stream has moved on.

    Safe to call from several threads. Each change is decided at the end of the stream and appended only
    there: of two processes that want the same name, or end the last admin, one is refused.
    """

    def __init__(self, store: Store, refresh_s: float = 1.0, clock: Callable[[], str] = utc_now) -> None:
        self._store = store
        self._refresh_s = refresh_s
        self._clock = clock
        self._lock = threading.RLock()
        self._head: Head = EMPTY_HEAD
        self._register = Register()
        self._names = NameBook(store)
        self._by_token: dict[str, Identity] = {}
        self._next_end: str | None = None
        """When the next key ends whose end is not in the stream yet."""
        self._latest = ""
        self._checked = -refresh_s
        self._read_on()

    def settled(self, token: str | None) -> bool:
        """Whether the cache alone may say whose token it is.

        Not for long, since another process may revoke a key; and hardly at all for a token that it does not
        know, since another process may have made it a moment ago.
        """
        age = time.monotonic() - self._checked
        return age < (self._refresh_s if self.cached(token) else min(_MISS_REFRESH_S, self._refresh_s))

    def refresh(self) -> None:
        """Read what was appended since. Raises StoreUnavailable when unsure, LedgerCorrupt when changed."""
        self._read_on()
        if self._next_end is not None and self._next_end <= self.now():
            self._mark_expired()

    def identify(self, token: str | None) -> Identity | None:
        """The caller of a token; None when unknown, revoked or expired. May read the store."""
        if not self.settled(token):
            self.refresh()
        return self.cached(token)

    def cached(self, token: str | None) -> Identity | None:
        """As `identify`, from the cache alone."""
        identity = self._by_token.get(token_hash(token)) if token else None
        if identity is None or identity.revoked:
            return None
        return identity if identity.expires is None or self.now() < identity.expires else None

    def holder(self, key: str) -> Identity | None:
        """The caller of the key with that id; None when unknown, revoked or expired. May read the store."""
        if time.monotonic() - self._checked >= self._refresh_s:
            self.refresh()
        found = self._register.keys.get(key)
        return None if found is None or not found.usable(self.now()) else self._identity(found)

    def require(self, token: str | None, role: Role) -> Identity:
        """The caller of a token. Raises Unauthenticated or Forbidden."""
        return allowed(self.identify(token), role)

    def now(self) -> str:
        """The clock's time, or the latest that this process or the stream has seen: it never goes back."""
        self._latest = now = max(self._latest, self._register.time, self._clock())
        return now

    def against(self, name: str, granted: bool = False) -> str | None:
        """The reason why a charge on behalf of `name` is not allowed; None when it is.

        `granted`: it is one of those whom the caller acts for by name.

        An id that was made here has to be that of a principal. Any other name is that of somebody who has no
        key here, as a query service's users have, unless it is what a principal is called: whoever is charged
        under its name in place of its id would have a second odometer. Of a ledger of before, a name that was
        granted while somebody was called so goes on: nobody granted it since.
        """
        register = self._register
        if name in register.principals:
            return None
        if is_minted(name):
            key = register.keys.get(name)
            return f"there is no principal {name}" + (
                f": it is a key of {key.principal}" if key is not None else ""
            )
        owners = [one for one in self._names.owners(name, register) if one.claimed or not granted]
        if owners:
            return f"{name} is the name of a principal: charge on behalf of its id, {owners[0].id}"
        return None

    def _change(self, build: Callable[[Register], NewEntries]) -> None:
        """Append what `build` says at the end that it was decided on; decide again where others were faster.

        Nothing may leave the ledger without an admin key that has no end.
        """
        for _ in range(_ATTEMPTS):
            self._read_on()
            with self._lock:
                head, register = self._head, self._register
                now, documents = self._time(register), build(register)
                documents = [{**document, "time": now} for document in documents]
                if not documents:
                    return
                _check_admin_left(register, documents)
            entries, after = [], head
            for document in documents:
                entry, after = seal(after, document, None, _format(document))
                entries.append(entry)
            if self._store.append([Write(STREAM, head, entries)])[0]:
                self._read_on()
                return
        raise StoreUnavailable("too many concurrent writers: try again")

    def _mark_expired(self) -> None:
        """Put into the stream which keys' time is over: no clock that is set back makes them good again."""

        def build(register: Register) -> NewEntries:
            now = self._time(register)
            return [
                {"type": "key_expired", "id": key}
                for key, expires in register.ending.items()
                if expires <= now
            ]

        try:
            self._change(build)
        except StoreUnavailable as error:  # they are refused all the same; it is tried again
            log.warning("keys have expired, which could not be written: %s", error.detail)

    def _read_on(self) -> None:
        with self._lock:
            started = time.monotonic()
            head, _ = self._store.load(STREAM, [])
            while self._head.sequence < head.sequence:
                rows = self._store.entries(STREAM, self._head.sequence, _PAGE)
                if not rows:
                    raise StoreUnavailable("the key entries cannot be read")
                for row in rows:
                    self._apply(row.sequence, row.hash, row.body)
            if self._head.sequence == head.sequence and self._head.hash != head.hash:
                raise LedgerCorrupt("the stream of API keys differs from what this process read before")
            if self._head.sequence > head.sequence:
                raise LedgerCorrupt("the stream of API keys lost entries that this process read before")
            self._names.learn(self._register)
            self._checked = started

    def _apply(self, sequence: int, digest: str, body: bytes) -> None:
        entry = json.loads(body)
        if entry_hash(body) != digest or entry["prev"] != self._head.hash or entry["seq"] != sequence:
            raise LedgerCorrupt(f"entry {sequence} of the API keys does not follow the one before it")
        check_format("the stream of API keys", entry.get("v"))
        try:
            principal = self._register.apply(entry)
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerCorrupt(f"entry {sequence} of the API keys cannot be taken in: {error}") from error
        for key in () if principal is None else self._register.keys_of(principal):
            self._by_token[key.token_hash] = self._identity(key)
        self._next_end = min(self._register.ending.values(), default=None)
        self._head = Head(sequence, digest)

    def _identity(self, key: Key) -> Identity:
        principal = self._register.principals[key.principal]
        return Identity(
            key.id,
            principal.role,
            principal.id,
            key.revoked or key.expired,
            principal.team,
            principal.acts_for,
            key.expires,
            self.against,
        )

    def _time(self, register: Register) -> str:
        return max(register.time, self.now())


def _check_admin_left(register: Register, documents: NewEntries) -> None:
    """Raise Forbidden where this would take the last admin key without an end."""
    takes = any(document["type"] in _MAY_END_AN_ADMIN for document in documents)
    if not takes or not register.lasting_admins():
        return
    after = register.copy()
    for document in documents:
        after.apply(document)
    if not after.lasting_admins():
        raise Forbidden(
            "this is the last admin key that has no end: make another one first, with "
            "`odometer key create admin`, so that there is always somebody who can"
        )


def _format(document: dict[str, Any]) -> int:
    """The lowest format that expresses an entry."""
    old = document["type"] in ("key_created", "key_revoked") and "name_claim" not in document
    return FORMAT if old else LATEST
