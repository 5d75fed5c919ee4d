"""Charges, and holds, which are charges ahead of the work: decision and fold of their entries. Pure."""

import json
from datetime import datetime, timedelta
from typing import Any, Final

from odometer_accountant.errors import (
    BudgetExceeded,
    DatasetClosed,
    Forbidden,
    HoldSettled,
    KeyReused,
    TooManyHolds,
)
from odometer_accountant.ledger.active_budgets import BudgetRefusal, ChargeContext, find_refusals
from odometer_accountant.ledger.charge_checks import check_computed_for, check_fits_dataset
from odometer_accountant.ledger.charge_totals import (
    charge_changes,
    charge_totals,
    open_holds,
    sessions_after,
    step_lasting,
    window_names,
    with_reached_windows,
)
from odometer_accountant.ledger.checkpoints import check_checkpoint, checkpoint, is_checkpoint
from odometer_accountant.ledger.commands import ChargeCommand
from odometer_accountant.ledger.decisions import Admitted, Decision, DecisionInput, Refused, decides
from odometer_accountant.ledger.entries import (
    FORMAT,
    LATEST,
    WINDOWS_REACHED,
    canonical,
    entry_hash,
    says_more,
    timestamp,
)
from odometer_accountant.ledger.entry_parts import (
    Entry,
    affected_by,
    caller_key,
    entry_loss,
    entry_losses,
    kinds_of,
    owner_of,
)
from odometer_accountant.ledger.entry_types import entry_type
from odometer_accountant.ledger.replay import replay
from odometer_accountant.ledger.sessions import check_step
from odometer_accountant.ledger.state import State
from odometer_accountant.ledger.totals import Lasting, Totals
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.scopes import AffectedScopes
from odometer_accountant.stores import Head, NewEntry, Row
from odometer_accountant.windows import seconds_until

HOLDS_MAX: Final = 1000
"""Open holds of a stream."""
WINDOWS_AHEAD: Final = 40
"""Windows that are searched for one in which a refused charge fits: holds expire, sessions do not."""
_quoted = json.encoder.encode_basestring_ascii
"""A string as JSON, as json.dumps writes it, but faster."""


@decides(ChargeCommand)
def charge(state: State, command: ChargeCommand, given: DecisionInput) -> Decision:
    """Admit a charge that every budget allows; answer again a charge that was admitted under the same key."""
    prepared, time = command.prepared, given.time
    if given.known is not None:
        row, settled = given.known, given.settled
        return replay(state, command, row, lambda entry: _check_same(state, command, row, settled, entry))
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
        error = _exceeded(state, found, prepared.loss, time, given.now)
        return Refused(error, state, time, tuple(found))
    held = _held(state, command, affected, time) if prepared.expires_in_s is not None else None
    lasting, last_of, version = Lasting(held["expires"]) if held else None, None, FORMAT
    if prepared.session is not None:
        lasting, last_of = step_lasting(prepared.session.document, state.head.sequence + 1)
    if says_more(prepared.command):
        version = LATEST
    if state.windows and (held is not None or prepared.session is not None):
        version, state = WINDOWS_REACHED, with_reached_windows(state)
    totals = charge_totals(state, affected, prepared.kinds, prepared.losses, time, lasting, last_of)
    entry, head = _charge_entry(state, command, prepared.losses_json, totals, time, held, version)
    changes = charge_changes(state, prepared.losses)
    if prepared.session is not None:
        by = command.by or command.principal
        changes["sessions"] = sessions_after(state, head, by, prepared.session.document)
    if held is not None:
        changes["holds"] = {**open_holds(state.holds, time), head.sequence: held["expires"]}
    return Admitted(entry, state.moved(head, time, totals, **changes))


def _check_same(state: State, command: ChargeCommand, known: Row, settled: Row | None, entry: Entry) -> None:
    """Raise unless the entry `known` is this very charge, and as a hold is still open."""
    same = entry["principal"] == command.principal
    if not same or canonical(entry["command"]).decode() != command.prepared.command:
        raise KeyReused(
            f"key {command.key!r} was used for another charge (entry {known.sequence}): "
            "nothing was charged; use a new key for a new charge",
            sequence=known.sequence,
        )
    # An entry does not state the request's adjacency: it was the dataset's, or none.
    check_computed_for(state, command.prepared)
    if settled is not None:
        raise HoldSettled(
            f"key {command.key!r} is that of hold {known.sequence}, which was settled (entry "
            f"{settled.sequence}): nothing is held any more; use a new key for a new hold",
            sequence=settled.sequence,
        )


def refusals(state: State, affected: AffectedScopes, loss: Loss, time: str) -> list[BudgetRefusal]:
    """The budgets that do not allow `loss` now, each with one count that it refuses."""
    context = ChargeContext(state.composition, state.partitions, state.totals, affected)
    return find_refusals(state.limits, context, loss, time, most=1)


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
    """When the next window begins that has room for the charge beside the open holds and sessions.

    None when there is none among the next WINDOWS_AHEAD.
    """
    for _ in range(WINDOWS_AHEAD):
        end = one.limit.renews(time)
        if end is None:
            return None
        time = timestamp(end)
        if one.limit.filter.allows(one.limit.count(state.totals, one.scopes, time).plus(loss)):
            return end
    return None


def _held(state: State, command: ChargeCommand, affected: AffectedScopes, time: str) -> dict[str, Any]:
    """The fields of a hold's entry that a charge's has not."""
    if len(open_holds(state.holds, time)) >= HOLDS_MAX:
        raise TooManyHolds(
            f"dataset {state.dataset.name} has {HOLDS_MAX} open holds, the most it can have: "
            "settle some of them, or charge instead of holding"
        )
    seconds = command.prepared.expires_in_s or 0
    expires = timestamp(datetime.fromisoformat(time) + timedelta(seconds=seconds))
    return {"expires": expires, "windows": window_names(state, affected, time)}


def _charge_entry(
    state: State,
    command: ChargeCommand,
    losses: str,
    totals: Totals,
    time: str,
    held: dict[str, Any] | None,
    version: int,
) -> tuple[NewEntry, Head]:
    """The canonical bytes of a charge, written directly for speed. A test compares them with `canonical`."""
    prepared, sequence = command.prepared, state.head.sequence + 1
    by = f'"by":{_quoted(command.by)},' if command.by else ""
    team = f'"team":{_quoted(command.team)},' if command.team else ""
    expires = f'"expires":"{held["expires"]}",' if held else ""
    windows = f',"windows":{canonical(held["windows"]).decode()}' if held else ""
    stated = f'"totals":{_quoted(checkpoint(totals))},' if is_checkpoint(sequence) else ""
    body = (
        f'{{{by}"command":{prepared.command},{expires}"key":{_quoted(command.key)},'
        f'"losses":{losses},"prev":"{state.head.hash}",'
        f'"principal":{_quoted(command.principal)},"seq":{sequence},{team}'
        f'"time":"{time}",{stated}"type":"{"held" if held else "charged"}","v":{version}{windows}}}'
    ).encode("ascii")
    digest = entry_hash(body)
    return NewEntry(digest, body, command.ledger_key), Head(sequence, digest)


def _gained(grid: Grid, entry: Entry) -> tuple[Entry, Loss, None]:
    return entry, entry_loss(grid, entry), None


@entry_type("charged", losses=_gained, key=caller_key, releases=True)
@entry_type("held", losses=_gained, key=caller_key, releases=True)
def apply_charge(state: State, head: Head, entry: Entry) -> State:
    """The state after a `charged` or `held` entry. Raises ValueError when the entry contradicts the state."""
    losses, kinds = entry_losses(state.dataset.grid, entry), kinds_of(entry)
    if len(kinds) != len(losses):
        raise ValueError(f"{len(kinds)} charges but {len(losses)} losses")
    affected, time = affected_by(entry), entry["time"]
    held, step = entry["type"] == "held", entry["command"].get("session")
    lasting, last_of = None, None
    if entry["v"] >= WINDOWS_REACHED and state.windows and (held or step is not None):
        lasting = Lasting(entry["expires"]) if held else None
        if step is not None:
            lasting, last_of = step_lasting(step, head.sequence)
        state = with_reached_windows(state, entry["v"])
    totals = charge_totals(state, affected, kinds, losses, time, lasting, last_of)
    check_checkpoint(head.sequence, entry, totals)
    changes = charge_changes(state, losses)
    if not held:
        if step is not None:
            changes["sessions"] = sessions_after(state, head, owner_of(entry), step)
        return state.moved(head, time, totals, **changes)
    if entry["windows"] != window_names(state, affected, time):
        raise ValueError("it says that it was counted in other windows than it was")
    holds = {**open_holds(state.holds, time), head.sequence: entry["expires"]}
    return state.moved(head, time, totals, holds=holds, **changes)
