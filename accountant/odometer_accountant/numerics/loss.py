"""Losses: exact integers that compose. The only module that multiplies or adds them (SOUNDNESS section 7)."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from operator import add, sub
from typing import Self

import numpy as np
import numpy.typing as npt

from odometer_accountant.numerics.grid import CURRENT_GRID, Grid
from odometer_accountant.numerics.rounding import ratio_up, shown_up

Amount = Fraction | float | int
# An upper bound on a coordinate: an exact rational, or a float already nudged up. Infinity: no bound.
Ratio = tuple[int, int]
# Numerator and denominator > 0, not always in lowest terms: fractions are slow to make.
Bound = float | Ratio
# An amount as a curve keeps it: a float as it came, everything else as a ratio. Infinity: no bound.


def _bound(amount: Amount) -> Bound:
    """`amount` as a curve keeps it; ValueError for what no loss can be."""
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
        """A release that depends on nobody."""
        return cls(grid, (0.0,) * grid.size)

    @classmethod
    def no_bound(cls, grid: Grid) -> Self:
        """A release about which nothing can be promised."""
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
        """The same on another grid of the same orders. Raises ValueError for one of others."""
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
        """In each coordinate the lesser of two bounds on the same release. Exact."""
        return Curve(self.grid, tuple(map(_least, self.bounds, other.bounds)))

    def plus(self, other: "Curve", count: int = 1) -> "Curve":
        """This release and `count` times another, as one. Exact. Raises ValueError when count < 1."""
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
        """`count` such releases as one. Exact. Raises ValueError when count < 1."""
        _check_count(count)
        ratios = map(_ratio, self.bounds)
        return Curve(
            self.grid, tuple(math.inf if one is None else (count * one[0], one[1]) for one in ratios)
        )

    def never_above(self, amount: Amount) -> "Curve":
        """The same with every Rényi order at most `amount`, as of a release whose loss never exceeds it."""
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


@dataclass(frozen=True, slots=True)
class Loss:
    """A sum of losses: per coordinate an exact integer of units, and how many contributions had no bound."""

    grid: Grid
    values: tuple[int, ...]
    unbounded: tuple[int, ...]

    @classmethod
    def zero(cls, grid: Grid) -> "Loss":
        found = _ZEROS.get(grid.version)
        if found is None or found.grid is not grid:
            found = _ZEROS[grid.version] = cls(grid, (0,) * grid.size, (0,) * grid.size)
        return found

    def plus(self, other: "Loss") -> "Loss":
        """Both, in any order. Raises ValueError across grids."""
        if self.grid is not other.grid:
            raise ValueError(f"cannot add losses on grids {self.grid.version} and {other.grid.version}")
        if self is _ZEROS.get(self.grid.version):
            return other
        mine, theirs, found = _LAST_SUM[0]
        if mine is self and theirs is other:
            return found
        found = Loss(
            self.grid,
            tuple(map(add, self.values, other.values)),
            tuple(map(add, self.unbounded, other.unbounded)),
        )
        _LAST_SUM[0] = (self, other, found)
        return found

    def minus(self, other: "Loss") -> "Loss":
        """What remains when `other`, once added, is taken out again; exact. Raises ValueError below zero."""
        if self.grid is not other.grid:
            raise ValueError(f"cannot subtract losses on grids {self.grid.version} and {other.grid.version}")
        values = tuple(map(sub, self.values, other.values))
        unbounded = tuple(map(sub, self.unbounded, other.unbounded))
        if min(values) < 0 or min(unbounded) < 0:
            raise ValueError("more would be taken out of a total than is in it")
        return Loss(self.grid, values, unbounded)

    def scaled(self, times: int) -> "Loss":
        """The same loss `times` times, each rounded on its own; exact. Raises ValueError below zero."""
        if times < 0:
            raise ValueError(f"a loss does not happen {times} times")
        return Loss(
            self.grid,
            tuple(times * value for value in self.values),
            tuple(times * count for count in self.unbounded),
        )

    def multiple_of(self, other: "Loss") -> int | None:
        """How many times `other` this exactly is, None when it is no multiple or `other` is zero."""
        if self is other and not other.is_zero:
            return 1
        for part, whole in ((self.values, other.values), (self.unbounded, other.unbounded)):
            for mine, theirs in zip(part, whole, strict=True):
                if theirs:
                    times = mine // theirs
                    return times if other.scaled(times) == self else None
        return None

    def at_most(self, other: "Loss") -> "Loss":
        """This bound, or in each coordinate where it is not below it `other`, a bound on the same loss."""
        mine, theirs = (
            zip(self.values, self.unbounded, strict=True),
            zip(other.values, other.unbounded, strict=True),
        )
        pairs = [a if a[0] <= b[0] and a[1] <= b[1] else b for a, b in zip(mine, theirs, strict=True)]
        return Loss(self.grid, tuple(value for value, _ in pairs), tuple(count for _, count in pairs))

    def at_least(self, other: "Loss") -> "Loss":
        """In each coordinate the larger of two losses: a bound on either."""
        return Loss(
            self.grid,
            tuple(map(max, self.values, other.values)),
            tuple(map(max, self.unbounded, other.unbounded)),
        )

    def units(self, index: int) -> int | None:
        """The coordinate in units, None for no bound."""
        return None if self.unbounded[index] else self.values[index]

    def amount(self, index: int) -> float:
        """The coordinate in nats (delta: a probability), rounded up; infinity for no bound."""
        if self.unbounded[index]:
            return math.inf
        return ratio_up(self.values[index], self.grid.units[index].denominator)

    def shown(self, index: int) -> float:
        """The coordinate as people read it: the shortest decimal is rounded up; infinity for no bound."""
        if self.unbounded[index]:
            return math.inf
        return shown_up(self.values[index], self.grid.units[index].denominator)

    def renyi(self) -> npt.NDArray[np.float64]:
        """S(alpha) in nats at every finite order, shape (n_orders,), rounded up; infinity for no bound."""
        n_orders = self.grid.n_orders
        totals = np.array(self.values[:n_orders], dtype=float) * self.grid.order_unit_up
        totals[np.array(self.unbounded[:n_orders]) > 0] = np.inf
        return totals

    @property
    def is_zero(self) -> bool:
        return not any(self.values) and not any(self.unbounded)

    def encode(self) -> str:
        """One line: the values, then index:count of the coordinates without a bound."""
        marks = " ".join(f"{index}:{count}" for index, count in enumerate(self.unbounded) if count)
        return f"{' '.join(map(str, self.values))}|{marks}"

    @classmethod
    def decode(cls, grid: Grid, line: str) -> Self:
        """The inverse of `encode`. Raises ValueError for anything else."""
        head, bar, marks = line.partition("|")
        values = tuple(map(int, head.split(" ")))
        unbounded = [0] * grid.size
        for mark in marks.split(" ") if marks else ():
            index, _, count = mark.partition(":")
            unbounded[int(index)] = int(count)
        if not bar or len(values) != grid.size or min(values) < 0 or min(unbounded) < 0:
            raise ValueError(f"not a loss on grid {grid.version}: {line[:80]!r}")
        return cls(grid, values, tuple(unbounded))


_ZEROS: dict[int, Loss] = {}
"""Nothing spent, by grid version."""
_LAST_SUM: list[tuple[Loss | None, Loss | None, Loss]] = [(None, None, Loss.zero(CURRENT_GRID))]
"""The last addition: of a dataset, its only principal and its only mechanism the same sum is wanted again."""


def total(grid: Grid, losses: Iterable[Loss]) -> Loss:
    """The sum of `losses`."""
    result = Loss.zero(grid)
    for loss in losses:
        result = result.plus(loss)
    return result
