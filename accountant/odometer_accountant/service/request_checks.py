"""Checks of a request: bodies, names, keys, pages."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from odometer_accountant.budgets import ANY_BUDGET
from odometer_accountant.budgets.base import Budget
from odometer_accountant.errors import (
    Forbidden,
    IdempotencyKeyRequired,
    InvalidRequest,
    SeveralShards,
    UnknownDataset,
    UnknownHold,
    UnknownSession,
)
from odometer_accountant.ledger.commands import Caller
from odometer_accountant.ledger.prepared import PreparedCharge, prepare
from odometer_accountant.ledger.principals import is_reserved
from odometer_accountant.ledger.state import State
from odometer_accountant.mechanisms import Mechanism
from odometer_accountant.requests.effort import check_effort
from odometer_accountant.requests.json_input import dumps, read_json, understood
from odometer_accountant.requests.suggestions import near
from odometer_accountant.requests.written_numbers import misread
from odometer_accountant.scopes import DATASET_SCOPE, KINDS, NAME, shard_of, split

Body = bytes
PAGE_MAX: Final = 1000
_SLUG: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_KEY: Final = re.compile(r"[\x21-\x7e]{1,128}")
_PRINCIPAL: Final = re.compile(NAME)
_HOLD: Final = re.compile(r"(?:([0-9a-f]{4})-)?([1-9][0-9]{0,15})\.([0-9a-f]{8})")


def prepared_charge(body: Body | Mapping[str, Any], *, hold: bool = False) -> PreparedCharge:
    """A charge request, or with `hold` that of a hold, parsed and warmed.

    Raises MalformedBody, BodyTooLarge or InvalidRequest; TooMuchToCompute, before anything is computed.
    """
    document, text = (read_json(body), body) if isinstance(body, bytes) else (body, dumps(body))
    check_effort(document)
    return prepare(text, document, hold=hold).precompute()


def called(by: Caller | str) -> Caller:
    """A caller; a bare name is one that acts for itself alone. Raises InvalidRequest."""
    caller = Caller(by) if isinstance(by, str) else by
    valid_principal(caller.principal)
    return caller


def acting_for(caller: Caller, on_behalf: str | None) -> str:
    """The principal of a charge. Raises Forbidden unless the caller may act for that principal."""
    if on_behalf is None or on_behalf == caller.principal:
        return caller.principal
    if "*" not in caller.acts_for and on_behalf not in caller.acts_for:
        raise Forbidden(
            f"this key may not charge on behalf of {on_behalf}: an admin makes one that may, with acts_for"
        )
    return on_behalf


def barred(caller: Caller, principal: str) -> str | None:
    """Why nothing new can be charged in that principal's place, whoever may act for it; None if it can."""
    if principal == caller.principal:
        return None
    if is_reserved(principal):
        return f"{principal} is a name that the ledger uses itself: nobody is charged under it"
    return caller.against(principal, principal in caller.acts_for) if caller.against is not None else None


def shard_of_units(units: Sequence[str], shards: int) -> int:
    """The shard that keeps all of `units`. Raises SeveralShards, which lists those of each."""
    by_shard: dict[int, list[str]] = {}
    for unit in units:
        by_shard.setdefault(shard_of(unit, shards), []).append(unit)
    if len(by_shard) > 1:
        raise SeveralShards(
            f"the units are kept in {len(by_shard)} shards: charge those of each on their own; a charge is "
            "all or nothing within one shard",
            shards=[{"shard": shard, "units": names} for shard, names in sorted(by_shard.items())],
            errors=[{"field": "units", "message": f"lie in {len(by_shard)} shards"}],
        )
    return next(iter(by_shard))


def hold_number(name: str, hold: str, shards: int) -> tuple[int | None, int, str]:
    """(shard, number, start of the hash) of a hold's id. Raises UnknownHold for what cannot be one."""
    found = _HOLD.fullmatch(hold)
    if found is None or (found[1] is None) != (shards == 0):
        raise UnknownHold(
            f"dataset {name} has no hold {hold[:80]!r}: a hold has the id that its receipt "
            f"says, such as {'0007-' if shards else ''}12.0a1b2c3d"
        )
    return None if found[1] is None else int(found[1], 16), int(found[2]), found[3]


def session_number(name: str, session: str) -> tuple[int, str]:
    """(number, start of the hash) of a session's id. Raises UnknownSession for what cannot be one."""
    found = _HOLD.fullmatch(session)
    if found is None or found[1] is not None:
        raise UnknownSession(
            f"dataset {name} has no session {session[:80]!r}: a session has the id that was said when it was "
            "opened, such as 12.0a1b2c3d"
        )
    return int(found[2]), found[3]


def scope_name(scope: str, state: State) -> str:
    """A scope with a name, whose odometer can be asked for. Raises InvalidRequest."""
    kind, item = split(scope)
    kinds = [one for one in KINDS[state.composition] if one != DATASET_SCOPE]
    if kind not in kinds or not _PRINCIPAL.fullmatch(item):
        message = f"one of {', '.join(f'{one}/…' for one in kinds)}"
        raise InvalidRequest.of("scope", message)
    if kind == "partition" and item not in state.partitions:
        raise InvalidRequest(
            f"scope: there is no partition {item}",
            errors=[{"field": "scope", "message": "no such partition"}],
        )
    return scope


def is_slug(name: str) -> bool:
    """Whether a dataset may be called that."""
    return _SLUG.fullmatch(name) is not None


def unknown_dataset(name: str, known: Iterable[str] = ()) -> UnknownDataset:
    """The refusal of a name that no dataset has. It names the one of `known` that is spelt nearly so."""
    meant = near(name, known)
    create = "create it first, it is never created on the fly"
    return UnknownDataset(
        f"there is no dataset {name[:80]!r}: " + (f"did you mean {meant}? Else {create}" if meant else create)
    )


def idempotency_key(key: str | None) -> str:
    """The key, if usable. Raises IdempotencyKeyRequired."""
    if key is None or not _KEY.fullmatch(key):
        raise IdempotencyKeyRequired(
            "send an Idempotency-Key header of 1 to 128 printable ASCII characters without spaces, "
            "new for each new charge and the same for each retry of it"
        )
    return key


def valid_principal(principal: str) -> str:
    """The principal, if it can be one. Raises InvalidRequest."""
    if not _PRINCIPAL.fullmatch(principal):
        raise InvalidRequest("principal: 1 to 64 letters, digits, and . _ : -")
    return principal


def page_limit(limit: int) -> int:
    """The page size, if allowed. Raises InvalidRequest."""
    if not 1 <= limit <= PAGE_MAX:
        raise InvalidRequest(
            f"limit: 1 to {PAGE_MAX}, got {limit}", errors=[{"field": "limit", "message": f"1 to {PAGE_MAX}"}]
        )
    return limit


def named_budget(body: Body | Mapping[str, Any], name: str, before: Budget) -> Budget:
    """A budget document under the name it is stored under. Raises MalformedBody or InvalidRequest.

    A rule that is younger than the budget as it was `before` does not hold for what is left as it was: its
    limit can be changed whatever its workload is.
    """
    document = read_json(body) if isinstance(body, bytes) else body
    if isinstance(document, Mapping):
        document = dict(document)
    if isinstance(document, dict) and document.setdefault("name", name) != name:
        raise InvalidRequest(
            "name: a budget keeps its name", errors=[{"field": "name", "message": "differs"}]
        )
    wrong = misread(document)
    if wrong is not None:
        raise wrong
    budget, refused = understood(ANY_BUDGET, document)
    if refused is not None and not before.same_weights(budget):
        raise refused
    return budget


def mechanism_document(kind: type[Mechanism]) -> dict[str, Any]:
    """A mechanism as `GET /v1/mechanisms` shows it."""
    return {
        "kind": kind.model_fields["kind"].default,
        "title": kind.title,
        "summary": kind.purpose,
        "formula": kind.formula,
        "source": kind.source,
        "adjacency": sorted(adjacency.value for adjacency in kind.adjacencies),
        "elsewhere": kind.elsewhere,
        "avoid": kind.avoid,
        "schema": kind.model_json_schema(),
        "examples": list(kind.examples),
    }
