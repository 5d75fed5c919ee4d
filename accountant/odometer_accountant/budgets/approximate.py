"""The (epsilon, delta) budget and its filter (SOUNDNESS section 3)."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from odometer_accountant.budgets.base import NO_BOUND, Budget, Delta, Filter, Left, without_bound
from odometer_accountant.mechanisms.charge import ITEMS_MAX, Charge
from odometer_accountant.model import Number
from odometer_accountant.numerics.grid import GRIDS, Grid
from odometer_accountant.numerics.loss import Loss, total
from odometer_accountant.numerics.mixture import Mixture
from odometer_accountant.numerics.prior import default_prior, workload_prior
from odometer_accountant.numerics.rounding import (
    decimal,
    floor_units,
    round_down,
    shown_down,
    shown_up,
)
from odometer_accountant.once import once


def too_much_delta(totals: Loss, delta_add: int) -> bool:
    """Whether the deltas of charges exceed `delta_add`, the part of delta kept for them, in units."""
    units = totals.units(totals.grid.delta)
    return units is None or units > delta_add


def if_stopped_now(totals: Loss, mixture: Mixture, delta_add: int) -> float:
    """Epsilon that holds for any rule of stopping; infinity once the deltas of charges exceed `delta_add`."""
    if too_much_delta(totals, delta_add):
        return math.inf
    return min(mixture.if_stopped_now(totals.renyi()), totals.shown(totals.grid.pure))


@dataclass(frozen=True)
class ApproximateFilter(Filter):
    """Allows totals with room at one order, or with little pure epsilon, or by the certified bound."""

    mixture: Mixture
    """Weights on the orders, fixed when the budget was set."""
    delta_add: int
    """The part of delta kept for charges with a delta, in units."""
    pure_units: int
    """The limit as a sum of pure epsilons, in units."""

    @once
    def capacity(self) -> tuple[int, ...]:
        """The room at each order in units, C(alpha) rounded down; shape (n_orders,)."""
        if not self.mixture.delta:
            return (0,) * self.grid.n_orders
        bounds = self.mixture.capacity(self.limit)
        in_one = self.grid.units_in_one
        return tuple(
            math.floor(Fraction(float(bound)) * unit) for bound, unit in zip(bounds, in_one, strict=False)
        )

    @once
    def _candidates(self) -> tuple[int, ...]:
        """Indices of the orders with room, best first for a Gaussian-like curve."""
        orders = self.grid.orders
        live = [index for index, room in enumerate(self.capacity) if room > 0]
        return tuple(sorted(live, key=lambda index: -self.capacity[index] / float(orders[index])))

    def allows(self, totals: Loss) -> bool:
        if too_much_delta(totals, self.delta_add):
            return False
        values, unbounded, capacity = totals.values, totals.unbounded, self.capacity
        for index in self._candidates:
            if values[index] <= capacity[index] and not unbounded[index]:
                return True
        pure = totals.units(self.grid.pure)
        if pure is not None and pure <= self.pure_units:
            return True
        if not self.mixture.delta:
            return False
        bound = self.mixture.log_delta_filter(totals.renyi(), self.limit)
        return bound <= self.mixture.log_delta

    def capacities(self) -> tuple[tuple[int, int], ...]:
        """At the one order with the most room for a Gaussian, and for delta the part kept for charges with
        one.
        """
        if not self.mixture.delta:
            return ((self.grid.pure, self.pure_units), (self.grid.delta, self.delta_add))
        if not self._candidates:
            return ()
        best = self._candidates[0]
        return ((best, self.capacity[best]), (self.grid.delta, self.delta_add))

    def spent(self, totals: Loss) -> float:
        found = if_stopped_now(totals, self.mixture, self.delta_add)
        # Totals that are allowed are proved to keep the limit; the search may end slightly above it.
        return min(found, self.limit) if found > self.limit and self.allows(totals) else found

    def left(self, totals: Loss) -> Left:
        """The figures at the order with the largest share of room left; `left` is a lower bound there.

        In epsilon, without an order, once no single order has room: the mixture may still have some.
        """
        best = self.roomiest(totals)
        if best is None:
            return self.left_of_limit(totals)
        order = float(self.grid.orders[best])
        return Left.of_units(self.capacity[best], totals.values[best], self.grid.units_in_one[best], order)

    def left_of_limit(self, totals: Loss) -> Left:
        pure = self.grid.pure
        if not (self.mixture.delta or totals.unbounded[pure] or too_much_delta(totals, self.delta_add)):
            return Left.of_units(self.pure_units, totals.values[pure], self.grid.units_in_one[pure])
        return Left.of_floats(self.limit, self.spent(totals))

    def roomiest(self, totals: Loss) -> int | None:
        """Index of the order with the largest share of room left, None when none has any."""
        if too_much_delta(totals, self.delta_add):
            return None
        values, unbounded, capacity = totals.values, totals.unbounded, self.capacity
        best, least = None, 1.0
        for index in self._candidates:
            share = values[index] / capacity[index]
            if share < least and not unbounded[index]:
                best, least = index, share
        return best

    def _delta_left(self, asked: Loss, after: Loss) -> float:
        """The part of `delta_add` that was left before `asked`, rounded down."""
        total, added = (loss.units(self.grid.delta) for loss in (after, asked))
        if total is None or added is None:
            return 0.0
        return shown_down(max(0, self.delta_add - (total - added)), self.grid.units_in_one[self.grid.delta])

    def why_not(self, asked: Loss, after: Loss) -> str:
        delta = self.grid.delta
        if without_bound(asked):
            return NO_BOUND
        if too_much_delta(after, self.delta_add):
            in_one = self.grid.units_in_one[delta]
            whole, wanted = shown_down(self.delta_add, in_one), shown_up(asked.units(delta) or 0, in_one)
            left = self._delta_left(asked, after)
            kept = (
                "the deltas of charges stated as (ε, δ) would go above the budget's delta_add, the part of "
                f"its delta that is kept for them: {wanted:g} asked, {left:g} of {whole:g} left"
            )
            if not self.mixture.delta:
                return f"{kept}. That is all of its delta"
            return (
                f"{kept}. A budget's delta_add may be as large as its delta: then epsilons and deltas add up"
            )
        if not self.mixture.delta:
            return self._only_pure(asked)
        return "epsilon at the budget's delta would go above the limit"

    def _only_pure(self, asked: Loss) -> str:
        """The reason where `delta_add` is all of delta."""
        kept = "delta_add is all of the budget's delta, so that only pure epsilons and deltas are added up"
        if asked.unbounded[self.grid.pure]:
            return (
                f"{kept}, and the charge has no pure epsilon: a budget with a smaller delta_add would take it"
            )
        return f"{kept}, and these epsilons would go above the limit: with a smaller delta_add they may fit"


Workload = Annotated[tuple[Charge, ...], Field(min_length=1, max_length=ITEMS_MAX)]
"""The charges that a budget is meant for."""


def split_delta(delta: float, delta_add: float | None) -> tuple[Fraction, float]:
    """(delta_add, delta_mix): delta_add exactly, delta_mix rounded down, together at most delta.

    Either may be 0. The default is a tenth for approximate charges (SOUNDNESS section 3).
    """
    add = decimal(delta) / 10 if delta_add is None else decimal(delta_add)
    return add, round_down(decimal(delta) - add)


def workload_loss(workload: Workload, grid: Grid) -> Loss:
    """The loss of a whole workload. It may take seconds, so it is cached before the writer asks for it."""
    return _workload_loss(workload, grid.version)


@lru_cache(maxsize=64)
def _workload_loss(workload: Workload, grid_version: int) -> Loss:
    grid = GRIDS[grid_version]
    return total(grid, (item.loss(grid) for item in workload))


class ApproximateBudget(Budget):
    """All admitted charges together are (ε, δ)-DP, even if each was chosen after earlier results."""

    kind: Literal["approximate"] = "approximate"
    epsilon: Annotated[Number, Field(gt=0, le=1e4)]
    """Limit ε, in nats."""
    delta: Delta
    """δ of the promise, 0 < δ < 1."""
    delta_add: Annotated[Number, Field(ge=0, lt=1)] | None = None
    """The part of δ kept for charges with a δ, fixed in advance: a tenth by default, 0 is allowed. If it is
    all of δ, the ε and δ of charges simply add up (basic composition), and charges without a pure ε are
    refused."""
    workload: Workload | None = None
    """Charges that the budget is meant for: its weights then favour them, so that more of them fit."""

    parameter: ClassVar[str] = "epsilon"
    symbol: ClassVar[str] = "ε"
    words: ClassVar[str] = "ε at δ = {delta}"
    promise: ClassVar[str] = "(ε, δ)-DP"
    source: ClassVar[str] = "SOUNDNESS section 3; one order: Canonne, Kamath, Steinke 2020"
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"kind": "approximate", "epsilon": 1.0, "delta": 1e-5},
        {"kind": "approximate", "epsilon": 3.0, "delta": 1e-6, "delta_add": 0.0},
    )
    adds_up: ClassVar[Literal["limit", "square", "elsewhere"]] = "elsewhere"
    limit_may_follow_results: ClassVar[bool] = True

    @model_validator(mode="after")
    def _splits(self) -> Self:
        if self.delta_add is not None and not self.delta_add <= self.delta:
            raise ValueError("delta_add must be at most delta, of which it is a part")
        return self

    def fixed(self, grid: Grid, kept: dict[str, Any] | None = None) -> dict[str, Any]:
        if kept is not None:
            return kept
        add, mix = split_delta(self.delta, self.delta_add)
        if self.workload is None:
            weights = default_prior(grid, self.epsilon, mix)
        else:
            weights = workload_prior(grid, workload_loss(self.workload, grid), mix)
        return {
            "delta_add": str(floor_units(add, grid.units[grid.delta])),
            "delta_mix": repr(mix),
            "weights": list(weights),
        }

    def filter(self, grid: Grid, fixed: dict[str, Any]) -> Filter:
        mixture = Mixture(grid, tuple(fixed["weights"]), float(fixed["delta_mix"]))
        return ApproximateFilter(
            self.name,
            self.kind,
            self.epsilon,
            grid,
            mixture=mixture,
            delta_add=int(fixed["delta_add"]),
            pure_units=floor_units(decimal(self.epsilon), grid.units[grid.pure]),
        )

    def epsilon_at(self, delta: float) -> tuple[float, float | None]:
        del delta
        return self.epsilon, self.delta

    @property
    def promised_delta(self) -> float | None:
        return self.delta
