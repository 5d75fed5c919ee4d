"""API keys: a stream of principals and their keys, hashed at rest, cached and looked up here."""

import hashlib
import json
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from odometer_accountant.errors import (
    EditConflict,
    Forbidden,
    IfMatchRequired,
    InvalidRequest,
    KeyEnded,
    LedgerCorrupt,
    OdometerError,
    StoreUnavailable,
    Unauthenticated,
    UnknownKey,
    UnknownPrincipal,
)
from odometer_accountant.ledger.commands import Caller
from odometer_accountant.ledger.entries import FORMAT, LATEST, check_format, entry_hash, seal, timestamp
from odometer_accountant.ledger.principals import Key, Principal, Register, Role, is_minted, is_reserved
from odometer_accountant.service.principal_names import NameBook, clean, name_hash
from odometer_accountant.stores import EMPTY_HEAD, Head, Note, Store, Write
from odometer_accountant.writer.writer import utc_now

__all__ = ["STREAM", "Identity", "KeyRing", "Role", "allowed", "token_hash"]

log = logging.getLogger("odometer.api")

STREAM: Final = "~keys"
"""Not a slug, so no dataset can have this name."""
_ATTEMPTS: Final = 20
_PAGE: Final = 1000
_MISS_REFRESH_S: Final = 0.05
"""Unknown tokens make the service look at the store at most this often."""


_TAKES: Final = ("key_revoked", "key_rotated", "principal_changed")
"""What can take an admin away: whatever else is said adds keys, or says what is so already."""


@dataclass(frozen=True)
class Identity:
    """Whose key it is. `principal` is an opaque id; its name lives in a note apart from the entries."""

    key: str
    role: Role
    principal: str
    revoked: bool = False
    """Whether it is out of use: revoked, or its time is over for good."""
    team: str | None = None
    acts_for: frozenset[str] = frozenset()
    expires: str | None = None
    """From when on it is no longer taken."""
    against: Callable[[str, bool], str | None] | None = field(default=None, compare=False, repr=False)
    """What stands against charging as a principal of that name (`KeyRing.against`)."""

    @property
    def caller(self) -> Caller:
        """As the accountant knows who asks."""
        return Caller(self.principal, self.team, self.acts_for, self.role is Role.admin, self.against)

    def require(self, role: Role) -> None:
        """Raise Forbidden unless this key may do what `role` may."""
        if not self.role.covers(role):
            raise Forbidden(
                f"this needs a key of role {role.value}, yours is {self.role.value}", role=role.value
            )


def token_hash(token: str) -> str:
    """What is stored of a token: enough to recognise it, not to use it (tokens are 256 random bits)."""
    return hashlib.sha256(token.encode()).hexdigest()


Said = Sequence[dict[str, Any]]
"""What is to be appended, after each other and all at once."""


class KeyRing:
    """The principals and their keys, cached and re-read when the stream has moved on.

    Safe to call from several threads. Each change is decided on the stream's end and appended only there, so
    that of two processes that want the same name, or the last admin's end, one is told of the other.
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

    # -- whose a token is

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
        """Whose token it is, None when unknown, revoked or expired. May read the store."""
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
        """Whose the key of that id is, None when unknown, revoked or expired. May read the store."""
        if time.monotonic() - self._checked >= self._refresh_s:
            self.refresh()
        found = self._register.keys.get(key)
        return None if found is None or not found.usable(self.now()) else self._identity(found)

    def require(self, token: str | None, role: Role) -> Identity:
        """Whose token it is. Raises Unauthenticated or Forbidden."""
        return allowed(self.identify(token), role)

    def now(self) -> str:
        """The clock's time, or the latest that this process or the stream has seen: it never goes back."""
        self._latest = now = max(self._latest, self._register.time, self._clock())
        return now

    def against(self, name: str, granted: bool = False) -> str | None:
        """What stands against charging as `name` on somebody's behalf; None where nothing does.

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

    # -- principals

    def create_principal(
        self, role: Role, name: str | None, by: str, team: str | None = None, acts_for: Iterable[str] = ()
    ) -> str:
        """The id of a new principal, which has no key yet. Raises NameTaken."""
        made = _new_id("p")
        self._make_named(
            made,
            name,
            lambda _: [{"type": "principal_created", "principal": made, "by": by}],
            role,
            team,
            acts_for,
        )
        return made

    def change_principal(
        self,
        principal: str,
        role: Role,
        team: str | None,
        acts_for: Iterable[str],
        by: str,
        if_match: str | None,
    ) -> None:
        """Give a principal this role and team, and whom it acts for. What it was charged stays where it is.

        Raises UnknownPrincipal, IfMatchRequired, EditConflict, and Forbidden for the last admin's role.
        """

        def build(register: Register) -> Said:
            found = _principal(register, principal)
            if if_match is None:
                raise IfMatchRequired(
                    "send If-Match with the principal's etag, so that no one else's change is lost",
                    etag=etag(found),
                )
            if if_match != etag(found):
                raise EditConflict(
                    f"principal {principal} has the etag {etag(found)} by now: read it again",
                    etag=etag(found),
                )
            self._require_known(acts_for)
            return [
                {"type": "principal_changed", "principal": principal, "by": by, **_may(role, team, acts_for)}
            ]

        self._change(build)

    def erase_name(self, principal: str, by: str) -> None:
        """Erase what a principal is called; no other will be called that. Raises UnknownPrincipal.

        Where it stops half-way, it is done again: the entry first, so that the name is never free.
        """

        def build(register: Register) -> Said:
            found = _principal(register, principal)
            if found.name_hash is None or found.erased:
                return []
            note = self._store.notes([principal]).get(principal)
            document = {"type": "name_erased", "principal": principal, "by": by}
            if note is not None and not found.claimed:
                document |= self._names.claim(note.text, register)
            return [document]

        self._change(build)
        self._store.erase_note(principal)

    # -- keys

    def create(
        self,
        role: Role,
        name: str | None,
        by: str,
        team: str | None = None,
        acts_for: Iterable[str] = (),
        expires_in_s: int | None = None,
    ) -> tuple[Identity, str]:
        """A new key of a new principal, and its token, which is not kept anywhere. Raises NameTaken."""
        token, key, principal = new_token(), _new_id("k"), _new_id("p")

        def build(register: Register) -> Said:
            made = {"id": key, "token_hash": token_hash(token), "by": by}
            if expires_in_s is None:
                return [{"type": "key_created", "principal": principal, **made}]
            ends = _after(self._time(register), expires_in_s)
            return [
                {"type": "principal_created", "principal": principal, "by": by},
                {"type": "key_added", "principal": principal, "expires": ends, **made},
            ]

        self._make_named(principal, name, build, role, team, acts_for)
        return self._made(key), token

    def add(self, principal: str, by: str, expires_in_s: int | None = None) -> tuple[Identity, str]:
        """One more key of a principal, and its token. Raises UnknownPrincipal."""
        token, key = new_token(), _new_id("k")

        def build(register: Register) -> Said:
            _principal(register, principal)
            return [self._added(register, "key_added", key, token, principal, by, expires_in_s)]

        self._change(build)
        return self._made(key), token

    def rotate(
        self, key: str, by: str, overlap_s: int, expires_in_s: int | None = None
    ) -> tuple[Identity, str]:
        """A key that takes the place of another, which ends after `overlap_s` seconds; and its token.

        Raises UnknownKey, KeyEnded, and Forbidden where no admin key without an end would be left.
        """
        token, new = new_token(), _new_id("k")

        def build(register: Register) -> Said:
            old = _key(register, key)
            if not old.usable(self._time(register)):
                raise KeyEnded(
                    f"key {key} is no longer in use: make another one with `odometer key add {old.principal}`"
                )
            if old.replaced_by is not None:
                raise KeyEnded(f"key {key} was rotated already: rotate {old.replaced_by}")
            document = self._added(register, "key_rotated", new, token, old.principal, by, expires_in_s)
            return [document | {"replaces": key, "ends": _after(self._time(register), overlap_s)}]

        self._change(build)
        return self._made(new), token

    def revoke(self, key: str, by: str) -> None:
        """Take a key out of use for good. Raises UnknownKey, and Forbidden for the last admin's."""

        def build(register: Register) -> Said:
            _key(register, key)
            return [{"type": "key_revoked", "id": key, "by": by}]

        self._change(build)

    def create_first(self) -> str | None:
        """An admin's token if there is no key at all yet, else None. One process wins."""
        if self._head != EMPTY_HEAD:
            return None
        token = new_token()
        document = {
            "type": "key_created",
            "id": _new_id("k"),
            "role": Role.admin.value,
            "principal": _new_id("p"),
            "token_hash": token_hash(token),
            "by": "first-start",
            "time": self.now(),
        }
        entry, _ = seal(EMPTY_HEAD, document)
        won = self._store.append([Write(STREAM, EMPTY_HEAD, [entry])])[0]
        self.refresh()
        return token if won else None

    def recover(self, principal: str | None = None) -> tuple[Identity, str]:
        """An admin key for whoever may write the ledger itself, and its token: all others are lost.

        `principal`: an admin who gets one more key; left out, a new one. The entry says `recovery`.
        Raises UnknownPrincipal, and Forbidden for one that is no admin.
        """
        if principal is None:
            return self.create(Role.admin, None, "recovery")
        self.refresh()
        found = _principal(self._register, principal)
        if found.role is not Role.admin:
            raise Forbidden(f"principal {principal} is no admin but a {found.role.value}: leave it out")
        return self.add(principal, "recovery")

    # -- lists

    def keys(self, principal: str | None = None) -> list[dict[str, Any]]:
        """All keys, or one principal's, without their tokens. Raises UnknownPrincipal."""
        self.refresh()
        with self._lock:
            register, now = self._register, self.now()
            if principal is not None:
                _principal(register, principal)
            chosen = list(register.keys.values()) if principal is None else register.keys_of(principal)
            names = self._called({key.principal for key in chosen})
            return [_key_document(key, register.principals[key.principal], names, now) for key in chosen]

    def key(self, key: str) -> dict[str, Any]:
        """One of them. Raises UnknownKey."""
        self.refresh()
        with self._lock:
            found = _key(self._register, key)
            names = self._called([found.principal])
            return _key_document(found, self._register.principals[found.principal], names, self.now())

    def principals(self) -> list[dict[str, Any]]:
        """All principals, the oldest first."""
        self.refresh()
        with self._lock:
            names = self._called(self._register.principals)
            return [self._document(one, names) for one in self._register.principals.values()]

    def principal(self, name: str) -> dict[str, Any]:
        """One of them. Raises UnknownPrincipal."""
        self.refresh()
        with self._lock:
            found = _principal(self._register, name)
            return self._document(found, self._called([name]))

    def _document(self, one: Principal, names: dict[str, str]) -> dict[str, Any]:
        now = self.now()
        usable = sum(key.usable(now) for key in self._register.keys_of(one.id))
        return _principal_document(one, names.get(one.id), usable)

    def _called(self, principals: Iterable[str]) -> dict[str, str]:
        """The names of principals, without those that were erased."""
        register = self._register
        kept = [one for one in principals if not register.principals[one].erased]
        return {name: note.text for name, note in self._store.notes(kept).items()}

    # -- how a change is made

    def _make_named(
        self,
        principal: str,
        name: str | None,
        build: Callable[[Register], Said],
        role: Role,
        team: str | None,
        acts_for: Iterable[str],
    ) -> None:
        """Append what makes a principal, its name claimed in the same entry.

        The name's note comes first. A crash between leaves a note of a principal that there is not: a name is
        taken by an entry alone.
        """
        called = None if name is None else clean(name)
        note = None if called is None else Note(secrets.token_hex(16), called)
        noted = False

        def named(register: Register) -> Said:
            nonlocal noted
            self._require_known(acts_for)
            first, *others = build(register)
            first |= _may(role, team, acts_for)
            if called is not None and note is not None:
                self._names.require_free(called, register)
                self._names.require_uncharged(called)
                first |= {"name_hash": name_hash(note), **self._names.claim(called, register)}
                if not noted:
                    self._store.put_note(principal, note)
                    noted = True
            return [first, *others]

        try:
            self._change(named)
        except StoreUnavailable:
            raise  # it may have been appended all the same: then the note is its principal's
        except OdometerError:
            if noted:
                self._store.erase_note(principal)
            raise

    def _added(
        self,
        register: Register,
        kind: str,
        key: str,
        token: str,
        principal: str,
        by: str,
        expires_in_s: int | None,
    ) -> dict[str, Any]:
        document: dict[str, Any] = {
            "type": kind,
            "id": key,
            "principal": principal,
            "token_hash": token_hash(token),
            "by": by,
        }
        if expires_in_s is not None:
            document["expires"] = _after(self._time(register), expires_in_s)
        return document

    def _require_known(self, acts_for: Iterable[str]) -> None:
        """Raise InvalidRequest for somebody in whose place nobody can be charged."""
        for name in acts_for:
            said = (
                f"{name} is a name that the ledger uses itself" if is_reserved(name) else self.against(name)
            )
            if said is not None:
                raise InvalidRequest.of("acts_for", said)

    def _time(self, register: Register) -> str:
        return max(register.time, self.now())

    def _made(self, key: str) -> Identity:
        return self._identity(self._register.keys[key])

    def _change(self, build: Callable[[Register], Said]) -> None:
        """Append what `build` says at the end that it was decided on; decide again where others were faster.

        Nothing may leave the ledger without an admin key that has no end.
        """
        for _ in range(_ATTEMPTS):
            self._read_on()
            with self._lock:
                head, register = self._head, self._register
                now, said = self._time(register), build(register)
                said = [{**document, "time": now} for document in said]
                if not said:
                    return
                _keep_an_admin(register, said)
            entries, after = [], head
            for document in said:
                entry, after = seal(after, document, None, _format(document))
                entries.append(entry)
            if self._store.append([Write(STREAM, head, entries)])[0]:
                self._read_on()
                return
        raise StoreUnavailable("other writers were faster each time: try again")

    def _mark_expired(self) -> None:
        """Put into the stream which keys' time is over: no clock that is set back makes them good again."""

        def build(register: Register) -> Said:
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


_TOKEN: Final = re.compile(r"^\W*po_|po_[\w-]{16}", re.IGNORECASE)


def new_token() -> str:
    """A new key's secret: 256 random bits."""
    return f"po_{secrets.token_urlsafe(32)}"


def etag(principal: Principal) -> str:
    """What a change of a principal says that it changes."""
    return f'"v{principal.version}"'


def _principal(register: Register, name: str) -> Principal:
    """Raises UnknownPrincipal, which says whose name it is where it is one."""
    found = register.principals.get(name)
    if found is None:
        raise UnknownPrincipal(
            "that is a token, not an id: a principal's id begins with p_, see `odometer principal list`"
            if is_token(name)
            else f"there is no principal {name[:80]!r}: a principal is called by its id, p_…, "
            "which `odometer principal list` shows"
        )
    return found


def _key(register: Register, key: str) -> Key:
    found = register.keys.get(key)
    if found is None:
        raise UnknownKey(_no_key(register, key))
    return found


def is_token(text: str) -> bool:
    """Whether it looks like a key's secret, which no message may repeat."""
    return _TOKEN.search(text) is not None


def _no_key(register: Register, key: str) -> str:
    """That there is no such key, and what was given instead of a key's id."""
    if is_token(key):
        return "that is a token, not an id: a key's id begins with k_, see `odometer key list`"
    if key in register.principals:
        return f"{key} is a principal: `odometer key list` shows its keys, each with an id of its own, k_…"
    return f"there is no key {key[:80]!r}: a key is called by its id, k_…, which `odometer key list` shows"


def _may(role: Role, team: str | None, acts_for: Iterable[str]) -> dict[str, Any]:
    """The fields of an entry that say what a principal may do."""
    document: dict[str, Any] = {"role": role.value}
    if team is not None:
        document["team"] = team
    if acts_for:
        document["acts_for"] = sorted(set(acts_for))
    return document


def _format(document: dict[str, Any]) -> int:
    """The lowest format that expresses an entry."""
    old = document["type"] in ("key_created", "key_revoked") and "name_claim" not in document
    return FORMAT if old else LATEST


def _after(now: str, seconds: int) -> str:
    return timestamp(datetime.fromisoformat(now) + timedelta(seconds=seconds))


def _keep_an_admin(register: Register, said: Said) -> None:
    """Raise Forbidden where this would take the last admin key without an end."""
    takes = any(document["type"] in _TAKES for document in said)
    if not takes or not register.lasting_admins():
        return
    after = register.copy()
    for document in said:
        after.apply(document)
    if not after.lasting_admins():
        raise Forbidden(
            "this is the last admin key that has no end: make another one first, with "
            "`odometer key create admin`, so that there is always somebody who can"
        )


def _key_document(key: Key, principal: Principal, names: dict[str, str], now: str) -> dict[str, Any]:
    return {
        "id": key.id,
        "role": principal.role.value,
        "principal": principal.id,
        "name": names.get(principal.id),
        "revoked": key.revoked,
        "team": principal.team,
        "acts_for": sorted(principal.acts_for),
        "created": key.created,
        "expires": key.expires,
        "expired": not key.revoked and not key.usable(now),
        "rotated": key.rotated,
        "replaces": key.replaces,
        "replaced_by": key.replaced_by,
    }


def _principal_document(principal: Principal, name: str | None, usable: int) -> dict[str, Any]:
    return {
        "id": principal.id,
        "name": name,
        "name_erased": principal.erased,
        "role": principal.role.value,
        "team": principal.team,
        "acts_for": sorted(principal.acts_for),
        "created": principal.created,
        "keys": usable,
        "etag": etag(principal),
    }


def _new_id(letter: str) -> str:
    return f"{letter}_{secrets.token_hex(8)}"


def allowed(identity: Identity | None, role: Role) -> Identity:
    """The identity, if it may do what `role` may. Raises Unauthenticated or Forbidden."""
    if identity is None:
        raise Unauthenticated(
            "send `Authorization: Bearer <key>` with a key that was not revoked and has not expired; "
            "an admin makes one with `odometer key create`"
        )
    identity.require(role)
    return identity
