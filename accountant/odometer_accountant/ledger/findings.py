"""Findings: the places where a ledger contradicts itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss


@dataclass(frozen=True)
class Finding:
    """One place where a ledger contradicts itself."""

    stream: str
    what: str
    sequence: int | None = None
    scope: str | None = None
    coordinate: str | None = None

    def document(self) -> dict[str, Any]:
        """For JSON; what does not apply is null."""
        return {
            "stream": self.stream,
            "sequence": self.sequence,
            "scope": self.scope,
            "coordinate": self.coordinate,
            "what": self.what,
        }

    def __str__(self) -> str:
        place = [self.stream]
        if self.sequence is not None:
            place.append(f"entry {self.sequence}")
        place += [part for part in (self.scope, self.coordinate) if part]
        return f"{', '.join(place)}: {self.what}"


@dataclass(frozen=True)
class Difference:
    """The first coordinate in which two losses differ."""

    where: str
    theirs: str
    ours: str
    also: str


def first_difference(
    theirs: Loss, ours: Loss, differ: Callable[[Loss, Loss, int], bool] | None = None
) -> Difference | None:
    """The first coordinate in which two losses differ, by `differ` where given; None when there is none."""
    differ = differ or _differ
    places = [index for index in range(ours.grid.size) if differ(theirs, ours, index)]
    if not places:
        return None
    others = len(places) - 1
    also = f" ({others} more coordinate{'s' if others > 1 else ''} differ)" if others else ""
    first = places[0]
    return Difference(_name(ours.grid, first), _said(theirs, first), _said(ours, first), also)


def _differ(theirs: Loss, ours: Loss, index: int) -> bool:
    return theirs.values[index] != ours.values[index] or theirs.unbounded[index] != ours.unbounded[index]


def _name(grid: Grid, index: int) -> str:
    named = {grid.pure: "pure", grid.rho: "rho", grid.mu_squared: "mu squared", grid.delta: "delta"}
    return named.get(index) or f"order {float(grid.exact_orders[index]):g}"


def _said(loss: Loss, index: int) -> str:
    if count := loss.unbounded[index]:
        return f"{count} without a bound"
    return f"{loss.values[index]} units ({loss.amount(index):.6g})"
