"""One reading of a dataset: a number, and when it holds."""

from dataclasses import dataclass
from typing import Any, Final

from odometer_accountant.budgets.coordinate import mu_shown
from odometer_accountant.ledger.state import State
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.queries.advice import finite

WHAT_IF: Final = "What if: delta was chosen after looking, so nothing is promised at this delta."


@dataclass(frozen=True)
class Reading:
    """One number and when it holds. `value` None: no bound."""

    name: str
    quantity: str
    value: float | None
    delta: float | None
    holds: str
    order: float | None = None
    what_if: bool = False
    warnings: tuple[str, ...] = ()
    budget: str | None = None

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "quantity": self.quantity,
            "value": self.value,
            "delta": self.delta,
            "order": self.order,
            "holds": f"{WHAT_IF} {self.holds}" if self.what_if else self.holds,
            "what_if": self.what_if,
            "warnings": list(self.warnings),
            "budget": self.budget,
        }


def whole(state: State) -> Loss:
    """The largest loss of anybody: for a partitioned dataset the worst partition, per coordinate.

    For a dataset by unit there is no such number: zero, for the units have odometers of their own.
    """
    if state.composition == "by_unit":
        return Loss.zero(state.dataset.grid)
    spent = state.spent
    if not state.partitions:
        return spent
    worst, *others = (state.totals.of(f"partition/{name}") for name in state.partitions)
    for other in others:
        worst = worst.at_least(other)
    return spent.plus(worst)


def loss_document(loss: Loss) -> dict[str, float | None]:
    """The notions that a loss has a number in, rounded up; None for no bound."""
    grid = loss.grid
    return {
        "pure": finite(loss.shown(grid.pure)),
        "rho": finite(loss.shown(grid.rho)),
        "mu": finite(mu_shown(loss)),
        "delta": finite(loss.shown(grid.delta)),
    }
