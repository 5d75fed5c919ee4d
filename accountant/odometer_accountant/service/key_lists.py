"""Lists principals and API keys as the routes return them."""

from collections.abc import Iterable
from typing import Any

from odometer_accountant.errors import (
    UnknownKey,
    UnknownPrincipal,
)
from odometer_accountant.ledger.principals import Key, Principal, Register
from odometer_accountant.service.key_stream import KeyStream
from odometer_accountant.service.tokens import is_token


class KeyLists(KeyStream):
    """The reads of the key ring."""

    def keys(self, principal: str | None = None) -> list[dict[str, Any]]:
        """All keys, or one principal's, without their tokens. Raises UnknownPrincipal."""
        self.refresh()
        with self._lock:
            register, now = self._register, self.now()
            if principal is not None:
                find_principal(register, principal)
            chosen = list(register.keys.values()) if principal is None else register.keys_of(principal)
            names = self._names_of({key.principal for key in chosen})
            return [_key_document(key, register.principals[key.principal], names, now) for key in chosen]

    def key(self, key: str) -> dict[str, Any]:
        """One of them. Raises UnknownKey."""
        self.refresh()
        with self._lock:
            found = find_key(self._register, key)
            names = self._names_of([found.principal])
            return _key_document(found, self._register.principals[found.principal], names, self.now())

    def principals(self) -> list[dict[str, Any]]:
        """All principals, the oldest first."""
        self.refresh()
        with self._lock:
            names = self._names_of(self._register.principals)
            return [self._document(one, names) for one in self._register.principals.values()]

    def principal(self, name: str) -> dict[str, Any]:
        """One of them. Raises UnknownPrincipal."""
        self.refresh()
        with self._lock:
            found = find_principal(self._register, name)
            return self._document(found, self._names_of([name]))

    def _document(self, one: Principal, names: dict[str, str]) -> dict[str, Any]:
        now = self.now()
        usable = sum(key.usable(now) for key in self._register.keys_of(one.id))
        return _principal_document(one, names.get(one.id), usable)

    def _names_of(self, principals: Iterable[str]) -> dict[str, str]:
        """The names of principals, without those that were erased."""
        register = self._register
        kept = [one for one in principals if not register.principals[one].erased]
        return {name: note.text for name, note in self._store.notes(kept).items()}


def etag(principal: Principal) -> str:
    """The ETag of a principal: a change sends it as If-Match."""
    return f'"v{principal.version}"'


def find_principal(register: Register, name: str) -> Principal:
    """The principal with that id. Raises UnknownPrincipal, which says what the text is instead."""
    found = register.principals.get(name)
    if found is None:
        raise UnknownPrincipal(
            "that is a token, not an id: a principal's id begins with p_, see `odometer principal list`"
            if is_token(name)
            else f"there is no principal {name[:80]!r}: a principal is called by its id, p_…, "
            "which `odometer principal list` shows"
        )
    return found


def find_key(register: Register, key: str) -> Key:
    """The key with that id. Raises UnknownKey, which says what the text is instead."""
    found = register.keys.get(key)
    if found is None:
        raise UnknownKey(_no_key(register, key))
    return found


def _no_key(register: Register, key: str) -> str:
    """The detail of UnknownKey: what was given instead of a key id."""
    if is_token(key):
        return "that is a token, not an id: a key's id begins with k_, see `odometer key list`"
    if key in register.principals:
        return f"{key} is a principal: `odometer key list` shows its keys, each with an id of its own, k_…"
    return f"there is no key {key[:80]!r}: a key is called by its id, k_…, which `odometer key list` shows"


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
