"""API keys: a stream of their own, hashed at rest, with three roles."""

import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from accountant.commands import Caller
from accountant.entries import check_format, entry_hash, seal
from accountant.errors import Forbidden, LedgerCorrupt, StoreUnavailable, Unauthenticated, UnknownKey
from accountant.stores import EMPTY_HEAD, Head, Note, Store, Write
from accountant.teller import utc_now

STREAM: Final = "~keys"
"""Not a slug, so no dataset can have this name."""
_ATTEMPTS: Final = 20
_PAGE: Final = 1000
_MISS_REFRESH_S: Final = 0.05
"""Unknown tokens make the service look at the store at most this often."""


class Role(StrEnum):
    """What a key may do; each role may do what the ones before it may."""

    reader = "reader"
    charger = "charger"
    admin = "admin"

    def covers(self, other: "Role") -> bool:
        """Whether this role may do what `other` may."""
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(other)


@dataclass(frozen=True)
class Identity:
    """Whose key it is. `principal` is an opaque id; its name lives in a note apart from the entries."""

    key: str
    role: Role
    principal: str
    revoked: bool = False
    team: str | None = None
    acts_for: frozenset[str] = frozenset()

    @property
    def caller(self) -> Caller:
        """As the accountant knows who asks."""
        return Caller(self.principal, self.team, self.acts_for, self.role is Role.admin)

    def require(self, role: Role) -> None:
        """Raise Forbidden unless this key may do what `role` may."""
        if not self.role.covers(role):
            raise Forbidden(
                f"this needs a key of role {role.value}, yours is {self.role.value}", role=role.value
            )


def token_hash(token: str) -> str:
    """What is stored of a token: enough to recognise it, not to use it (tokens are 256 random bits)."""
    return hashlib.sha256(token.encode()).hexdigest()


class KeyRing:
    """The keys, cached and re-read when the stream has moved on. Safe to call from several threads."""

    def __init__(self, store: Store, refresh_s: float = 1.0) -> None:
        self._store = store
        self._refresh_s = refresh_s
        self._lock = threading.Lock()
        self._head: Head = EMPTY_HEAD
        self._by_token: dict[str, Identity] = {}
        self._checked = -refresh_s
        self.refresh()

    def settled(self, token: str | None) -> bool:
        """Whether the cache alone may say whose token it is.

        Not for long, since another process may revoke a key; and hardly at all for a token that it does not
        know, since another process may have made it a moment ago.
        """
        age = time.monotonic() - self._checked
        return age < (self._refresh_s if self.cached(token) else min(_MISS_REFRESH_S, self._refresh_s))

    def refresh(self) -> None:
        """Read what was appended since. Raises StoreUnavailable when unsure, LedgerCorrupt when changed."""
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
            self._checked = started

    def identify(self, token: str | None) -> Identity | None:
        """Whose token it is, None when unknown or revoked. May read the store."""
        if not self.settled(token):
            self.refresh()
        return self.cached(token)

    def cached(self, token: str | None) -> Identity | None:
        """As `identify`, from the cache alone."""
        identity = self._by_token.get(token_hash(token)) if token else None
        return None if identity is None or identity.revoked else identity

    def holder(self, key: str) -> Identity | None:
        """Whose the key of that id is, None when unknown or revoked. May read the store."""
        if time.monotonic() - self._checked >= self._refresh_s:
            self.refresh()
        found = (identity for identity in list(self._by_token.values()) if identity.key == key)
        return next((identity for identity in found if not identity.revoked), None)

    def require(self, token: str | None, role: Role) -> Identity:
        """Whose token it is. Raises Unauthenticated or Forbidden."""
        return allowed(self.identify(token), role)

    def create(
        self,
        role: Role,
        name: str | None,
        by: str,
        team: str | None = None,
        acts_for: Iterable[str] = (),
    ) -> tuple[Identity, str]:
        """A new key of a new principal, and its token, which is not kept anywhere."""
        token, key, principal = f"po_{secrets.token_urlsafe(32)}", _new_id("k"), _new_id("p")
        identity = Identity(key, role, principal, team=team, acts_for=frozenset(acts_for))
        document: dict[str, Any] = {
            "type": "key_created",
            "id": identity.key,
            "role": role.value,
            "principal": identity.principal,
            "token_hash": token_hash(token),
            "by": by,
        }
        if team is not None:
            document["team"] = team
        if identity.acts_for:
            document["acts_for"] = sorted(identity.acts_for)
        if name:
            salt = secrets.token_hex(16)
            self._store.put_note(identity.principal, Note(salt, name))
            document["name_hash"] = hashlib.sha256((salt + name).encode()).hexdigest()
        self._append(document)
        return identity, token

    def create_first(self) -> str | None:
        """An admin's token if there is no key at all yet, else None. One process wins."""
        if self._head != EMPTY_HEAD:
            return None
        token = f"po_{secrets.token_urlsafe(32)}"
        document = {
            "type": "key_created",
            "id": _new_id("k"),
            "role": Role.admin.value,
            "principal": _new_id("p"),
            "token_hash": token_hash(token),
            "by": "first-start",
            "time": utc_now(),
        }
        entry, _ = seal(EMPTY_HEAD, document)
        won = self._store.append([Write(STREAM, EMPTY_HEAD, [entry])])[0]
        self.refresh()
        return token if won else None

    def revoke(self, key: str, by: str) -> None:
        """Take a key out of use for good. Raises UnknownKey, and Forbidden for the last admin's."""
        self.refresh()
        identities = list(self._by_token.values())
        if not any(identity.key == key for identity in identities):
            raise UnknownKey(f"there is no key {key[:80]!r}")
        admins = {
            identity.key for identity in identities if identity.role is Role.admin and not identity.revoked
        }
        if admins == {key}:
            raise Forbidden("this is the last admin key: make another one first, then revoke this one")
        self._append({"type": "key_revoked", "id": key, "by": by})

    def keys(self) -> list[dict[str, Any]]:
        """All keys, without their tokens."""
        self.refresh()
        identities = list(self._by_token.values())
        notes = self._store.notes([identity.principal for identity in identities])
        return [
            {
                "id": identity.key,
                "role": identity.role.value,
                "principal": identity.principal,
                "name": notes[identity.principal].text if identity.principal in notes else None,
                "revoked": identity.revoked,
                "team": identity.team,
                "acts_for": sorted(identity.acts_for),
            }
            for identity in identities
        ]

    def _append(self, document: dict[str, Any]) -> None:
        for _ in range(_ATTEMPTS):
            self.refresh()
            head = self._head
            entry, _new = seal(head, {**document, "time": utc_now()})
            if self._store.append([Write(STREAM, head, [entry])])[0]:
                self.refresh()
                return
        raise StoreUnavailable("other writers were faster each time: try again")

    def _apply(self, sequence: int, digest: str, body: bytes) -> None:
        entry = json.loads(body)
        check_format("the stream of API keys", entry.get("v"))
        if entry_hash(body) != digest or entry["prev"] != self._head.hash or entry["seq"] != sequence:
            raise LedgerCorrupt(f"entry {sequence} of the API keys does not follow the one before it")
        if entry["type"] == "key_created":
            identity = Identity(
                entry["id"],
                Role(entry["role"]),
                entry["principal"],
                team=entry.get("team"),
                acts_for=frozenset(entry.get("acts_for", ())),
            )
            self._by_token[entry["token_hash"]] = identity
        elif entry["type"] == "key_revoked":
            for token, identity in self._by_token.items():
                if identity.key == entry["id"]:
                    self._by_token[token] = replace(identity, revoked=True)
        else:
            raise LedgerCorrupt(f"entry {sequence} of the API keys has the unknown type {entry['type']!r}")
        self._head = Head(sequence, digest)


def _new_id(letter: str) -> str:
    return f"{letter}_{secrets.token_hex(8)}"


def allowed(identity: Identity | None, role: Role) -> Identity:
    """The identity, if it may do what `role` may. Raises Unauthenticated or Forbidden."""
    if identity is None:
        raise Unauthenticated(
            "send `Authorization: Bearer <key>` with a key that was not revoked; "
            "an admin makes one with `odometer key create`"
        )
    identity.require(role)
    return identity
