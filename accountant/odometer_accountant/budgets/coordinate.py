"""Budgets that limit one coordinate of the totals: pure, zCDP, Rényi at one order, Gaussian DP."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from pydantic import Field

from odometer_accountant.budgets.base import NO_BOUND, Budget, Filter, Left, without_bound
from odometer_accountant.model import Number
from odometer_accountant.numerics import conversions
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.numerics.rounding import (
    decimal,
    floor_units,
    root_shown,
    round_down,
)


@dataclass(frozen=True)
class CoordinateFilter(Filter):
    """A limit on one coordinate, in units. It refuses every charge that has a delta."""

    index: int
    """Index of the coordinate in the grid."""
    units: int
    """The limit in units of the grid, rounded down."""
    quantity: str
    """The coordinate in words."""
    takers: str
    """Which budgets take a charge without a bound there, in words."""
    order: float | None = None
    """The Rényi order, for a budget at one."""

    def allows(self, totals: Loss) -> bool:
        unbounded = totals.unbounded
        if unbounded[self.index] or unbounded[self.grid.delta] or totals.values[self.grid.delta]:
            return False
        return totals.values[self.index] <= self.units

    def spent(self, totals: Loss) -> float:
        return totals.shown(self.index) if not self._approximate(totals) else math.inf

    def left(self, totals: Loss) -> Left:
        if totals.unbounded[self.index] or self._approximate(totals):
            return Left(self.limit, math.inf, 0.0, 1.0, self.order)
        unit = self.grid.units_in_one[self.index]
        return Left.of_units(self.units, totals.values[self.index], unit, self.order)

    def capacities(self) -> tuple[tuple[int, int], ...]:
        return ((self.index, self.units),)

    def _approximate(self, totals: Loss) -> bool:
        return totals.units(self.grid.delta) != 0

    def why_not(self, asked: Loss, after: Loss) -> str:
        if without_bound(asked):
            return NO_BOUND
        if self._approximate(asked):
            return (
                f"the charge has a delta, which a {self.kind} budget cannot "
                "promise: only a budget of kind approximate takes it"
            )
        if asked.unbounded[self.index]:
            return f"the charge has no finite {self.quantity}: {self.takers} would take it"
        if (after.unbounded[self.index] or self._approximate(after)) and not self.allows(after):
            return f"an earlier charge has no bound on {self.quantity}: this budget admits nothing more"
        return f"{self.quantity} would go above the limit"


@dataclass(frozen=True)
class GdpFilter(CoordinateFilter):
    """A limit on the sum of mu squared, shown as mu."""

    def spent(self, totals: Loss) -> float:
        return math.inf if self._approximate(totals) else mu_shown(totals)

    def left(self, totals: Loss) -> Left:
        shown = Left.of_floats(self.limit, self.spent(totals))
        if not shown.spent < self.limit:
            return shown
        room = (self.units - totals.values[self.index]) * self.grid.units[self.index]
        left = max(0.0, math.nextafter(math.sqrt(round_down(room)), 0.0)) if room > 0 else 0.0
        return shown._replace(left=left)  # squares add up, so more is left than limit minus spent


def mu_shown(totals: Loss) -> float:
    """The root of the sum of mu squared, rounded up to a decimal that people read; infinity for no bound."""
    index = totals.grid.mu_squared
    units = totals.units(index)
    return math.inf if units is None else root_shown(units * totals.grid.units[index])


def root_up(squared: float) -> float:
    """Square root, rounded up to a float, for further computation."""
    return math.nextafter(math.sqrt(squared), math.inf) if squared else 0.0


_TAKERS: Final = "if it is noisy at all, a budget of kind"


class PureBudget(Budget):
    """All admitted charges together are ε-DP."""

    kind: Literal["pure"] = "pure"
    epsilon: Annotated[Number, Field(ge=0, le=1e6)]
    """Limit on the sum of pure ε, in nats."""

    parameter: ClassVar[str] = "epsilon"
    symbol: ClassVar[str] = "ε"
    words: ClassVar[str] = "pure ε"
    promise: ClassVar[str] = "ε-DP"
    source: ClassVar[str] = "Rogers, Roth, Ullman, Vadhan 2016; Haney et al. 2023"
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"kind": "pure", "epsilon": 1.0},)
    limit_may_follow_results: ClassVar[bool] = True

    def filter(self, grid: Grid, fixed: dict[str, Any]) -> Filter:
        del fixed
        units = floor_units(decimal(self.epsilon), grid.units[grid.pure])
        takers = f"{_TAKERS} approximate, zcdp, renyi or gdp"
        return CoordinateFilter(
            self.name, self.kind, self.epsilon, grid, grid.pure, units, "pure epsilon", takers
        )

    def epsilon_at(self, delta: float) -> tuple[float, float | None]:
        del delta
        return self.epsilon, None


class ZcdpBudget(Budget):
    """All admitted charges together are ρ-zCDP."""

    kind: Literal["zcdp"] = "zcdp"
    rho: Annotated[Number, Field(ge=0, le=1e6)]
    """Limit on the sum of ρ."""

    parameter: ClassVar[str] = "rho"
    symbol: ClassVar[str] = "ρ"
    words: ClassVar[str] = "zCDP ρ"
    promise: ClassVar[str] = "ρ-zCDP"
    source: ClassVar[str] = "Feldman, Zrnic 2021; Whitehouse et al. 2023"
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"kind": "zcdp", "rho": 1.0},)

    def filter(self, grid: Grid, fixed: dict[str, Any]) -> Filter:
        del fixed
        units = floor_units(decimal(self.rho), grid.units[grid.rho])
        takers = f"{_TAKERS} approximate or renyi"
        return CoordinateFilter(self.name, self.kind, self.rho, grid, grid.rho, units, "rho", takers)

    def epsilon_at(self, delta: float) -> tuple[float, float | None]:
        return conversions.zcdp_epsilon(self.rho, delta), delta


class RenyiBudget(Budget):
    """All admitted charges together are (α, ε)-RDP at one order.

    An order off the grid is held at the next above.
    """

    kind: Literal["renyi"] = "renyi"
    order: Annotated[Number, Field(gt=1, le=8192)]
    """Order α, above 1 and at most 8192."""
    epsilon: Annotated[Number, Field(ge=0, le=1e6)]
    """Limit on the Rényi divergence of that order, in nats."""

    parameter: ClassVar[str] = "epsilon"
    symbol: ClassVar[str] = "ε"
    words: ClassVar[str] = "Rényi ε at order {order}"
    promise: ClassVar[str] = "(α, ε)-RDP"
    source: ClassVar[str] = "Feldman, Zrnic 2021"
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"kind": "renyi", "order": 8, "epsilon": 8.0},)

    def filter(self, grid: Grid, fixed: dict[str, Any]) -> Filter:
        del fixed
        index = grid.order_at_or_above(decimal(self.order))
        if index is None:
            raise ValueError(f"order {self.order} is above the grid's last, {grid.exact_orders[-1]}")
        units = floor_units(decimal(self.epsilon), grid.units[index])
        order = float(grid.exact_orders[index])
        quantity = f"Rényi divergence of order {order:g}"
        takers = f"{_TAKERS} pure"
        return CoordinateFilter(
            self.name, self.kind, self.epsilon, grid, index, units, quantity, takers, order
        )

    def epsilon_at(self, delta: float) -> tuple[float, float | None]:
        found = conversions.rdp_epsilons(np.array([self.epsilon]), np.array([self.order]), delta)
        return float(found[0]), delta


class GdpBudget(Budget):
    """All admitted charges together are μ-GDP."""

    kind: Literal["gdp"] = "gdp"
    mu: Annotated[Number, Field(ge=0, le=1e3)]
    """Limit μ: the sum of squares stays at most μ²."""

    parameter: ClassVar[str] = "mu"
    symbol: ClassVar[str] = "μ"
    words: ClassVar[str] = "Gaussian DP μ"
    promise: ClassVar[str] = "μ-GDP"
    source: ClassVar[str] = "Smith, Thakurta 2022; SOUNDNESS section 4"
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"kind": "gdp", "mu": 1.0},)
    adds_up: ClassVar[Literal["limit", "square", "elsewhere"]] = "square"

    def filter(self, grid: Grid, fixed: dict[str, Any]) -> Filter:
        del fixed
        units = floor_units(decimal(self.mu) ** 2, grid.units[grid.mu_squared])
        takers = "a subsampled or discrete Gaussian has none; a budget of kind approximate or renyi"
        return GdpFilter(self.name, self.kind, self.mu, grid, grid.mu_squared, units, "mu", takers)

    def epsilon_at(self, delta: float) -> tuple[float, float | None]:
        return conversions.gdp_epsilon(self.mu, delta), delta
