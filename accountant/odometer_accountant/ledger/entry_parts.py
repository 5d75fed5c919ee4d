"""What an entry states about charges: the scopes, the kinds of mechanism, the losses."""

from collections.abc import Mapping
from typing import Any

from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.scopes import AffectedScopes


def affected_by(entry: Mapping[str, Any]) -> AffectedScopes:
    """Whose odometers a `charged` or `held` entry moves."""
    command = entry["command"]
    parts = command.get("partitions", ())
    return AffectedScopes(
        entry["principal"],
        entry.get("team"),
        command["group"]["name"] if "group" in command else None,
        () if parts == "all" else tuple(parts),
        tuple(command.get("units", ())),
    )


def kinds_of(entry: Mapping[str, Any]) -> list[str]:
    """The kind of mechanism of each charge of an entry."""
    return [item["mechanism"]["kind"] for item in entry["command"]["charges"]]


def entry_losses(grid: Grid, entry: Mapping[str, Any]) -> list[Loss]:
    """The losses of an entry, one per charge. Raises KeyError or ValueError for what has none."""
    return [Loss.decode(grid, line) for line in entry["losses"]]
