"""Handlers of the operations on principals and keys, with their bodies."""

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field

from odometer_accountant.budgets.base import Slug
from odometer_accountant.ledger.principals import Role
from odometer_accountant.mechanisms import Model, Whole
from odometer_accountant.requests.bodies import Name, Text
from odometer_accountant.requests.json_input import validated

if TYPE_CHECKING:
    from odometer_accountant.service.operations.operation import Call

KEY_MAX_S: Final = 10 * 366 * 86_400
"""Ten years: longest life of a key that has an end, in seconds."""
OVERLAP_S: Final = 86_400
"""Seconds that a key is still taken after it was rotated, unless said: a day."""

ActsFor = Annotated[tuple[Name | Literal["*"], ...], Field(max_length=100)]
Seconds = Annotated[Whole, Field(ge=1, le=KEY_MAX_S)]


class NewPrincipal(Model):
    """Makes a principal, who has no key yet."""

    role: Role
    """reader, charger or admin."""
    name: Text | None = None
    """What it is called, for good: kept apart from the ledger's entries. Nobody else can be called that."""
    team: Slug | None = None
    """The team whose odometer and budgets its charges count on."""
    acts_for: ActsFor = ()
    """Principals on whose behalf it may charge, as a query service does for its users; `*` for any."""


class NewKey(NewPrincipal):
    """Makes an API key of a new principal. One more key of a principal: POST /v1/principals/{id}/keys."""

    expires_in_s: Seconds | None = None
    """Seconds that it is taken, at most ten years; left out, until it is revoked."""


class ChangedPrincipal(Model):
    """The complete new permissions of a principal. Its past charges stay as they are."""

    role: Role
    """reader, charger or admin."""
    team: Slug | None
    """The team whose odometer and budgets its charges count on from now on; null for none."""
    acts_for: ActsFor
    """Principals on whose behalf it may charge; `*` for any, [] for none."""


class MoreKey(Model):
    """One more key of a principal."""

    expires_in_s: Seconds | None = None
    """Seconds that it is taken, at most ten years; left out, until it is revoked."""


class Rotation(MoreKey):
    """A key that takes the place of another."""

    overlap_s: Annotated[Whole, Field(ge=0, le=KEY_MAX_S)] = OVERLAP_S
    """Seconds that the old key is still taken; a day unless said, 0 for none."""


def _form(call: "Call", form: Any) -> Any:
    return validated(form, call.body)


def create_key(call: "Call") -> dict[str, Any]:
    """A key of a new principal."""
    wanted: NewKey = _form(call, NewKey)
    identity, token = call.ring.create(
        wanted.role, wanted.name, call.who.principal, wanted.team, wanted.acts_for, wanted.expires_in_s
    )
    return made(call.ring.key(identity.key), token)


def list_keys(call: "Call") -> dict[str, Any]:
    """All keys."""
    return {"items": call.ring.keys(), "next": None}


def rotate_key(call: "Call") -> dict[str, Any]:
    """A key in place of another."""
    call.ring.key(call.names["key"])
    wanted: Rotation = _form(call, Rotation)
    identity, token = call.ring.rotate(
        call.names["key"], call.who.principal, wanted.overlap_s, wanted.expires_in_s
    )
    return made(call.ring.key(identity.key), token)


def list_principals(call: "Call") -> dict[str, Any]:
    """All principals."""
    return {"items": call.ring.principals(), "next": None}


def principal(call: "Call") -> dict[str, Any]:
    """One of them."""
    return call.ring.principal(call.names["principal"])


def create_principal(call: "Call") -> dict[str, Any]:
    """A principal without a key."""
    wanted: NewPrincipal = _form(call, NewPrincipal)
    return call.ring.principal(
        call.ring.create_principal(wanted.role, wanted.name, call.who.principal, wanted.team, wanted.acts_for)
    )


def change_principal(call: "Call") -> dict[str, Any]:
    """It, as it is from now on."""
    name = call.names["principal"]
    call.ring.principal(name)
    wanted: ChangedPrincipal = _form(call, ChangedPrincipal)
    call.ring.change_principal(
        name, wanted.role, wanted.team, wanted.acts_for, call.who.principal, call.if_match
    )
    return call.ring.principal(name)


def erase_name(call: "Call") -> None:
    """Nothing: its name is gone."""
    call.ring.erase_name(call.names["principal"], call.who.principal)


def list_keys_of(call: "Call") -> dict[str, Any]:
    """One principal's keys."""
    return {"items": call.ring.keys(call.names["principal"]), "next": None}


def add_key(call: "Call") -> dict[str, Any]:
    """One more key of a principal."""
    name = call.names["principal"]
    call.ring.principal(name)
    wanted: MoreKey = _form(call, MoreKey)
    identity, token = call.ring.add(name, call.who.principal, wanted.expires_in_s)
    return made(call.ring.key(identity.key), token)


def made(key: dict[str, Any], token: str) -> dict[str, Any]:
    """A new key as it is answered, this once with its token."""
    shown = ("id", "role", "principal", "name", "team", "acts_for", "created", "expires", "replaces")
    return {"token": token, **{field: key[field] for field in shown}}


def me(call: "Call") -> dict[str, Any]:
    """The owner of the key that was sent."""
    who = call.who
    return {
        "key": who.key or None,  # an embedded ledger has no keys
        "role": who.role.value,
        "principal": who.principal,
        "team": who.team,
        "acts_for": sorted(who.acts_for),
        "expires": who.expires,
    }
