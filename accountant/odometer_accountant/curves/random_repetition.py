"""Rényi curve of the best of a random number of runs, from that of one run (Papernot, Steinke 2022).

With D the curve of one run and K the number of runs, the theorems bound the curve of the best one by

    D(a) + C(a) + log E[K] / (a - 1)

at every order a > 1, where C depends on the law of K and on D. (a - 1) times a true curve is convex, 0 at 1,
and never steeper than its loss at order infinity: the largest such function below the bounds is taken, which
never falls below the truth. As in `curves.basic`, every function rounds up by a bound on its own error.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from odometer_accountant.curves import basic
from odometer_accountant.numerics.grid import Grid

Floats = npt.NDArray[np.float64]

_UP: Final = 1.0 + 2.0**-40
"""Above the roundings of any step here; none cancels."""
_TINY: Final = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Run:
    """The loss of one run: D at the orders of a grid, at infinity, and rho; infinity for no bound."""

    grid: Grid
    orders: Floats
    pure: float
    rho: float


def negative_binomial_log_mean(eta: float, gamma: float) -> float:
    """Log E[K] of the truncated negative binomial, rounded up; eta > -1, 0 < gamma < 1 (Definition 1).

    E[K] = eta (1 - gamma) / (gamma (1 - gamma^eta)); at eta = 0, the logarithmic law, its limit.
    """
    if eta == 1.0:
        return -math.log(gamma) * _UP
    log_gamma = math.log(gamma)
    x = eta * log_gamma
    # (1 - gamma^eta)/eta = -log(gamma) (e^x - 1)/x
    share = math.expm1(x) / x if abs(x) > 1e-300 else 1.0
    log_mean = math.log((1.0 - gamma) / -log_gamma) - log_gamma - math.log(share)
    return max(log_mean, 0.0) + 2.0**-40 * (1.0 + abs(log_gamma) + abs(math.log(share)))


def negative_binomial(run: Run, eta: float, gamma: float) -> tuple[Floats, float]:
    """C at every order, and at infinity: Papernot, Steinke 2022, Theorem 2.

    C = (1 + eta) min over orders b of (1 - 1/b) D(b) + log(1/gamma)/b. With (b - 1) D convex the least is
    at an order of the grid, or at an end: b = 1, where D drops out, or infinity.
    """
    b = run.grid.orders
    known = np.isfinite(run.orders)
    found = (1.0 - 1.0 / b[known]) * run.orders[known] - math.log(gamma) / b[known]
    ends = [run.pure] if math.isinf(run.pure) and not found.size else [run.pure, -math.log(gamma)]
    constant = (1.0 + eta) * min([*ends, *found.tolist()]) * _UP + _TINY
    return np.full(len(b), constant), constant


def poisson(run: Run, mean: float) -> tuple[Floats, float]:
    """C at every order, and at infinity: Papernot, Steinke 2022, Theorem 6; mean >= 1.

    C(a) = mean times delta(log(1 + 1/(a-1))), for any delta with which one run is (eps, delta)-DP: the least
    of the conversion of every order (Canonne, Kamath, Steinke 2020), of pure DP, and of total variation.
    """
    epsilons = np.append(np.log1p(1.0 / (run.grid.orders - 1.0)) * (1.0 - 2.0**-50), 0.0)
    found = np.minimum(mean * _delta(run, epsilons) * _UP, np.finfo(np.float64).max)
    return found[:-1], float(found[-1])


def _delta(run: Run, epsilons: Floats) -> Floats:
    """Least known delta of one run at each epsilon, rounded up."""
    b = run.grid.orders[np.isfinite(run.orders)]
    losses = run.orders[np.isfinite(run.orders)]
    best = np.ones(len(epsilons))
    if len(b):
        factor = (b - 1.0) * np.log1p(-1.0 / b) - np.log(b)
        exponents = (b - 1.0) * (losses - epsilons[:, None]) + factor
        # An exponent is right to some ulps of what it is made of.
        size = (b - 1.0) * (losses + epsilons[:, None]) - factor
        best = np.minimum(best, np.exp(np.minimum((exponents + 2.0**-49 * size).min(axis=1), 0.0)))
    if math.isfinite(run.pure):
        # (e^pure - e^eps)/(1 + e^pure), the most of any pure mechanism.
        gap = np.minimum(epsilons * (1.0 - 2.0**-50) - run.pure * (1.0 + 2.0**-50), 0.0)
        best = np.minimum(best, -np.expm1(gap) / (1.0 + math.exp(-run.pure)))
    # At no epsilon more than the total variation, which Pinsker and Bretagnolle, Huber 1979 bound by D_1.
    least = min(run.rho, run.pure, *losses[:1].tolist())
    best = np.minimum(best, math.sqrt(min(least / 2.0, -math.expm1(-least))) if least else 0.0)
    return np.minimum(best * _UP + _TINY, 1.0) * (best > 0.0)


def repeated(run: Run, log_mean: float, added: tuple[Floats, float]) -> tuple[Floats, float, float]:
    """(D at the orders, at infinity, rho) of the best run, from what the theorem adds."""
    alpha = run.grid.orders
    extra, at_infinity = added
    pure = (run.pure + at_infinity) * _UP
    scaled = (alpha - 1.0) * (run.orders + extra) + log_mean
    if pure <= 1e6:  # a pure mechanism, whatever else it is
        scaled = np.minimum(scaled, (alpha - 1.0) * basic.pure(pure, run.grid))
    curve = _convex(alpha - 1.0, scaled, pure) / (alpha - 1.0) * _UP + _TINY
    curve = np.minimum(curve, pure)
    return curve, pure, _rho(run, curve, pure, at_infinity, log_mean)


def _convex(x: Floats, bounds: Floats, steepest: float) -> Floats:
    """Largest convex function through 0 at 0, never steeper than `steepest`, below the bounds, at x."""
    corners = [(0.0, 0.0)]
    for here, bound in zip(x.tolist(), bounds.tolist(), strict=True):
        if math.isinf(bound):
            continue
        while len(corners) > 1 and _slope(corners[-2], corners[-1]) >= _slope(corners[-2], (here, bound)):
            corners.pop()
        corners.append((here, bound))
    while len(corners) > 1 and _slope(corners[-2], corners[-1]) > steepest:
        corners.pop()
    last = corners[-1]
    inside = np.interp(x, [at for at, _ in corners], [value for _, value in corners])
    with np.errstate(invalid="ignore"):
        beyond = last[1] + (x - last[0]) * steepest
    return np.where(x <= last[0], inside, beyond)


def _slope(start: tuple[float, float], end: tuple[float, float]) -> float:
    return (end[1] - start[1]) / (end[0] - start[0])


def _rho(run: Run, curve: Floats, pure: float, at_infinity: float, log_mean: float) -> float:
    """Upper bound of D(a)/a over real a > 1.

    Between two orders D is at most that of the upper one; later at most rho a + C + log E[K]/(a-1),
    with C its value at infinity, or the loss at infinity. The best place to change over is taken.
    """
    alpha = run.grid.orders
    below = np.maximum.accumulate(curve / np.append(1.0, alpha[:-1]))
    beyond = run.rho + at_infinity / alpha + log_mean / (alpha * (alpha - 1.0))
    beyond = np.minimum(beyond, pure / alpha)
    return float(np.maximum(below, beyond).min()) * _UP
