"""The prior over orders of the mixture: fixed before the first charge it covers (SOUNDNESS section 5)."""

import math
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from odometer_accountant.numerics.conversions import log_c
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss

Floats = npt.NDArray[np.float64]

WEIGHT_UNIT: Final = 10**18
"""Stored weights are whole numbers of 1/10^18, rounded down, so that they never sum above 1."""

_SLACK: Final = 1e-14
_UNIFORM: Final = 0.05
_WIDTH: Final = 0.15
_READING_FOCUS: Final = 8.0
_READING_WIDTH: Final = 0.8


def focus_order(epsilon: float, delta_mix: float) -> float:
    """The real order alpha* at which the Gaussian that exactly meets (epsilon, delta_mix) is optimal.

    argmax over alpha of N/alpha, N = epsilon + (log delta_mix - log c_alpha)/(alpha - 1). With
    t = alpha - 1, N'(t) = -(log delta_mix + log1p t)/t^2, so the maximum solves N' (1 + t) = N.
    """
    log_delta = math.log(delta_mix)

    def slope(log_t: float) -> float:
        t = math.exp(log_t)
        gain = -(log_delta + math.log1p(t)) / t
        level = epsilon + log_delta / t + math.log1p(1 / t) + math.log1p(t) / t
        return gain * (1 + t) / t - level

    low, high = -20.0, 0.0
    if slope(low) <= 0:  # delta_mix is within 1e-9 of 1: the focus is far below every grid
        return 1 + math.exp(low)
    while slope(high) > 0:
        high += 2.0
    return 1 + math.exp(float(brentq(slope, low, high, xtol=1e-14, rtol=1e-14)))


def default_prior(grid: Grid, epsilon: float, delta_mix: float) -> tuple[int, ...]:
    """The prior of an approximate budget that names no workload, in units of 1/10^18."""
    if not delta_mix:  # no weights admit anything
        return reading_prior(grid)
    focus = focus_order(epsilon, delta_mix)
    return _stored(
        0.475 * _bell(grid, focus, _WIDTH)
        + 0.475 * _bell(grid, 1 + 0.7 * (focus - 1), _WIDTH)
        + _UNIFORM / grid.n_orders
    )


def reading_prior(grid: Grid) -> tuple[int, ...]:
    """The prior of a dataset's running readings when it names no workload."""
    return _stored((1 - _UNIFORM) * _bell(grid, _READING_FOCUS, _READING_WIDTH) + _UNIFORM / grid.n_orders)


def workload_prior(grid: Grid, workload: Loss, delta_mix: float) -> tuple[int, ...]:
    """0.95 on the grid order that is best for the named workload, the rest uniform."""
    if not delta_mix:
        return reading_prior(grid)
    weights = np.full(grid.n_orders, _UNIFORM / grid.n_orders)
    weights[workload_order(grid, workload, delta_mix)] += 1 - _UNIFORM
    return _stored(weights)


def workload_order(grid: Grid, workload: Loss, delta_mix: float) -> int:
    """Index of the order at which the workload's epsilon is least.

    The weights are stored, so this formula must never change, not even its slack: it decides between
    orders that are equally good.
    """
    losses = workload.renyi()
    gap = (log_c(grid.orders) - math.log(delta_mix)) / (grid.orders - 1)
    return int(np.argmin(losses + gap + _SLACK * (np.abs(losses) + np.abs(gap))))


def _bell(grid: Grid, focus: float, width: float) -> Floats:
    """A Gaussian in log(alpha - 1) around `focus`, normalised on the grid; shape (n_orders,)."""
    exponents = -0.5 * ((np.log(grid.orders - 1) - math.log(focus - 1)) / width) ** 2
    bell = np.exp(exponents - exponents.max())
    return np.asarray(bell / bell.sum())


def _stored(weights: Floats) -> tuple[int, ...]:
    stored = [math.floor(weight * WEIGHT_UNIT) for weight in weights]
    # Float rounding may leave the sum a few units above 1: take them from the largest weight.
    stored[stored.index(max(stored))] -= max(0, sum(stored) - WEIGHT_UNIT)
    return tuple(stored)
