"""Curves: what is kept of an amount, what is counted, and what is not."""

import math
from fractions import Fraction

import numpy as np
import pytest

from odometer_accountant.numerics.curve import Curve
from odometer_accountant.numerics.grid import GRID_V1

AMOUNTS = [0, 5e-324, 1e-13, 0.1, Fraction(1, 3), 1e300, math.inf]


def curve(amount: Fraction | float) -> Curve:
    return Curve.of(GRID_V1, [amount] * GRID_V1.n_orders, pure=amount, rho=amount, delta=0)


@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("count", [1, 3, 10**9])
def test_a_count_of_releases_is_rounded_up_once(amount: Fraction | float, count: int) -> None:
    loss = curve(amount).times(count)
    if amount == math.inf:
        assert (loss.values[0], loss.unbounded[0]) == (0, count)
    else:
        assert loss.values[0] == math.ceil(Fraction(amount) * count * 10**12)


@pytest.mark.parametrize("one", AMOUNTS)
@pytest.mark.parametrize("other", AMOUNTS)
def test_sums_and_the_lesser_of_two_are_exact(one: Fraction | float, other: Fraction | float) -> None:
    known = [Fraction(amount) for amount in (one, other) if amount != math.inf]
    least, total = curve(one).at_most(curve(other)), curve(one).plus(curve(other), 7)
    assert least.amounts[0] == min(known, default=None)
    assert total.amounts[0] == (known[0] + 7 * known[1] if len(known) == 2 else None)


@pytest.mark.parametrize("count", [0, -1, 2.5, math.nan, np.int64(10**9), "3"])
def test_a_count_is_a_whole_number_of_python(count: int) -> None:
    """One of numpy wraps around: 1e9 releases of 0.3 nat came to 162 units."""
    for charged in (curve(0.3).times, lambda n: curve(0.3).plus(curve(0.3), n)):
        with pytest.raises(ValueError, match="at least 1"):
            charged(count)


@pytest.mark.parametrize("amount", [-1e-300, math.nan, Fraction(-1, 10**30)])
def test_no_loss_is_negative(amount: Fraction | float) -> None:
    with pytest.raises(ValueError, match="never negative"):
        curve(amount)
    with pytest.raises(ValueError, match="never negative"):
        Curve.of(GRID_V1, np.full(GRID_V1.n_orders, float(amount)))
