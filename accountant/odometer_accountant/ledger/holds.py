"""Settling a hold for the part that was used: the decision, and the fold of its entry `settled`. Pure."""

from collections.abc import Mapping
from typing import Any

from odometer_accountant.errors import (
    Forbidden,
    HoldExpired,
    HoldSettled,
    InvalidRequest,
    LedgerCorrupt,
    UnknownHold,
)
from odometer_accountant.ledger.charge_totals import settle_totals
from odometer_accountant.ledger.checkpoints import check_checkpoint, checkpoint, is_checkpoint
from odometer_accountant.ledger.commands import SettleCommand
from odometer_accountant.ledger.decisions import Decision, DecisionInput, admit, decides
from odometer_accountant.ledger.entries import FORMAT, LATEST, canonical, content, hold_id, says_more
from odometer_accountant.ledger.entry_parts import (
    Entry,
    entry_loss,
    entry_losses,
    owner_of,
    settlement_key,
)
from odometer_accountant.ledger.entry_types import entry_type
from odometer_accountant.ledger.replay import replay
from odometer_accountant.ledger.sanitised import check_sanitised, check_told
from odometer_accountant.ledger.state import State
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.stores import Head, Row


@decides(SettleCommand)
def settle(state: State, command: SettleCommand, given: DecisionInput) -> Decision:
    """Settle once, by the maker of the hold or an admin, before it expires, for at most what was held.

    A hold of a closed dataset can still be settled: that only says which part was not used.
    """
    name, number, time = state.dataset.name, command.hold, given.time
    entry = held_entry(given.named, number, name, command.mark)
    called = hold_id(state.shard, number, given.named.hash if given.named else command.mark)
    if not command.admin and command.principal != owner_of(entry):
        raise Forbidden(
            f"hold {called} of dataset {name} is somebody else's: its maker or an admin settles it"
        )
    if given.known is not None:
        row = given.known
        return replay(state, command, row, lambda entry: _check_same(command, called, row, entry))
    if command.refused is not None:
        raise command.refused
    if entry["expires"] < time:
        raise HoldExpired(
            f"hold {called} of dataset {name} expired at {entry['expires']}: it is spent for good. "
            "Give the next one more time"
        )
    if number not in state.holds:
        raise LedgerCorrupt(
            f"hold {called} of dataset {name} is not among its open ones: run odometer verify"
        )
    check_used(entry, command.used)
    if command.sanitised is not None:
        check_sanitised(entry, command.used, command.sanitised)
        check_told(state.dataset.grid, entry, command.used)
    losses = entry_losses(state.dataset.grid, entry)
    # Another version of this service may have a lower or higher bound: never give back more than was held.
    used = [mine.at_most(theirs) for mine, theirs in zip(command.losses, losses, strict=True)]
    document: dict[str, Any] = {
        "type": "settled",
        "time": time,
        "principal": command.principal,
        "hold": number,
        "used": list(command.used),
        "losses": [loss.encode() for loss in used],
        "held": held_part(entry, lasting=bool(state.windows)),
    }
    if command.sanitised is not None:
        document["sanitised"] = command.sanitised
    if is_checkpoint(state.head.sequence + 1):
        document["totals"] = checkpoint(settle_totals(state, document["held"], used, time))
    later = state.windows or says_more(canonical(entry["command"]).decode())
    return admit(state, document, command.ledger_key, LATEST if later else FORMAT)


def _check_same(command: SettleCommand, called: str, known: Row, entry: Entry) -> None:
    """Raise HoldSettled unless the entry `known` settles the hold for the same numbers and figure."""
    if tuple(entry["used"]) != command.used:
        raise HoldSettled(
            f"hold {called} was settled for {entry['used']} (entry {known.sequence}), once and for all",
            sequence=known.sequence,
        )
    if entry.get("sanitised") != command.sanitised:
        raise HoldSettled(
            f"hold {called} was settled at another figure (entry {known.sequence}), once and for all",
            sequence=known.sequence,
        )


def _change(grid: Grid, entry: Entry) -> tuple[Entry, Loss, Loss]:
    return entry["held"], entry_loss(grid, entry), entry_loss(grid, entry["held"])


@entry_type("settled", losses=_change, key=lambda entry: settlement_key(entry["hold"]))
def _settled(state: State, head: Head, entry: Entry) -> State:
    if entry["hold"] not in state.holds:
        raise ValueError(f"it settles hold {entry['hold']}, which is not open")
    if state.holds[entry["hold"]] < entry["time"]:
        raise ValueError(f"it settles hold {entry['hold']}, which had expired")
    totals = settle_totals(state, entry["held"], entry_losses(state.dataset.grid, entry), entry["time"])
    check_checkpoint(head.sequence, entry, totals)
    holds = {number: end for number, end in state.holds.items() if number != entry["hold"]}
    return state.moved(head, entry["time"], totals, holds=holds)


def held_entry(row: Row | None, number: int, name: str, mark: str = "") -> dict[str, Any]:
    """The entry of a hold, whose hash starts with `mark`.

    Raises UnknownHold, or LedgerCorrupt when it was changed.
    """
    if row is None:
        raise UnknownHold(f"dataset {name} has no hold {number}")
    entry = content(row, name)  # before the mark: an entry that is not the one that stood there is damage
    if not row.hash.startswith(mark):
        raise UnknownHold(f"dataset {name} has no hold {number}")
    if entry["type"] != "held":
        raise UnknownHold(f"dataset {name} has no hold {number}: that entry is of type {entry['type']}")
    return entry


def open_entry(row: Row | None, number: int, name: str) -> dict[str, Any]:
    """The entry of a hold that the state lists as open. Raises LedgerCorrupt when that entry is no hold."""
    try:
        return held_entry(row, number, name)
    except UnknownHold as error:
        raise LedgerCorrupt(
            f"entry {number} of {name} is listed as an open hold and is not a hold: run odometer verify",
            sequence=number,
        ) from error


def held_part(entry: Mapping[str, Any], *, lasting: bool) -> dict[str, Any]:
    """The part of a hold's entry that its settlement repeats, so that one pass can count the ledger.

    `lasting`: with the time until which windows count it as open.
    """
    names = ("command", "losses", "principal", "team", "windows", *(("expires",) if lasting else ()))
    return {name: entry[name] for name in names if name in entry}


def check_used(entry: Mapping[str, Any], used: tuple[int, ...]) -> None:
    """Raise InvalidRequest unless each number is at most what was held."""
    counts = [item["count"] for item in entry["command"]["charges"]]
    if len(used) != len(counts):
        raise InvalidRequest.of(
            "used", f"the hold has {len(counts)} charges, got {len(used)} numbers: give one for each charge"
        )
    for place, (number, count) in enumerate(zip(used, counts, strict=True), 1):
        if number > count:
            raise InvalidRequest.of(
                "used",
                f"{number} is more than the {count} that were held (charge {place}): "
                "what went out beyond a hold needs a charge of its own",
            )
