"""Rényi curves and zCDP and GDP parameters of basic mechanisms, as upper bounds in nats.

Every function rounds up by a bound on its own error, so that no value is below the true one, and
none is more than 1e-6 relative (typically 1e-11) above it. Tiny losses keep their relative accuracy:
a charge multiplies them by a count of up to 1e9. Parameters may be one rounding off what was meant
(a decimal read as a float): the slack covers that too.
"""

import math
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
from scipy import special

from odometer_accountant.curves.poisson_gaussian import poisson_subsampled_gaussian
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.rounding import decimal, round_up

__all__ = [
    "excess_exp",
    "laplace",
    "laplace_mu",
    "laplace_rho",
    "poisson_subsampled_gaussian",
    "pure",
    "pure_mu",
    "pure_rho",
    "randomized_response",
]

Floats = npt.NDArray[np.float64]
Number = TypeVar("Number", float, Floats)

_SLACK: Final = 2.0**-36
"""Relative, 1.5e-11. The formulas below have no cancellation worse than that of `excess_exp`
(2^-41) and otherwise some tens of ulps (2^-48)."""
_TINY: Final = float(np.finfo(np.float64).tiny)
"""Added where a product may have underflowed."""
_NEAR: Final = 2.0**-9
"""Up to here e^x - 1 - x is summed as a series."""
_FLAT: Final = 40.0
"""Above this, e^x - 1 and e^x agree to the last bit."""


def laplace(scale: float, grid: Grid) -> Floats:
    """Rényi curve of Laplace noise of the given scale over the L1 sensitivity, shape (n_orders,).

    scale: within [1e-3, 1e12]; ValueError outside. Relation: the one the sensitivity is meant under.
    Source: Mironov 2017, Proposition 6, written with f(x) = e^x - 1 - x: the linear parts of the two
    terms cancel exactly, so A - 1 = [alpha f((alpha-1)/b) + (alpha-1) f(-alpha/b)] / (2 alpha - 1).
    Never above 1/b, the loss at order infinity.
    """
    inverse = 1.0 / _within("scale", scale, 1e-3, 1e12)
    alpha = grid.orders
    less, both = alpha - 1.0, 2.0 * alpha - 1.0
    x = less * inverse
    below = alpha * excess_exp(np.minimum(x, _FLAT)) + less * excess_exp(-alpha * inverse)
    log_a = np.log1p(below / both)
    if x[-1] >= _FLAT:  # there the second term of A is less than e^-80 of the first
        log_a = np.where(x < _FLAT, log_a, x + np.log(alpha / both))
    return np.minimum(_up(log_a / less), inverse * (1.0 + 2.0**-50))


def randomized_response(epsilon: float, probability_of_truth: float, k: int, grid: Grid) -> Floats:
    """Rényi curve of k-ary randomised response for two different true values, shape (n_orders,).

    epsilon: the pure loss |log(p/r)|, within [0, 1e6], where r = (1-p)/(k-1) is the probability of each
    untrue answer. probability_of_truth: p, consistent with it. ValueError outside. Relation: `replace_one`.
    Source: Mironov 2017, Proposition 5, generalised to k answers; with h the larger of p and r,
    A = h e^t + (h e^-epsilon) e^-t + the rest, t = (alpha-1) epsilon, which factors without cancellation:
    A - 1 = h (e^{(alpha-1) epsilon} - 1) (1 - e^{-alpha epsilon}). Never above epsilon.
    """
    truth = _within("probability_of_truth", probability_of_truth, 0.0, 1.0)
    if k < 2:
        raise ValueError(f"k is {k}; 2 possible answers or more work")
    return _two_point(_within("epsilon", epsilon, 0.0, 1e6), max(truth, (1.0 - truth) / (k - 1)), grid)


def pure(epsilon: float, grid: Grid) -> Floats:
    """Largest Rényi curve of any epsilon-DP mechanism, shape (n_orders,); epsilon within [0, 1e6].

    It is that of binary randomised response (SOUNDNESS section 8; Bun, Steinke 2016, Proposition 3.3).
    Any relation. ValueError outside the range. Never above epsilon.
    """
    epsilon = _within("epsilon", epsilon, 0.0, 1e6)
    return _two_point(epsilon, 1.0 / (1.0 + math.exp(-epsilon)), grid)


def laplace_rho(scale: float) -> float:
    """Least rho with which Laplace noise is rho-zCDP: 1/b + e^{-1/b} - 1 (Harrison, Manurangsi 2025)."""
    inverse = 1.0 / _within("scale", scale, 1e-3, 1e12)
    return _up_scalar(_series(-inverse) if inverse <= _NEAR else math.expm1(-inverse) + inverse)


def pure_rho(epsilon: float) -> float:
    """Least rho for every epsilon-DP mechanism: epsilon tanh(epsilon / 2) (Steinke 2024).

    Binary randomised response attains it; with more than two answers it is an upper bound.
    """
    epsilon = _within("epsilon", epsilon, 0.0, 1e6)
    return _up_scalar(epsilon * math.tanh(epsilon / 2.0)) if epsilon else 0.0


def pure_mu(epsilon: float) -> float:
    """Least mu for every epsilon-DP mechanism: 2 Phi^-1(e^epsilon / (1 + e^epsilon)).

    The trade-off curve of binary randomised response lies above that of N(0,1) against N(mu,1) and
    touches it at its corner (Dong, Roth, Su 2022; Liu, Tang, Liu 2023).
    """
    epsilon = _within("epsilon", epsilon, 0.0, 1e6)
    if epsilon == 0.0:
        return 0.0
    # The upper tail is 1/(1 + e^epsilon); 1/2 less the tail is tanh(epsilon/2)/2.
    return 2.0 * _normal_quantile(math.tanh(epsilon / 2.0), -epsilon - math.log1p(math.exp(-epsilon)))


def laplace_mu(scale: float) -> float:
    """Least mu with which Laplace noise is mu-GDP: -2 Phi^-1(e^{-1/(2b)} / 2) (Dong, Roth, Su 2022)."""
    half = 0.5 / _within("scale", scale, 1e-3, 1e12)
    return 2.0 * _normal_quantile(-math.expm1(-half), -half - math.log(2.0))


def _two_point(epsilon: float, high: float, grid: Grid) -> Floats:
    """log(1 + high (e^{(alpha-1) epsilon} - 1)(1 - e^{-alpha epsilon})) / (alpha - 1).

    Never above the decimal that epsilon stands for, rounded up: the loss at order infinity.
    """
    if epsilon == 0.0:
        return np.zeros(grid.n_orders)
    less = grid.orders - 1.0
    t = less * epsilon
    # min(t, 40) keeps e^t a float; what is above 40 is added to the logarithm.
    low = np.minimum(t, _FLAT)
    product = np.expm1(low) * np.expm1(-grid.orders * epsilon) * -high
    log_a = np.log1p(product)
    if t[-1] > _FLAT:
        log_a = np.where(t <= _FLAT, log_a, np.logaddexp(0.0, np.log(product + _TINY) + (t - low)))
    return np.minimum(_up(log_a / less), round_up(decimal(epsilon)))


def excess_exp(x: Floats) -> Floats:
    """f(x) = e^x - 1 - x for x <= 700, relative error below 2^-41.

    The subtraction loses 4/|x| ulps; below |x| = 2^-9 the series to x^6 (next term: 2^-45/2520).
    """
    near = np.abs(x) <= _NEAR
    found = np.asarray(np.expm1(x) - x)
    if near.any():
        found[near] = _series(x[near])
    return found


def _series(x: Number) -> Number:
    return x * x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0 * (1.0 + x / 6.0))))


def _normal_quantile(twice_above_half: float, log_tail: float) -> float:
    """Upper bound of the normal quantile at 1/2 + twice_above_half / 2 = 1 - e^log_tail.

    Near the middle by erfinv, which keeps relative accuracy there; in the tail from its logarithm.
    Both of SciPy's are within 2^-44 of the true value on the ranges used (checked in the tests).
    """
    if twice_above_half < 0.75:
        return _up_scalar(math.sqrt(2.0) * float(special.erfinv(twice_above_half)))
    return _up_scalar(-float(special.ndtri_exp(log_tail)))


def _up(value: Floats) -> Floats:
    return value * (1.0 + _SLACK) + _TINY


def _up_scalar(value: float) -> float:
    return value * (1.0 + _SLACK) + _TINY


def _within(name: str, value: float, least: float, most: float) -> float:
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}; a number between {least:g} and {most:g} works")
    return float(value)
