"""A budget as a pure test of totals (SOUNDNESS sections 3 and 4)."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple, Self

from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.numerics.mixture import Mixture
from odometer_accountant.numerics.rounding import (
    decimal,
    root_shown,
    round_down,
    round_up,
    shown_down,
    shown_up,
)
from odometer_accountant.once import once


class Left(NamedTuple):
    """What is left of a budget, at one Rényi order where `order` is given, else in its own parameter.

    `spent` (infinity: no bound) and `used` (0 to 1) are rounded up, `limit` and `left` down.
    """

    limit: float
    spent: float
    left: float
    used: float
    order: float | None = None

    @classmethod
    def of_units(cls, limit: int, spent: int, unit: int, order: float | None = None) -> Self:
        """From whole units, `unit` of which are 1; each figure rounded once."""
        return cls(
            shown_down(limit, unit),
            shown_up(spent, unit),
            shown_down(limit - spent, unit) if spent < limit else 0.0,
            shown_up(spent, limit) if spent < limit else 1.0,
            order,
        )

    @classmethod
    def of_floats(cls, limit: float, spent: float) -> Self:
        """From a reading that is rounded up already."""
        if not spent < limit:
            return cls(limit, spent, 0.0, 1.0)
        exact_limit, exact_spent = decimal(limit), Fraction(spent)
        left = max(0.0, round_down(exact_limit - exact_spent))
        return cls(limit, spent, left, min(1.0, round_up(exact_spent / exact_limit)))


def too_much_delta(totals: Loss, delta_add: int) -> bool:
    """Whether approximate charges used up what was kept for them, in units."""
    units = totals.units(totals.grid.delta)
    return units is None or units > delta_add


def if_stopped_now(totals: Loss, mixture: Mixture, delta_add: int) -> float:
    """Epsilon for whatever rule of stopping; infinity once approximate charges used up delta_add."""
    if too_much_delta(totals, delta_add):
        return math.inf
    return min(mixture.if_stopped_now(totals.renyi()), totals.shown(totals.grid.pure))


NO_BOUND: Final = "the charge has no bound at any order: it is not differentially private as described"


def _without_bound(asked: Loss) -> bool:
    """Whether a charge promises nothing in any notion, whatever the budget."""
    return bool(asked.unbounded[asked.grid.delta]) or all(asked.unbounded[: asked.grid.n_orders])


@dataclass(frozen=True)
class Filter:
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

    def left(self, totals: Loss) -> "Left":
        """What a receipt shows."""
        raise NotImplementedError

    def left_of_limit(self, totals: Loss) -> Left:
        """As `left`, always in the budget's own parameter; may take a millisecond."""
        return self.left(totals)

    def why_not(self, asked: Loss, after: Loss) -> str:
        """In words, why `after` does not fit when `asked` was added."""
        raise NotImplementedError

    def capacities(self) -> tuple[tuple[int, int], ...]:
        """(coordinate, units) pairs, of which shares are cut: totals that keep to all keep the promise.

        Empty when there is no such pair.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class CoordinateFilter(Filter):
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
        if _without_bound(asked):
            return NO_BOUND
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
class GdpFilter(CoordinateFilter):
    """The sum of mu squared, shown as mu."""

    def spent(self, totals: Loss) -> float:
        return math.inf if self._approximate(totals) else mu_shown(totals)

    def left(self, totals: Loss) -> Left:
        shown = Left.of_floats(self.limit, self.spent(totals))
        if not shown.spent < self.limit:
            return shown
        room = (self.units - totals.values[self.index]) * self.grid.units[self.index]
        left = max(0.0, math.nextafter(math.sqrt(round_down(room)), 0.0)) if room > 0 else 0.0
        return shown._replace(left=left)  # squares add, so more is left than the difference


def mu_shown(totals: Loss) -> float:
    """The root of the sum of mu squared as people read it, rounded up; infinity for no bound."""
    index = totals.grid.mu_squared
    units = totals.units(index)
    return math.inf if units is None else root_shown(units * totals.grid.units[index])


def root_up(squared: float) -> float:
    """Square root, rounded up: for computing with it."""
    return math.nextafter(math.sqrt(squared), math.inf) if squared else 0.0


@dataclass(frozen=True)
class ApproximateFilter(Filter):
    """The filter: one comparison per order, the certified rule near the limit, or the pure part."""

    mixture: Mixture
    delta_add: int
    pure_units: int

    @once
    def capacity(self) -> tuple[int, ...]:
        """C(alpha) in units, rounded down; shape (n_orders,)."""
        if not self.mixture.delta:
            return (0,) * self.grid.n_orders
        bounds = self.mixture.capacity(self.limit)
        in_one = self.grid.units_in_one
        return tuple(
            math.floor(Fraction(float(bound)) * unit) for bound, unit in zip(bounds, in_one, strict=False)
        )

    @once
    def _candidates(self) -> tuple[int, ...]:
        """The orders with room, best first for a Gaussian-like curve."""
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
        """At the one order that has the most room for a Gaussian, and of the part of delta kept for it."""
        if not self.mixture.delta:
            return ((self.grid.pure, self.pure_units), (self.grid.delta, self.delta_add))
        if not self._candidates:
            return ()
        best = self._candidates[0]
        return ((best, self.capacity[best]), (self.grid.delta, self.delta_add))

    def spent(self, totals: Loss) -> float:
        found = if_stopped_now(totals, self.mixture, self.delta_add)
        # What is allowed is proved to keep the limit, where a search may end a hair above it.
        return min(found, self.limit) if found > self.limit and self.allows(totals) else found

    def left(self, totals: Loss) -> Left:
        """At the order with the largest share of room left, where what is left is a lower bound; in
        epsilon (no order) once no single order has room, though the mixture may.
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
        """Of delta_add before `asked`, rounded down."""
        total, added = (loss.units(self.grid.delta) for loss in (after, asked))
        if total is None or added is None:
            return 0.0
        return shown_down(max(0, self.delta_add - (total - added)), self.grid.units_in_one[self.grid.delta])

    def why_not(self, asked: Loss, after: Loss) -> str:
        delta = self.grid.delta
        if _without_bound(asked):
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
        """Why not, where all of delta is kept for approximate charges."""
        kept = "delta_add is all of the budget's delta, so that only pure epsilons and deltas are added up"
        if asked.unbounded[self.grid.pure]:
            return (
                f"{kept}, and the charge has no pure epsilon: a budget with a smaller delta_add would take it"
            )
        return f"{kept}, and these epsilons would go above the limit: with a smaller delta_add they may fit"
