"""The coordinates of a loss: Rényi orders, their units, and the version of both.

A ledger stores the grid version it was opened with and is always read with that grid.
Coordinate order (SOUNDNESS section 7): one per Rényi order, then the pure part (order
infinity), then rho of zCDP, then mu squared of Gaussian DP, then delta.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from odometer_accountant.once import once

_ORDERS_V1: Final = (
    "1.25 1.5 1.75 2 2.5 3 3.5 4 4.5 5 5.5 6 6.5 7 7.5 8 9 10 11 12 13 14 16 18 20 22 24 28 32 36 40 44 "
    "48 56 64 96 128 256 512 1024 2048 4096 8192"
)


@dataclass(frozen=True)
class Grid:
    """Finite Rényi orders (increasing, all above 1), and the place and the unit of every coordinate.

    A unit is ten to the minus so many digits: a product is scaled by the unit's denominator alone, and a
    decimal number of no more digits after the point is a whole number of units.
    """

    version: int
    exact_orders: tuple[Fraction, ...]
    order_digits: int = 12
    """Of the divergences at the finite orders, in nats."""
    nat_digits: int = 12
    """Of the pure part and rho, in nats."""
    mu_squared_digits: int = 12
    delta_digits: int = 18

    @once
    def orders(self) -> npt.NDArray[np.float64]:
        """The finite orders as floats, shape (n_orders,); every one is exactly representable."""
        orders = np.array([float(order) for order in self.exact_orders])
        orders.setflags(write=False)
        return orders

    @once
    def order_ratios(self) -> tuple[tuple[int, int], ...]:
        """The finite orders as numerator and denominator."""
        return tuple(order.as_integer_ratio() for order in self.exact_orders)

    @once
    def n_orders(self) -> int:
        return len(self.exact_orders)

    @property
    def pure(self) -> int:
        """Index of the pure part, S(infinity)."""
        return self.n_orders

    @property
    def rho(self) -> int:
        """Index of rho (zCDP)."""
        return self.n_orders + 1

    @property
    def mu_squared(self) -> int:
        """Index of mu squared (Gaussian DP composes in squares)."""
        return self.n_orders + 2

    @property
    def delta(self) -> int:
        """Index of delta (the sum over approximate charges)."""
        return self.n_orders + 3

    @property
    def size(self) -> int:
        return self.n_orders + 4

    @once
    def units(self) -> tuple[Fraction, ...]:
        """The size of one unit of each coordinate."""
        digits = [self.order_digits] * self.n_orders
        digits += [self.nat_digits, self.nat_digits, self.mu_squared_digits, self.delta_digits]
        return tuple(Fraction(1, 10**count) for count in digits)

    @once
    def units_in_one(self) -> tuple[int, ...]:
        """How many units are 1, of each coordinate."""
        return tuple(unit.denominator for unit in self.units)

    @once
    def order_unit_up(self) -> float:
        """One unit at the finite orders, raised so that its product with a whole number is rounded up."""
        # 2**-51 covers three roundings: of the unit, of the whole number, and of the product.
        return float(self.units[0]) * (1 + 2**-51)

    def order_at_or_above(self, order: Fraction) -> int | None:
        """Index of the least grid order >= `order`, or None above the last.

        D_alpha never decreases in alpha, so the answer at the order above is an upper bound.
        """
        for index, grid_order in enumerate(self.exact_orders):
            if grid_order >= order:
                return index
        return None


_ORDERS: Final = tuple(Fraction(order) for order in _ORDERS_V1.split())
GRID_V1: Final = Grid(1, _ORDERS)
GRID_V2: Final = Grid(2, _ORDERS, order_digits=18, nat_digits=30, mu_squared_digits=60, delta_digits=30)
"""Equal numbers fit: one of 16 digits is a whole number of units, as its square is of those of mu squared."""
GRIDS: Final = {grid.version: grid for grid in (GRID_V1, GRID_V2)}
"""Every grid a ledger may have been opened with, by version."""
CURRENT_GRID: Final = GRID_V2
"""The grid of new datasets. All have the same orders: a curve is the same on each but for its units."""
