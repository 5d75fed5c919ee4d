"""Sums of losses as exact integers: the only module that adds them up (SOUNDNESS section 7)."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from operator import add, sub
from typing import Self

import numpy as np
import numpy.typing as npt

from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.rounding import ratio_up, shown_up


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
        """The sum, the same in any order. Raises ValueError where the grids differ."""
        if self.grid is not other.grid:
            raise ValueError(f"cannot add losses on grids {self.grid.version} and {other.grid.version}")
        if self is _ZEROS.get(self.grid.version):
            return other
        return Loss(
            self.grid,
            tuple(map(add, self.values, other.values)),
            tuple(map(add, self.unbounded, other.unbounded)),
        )

    def minus(self, other: "Loss") -> "Loss":
        """The rest after `other`, which was added before, is taken out.

        Exact. Raises ValueError below zero.
        """
        if self.grid is not other.grid:
            raise ValueError(f"cannot subtract losses on grids {self.grid.version} and {other.grid.version}")
        values = tuple(map(sub, self.values, other.values))
        unbounded = tuple(map(sub, self.unbounded, other.unbounded))
        if min(values) < 0 or min(unbounded) < 0:
            raise ValueError("more would be taken out of a total than is in it")
        return Loss(self.grid, values, unbounded)

    def scaled(self, times: int) -> "Loss":
        """`times` times this loss, each rounded on its own.

        Exact. Raises ValueError for a negative number.
        """
        if times < 0:
            raise ValueError(f"a loss does not happen {times} times")
        return Loss(
            self.grid,
            tuple(times * value for value in self.values),
            tuple(times * count for count in self.unbounded),
        )

    def multiple_of(self, other: "Loss") -> int | None:
        """The whole number n with `self` = n times `other`; None where there is none, or `other` is zero."""
        if self is other and not other.is_zero:
            return 1
        for part, whole in ((self.values, other.values), (self.unbounded, other.unbounded)):
            for mine, theirs in zip(part, whole, strict=True):
                if theirs:
                    times = mine // theirs
                    return times if other.scaled(times) == self else None
        return None

    def at_most(self, other: "Loss") -> "Loss":
        """The smaller of two bounds on the same loss, per coordinate; `other` where neither is smaller in
        both parts.
        """
        mine, theirs = (
            zip(self.values, self.unbounded, strict=True),
            zip(other.values, other.unbounded, strict=True),
        )
        pairs = [a if a[0] <= b[0] and a[1] <= b[1] else b for a, b in zip(mine, theirs, strict=True)]
        return Loss(self.grid, tuple(value for value, _ in pairs), tuple(count for _, count in pairs))

    def at_least(self, other: "Loss") -> "Loss":
        """The larger of two losses, per coordinate: a bound on either."""
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
        """The coordinate for people: its shortest decimal is rounded up. Infinity for no bound."""
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
"""The zero loss of each grid version."""


def total(grid: Grid, losses: Iterable[Loss]) -> Loss:
    """The sum of `losses`; zero for none."""
    result = Loss.zero(grid)
    for loss in losses:
        result = result.plus(loss)
    return result
