"""The loss of one release: an exact upper bound per coordinate (SOUNDNESS section 7)."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
import numpy.typing as npt

from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.numerics.rounding import ratio_up

Amount = Fraction | float | int
"""An upper bound on a coordinate: an exact rational, or a float already rounded up. Infinity: no bound."""
Ratio = tuple[int, int]
"""Numerator and denominator > 0, not always in lowest terms: reducing fractions is slow."""
Bound = float | Ratio
"""An amount as a curve stores it: a float unchanged, everything else as a ratio. Infinity: no bound."""


def _bound(amount: Amount) -> Bound:
    """`amount` as a curve stores it. Raises ValueError for a negative number or NaN."""
    if not amount >= 0:
        raise ValueError(f"a loss is never negative, got {amount!r}")
    return float(amount) if isinstance(amount, float) else amount.as_integer_ratio()


def _ratio(bound: Bound) -> Ratio | None:
    """A bound exactly, None for no bound."""
    if isinstance(bound, tuple):
        return bound
    return None if bound == math.inf else bound.as_integer_ratio()


@dataclass(frozen=True, slots=True)
class Curve:
    """The loss of ONE release: an upper bound per coordinate, exact and not yet rounded to units.

    `bounds` is in nats (delta: a probability), one per coordinate of `grid`; infinity means "no bound".
    """

    grid: Grid
    bounds: tuple[Bound, ...]

    @classmethod
    def of(
        cls,
        grid: Grid,
        orders: Iterable[Amount] | npt.NDArray[np.float64],
        *,
        pure: Amount = math.inf,
        rho: Amount = math.inf,
        mu_squared: Amount = math.inf,
        delta: Amount = 0,
    ) -> Self:
        """From bounds at the finite orders and at the four other coordinates (infinity: no bound).

        Raises ValueError for a negative or NaN bound, or a wrong number of orders.
        """
        others = map(_bound, (pure, rho, mu_squared, delta))
        if isinstance(orders, np.ndarray):
            if not orders.min(initial=0.0) >= 0:
                raise ValueError(f"a loss is never negative, got {orders}")
            bounds = (*orders.tolist(), *others)
        else:
            bounds = (*map(_bound, orders), *others)
        if len(bounds) != grid.size:
            raise ValueError(f"expected {grid.n_orders} orders, got {len(bounds) - 4}")
        return cls(grid, bounds)

    @classmethod
    def linear(cls, grid: Grid, rho: Fraction, *, mu_squared: Amount = math.inf) -> Self:
        """D_alpha = rho alpha at every order, exactly. Raises ValueError for a negative rho."""
        up, down = rho.as_integer_ratio()
        if up < 0:
            raise ValueError(f"a loss is never negative, got {rho}")
        orders = [(order * up, part * down) for order, part in grid.order_ratios]
        return cls(grid, (*orders, math.inf, (up, down), _bound(mu_squared), (0, 1)))

    @classmethod
    def zero(cls, grid: Grid) -> Self:
        """A release that does not depend on the data."""
        return cls(grid, (0.0,) * grid.size)

    @classmethod
    def no_bound(cls, grid: Grid) -> Self:
        """A release without a bound in any coordinate."""
        return cls(grid, (math.inf,) * grid.size)

    @property
    def amounts(self) -> tuple[Fraction | None, ...]:
        """Every coordinate exactly, None for no bound."""
        return self.amounts_from(0)

    def amounts_from(self, place: int) -> tuple[Fraction | None, ...]:
        """`amounts` from a coordinate on."""
        return tuple(
            None if ratio is None else Fraction(*ratio) for ratio in map(_ratio, self.bounds[place:])
        )

    def on(self, grid: Grid) -> "Curve":
        """The same bounds on another grid. Raises ValueError where its orders differ."""
        if grid.exact_orders != self.grid.exact_orders:
            raise ValueError(f"grid {grid.version} has other orders than grid {self.grid.version}")
        return self if grid is self.grid else Curve(grid, self.bounds)

    def without(self, place: int) -> "Curve":
        """The same with no bound in one coordinate."""
        return Curve(self.grid, (*self.bounds[:place], math.inf, *self.bounds[place + 1 :]))

    def floats(self) -> npt.NDArray[np.float64]:
        """Every coordinate as a float, rounded up, shape (size,); infinity for no bound."""
        return np.array([ratio_up(*one) if isinstance(one, tuple) else one for one in self.bounds])

    def at_most(self, other: "Curve") -> "Curve":
        """The smaller of two bounds on the same release, per coordinate. Exact."""
        return Curve(self.grid, tuple(map(_least, self.bounds, other.bounds)))

    def plus(self, other: "Curve", count: int = 1) -> "Curve":
        """This release followed by `count` of another, as one release.

        Exact. Raises ValueError when count < 1.
        """
        _check_count(count)
        pairs = zip(map(_ratio, self.bounds), map(_ratio, other.bounds), strict=True)
        return Curve(
            self.grid,
            tuple(
                math.inf if mine is None or theirs is None else _sum(*mine, count * theirs[0], theirs[1])
                for mine, theirs in pairs
            ),
        )

    def repeated(self, count: int) -> "Curve":
        """`count` such releases as one release. Exact. Raises ValueError when count < 1."""
        _check_count(count)
        ratios = map(_ratio, self.bounds)
        return Curve(
            self.grid, tuple(math.inf if one is None else (count * one[0], one[1]) for one in ratios)
        )

    def never_above(self, amount: Amount) -> "Curve":
        """The same, with `amount` as a further bound at every Rényi order, for a loss that never exceeds
        it.
        """
        most = _bound(amount)
        orders = (_least(one, most) for one in self.bounds[: self.grid.n_orders])
        return Curve(self.grid, (*orders, *self.bounds[self.grid.n_orders :]))

    def times(self, count: int) -> "Loss":
        """`count` such releases: each coordinate is ceil(count x amount) units, in exact arithmetic.

        Raises ValueError when count < 1.
        """
        _check_count(count)
        ratios = tuple(map(_ratio, self.bounds))
        # One unit is one over an integer, in every grid.
        values = tuple(
            0 if ratio is None else -(-count * ratio[0] * units // ratio[1])
            for ratio, units in zip(ratios, self.grid.units_in_one, strict=True)
        )
        return Loss(self.grid, values, tuple(count if ratio is None else 0 for ratio in ratios))


def _least(one: Bound, other: Bound) -> Bound:
    if isinstance(one, float) and isinstance(other, float):
        return min(one, other)
    mine, theirs = _ratio(one), _ratio(other)
    if mine is None or theirs is None:
        return one if theirs is None else other
    return one if mine[0] * theirs[1] <= theirs[0] * mine[1] else other


def _check_count(count: object) -> None:
    """Raise ValueError unless it is a Python int of 1 or more: others wrap, or are rounded."""
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"a count is a whole number, at least 1, got {count!r}")


def _sum(n: int, d: int, m: int, e: int) -> Ratio:
    """n/d + m/e over their least common denominator."""
    if d == e:
        return n + m, d
    shared = math.gcd(d, e)
    return n * (e // shared) + m * (d // shared), d // shared * e
