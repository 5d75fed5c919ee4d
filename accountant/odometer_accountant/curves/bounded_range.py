"""Rényi curves of private selection: the exponential mechanism.

As in `curves.basic`, every function rounds up by a bound on its own error: no value is below the true one.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from odometer_accountant.numerics.grid import Grid

Floats = npt.NDArray[np.float64]

_ULP: Final = 2.0**-53
_TINY: Final = float(np.finfo(np.float64).tiny)


def bounded_range(epsilon: float, grid: Grid) -> Floats:
    """Largest Rényi curve of any mechanism of range epsilon, shape (n_orders,); epsilon within [0, 1e3].

    Bounded range (Dong, Durfee, Rogers 2020): the loss of a pair lies within [t - epsilon, t] for some t. An
    f-divergence is convex in the likelihood ratio, whose mean is 1, so among such pairs the one that has only
    the two ends is the worst. With losses t and t - epsilon alone, A_alpha is a difference of two powers of
    e^t, largest where e^t = e^{epsilon/2} S(alpha x) / S((alpha-1) x), x = epsilon/2, S(y) = sinh(y)/y. There

        log A_alpha = alpha L(alpha x) - (alpha-1) L((alpha-1) x) - L(x),    L = log S.

    Never above alpha epsilon^2 / 8 (Cesar, Rogers 2021, Lemma 3.7) nor epsilon. ValueError outside the range.
    """
    if not 0.0 <= epsilon <= 1e3:
        raise ValueError(f"epsilon is {epsilon}; a number between 0 and 1e3 works")
    alpha, less = grid.orders, grid.orders - 1.0
    factors = np.concatenate([alpha, less, [1.0]])
    parts = factors * _log_sinhc(factors * (epsilon / 2.0))
    first, rest = parts[: alpha.size], parts[alpha.size : -1] + parts[-1]
    # The three cancel by a factor of at most about alpha, or 1/(alpha-1): 32 ulps of each cover their errors.
    log_a = first - rest + 32.0 * _ULP * (first + rest)
    above = np.maximum(log_a, 0.0) / less * (1.0 + 16.0 * _ULP) + _TINY
    quadratic = alpha * (epsilon * epsilon / 8.0) * (1.0 + 16.0 * _ULP) + _TINY
    return np.asarray(np.minimum(np.minimum(above, quadratic), epsilon * (1.0 + 4.0 * _ULP)))


def _log_sinhc(y: Floats) -> Floats:
    """log(sinh(y)/y) for y >= 0, right to 16 ulps however small; up to 1 by the series (next term: 2^-80)."""
    near = y <= 1.0
    square = np.square(y[near])
    tail = np.ones_like(square)
    for k in range(10, 1, -1):
        tail = 1.0 + tail * (square / (2.0 * k * (2.0 * k + 1.0)))
    found = np.empty_like(y)
    found[near] = np.log1p(square / 6.0 * tail)
    large = y[~near]
    found[~near] = large - np.log(2.0 * large) + np.log1p(-np.exp(-2.0 * large))
    return found
