"""Principals and their API keys: the fold of the entries of the stream `~keys`. Pure.

A principal is charged; a key identifies it. A principal has any number of keys, and keeps its odometer when
they end.

    key_created        a key, and the principal that it was made for: both are new
    key_revoked        a key is revoked for good

and from format 4 on:

    principal_created  a principal without a key
    principal_changed  its new role, team and the principals it acts for
    name_erased        its name is gone, and stays its own
    key_added          one more key of a principal
    key_rotated        a key replaces another, which ends later
    key_expired        a key has expired, whatever a clock says afterwards
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

RESERVED: Final = frozenset({"anyone", "command-line", "embedded", "first-start", "recovery", "service"})
"""Names in entries for writers that are no principals: nobody can be charged under one."""
_MINTED: Final = re.compile(r"[pkn]_[0-9a-f]{16}")


class Role(StrEnum):
    """The permissions of a principal; each role includes the ones before it."""

    reader = "reader"
    charger = "charger"
    admin = "admin"

    def covers(self, other: "Role") -> bool:
        """Whether this role may do what `other` may."""
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(other)


@dataclass(frozen=True)
class Principal:
    """A principal: an opaque id, and the permissions of its keys. Its name is in a note, not in entries."""

    id: str
    role: Role
    team: str | None = None
    acts_for: frozenset[str] = frozenset()
    created: str = ""
    version: int = 1
    """Grows with each change."""
    name_hash: str | None = None
    """Salted hash of its name; None when it never had one."""
    claimed: bool = False
    """Whether an entry states a keyed hash of its name."""
    erased: bool = False
    """Whether its name was erased."""


@dataclass(frozen=True)
class Key:
    """An API key of a principal. Times are the ledger's."""

    id: str
    principal: str
    token_hash: str
    created: str
    expires: str | None = None
    """The time from which it is refused."""
    revoked: bool = False
    expired: bool = False
    """Whether an entry states that it has expired."""
    replaces: str | None = None
    replaced_by: str | None = None
    rotated: str | None = None
    """When it last replaced another key, or was replaced."""

    def usable(self, now: str) -> bool:
        """Whether it is accepted at `now`."""
        return not (self.revoked or self.expired or (self.expires is not None and self.expires <= now))


def is_reserved(name: str) -> bool:
    """Whether entries use that name for a writer that is no principal."""
    return name.casefold() in RESERVED


def is_minted(name: str) -> bool:
    """Whether the name has the form of an id that the service gives out."""
    return _MINTED.fullmatch(name) is not None


@dataclass
class Register:
    """All principals and keys, as of one entry of `~keys`."""

    principals: dict[str, Principal] = field(default_factory=dict)
    keys: dict[str, Key] = field(default_factory=dict)
    by_token: dict[str, str] = field(default_factory=dict)
    """Key id by the hash of its token."""
    claims: dict[tuple[str, str], str] = field(default_factory=dict)
    """Principal by (id of the secret, keyed hash of the name); erased names too."""
    secrets: dict[str, str] = field(default_factory=dict)
    """Salted hash of each secret that names were hashed with, by its id, the first one first."""
    ending: dict[str, str] = field(default_factory=dict)
    """The end of each key that has one, unless an entry states it already."""
    time: str = ""
    """The time of the last entry: keys expire by it, so that they stay expired when a clock goes back."""
    _keys_of: dict[str, list[str]] = field(default_factory=dict)

    def copy(self) -> "Register":
        """A copy that can be changed on its own."""
        return Register(
            dict(self.principals),
            dict(self.keys),
            dict(self.by_token),
            dict(self.claims),
            dict(self.secrets),
            dict(self.ending),
            self.time,
            {name: list(keys) for name, keys in self._keys_of.items()},
        )

    def keys_of(self, principal: str) -> list[Key]:
        """All keys that a principal ever had, the oldest first."""
        return [self.keys[key] for key in self._keys_of.get(principal, ())]

    def lasting_admins(self) -> set[str]:
        """The admin keys that are valid without an end: one of them must remain."""
        return {
            key.id
            for key in self.keys.values()
            if self.principals[key.principal].role is Role.admin
            and not (key.revoked or key.expired)
            and key.expires is None
        }

    def apply(self, entry: Mapping[str, Any]) -> str | None:
        """Apply an entry, and return the principal that it changed, if any.

        Raises KeyError, TypeError or ValueError for one that contradicts what came before.
        """
        self.time = max(self.time, str(entry.get("time", "")))
        apply = _APPLY.get(entry["type"])
        if apply is None:
            raise ValueError(f"it has the unknown type {entry['type']!r}")
        return apply(self, entry)

    def _created(self, entry: Mapping[str, Any]) -> str:
        name = str(entry["principal"])
        if name in self.principals:
            raise ValueError(f"principal {name} is made a second time")
        self.principals[name] = Principal(
            name,
            Role(entry["role"]),
            entry.get("team"),
            frozenset(entry.get("acts_for", ())),
            str(entry.get("time", "")),
            name_hash=entry.get("name_hash"),
        )
        self._claimed(entry)
        return name

    def _created_with_key(self, entry: Mapping[str, Any]) -> str:
        self._created(entry)
        return self._added(entry)

    def _claimed(self, entry: Mapping[str, Any]) -> None:
        if "name_claim" not in entry:
            return
        name, secret = str(entry["principal"]), str(entry["names_key"])
        claim = secret, str(entry["name_claim"])
        if self.secrets.setdefault(secret, str(entry["names_key_hash"])) != entry["names_key_hash"]:
            raise ValueError(f"the secret {secret} of names changed")
        # Two principals of one name, from earlier versions, are both erased under it.
        if self.claims.setdefault(claim, name) != name and entry["type"] != "name_erased":
            raise ValueError(f"the name of principal {name} is that of {self.claims[claim]}")
        self.principals[name] = replace(self.principals[name], claimed=True)

    def _changed(self, entry: Mapping[str, Any]) -> str:
        before = self.principals[entry["principal"]]
        self.principals[before.id] = replace(
            before,
            role=Role(entry["role"]),
            team=entry.get("team"),
            acts_for=frozenset(entry.get("acts_for", ())),
            version=before.version + 1,
        )
        return before.id

    def _erased(self, entry: Mapping[str, Any]) -> str:
        self._claimed(entry)
        before = self.principals[entry["principal"]]
        self.principals[before.id] = replace(before, erased=True)
        return before.id

    def _added(self, entry: Mapping[str, Any]) -> str:
        principal = self.principals[entry["principal"]]
        key = Key(
            str(entry["id"]),
            principal.id,
            str(entry["token_hash"]),
            str(entry.get("time", "")),
            entry.get("expires"),
        )
        if key.id in self.keys or key.token_hash in self.by_token:
            raise ValueError(f"key {key.id} is made a second time")
        self._keep(key)
        self.by_token[key.token_hash] = key.id
        self._keys_of.setdefault(principal.id, []).append(key.id)
        return principal.id

    def _rotated(self, entry: Mapping[str, Any]) -> str:
        old, time = self.keys[entry["replaces"]], str(entry["time"])
        if old.principal != entry["principal"]:
            raise ValueError(f"key {entry['id']} takes the place of another principal's")
        self._added(entry)
        ends = str(entry["ends"])
        ends = ends if old.expires is None else min(old.expires, ends)
        new = self.keys[str(entry["id"])]
        self._keep(replace(old, expires=ends, replaced_by=new.id, rotated=time))
        self._keep(replace(new, replaces=old.id, rotated=time))
        return old.principal

    def _ended(self, entry: Mapping[str, Any]) -> str | None:
        before = self.keys.get(str(entry["id"]))
        if before is None:  # an unknown key cannot be used either
            return None
        revoked = entry["type"] == "key_revoked"
        self._keep(replace(before, revoked=before.revoked or revoked, expired=before.expired or not revoked))
        return before.principal

    def _keep(self, key: Key) -> None:
        self.keys[key.id] = key
        if key.expires is None or key.revoked or key.expired:
            self.ending.pop(key.id, None)
        else:
            self.ending[key.id] = key.expires


_APPLY: Final[Mapping[str, Callable[[Register, Mapping[str, Any]], str | None]]] = {
    "key_created": Register._created_with_key,
    "key_revoked": Register._ended,
    "principal_created": Register._created,
    "principal_changed": Register._changed,
    "name_erased": Register._erased,
    "key_added": Register._added,
    "key_rotated": Register._rotated,
    "key_expired": Register._ended,
}
"""By entry type, the method that applies it."""
KEY_ENTRIES: Final = tuple(_APPLY)
"""Every type of entry of the API keys."""
