"""The key ring: creates and changes principals and their API keys."""

import secrets
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from odometer_accountant.errors import (
    EditConflict,
    Forbidden,
    IfMatchRequired,
    InvalidRequest,
    KeyEnded,
    OdometerError,
    StoreUnavailable,
)
from odometer_accountant.ledger.entries import seal, timestamp
from odometer_accountant.ledger.principals import Register, Role, is_reserved
from odometer_accountant.service.identity import Identity, allowed
from odometer_accountant.service.key_lists import KeyLists, etag, find_key, find_principal
from odometer_accountant.service.key_stream import STREAM, NewEntries
from odometer_accountant.service.principal_names import clean, name_hash
from odometer_accountant.service.tokens import new_token, token_hash
from odometer_accountant.stores import EMPTY_HEAD, Note, Write

__all__ = ["STREAM", "Identity", "KeyRing", "Role", "allowed", "token_hash"]


class KeyRing(KeyLists):
    """The principals and their keys. Tokens are stored as hashes. Safe to call from several threads."""

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

        def build(register: Register) -> NewEntries:
            found = find_principal(register, principal)
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
                {
                    "type": "principal_changed",
                    "principal": principal,
                    "by": by,
                    **_rights(role, team, acts_for),
                }
            ]

        self._change(build)

    def erase_name(self, principal: str, by: str) -> None:
        """Erase what a principal is called; no other will be called that. Raises UnknownPrincipal.

        Where it stops half-way, it is done again: the entry first, so that the name is never free.
        """

        def build(register: Register) -> NewEntries:
            found = find_principal(register, principal)
            if found.name_hash is None or found.erased:
                return []
            note = self._store.notes([principal]).get(principal)
            document = {"type": "name_erased", "principal": principal, "by": by}
            if note is not None and not found.claimed:
                document |= self._names.claim(note.text, register)
            return [document]

        self._change(build)
        self._store.erase_note(principal)

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

        def build(register: Register) -> NewEntries:
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

        def build(register: Register) -> NewEntries:
            find_principal(register, principal)
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

        def build(register: Register) -> NewEntries:
            old = find_key(register, key)
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

        def build(register: Register) -> NewEntries:
            find_key(register, key)
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
        found = find_principal(self._register, principal)
        if found.role is not Role.admin:
            raise Forbidden(f"principal {principal} is no admin but a {found.role.value}: leave it out")
        return self.add(principal, "recovery")

    def _make_named(
        self,
        principal: str,
        name: str | None,
        build: Callable[[Register], NewEntries],
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

        def named(register: Register) -> NewEntries:
            nonlocal noted
            self._require_known(acts_for)
            first, *others = build(register)
            first |= _rights(role, team, acts_for)
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
            problem = (
                f"{name} is a name that the ledger uses itself" if is_reserved(name) else self.against(name)
            )
            if problem is not None:
                raise InvalidRequest.of("acts_for", problem)

    def _made(self, key: str) -> Identity:
        return self._identity(self._register.keys[key])


def _rights(role: Role, team: str | None, acts_for: Iterable[str]) -> dict[str, Any]:
    """The fields of an entry that say what a principal may do."""
    document: dict[str, Any] = {"role": role.value}
    if team is not None:
        document["team"] = team
    if acts_for:
        document["acts_for"] = sorted(set(acts_for))
    return document


def _after(now: str, seconds: int) -> str:
    return timestamp(datetime.fromisoformat(now) + timedelta(seconds=seconds))


def _new_id(letter: str) -> str:
    return f"{letter}_{secrets.token_hex(8)}"
