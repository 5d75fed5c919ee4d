"""Keys and principals through the service, or directly in a ledger: one set of calls for both."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Union

from privacy_odometer.cli.connection import connected, is_store, stored

if TYPE_CHECKING:
    from odometer_accountant.service.api_keys import KeyRing
    from odometer_client import Client

BY: Final = "command-line"
"""The author of entries that are written directly in a ledger, without a key."""


class LedgerKeys:
    """The calls of `Client` on keys and principals, directly in a ledger.

    It needs no API key: whoever may write the ledger may do all of it. The requests are validated as the
    service validates them. Every method raises OdometerError as the service would answer.
    """

    def __init__(self, ring: "KeyRing") -> None:
        self._ring = ring

    def create_key(
        self,
        role: str,
        name: str | None = None,
        *,
        team: str | None = None,
        acts_for: Sequence[str] = (),
        expires_in_s: int | None = None,
    ) -> dict[str, Any]:
        """A new key of a new principal, with its token."""
        from odometer_accountant.service.principals import NewKey

        form: NewKey = _validated(
            NewKey, role=role, name=name, team=team, acts_for=acts_for, expires_in_s=expires_in_s
        )
        identity, token = self._ring.create(
            form.role, form.name, BY, form.team, form.acts_for, form.expires_in_s
        )
        return self._with_token(identity.key, token)

    def add_key(self, principal: str, *, expires_in_s: int | None = None) -> dict[str, Any]:
        """One more key of a principal, with its token."""
        from odometer_accountant.service.principals import MoreKey

        form: MoreKey = _validated(MoreKey, expires_in_s=expires_in_s)
        identity, token = self._ring.add(principal, BY, form.expires_in_s)
        return self._with_token(identity.key, token)

    def rotate_key(
        self, key_id: str, *, overlap_s: int | None = None, expires_in_s: int | None = None
    ) -> dict[str, Any]:
        """A key that replaces another one of the same principal, with its token."""
        from odometer_accountant.service.principals import Rotation

        form: Rotation = _validated(Rotation, overlap_s=overlap_s, expires_in_s=expires_in_s)
        identity, token = self._ring.rotate(key_id, BY, form.overlap_s, form.expires_in_s)
        return self._with_token(identity.key, token)

    def recover_key(self, principal: str | None) -> dict[str, Any]:
        """A new admin key, with its token. `principal`: an existing admin; None makes a new one."""
        identity, token = self._ring.recover(principal)
        return self._with_token(identity.key, token)

    def revoke_key(self, key_id: str) -> None:
        """Revoke a key for good."""
        self._ring.revoke(key_id, BY)

    def keys(self) -> list[dict[str, Any]]:
        """All keys, without their tokens."""
        return self._ring.keys()

    def create_principal(
        self, role: str, name: str | None = None, *, team: str | None = None, acts_for: Sequence[str] = ()
    ) -> dict[str, Any]:
        """A new principal without a key."""
        from odometer_accountant.service.principals import NewPrincipal

        form: NewPrincipal = _validated(NewPrincipal, role=role, name=name, team=team, acts_for=acts_for)
        made = self._ring.create_principal(form.role, form.name, BY, form.team, form.acts_for)
        return self._ring.principal(made)

    def principals(self) -> list[dict[str, Any]]:
        """All principals."""
        return self._ring.principals()

    def principal(self, principal: str) -> dict[str, Any]:
        """One principal."""
        return self._ring.principal(principal)

    def set_principal(
        self, principal: str, *, role: str, team: str | None, acts_for: Sequence[str], etag: str
    ) -> dict[str, Any]:
        """Replace the role, the team and the `acts_for` of a principal."""
        from odometer_accountant.requests.json_input import validated
        from odometer_accountant.service.principals import ChangedPrincipal

        wanted = {"role": role, "team": team, "acts_for": list(acts_for)}
        form: ChangedPrincipal = validated(ChangedPrincipal, wanted)
        self._ring.change_principal(principal, form.role, form.team, form.acts_for, BY, etag)
        return self._ring.principal(principal)

    def erase_name(self, principal: str) -> None:
        """Erase the name of a principal."""
        self._ring.erase_name(principal, BY)

    def _with_token(self, key: str, token: str) -> dict[str, Any]:
        from odometer_accountant.service.principals import made

        return made(self._ring.key(key), token)


KeyAdmin = Union["Client", LedgerKeys]


@contextmanager
def key_admin(store: str | None, url: str, key: str | None) -> Iterator[KeyAdmin]:
    """Keys and principals: of the ledger `store`, of the ledger `url`, or of the service at `url`."""
    ledger = store or (url if is_store(url) else None)
    if ledger is None:
        with connected(url, key) as client:
            yield client
    else:
        with ledger_keys(ledger) as keys:
            yield keys


@contextmanager
def ledger_keys(url: str) -> Iterator[LedgerKeys]:
    """Keys and principals directly in the ledger at `url`."""
    from odometer_accountant.service.api_keys import KeyRing

    with stored(url) as store:
        yield LedgerKeys(KeyRing(store))


def _validated(form: Any, **fields: Any) -> Any:
    """A request of the service, checked. Fields that are None or empty count as left out."""
    from odometer_accountant.requests.json_input import validated

    return validated(form, {name: value for name, value in fields.items() if value not in (None, ())})
