"""A budget as a pure test of totals (SOUNDNESS sections 3 and 4)."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from accountant.grid import DELTA_UNIT, NAT_UNIT, Grid
from accountant.loss import Loss
from accountant.mixture import Mixture
from accountant.rounding import round_down, round_up


@dataclass(frozen=True)
class Rule:
    """A budget as a test of totals. Immutable; every method is pure."""

    name: str
    """The budget's name."""
    kind: str
    limit: float
    """The limit in the kind's own parameter."""
    grid: Grid

    def allows(self, totals: Loss) -> bool:
        """Whether totals as these would keep the promise."""
        raise NotImplementedError

    def spent(self, totals: Loss) -> float:
        """The totals in the budget's own parameter, rounded up; infinity for no bound."""
        raise NotImplementedError

    def coordinate(self, totals: Loss) -> tuple[float, float, float | None]:
        """(spent, limit, order) in the coordinate in which a receipt shows what is left."""
        raise NotImplementedError

    def why_not(self, asked: Loss, after: Loss) -> str:
        """In words, why `after` does not fit when `asked` was added."""
        raise NotImplementedError

    def left(self, totals: Loss) -> dict[str, Any]:
        """What a receipt says: limit, spent, left (rounded down), used (0 to 1, rounded up)."""
        spent, limit, order = self.coordinate(totals)
        used = 1.0 if not spent < limit else round_up(Fraction(spent) / Fraction(limit))
        shown: dict[str, Any] = {"budget": self.name, "kind": self.kind}
        if order is not None:
            shown["order"] = order
        return {
            **shown,
            "limit": limit,
            "spent": None if math.isinf(spent) else spent,
            "left": max(0.0, math.nextafter(limit - spent, -math.inf)) if spent else limit,
            "used": used,
        }


@dataclass(frozen=True)
class CoordinateRule(Rule):
    """A limit on one coordinate, in units, and no approximate charge at all."""

    index: int
    units: int
    quantity: str
    takers: str
    order: float | None = None

    def allows(self, totals: Loss) -> bool:
        unbounded = totals.unbounded
        if unbounded[self.index] or unbounded[self.grid.delta] or totals.values[self.grid.delta]:
            return False
        return totals.values[self.index] <= self.units

    def spent(self, totals: Loss) -> float:
        return totals.amount(self.index) if not self._approximate(totals) else math.inf

    def coordinate(self, totals: Loss) -> tuple[float, float, float | None]:
        return self.spent(totals), self.limit, self.order

    def _approximate(self, totals: Loss) -> bool:
        return totals.units(self.grid.delta) != 0

    def why_not(self, asked: Loss, after: Loss) -> str:
        if self._approximate(asked):
            return (
                f"the charge has a delta, which a {self.kind} budget cannot "
                "promise: only a budget of kind approximate takes it"
            )
        if asked.unbounded[self.index]:
            return f"the charge has no finite {self.quantity}: {self.takers} would take it"
        if not self.allows(after) and (after.unbounded[self.index] or self._approximate(after)):
            return f"an earlier charge has no bound on {self.quantity}: this budget admits nothing more"
        return f"{self.quantity} would go above the limit"


@dataclass(frozen=True)
class GdpRule(CoordinateRule):
    """The sum of mu squared, shown as mu."""

    def spent(self, totals: Loss) -> float:
        squared = super().spent(totals)
        return squared if math.isinf(squared) else _root_up(squared)


def _root_up(squared: float) -> float:
    return math.nextafter(math.sqrt(squared), math.inf) if squared else 0.0


@dataclass(frozen=True)
class ApproximateRule(Rule):
    """The filter: one comparison per order, the certified rule near the limit, or the pure part."""

    mixture: Mixture
    delta_add: int
    pure_units: int

    @cached_property
    def capacity(self) -> tuple[int, ...]:
        """C(alpha) in units, rounded down; shape (n_orders,)."""
        bounds = self.mixture.capacity(self.limit)
        return tuple(math.floor(Fraction(float(bound)) / NAT_UNIT) for bound in bounds)

    @cached_property
    def _candidates(self) -> tuple[int, ...]:
        """The orders with room, best first for a Gaussian-like curve."""
        orders = self.grid.orders
        live = [index for index, room in enumerate(self.capacity) if room > 0]
        return tuple(sorted(live, key=lambda index: -self.capacity[index] / float(orders[index])))

    def allows(self, totals: Loss) -> bool:
        if totals.unbounded[self.grid.delta] or totals.values[self.grid.delta] > self.delta_add:
            return False
        values, unbounded, capacity = totals.values, totals.unbounded, self.capacity
        for index in self._candidates:
            if values[index] <= capacity[index] and not unbounded[index]:
                return True
        pure = totals.units(self.grid.pure)
        if pure is not None and pure <= self.pure_units:
            return True
        bound = self.mixture.log_delta_filter(totals.renyi(), self.limit)
        return bound <= self.mixture.log_delta

    def spent(self, totals: Loss) -> float:
        if totals.unbounded[self.grid.delta] or totals.values[self.grid.delta] > self.delta_add:
            return math.inf
        return min(self.mixture.if_stopped_now(totals.renyi()), totals.amount(self.grid.pure))

    def coordinate(self, totals: Loss) -> tuple[float, float, float | None]:
        """At the order with the largest share of room left, where what is left is a lower bound; in
        epsilon (no order) once no single order has room.
        """
        values, unbounded, capacity = totals.values, totals.unbounded, self.capacity
        best, least = None, math.inf
        for index in self._candidates:
            if not unbounded[index]:
                share = values[index] / capacity[index]
                if share < least:
                    best, least = index, share
        if best is None or least > 1:
            # No single order has room, yet the mixture may: only epsilon itself can say how much.
            return self.spent(totals), self.limit, None
        limit = round_down(capacity[best] * NAT_UNIT)
        return totals.amount(best), limit, float(self.grid.exact_orders[best])

    def why_not(self, asked: Loss, after: Loss) -> str:
        delta = self.grid.delta
        if asked.unbounded[delta] or all(asked.unbounded[: self.grid.n_orders]):
            return "the charge has no bound at any order: it is not differentially private as described"
        if after.unbounded[delta] or after.values[delta] > self.delta_add:
            return (
                "the deltas of approximate charges would go above the part of delta kept for them, "
                f"{round_down(self.delta_add * DELTA_UNIT):g}"
            )
        return "epsilon at the budget's delta would go above the limit"
