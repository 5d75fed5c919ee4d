"""The decision on a charge, and on a hold, which is a charge made ahead of the work. Pure."""

import json
from datetime import datetime, timedelta
from typing import Any, Final

from odometer_accountant.errors import (
    BudgetExceeded,
    DatasetClosed,
    Forbidden,
    HoldSettled,
    InvalidRequest,
    KeyReused,
    LedgerCorrupt,
    NotValidUnderAdjacency,
    TooManyHolds,
)
from odometer_accountant.ledger.active_budgets import BudgetRefusal, ChargeContext, find_refusals, most_counts
from odometer_accountant.ledger.charge_totals import (
    charge_changes,
    charge_totals,
    counted_in,
    open_holds,
    reaching,
    sessions_after,
    step_lasts,
)
from odometer_accountant.ledger.checkpoints import CHECKPOINT_EVERY
from odometer_accountant.ledger.commands import ChargeCommand
from odometer_accountant.ledger.decisions import Admitted, Decision, Refused, Replayed
from odometer_accountant.ledger.entries import (
    FORMAT,
    LATEST,
    WINDOWS_REACHED,
    canonical,
    content,
    entry_hash,
    says_more,
    timestamp,
)
from odometer_accountant.ledger.prepared import PreparedCharge
from odometer_accountant.ledger.session_state import Opening
from odometer_accountant.ledger.sessions import check_step
from odometer_accountant.ledger.state import State
from odometer_accountant.ledger.totals import Lasting, Totals
from odometer_accountant.mechanisms import Adjacency
from odometer_accountant.mechanisms.base import MONOTONE, NONE_MONOTONE
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.scopes import DATASET_SCOPE, AffectedScopes, shard_of
from odometer_accountant.stores import Head, NewEntry, Row
from odometer_accountant.windows import seconds_until

HOLDS_MAX: Final = 1000
"""Open holds of a stream."""
COUNTS_MAX: Final = 8192
"""Counts that one charge may move, over all budgets: 1024 partitions, or 1000 units, under eight of them."""
WINDOWS_AHEAD: Final = 40
"""So many windows are looked at for one in which a refused charge fits: holds expire, sessions do not."""
_quoted = json.encoder.encode_basestring_ascii
"""A string as JSON: what json.dumps does with one, without its detours."""


def charge(
    state: State, command: ChargeCommand, known: Row | None, time: str, now: str, settled: Row | None = None
) -> Decision:
    """Admit what every budget allows; answer again what was admitted under the same key.

    `time` is the ledger's, which may be ahead of the clock's `now`. `settled` is the settlement of the hold
    that the key was used for, if there is one.
    """
    prepared = command.prepared
    if known is not None:
        return _replay(state, command, known, settled)
    prepared.check_valid()
    if command.barred is not None:
        raise Forbidden(command.barred)
    prepared = prepared.on(state.dataset.grid)
    if state.closed:
        raise DatasetClosed(f"dataset {state.dataset.name} is closed: it takes no more charges")
    check_step(state, prepared.session, command.by or command.principal)
    check_fits_dataset(state, prepared)
    affected = command.affected
    found = refusals(state, affected, prepared.loss, time)
    if found:
        return Refused(_exceeded(state, found, prepared.loss, time, now), state, time, tuple(found))
    held = _held(state, command, affected, time) if prepared.expires_in_s is not None else None
    lasting, last_of, version = Lasting(held["expires"]) if held else None, None, FORMAT
    if prepared.session is not None:
        lasting, last_of = step_lasts(prepared.session.document, state.head.sequence + 1)
    if says_more(prepared.command):
        version = LATEST
    if state.windows and (held is not None or prepared.session is not None):
        version, state = WINDOWS_REACHED, reaching(state)
    totals = charge_totals(state, affected, prepared.kinds, prepared.losses, time, lasting, last_of)
    entry, head = _charge_entry(state, command, prepared.losses_json, totals, time, held, version)
    changes = charge_changes(state, prepared.losses)
    if prepared.session is not None:
        by = command.by or command.principal
        changes["sessions"] = sessions_after(state, head, by, prepared.session.document)
    if held is not None:
        changes["holds"] = {**open_holds(state.holds, time), head.sequence: held["expires"]}
    return Admitted(entry, state.moved(head, time, totals, **changes))


def refusals(state: State, affected: AffectedScopes, loss: Loss, time: str) -> list[BudgetRefusal]:
    """Every budget that does not allow `loss` now, each with one count that it refuses."""
    situation = ChargeContext(state.composition, state.partitions, state.totals, affected)
    return find_refusals(state.limits, situation, loss, time, most=1)


def _exceeded(state: State, found: list[BudgetRefusal], loss: Loss, time: str, now: str) -> BudgetExceeded:
    names = list(dict.fromkeys(one.limit.filter.name for one in found))
    error = BudgetExceeded(
        f"the charge does not fit: {', '.join(names)} of dataset {state.dataset.name}", budgets=names
    )
    ends = [_fits_again(state, one, loss, time) for one in found]
    if all(end is not None for end in ends):
        wait = max(seconds_until(end, now) for end in ends if end is not None)
        error.fields |= {"retryable": True, "retry_after_s": wait}
    return error


def _fits_again(state: State, one: BudgetRefusal, loss: Loss, time: str) -> datetime | None:
    """When a window begins that has room for it, beside what is open by now; None when none does soon."""
    for _ in range(WINDOWS_AHEAD):
        end = one.limit.renews(time)
        if end is None:
            return None
        time = timestamp(end)
        if one.limit.filter.allows(one.limit.count(state.totals, one.scopes, time).plus(loss)):
            return end
    return None


def _held(state: State, command: ChargeCommand, affected: AffectedScopes, time: str) -> dict[str, Any]:
    """What an entry says of a hold beyond what it says of a charge."""
    if len(open_holds(state.holds, time)) >= HOLDS_MAX:
        raise TooManyHolds(
            f"dataset {state.dataset.name} has {HOLDS_MAX} open holds, the most it can have: "
            "settle some of them, or charge instead of holding"
        )
    seconds = command.prepared.expires_in_s or 0
    expires = timestamp(datetime.fromisoformat(time) + timedelta(seconds=seconds))
    return {"expires": expires, "windows": counted_in(state, affected, time)}


def _charge_entry(
    state: State,
    command: ChargeCommand,
    losses: str,
    totals: Totals,
    time: str,
    held: dict[str, Any] | None,
    version: int,
) -> tuple[NewEntry, Head]:
    """The canonical bytes of a charge, written directly: the hot path. A test holds it to `canonical`."""
    prepared, sequence = command.prepared, state.head.sequence + 1
    by = f'"by":{_quoted(command.by)},' if command.by else ""
    team = f'"team":{_quoted(command.team)},' if command.team else ""
    expires = f'"expires":"{held["expires"]}",' if held else ""
    windows = f',"windows":{canonical(held["windows"]).decode()}' if held else ""
    checkpoint = ""
    if sequence % CHECKPOINT_EVERY == 0:
        checkpoint = f'"totals":{_quoted(totals.of(DATASET_SCOPE).encode())},'
    body = (
        f'{{{by}"command":{prepared.command},{expires}"key":{_quoted(command.key)},'
        f'"losses":{losses},"prev":"{state.head.hash}",'
        f'"principal":{_quoted(command.principal)},"seq":{sequence},{team}'
        f'"time":"{time}",{checkpoint}"type":"{"held" if held else "charged"}","v":{version}{windows}}}'
    ).encode("ascii")
    digest = entry_hash(body)
    return NewEntry(digest, body, command.ledger_key), Head(sequence, digest)


def _replay(state: State, command: ChargeCommand, known: Row, settled: Row | None) -> Decision:
    entry = content(known, state.stream)
    whose = (entry.get("by", entry.get("principal")), entry.get("key"))
    if whose != (command.by or command.principal, command.key):
        # Nothing may be released on an entry that is somebody else's.
        raise LedgerCorrupt(
            f"key {command.key!r} leads to entry {known.sequence}, which is not its own: "
            "nothing was charged; run odometer verify",
            sequence=known.sequence,
        )
    same = entry["principal"] == command.principal
    if not same or canonical(entry["command"]).decode() != command.prepared.command:
        raise KeyReused(
            f"key {command.key!r} was used for another charge (entry {known.sequence}): "
            "nothing was charged; use a new key for a new charge",
            sequence=known.sequence,
        )
    # An entry does not say it: what was charged was computed for the dataset's, or did not say.
    check_computed_for(state, command.prepared)
    if settled is not None:
        raise HoldSettled(
            f"key {command.key!r} is that of hold {known.sequence}, which was settled (entry "
            f"{settled.sequence}): nothing is held any more; use a new key for a new hold",
            sequence=settled.sequence,
        )
    return Replayed(known, state)


def check_fits_dataset(state: State, prepared: PreparedCharge) -> None:
    """Raise InvalidRequest or NotValidUnderAdjacency unless the dataset can take such a charge at all."""
    check_adjacency(state, prepared)
    composition = state.composition
    if (composition == "by_partition") != (prepared.partitions is not None):
        raise InvalidRequest.of(
            "partitions",
            f"dataset {state.dataset.name} composes {composition}: "
            + ("say which partitions are read, or all" if composition == "by_partition" else "it has none"),
        )
    if (composition == "by_unit") != (prepared.units is not None):
        raise InvalidRequest.of(
            "units",
            f"dataset {state.dataset.name} composes {composition}: "
            + ("say whose data it is" if composition == "by_unit" else "leave the units out"),
        )
    if prepared.partitions is not None and prepared.partitions != "all":
        unknown = [name for name in prepared.partitions if name not in state.partitions]
        if unknown:
            raise InvalidRequest.of(
                "partitions",
                f"dataset {state.dataset.name} has no partition {unknown[0]}: an admin adds it first, it is "
                "never created on the fly",
            )
    if composition == "by_unit":
        _check_units(state, prepared)
    _check_breadth(state, prepared)


def _check_breadth(state: State, prepared: PreparedCharge) -> None:
    """Every other dataset waits while a charge is judged: what one may ask for has a bound."""
    affected = prepared.affected("", None)
    counts = most_counts(state.limits, state.composition, state.partitions, affected)
    if counts > COUNTS_MAX:
        field = "units" if state.composition == "by_unit" else "partitions"
        asked = len(getattr(affected, field) or state.partitions)
        raise InvalidRequest.of(
            field,
            f"{asked} {field} under the {len(state.limits)} budgets of dataset {state.dataset.name} are "
            f"{counts} counts to judge, and one charge may have {COUNTS_MAX}: name fewer {field} at once",
        )


def _check_units(state: State, prepared: PreparedCharge) -> None:
    if prepared.group is not None:
        raise InvalidRequest.of("group", "a dataset that composes by_unit has no groups")
    for unit in prepared.units or ():
        if shard_of(unit, state.dataset.shards) != state.shard:
            raise InvalidRequest.of("units", f"{unit} is not kept in shard {state.shard}")


def check_computed_for(state: State, prepared: PreparedCharge) -> None:
    """Raise NotValidUnderAdjacency where the charge says that it was computed for another adjacency."""
    dataset = state.dataset
    if prepared.adjacency is not None and prepared.adjacency != dataset.adjacency:
        raise NotValidUnderAdjacency(
            f"the charge was computed for {prepared.adjacency.value}, dataset {dataset.name} has "
            f"{dataset.adjacency.value}: restate the noise over the sensitivity under that "
            "(a clip norm C moves a sum by C under add_remove and zero_out, by 2C under replace_one)",
            adjacency=dataset.adjacency.value,
        )


def check_adjacency(state: State, prepared: PreparedCharge) -> None:
    """Raise NotValidUnderAdjacency unless every mechanism's analysis holds for this dataset."""
    dataset = state.dataset
    check_computed_for(state, prepared)
    opening = prepared.session.session if isinstance(prepared.session, Opening) else {}
    if opening.get(MONOTONE) and dataset.adjacency is Adjacency.replace_one:
        raise NotValidUnderAdjacency(
            f"the queries of {opening['kind']} are said to be monotone, and dataset {dataset.name} has "
            f"adjacency {dataset.adjacency.value}: {NONE_MONOTONE}",
            adjacency=dataset.adjacency.value,
            valid_under=sorted(one.value for one in Adjacency if one is not dataset.adjacency),
        )
    if dataset.adjacency in prepared.adjacencies:
        return
    for index, charge in enumerate(prepared.charges):
        invalid = charge.mechanism.first_invalid(dataset.adjacency)
        if invalid is not None:
            valid = ", ".join(sorted(invalid.analysed_under()))
            raise NotValidUnderAdjacency(
                f"{invalid.kind} (charge {index + 1}) is analysed under {valid}, dataset {dataset.name} "
                f"has adjacency {dataset.adjacency.value}: {invalid.instead()}",
                adjacency=dataset.adjacency.value,
                valid_under=sorted(invalid.analysed_under()),
            )
