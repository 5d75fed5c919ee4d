"""Reads the charges of an entry: scopes, kinds of mechanism, losses, idempotency key. Pure."""

from collections.abc import Mapping
from typing import Any

from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss, total
from odometer_accountant.scopes import AffectedScopes

Entry = Mapping[str, Any]
"""An entry as parsed JSON."""


def affected_by(entry: Entry) -> AffectedScopes:
    """The scopes whose totals a `charged` or `held` entry changes."""
    command = entry["command"]
    parts = command.get("partitions", ())
    return AffectedScopes(
        entry["principal"],
        entry.get("team"),
        command["group"]["name"] if "group" in command else None,
        () if parts == "all" else tuple(parts),
        tuple(command.get("units", ())),
    )


def kinds_of(entry: Entry) -> list[str]:
    """The kind of mechanism of each charge of an entry."""
    return [item["mechanism"]["kind"] for item in entry["command"]["charges"]]


def entry_losses(grid: Grid, entry: Entry) -> list[Loss]:
    """The losses of an entry, one per charge. Raises KeyError or ValueError for an entry without losses."""
    return [Loss.decode(grid, line) for line in entry["losses"]]


def entry_loss(grid: Grid, entry: Entry) -> Loss:
    """The sum of the losses of an entry. Raises as `entry_losses` does."""
    return total(grid, entry_losses(grid, entry))


def owner_of(entry: Entry) -> str:
    """The sender of the command: the caller that charged on a principal's behalf, or the principal."""
    return str(entry.get("by", entry["principal"]))


def caller_key(entry: Entry) -> str:
    """The store's key of an entry that a caller made under an idempotency key."""
    return f"{owner_of(entry)}/{entry['key']}"


def settlement_key(hold: int) -> str:
    """The store's key of the settlement of a hold: there can be one. No principal has such a name."""
    return f"~settled/{hold}"


def end_key(session: int) -> str:
    """The store's key of the free end of a session: there can be one. No principal has such a name."""
    return f"~ended/{session}"
