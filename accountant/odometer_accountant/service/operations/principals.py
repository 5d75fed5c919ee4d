"""The operations of principals and of their API keys."""

from typing import Any, Final

from odometer_accountant import errors
from odometer_accountant.service import principals
from odometer_accountant.service.operations.operation import Handler, Operation, admin, if_match, read
from odometer_accountant.service.responses.principals import (
    KeysReply,
    MeReply,
    NewKeyReply,
    PrincipalReply,
    PrincipalsReply,
)


def _about(place: str, name: str, summary: str, run: Handler, reply: Any, **more: Any) -> Operation:
    """A row about one key or one principal, which may be unknown."""
    unknown = {"key": errors.UnknownKey, "principal": errors.UnknownPrincipal}[place]
    refuses = (unknown, *more.pop("refuses", ()))
    return admin(name, summary, run, reply, names=(place,), refuses=refuses, **more)


def _made(name: str, summary: str, run: Handler, reply: Any, body: Any) -> Operation:
    """A row that makes a principal, under a name that may be taken."""
    return admin(name, summary, run, reply, body=body, status=201, refuses=(errors.NameTaken,))


ROWS: Final[tuple[Operation, ...]] = (
    admin("keys", "List API keys", principals.list_keys, KeysReply, repeat="safe"),
    _made(
        "create_key",
        "Make an API key of a new principal",
        principals.create_key,
        NewKeyReply,
        principals.NewKey,
    ),
    _about(
        "key",
        "revoke_key",
        "Revoke an API key: its principal stays, with its spending",
        lambda call: call.ring.revoke(call.names["key"], call.who.principal),
        None,
        status=204,
    ),
    _about(
        "key",
        "rotate_key",
        "Replace an API key by a new one of the same principal; the old one works a while longer",
        principals.rotate_key,
        NewKeyReply,
        body=principals.Rotation,
        status=201,
        refuses=(errors.KeyEnded,),
    ),
    admin("principals", "List principals", principals.list_principals, PrincipalsReply, repeat="safe"),
    _made(
        "create_principal",
        "Make a principal, who has no key yet",
        principals.create_principal,
        PrincipalReply,
        principals.NewPrincipal,
    ),
    _about(
        "principal",
        "principal",
        "Show a principal",
        principals.principal,
        PrincipalReply,
        repeat="safe",
    ),
    _about(
        "principal",
        "set_principal",
        "Change a principal's role, team and delegation; its past charges stay where they are",
        principals.change_principal,
        PrincipalReply,
        body=principals.ChangedPrincipal,
        refuses=(errors.EditConflict, errors.IfMatchRequired),
        headers=if_match("principal"),
    ),
    _about(
        "principal",
        "erase_name",
        "Erase a principal's name: nobody else can take it later",
        principals.erase_name,
        None,
        status=204,
    ),
    _about(
        "principal",
        "principal_keys",
        "List the API keys of a principal",
        principals.list_keys_of,
        KeysReply,
        repeat="safe",
    ),
    _about(
        "principal",
        "add_key",
        "Make one more API key of a principal",
        principals.add_key,
        NewKeyReply,
        body=principals.MoreKey,
        status=201,
    ),
    read("me", "Show whose key this is", principals.me, MeReply),
)
