"""Delta is split in advance: testing the sum of both parts against it is not sound (SOUNDNESS section 3)."""

import math

import numpy as np
import pytest

from odometer_accountant.budgets.approximate import ApproximateBudget
from odometer_accountant.budgets.base import Filter
from odometer_accountant.mechanisms.stated import Approximate
from odometer_accountant.numerics import prior
from odometer_accountant.numerics.curve import Curve
from odometer_accountant.numerics.grid import GRID_V1
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.numerics.mixture import Mixture

EPSILON, DELTA, JUMP, FIRST = 1.0, 1e-5, 0.6, 0.003


def two_point(hit: float) -> Loss:
    """Its loss is `JUMP` with probability `hit` (under P), and about 0 otherwise; both directions."""
    other, orders = hit * math.exp(-JUMP), GRID_V1.orders

    def divergence(p: float, q: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        hits = orders * math.log(p) + (1 - orders) * math.log(q)
        rest = orders * math.log1p(-p) + (1 - orders) * math.log1p(-q)
        return np.maximum(np.logaddexp(hits, rest) / (orders - 1), 0.0)

    larger = np.maximum(divergence(hit, other), divergence(other, hit))
    return Curve.of(GRID_V1, larger * (1 + 1e-12) + 1e-15, pure=JUMP + 1e-12).times(1)


def released(delta: float) -> Loss:
    return Approximate(epsilon=0.0, delta=delta).curve(GRID_V1).times(1)


def true_delta(second: float, delta: float) -> float:
    """Of the analyst who, after a hit, charges two_point(second) and otherwise a (0, delta) release.

    After both hits the loss is 1.2; a (0, delta) release may show everything with probability delta.
    """
    return FIRST * second * -math.expm1(EPSILON - 2 * JUMP) + (1 - FIRST) * delta


def unsound(mixture: Mixture, totals: Loss) -> bool:
    """Sum of deltas + delta of the filter <= delta; the latter is 0 where the pure part is within epsilon."""
    rest = DELTA - totals.amount(GRID_V1.delta)
    if totals.amount(GRID_V1.pure) <= EPSILON:
        return rest >= 0
    return rest > 0 and mixture.log_delta_filter(totals.renyi(), EPSILON) <= math.log(rest)


def largest_second(rule: Filter) -> float:
    low, high = 1e-12, 0.5
    while high / low > 1.0001:
        middle = math.sqrt(low * high)
        fits = rule.allows(two_point(FIRST).plus(two_point(middle)))
        low, high = (middle, high) if fits else (low, middle)
    return low


@pytest.mark.parametrize("weights", ["one order", "default"])
def test_the_counterexample(weights: str) -> None:
    """The joint test admits both branches, and the truth is 1.25 delta."""
    alone = tuple(prior.WEIGHT_UNIT * int(order == 11) for order in GRID_V1.orders)
    chosen = alone if weights == "one order" else prior.default_prior(GRID_V1, EPSILON, DELTA)
    mixture, second = Mixture(GRID_V1, chosen, DELTA), 0.00468
    assert unsound(mixture, two_point(FIRST).plus(two_point(second)))
    assert unsound(mixture, two_point(FIRST).plus(released(DELTA)))
    assert true_delta(second, DELTA) / DELTA == pytest.approx(1.25, abs=0.005)


@pytest.mark.parametrize("delta_add", [None, 0.0, 1e-6, 3e-6, 5e-6, 9e-6, 9.999e-6])
def test_the_fixed_split_holds(delta_add: float | None) -> None:
    """The whole delta as one release is refused; this analyst stays within delta at every split."""
    budget = ApproximateBudget(name="b", epsilon=EPSILON, delta=DELTA, delta_add=delta_add)
    rule = budget.filter(GRID_V1, budget.fixed(GRID_V1))
    assert not rule.allows(two_point(FIRST).plus(released(DELTA)))
    kept = 1e-6 if delta_add is None else delta_add
    assert rule.allows(two_point(FIRST).plus(released(kept)))
    assert true_delta(largest_second(rule), kept) <= DELTA
