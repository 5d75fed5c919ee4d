"""The certified filter and both readings against their definitions at 50 digits: any weights, any totals."""

import math
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
from amount import examples
from hypothesis import assume, given
from hypothesis import strategies as st

from odometer_accountant.budgets.approximate import ApproximateBudget, ApproximateFilter
from odometer_accountant.numerics.grid import GRID_V1
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.numerics.mixture import Mixture
from odometer_accountant.numerics.prior import WEIGHT_UNIT
from tests.support.oracles import DIGITS, TrueMixture

ORDERS = GRID_V1.orders
Floats = np.ndarray[Any, np.dtype[np.float64]]


@st.composite
def mixtures(draw: st.DrawFn) -> Mixture:
    """Any weights with a sum of at most 1, some of them 0 or tiny, and any delta."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = draw(st.sampled_from([0.02, 0.3, 1.0, 20.0]))
    shares = rng.dirichlet(np.full(ORDERS.size, spread))
    weights = tuple(math.floor(share * (1 - 1e-12) * WEIGHT_UNIT) for share in shares)
    return Mixture(GRID_V1, weights, 10.0 ** -draw(st.floats(0.3, 18)))


@st.composite
def totals(draw: st.DrawFn) -> Floats:
    """S(alpha) as of a Gaussian, a pure or a sampled one, or any that rises; no bound from some order on."""
    scale = 10.0 ** draw(st.floats(-9, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = draw(
        st.sampled_from(
            [
                ORDERS / ORDERS[-1],
                np.minimum(1.0, ORDERS / 30),
                np.logaddexp(0.0, ORDERS - 40) / (ORDERS - 1),
                np.cumsum(rng.exponential(size=ORDERS.size)) / ORDERS.size,
            ]
        )
    )
    losses = np.array(shape * scale)
    losses[draw(st.integers(1, ORDERS.size)) :] = np.inf
    return losses


def truth(mixture: Mixture, losses: Floats) -> TrueMixture:
    stored = [Fraction(weight, WEIGHT_UNIT) for weight in mixture.weights]
    return TrueMixture(stored, GRID_V1.exact_orders, list(losses))


def live(mixture: Mixture, losses: Floats) -> bool:
    return any(weight and math.isfinite(loss) for weight, loss in zip(mixture.weights, losses, strict=True))


any_case = given(mixtures(), totals())
few = examples(60)


@few
@given(mixtures(), totals(), st.floats(-6, 3))
def test_the_certificate_is_never_below(mixture: Mixture, losses: Floats, log_epsilon: float) -> None:
    """Log delta is never under-estimated, which would over-admit; nor over-estimated by more than 1e-9."""
    assume(live(mixture, losses))
    epsilon = 10.0**log_epsilon
    with mp.workdps(DIGITS):
        exact = truth(mixture, losses).log_delta_filter(mp.mpf(epsilon))
        excess = mp.mpf(mixture.log_delta_filter(losses, epsilon)) - exact
        assert 0 <= excess <= 1e-9 * (1 + abs(exact))


@few
@any_case
def test_if_stopped_now_is_never_below(mixture: Mixture, losses: Floats) -> None:
    """At the reading, the true delta is within what it answers for; 1e-9 lower it is not."""
    assume(live(mixture, losses))
    epsilon = mixture.if_stopped_now(losses)
    with mp.workdps(DIGITS):
        exact, goal = truth(mixture, losses), mp.log(mp.mpf(mixture.delta))
        assert exact.log_delta_filter(mp.mpf(epsilon)) <= goal
        if epsilon > 0:
            lower = mp.mpf(epsilon) - mp.mpf(1e-9) * max(epsilon, 1e-6)
            assert exact.log_delta_filter(lower) > goal


@few
@any_case
def test_the_odometer_is_never_below(mixture: Mixture, losses: Floats) -> None:
    """At the reading, the mixture has reached 1/delta; 1e-9 lower it has not."""
    assume(live(mixture, losses))
    epsilon = mixture.odometer(losses)
    with mp.workdps(DIGITS):
        exact, goal = truth(mixture, losses), -mp.log(mp.mpf(mixture.delta))
        assert exact.level(mp.mpf(epsilon)) >= goal
        if epsilon > 0:
            assert exact.level(mp.mpf(epsilon) - mp.mpf(1e-9) * max(epsilon, 1e-6)) < goal


@examples(60)
@given(mixtures(), st.floats(-3, 2), st.integers(0, ORDERS.size - 1), totals())
def test_fast_accept_implies_the_certified_rule(
    mixture: Mixture, log_epsilon: float, place: int, losses: Floats
) -> None:
    """Totals at one order's capacity, whatever the others are: the true delta is within delta_mix."""
    epsilon = 10.0**log_epsilon
    room = mixture.capacity(epsilon)[place]
    assume(room > 0)
    losses = losses.copy()
    losses[place] = room
    with mp.workdps(DIGITS):
        exact = truth(mixture, losses).log_delta_filter(mp.mpf(epsilon))
        assert exact <= mp.log(mp.mpf(mixture.delta))
    assert mixture.log_delta_filter(losses, epsilon) <= mixture.log_delta + 1e-9


@examples(100)
@given(mixtures(), totals(), st.floats(0, 1), st.floats(-3, 2))
def test_more_loss_is_never_more_welcome(
    mixture: Mixture, losses: Floats, share: float, log_epsilon: float
) -> None:
    """Delta of the filter, and both readings, never fall when a loss is added."""
    assume(live(mixture, losses))
    epsilon, less = 10.0**log_epsilon, np.where(np.isinf(losses), np.inf, np.nan_to_num(losses) * share)
    for now, before in (
        (mixture.log_delta_filter(losses, epsilon), mixture.log_delta_filter(less, epsilon)),
        (mixture.if_stopped_now(losses), mixture.if_stopped_now(less)),
        (mixture.odometer(losses), mixture.odometer(less)),
    ):
        assert before <= now + 1e-9 * (1 + abs(now))


@examples(100)
@given(totals(), totals(), st.floats(-2, 1.5), st.floats(2, 12))
def test_what_admits_more_admits_less(
    first: Floats, second: Floats, log_epsilon: float, digits: float
) -> None:
    """A rule that allows a total allows every part of it."""
    budget = ApproximateBudget(name="b", epsilon=10.0**log_epsilon, delta=10.0**-digits)
    rule = budget.filter(GRID_V1, budget.fixed(GRID_V1))
    assert isinstance(rule, ApproximateFilter)
    part, whole = as_loss(first), as_loss(first).plus(as_loss(second))
    assert rule.allows(part) or not rule.allows(whole)
    if rule.allows(whole):
        assert rule.spent(whole) <= rule.limit * (1 + 1e-9)


def as_loss(losses: Floats) -> Loss:
    bounded = np.isfinite(losses)
    units = [math.ceil(Fraction(float(value)) * 10**12) if value < math.inf else 0 for value in losses]
    return Loss(GRID_V1, (*units, 0, 0, 0, 0), (*(int(not live) for live in bounded), 1, 1, 1, 0))
