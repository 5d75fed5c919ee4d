"""Conversions never flatter: each epsilon and delta at or above its definition at 50 digits, and close."""

import math
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from amount import examples
from hypothesis import example, given
from hypothesis import strategies as st

from odometer_accountant.numerics import conversions, prior
from odometer_accountant.numerics.grid import CURRENT_GRID
from odometer_accountant.numerics.mixture import Mixture
from tests.support import oracles
from tests.support.oracles import DIGITS, Real

powers = st.floats(-12, 3).map(lambda x: 10.0**x)
deltas = st.one_of(st.floats(0.3, 300).map(lambda x: 10.0**-x), st.floats(1e-3, 0.999))
usual = examples(100)


def refined(objective: Callable[[Real], Real], low: float, high: float) -> Real:
    """The least value of a unimodal function of log t, by golden section to 1e-14: good for 28 digits."""
    ratio = (mp.sqrt(5) - 1) / 2
    left, right = mp.mpf(low), mp.mpf(high)
    a, b = right - ratio * (right - left), left + ratio * (right - left)
    at_a, at_b = objective(a), objective(b)
    while right - left > mp.mpf(10) ** -14:
        if at_a < at_b:
            right, b, at_b = b, a, at_a
            a = right - ratio * (right - left)
            at_a = objective(a)
        else:
            left, a, at_a = a, b, at_b
            b = left + ratio * (right - left)
            at_b = objective(b)
    return min(at_a, at_b)


def log_c(t: Real) -> Real:
    """Canonne, Kamath, Steinke 2020: (a-1) log(1 - 1/a) - log a, with t = a - 1."""
    return t * mp.log(t / (1 + t)) - mp.log(1 + t)


@usual
@given(powers, st.one_of(st.floats(0, 1e4), powers))
@example(5e-30, 1e-13)
@example(0.5, 0.0)
@example(2.5562255810513306, 17.0)
def test_zcdp_delta(rho: float, epsilon: float) -> None:
    """At or above the optimum over all real orders, 1e-8 relative at most."""
    ours = conversions.zcdp_delta(rho, epsilon)
    with mp.workdps(DIGITS):

        def log_delta(log_t: Real) -> Real:
            t = mp.exp(log_t)
            return t * (mp.mpf(rho) * (1 + t) - mp.mpf(epsilon)) + log_c(t)

        exact = min(mp.mpf(0), refined(log_delta, -35, 345 - min(0.0, math.log(rho)) / 2))
        if exact < -700:
            assert ours <= 1e-290
        else:
            assert 0 <= mp.log(mp.mpf(ours)) - exact <= 1e-8 * (1 + abs(exact) / 100)


@usual
@given(powers, deltas)
@example(1e-6, 1e-5)
@example(2.5562255810513306, 1e-10)
@example(1e-12, 0.999)
@example(10**-5.8359375, 0.001)  # the terms cancel to a hundredth of their size
def test_zcdp_epsilon(rho: float, delta: float) -> None:
    """At or above the optimum over all real orders, 1e-9 relative at most."""
    ours = conversions.zcdp_epsilon(rho, delta)
    with mp.workdps(DIGITS):

        def epsilon(log_t: Real) -> Real:
            t = mp.exp(log_t)
            return mp.mpf(rho) * (1 + t) + (log_c(t) - mp.log(mp.mpf(delta))) / t

        exact = max(mp.mpf(0), refined(epsilon, -30, 200))
        scale = mp.sqrt(mp.mpf(rho)) + mp.mpf(rho)
        assert 0 <= mp.mpf(ours) - exact <= 1e-9 * max(exact, scale)


@usual
@given(st.floats(-9, 3).map(lambda x: 10.0**x), st.floats(-1, 1.2), st.floats(-12, 12))
@example(30.0, 1.0, 0.0)
@example(1000.0, 1.0, -5.0)
@example(1e-9, 0.0, 0.0)
def test_gdp_delta(mu: float, share: float, deviations: float) -> None:
    """Around where the loss lies (mu^2/2, spread mu) and far off: at or above the truth, and close to it."""
    epsilon = max(0.0, share * mu * mu / 2 + deviations * mu)
    ours = conversions.gdp_delta(mu, epsilon)
    with mp.workdps(DIGITS + 30):
        exact = oracles.gdp_delta(mp.mpf(mu), mp.mpf(epsilon))
        assert mp.mpf(ours) >= exact
        assert mp.mpf(ours) <= exact * (1 + mp.mpf(1e-9 + 1e-13 / mu)) + mp.mpf(10) ** -290


@usual
@given(st.floats(-6, 2).map(lambda x: 10.0**x), deltas)
@example(math.sqrt(10), 1e-6)
def test_gdp_epsilon(mu: float, delta: float) -> None:
    """At the answer the true delta is within the one asked for; a little lower it is not."""
    ours = conversions.gdp_epsilon(mu, delta)
    with mp.workdps(DIGITS + 30):
        assert oracles.gdp_delta(mp.mpf(mu), mp.mpf(ours)) <= mp.mpf(delta)
        if ours > 0:
            lower = mp.mpf(ours) - mp.mpf(1e-8) * max(ours, mu)
            assert lower <= 0 or oracles.gdp_delta(mp.mpf(mu), lower) > mp.mpf(delta)


orders = st.lists(st.floats(1.01, 8192), min_size=1, max_size=6, unique=True).map(sorted).map(np.array)


@usual
@given(orders, powers, deltas, st.data())
def test_rdp_both_ways(grid: Any, scale: float, delta: float, data: st.DataObject) -> None:
    """The least over the orders of the closed form, at or above it; the order that is named gives it."""
    losses = grid * scale
    losses[data.draw(st.integers(1, len(grid))) :] = np.inf
    live = [(mp.mpf(a) - 1, mp.mpf(s)) for a, s in zip(grid, losses, strict=True) if np.isfinite(s)]
    epsilon, best = conversions.rdp_epsilon(losses, grid, delta)
    wide = data.draw(powers)
    ours, _ = conversions.rdp_delta(losses, grid, wide)
    with mp.workdps(DIGITS):
        exact = min(loss + (log_c(t) - mp.log(mp.mpf(delta))) / t for t, loss in live)
        assert 0 <= mp.mpf(epsilon) - max(mp.mpf(0), exact) <= 1e-9 * (1 + abs(exact))
        assert np.isfinite(losses[best])
        log_delta = min(mp.mpf(0), *(t * (loss - mp.mpf(wide)) + log_c(t) for t, loss in live))
        if log_delta > -690:
            assert 0 <= mp.log(mp.mpf(ours)) - log_delta <= 1e-9 * (1 + abs(log_delta))


@usual
@given(powers, deltas)
@example(1e-9, 0.999)
@example(2e-5, 0.5)
def test_what_one_order_admits(epsilon: float, delta: float) -> None:
    """The capacity of each order is at or below the closed form, and close to it."""
    grid = CURRENT_GRID
    ours = Mixture(grid, prior.reading_prior(grid), delta).capacity(epsilon)
    with mp.workdps(DIGITS):
        for order, weight, found in zip(grid.exact_orders, prior.reading_prior(grid), ours, strict=False):
            t = mp.mpf(order.numerator) / order.denominator - 1
            share = mp.log(mp.mpf(weight) / prior.WEIGHT_UNIT)
            exact = mp.mpf(epsilon) + (share + mp.log(mp.mpf(delta)) - log_c(t)) / t
            assert 0 <= exact - mp.mpf(float(found)) <= 1e-12 * (1 + abs(exact))


@pytest.mark.parametrize("epsilon", [1e-9, 1.0, 1e4])
@pytest.mark.parametrize("delta_mix", [1e-290, 0.5, 1 - 1e-9, 1 - 2**-53])
def test_every_budget_has_weights(epsilon: float, delta_mix: float) -> None:
    """Also at the ends of the range of delta: they are whole units, together at most 1."""
    weights = prior.default_prior(CURRENT_GRID, epsilon, delta_mix)
    assert min(weights) >= 0
    assert prior.WEIGHT_UNIT - 10**6 <= sum(weights) <= prior.WEIGHT_UNIT


def test_the_ends() -> None:
    """Nothing lost, everything lost, delta of 0 or 1."""
    none, all_lost, grid = np.zeros(2), np.full(2, np.inf), np.array([2.0, 4.0])
    for epsilon in (conversions.zcdp_epsilon, conversions.gdp_epsilon, conversions.advanced_epsilon):
        assert [epsilon(0.0, 1e-5), epsilon(0.0, 0.0), epsilon(1.0, 1.0)] == [0.0, 0.0, 0.0]
        assert [epsilon(math.inf, 1e-5), epsilon(1.0, 0.0)] == [math.inf, math.inf]
    for delta in (conversions.zcdp_delta, conversions.gdp_delta):
        assert [delta(0.0, 0.0), delta(1.0, math.inf), delta(math.inf, 1.0)] == [0.0, 0.0, 1.0]
    assert conversions.rdp_epsilon(none, grid, 0.0)[0] == 0.0
    assert conversions.rdp_epsilon(all_lost, grid, 1e-5)[0] == math.inf
    assert conversions.rdp_epsilon(none + 1, grid, 0.0)[0] == math.inf
    assert conversions.rdp_epsilon(none + 1, grid, 1.0)[0] == 0.0
    assert [conversions.rdp_delta(losses, grid, 1.0)[0] for losses in (none, all_lost)] == [0.0, 1.0]


@pytest.mark.parametrize("rho", [1e-6, 0.01, 1.0, 50.0])
def test_the_closed_form_of_advanced_composition_is_above_the_optimum(rho: float) -> None:
    assert conversions.advanced_epsilon(rho, 1e-6) >= conversions.zcdp_epsilon(rho, 1e-6)


@usual
@given(powers, deltas, st.floats(1, 10))
def test_more_delta_never_costs_more_epsilon(loss: float, delta: float, factor: float) -> None:
    """Nor does less loss."""
    larger = min(0.9999, delta * factor)
    for epsilon in (conversions.zcdp_epsilon, conversions.gdp_epsilon, conversions.advanced_epsilon):
        if epsilon is conversions.gdp_epsilon and loss > 100:
            continue
        here = epsilon(loss, delta)
        assert epsilon(loss, larger) <= here * (1 + 1e-9) + 1e-12
        assert epsilon(loss / factor, delta) <= here * (1 + 1e-9) + 1e-12
