"""The decision on settling a hold for what was used of it. Pure."""

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
from odometer_accountant.ledger.checkpoints import CHECKPOINT_EVERY
from odometer_accountant.ledger.commands import SettleCommand
from odometer_accountant.ledger.decisions import Decision, Replayed, admit
from odometer_accountant.ledger.entries import FORMAT, LATEST, canonical, content, hold_id, says_more
from odometer_accountant.ledger.entry_parts import entry_losses
from odometer_accountant.ledger.sanitised import check_sanitised, check_told
from odometer_accountant.ledger.state import State
from odometer_accountant.scopes import DATASET_SCOPE
from odometer_accountant.stores import Row


def settle(state: State, command: SettleCommand, known: Row | None, held: Row | None, time: str) -> Decision:
    """Once, by its maker or an admin, before it expires, and for no more than was held.

    A closed dataset's holds can still be settled: that only says what was not used.
    """
    name, number = state.dataset.name, command.hold
    entry = held_entry(held, number, name, command.mark)
    called = hold_id(state.shard, number, held.hash if held else command.mark)
    maker = entry.get("by", entry["principal"])
    if not command.admin and command.principal != maker:
        raise Forbidden(
            f"hold {called} of dataset {name} is somebody else's: its maker or an admin settles it"
        )
    if known is not None:
        return _again(state, command, known, called)
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
    if (state.head.sequence + 1) % CHECKPOINT_EVERY == 0:
        document["totals"] = settle_totals(state, document["held"], used, time).of(DATASET_SCOPE).encode()
    later = state.windows or says_more(canonical(entry["command"]).decode())
    return admit(state, document, command.ledger_key, LATEST if later else FORMAT)


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
    """The entry of a hold that a ledger has among its open ones. Raises LedgerCorrupt where it is none."""
    try:
        return held_entry(row, number, name)
    except UnknownHold as error:
        raise LedgerCorrupt(
            f"entry {number} of {name} is listed as an open hold and is none: run odometer verify",
            sequence=number,
        ) from error


def held_part(entry: Mapping[str, Any], *, lasting: bool) -> dict[str, Any]:
    """What a settlement repeats of the hold, so that the ledger can be counted in one pass.

    `lasting`: also until when windows count it as open.
    """
    names = ("command", "losses", "principal", "team", "windows", *(("expires",) if lasting else ()))
    return {name: entry[name] for name in names if name in entry}


def check_used(entry: Mapping[str, Any], used: tuple[int, ...]) -> None:
    """Raise InvalidRequest unless each number is at most what was held."""
    counts = [item["count"] for item in entry["command"]["charges"]]
    if len(used) != len(counts):
        raise InvalidRequest.of(
            "used", f"the hold has {len(counts)} charges, and so many numbers are needed, not {len(used)}"
        )
    for place, (number, count) in enumerate(zip(used, counts, strict=True), 1):
        if number > count:
            raise InvalidRequest.of(
                "used",
                f"{number} is more than the {count} that were held (charge {place}): "
                "what went out beyond a hold needs a charge of its own",
            )


def _again(state: State, command: SettleCommand, known: Row, called: str) -> Decision:
    entry = content(known, state.stream)
    if entry.get("hold") != command.hold:
        raise LedgerCorrupt(
            f"the settlement of hold {called} is not where it should be: run odometer verify",
            sequence=known.sequence,
        )
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
    return Replayed(known, state)
