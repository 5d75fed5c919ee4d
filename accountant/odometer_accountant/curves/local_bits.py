"""Rényi curves of local randomisers that report bits: sums of divergences between biased coins.

As in `curves.basic`, every function rounds up by a bound on its own error: no value is below the true one.
"""

import math
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from odometer_accountant.curves.basic import excess_exp
from odometer_accountant.numerics.grid import Grid

Floats = npt.NDArray[np.float64]

_SLACK: Final = 2.0**-30
"""Relative. The exponents below are at most some 1e6, each right to a few ulps."""
_LOSS: Final = 2.0**-40
"""Relative error of e^y - 1 - y by its two formulas, with room to spare."""
_TINY: Final = float(np.finfo(np.float64).tiny)
_FLAT: Final = 30.0


def log_odds(p: Fraction, q: Fraction) -> float:
    """Upper bound of log(p(1-q) / (q(1-p))), the pure loss of `coins`; 0 < q <= p < 1."""
    return (_log(p / q) + _log((1 - q) / (1 - p))) * (1.0 + 2.0**-48)


def coins(p: Fraction, q: Fraction, grid: Grid) -> Floats:
    """D_alpha(Bern p || Bern q) + D_alpha(Bern q || Bern p), shape (n_orders,); 0 < q <= p < 1, each exact.

    Two bits of which one is 1 in either dataset, reported as 1 with probability p where it is and q
    where it is not (unary encoding): the divergence is the same in both directions. Never above
    the log of the odds ratio. Raises ValueError outside the range.
    """
    if not 0 < q <= p < 1:
        raise ValueError(f"probabilities of a 1 are {float(p)} and {float(q)}; 0 < q <= p < 1 works")
    if p == q:
        return np.zeros(grid.n_orders)
    pairs = ((p, q), (1 - p, 1 - q), (q, p), (1 - q, 1 - p))
    logs = [(_log(one / other), _log(other)) for one, other in pairs]
    both: Floats = _coins(np.array(logs), grid.orders).sum(axis=0)
    return np.minimum(both * (1.0 + _SLACK) + _TINY, log_odds(p, q))


def _coins(logs: Floats, alpha: Floats) -> Floats:
    """D_alpha of each coin of a list, shape (coins, alphas); `logs` has two rows of a coin, one of each side.

    A row of (p, q), p != q, is y = log(p/q) and log q. A - 1 is the mean under q of
    e^{alpha y} - 1 - alpha (e^y - 1): the last part has mean 0, and what is left is positive in every term,
    so that tiny losses keep their accuracy.
    """
    terms = _log_terms(logs[:, :1], alpha) + logs[:, 1:]
    log_excess = np.logaddexp(terms[::2], terms[1::2])
    return np.asarray(np.logaddexp(0.0, log_excess) / (alpha - 1.0), dtype=np.float64)


def _log_terms(y: Floats, alpha: Floats) -> Floats:
    """Upper bound of log(e^{alpha y} - 1 - alpha (e^y - 1)), for y of shape (n, 1)."""
    power = alpha * y
    # e^x - 1 - x of alpha y less alpha times that of y. They cancel near order 1: the error is added.
    whole, part = excess_exp(np.minimum(power, _FLAT)), alpha * excess_exp(np.minimum(y, _FLAT))
    small = np.maximum(whole - part, 0.0) + _LOSS * (whole + part) + _TINY
    # Far out e^{alpha y} dominates what is subtracted, except near order 1.
    rest = np.exp(np.minimum((1.0 - alpha) * y, 0.0)) * alpha * -np.expm1(-np.maximum(y, 0.0))
    large = power + np.log1p(np.maximum(-rest * (1.0 - 2.0**-45), -1.0 + 2.0**-45))
    return np.asarray(np.where(power <= _FLAT, np.log(small), large), dtype=np.float64)


def _log(ratio: Fraction) -> float:
    """Logarithm, right to a few ulps of itself, also near 1. Beyond the floats, of its own size."""
    if Fraction(1, 2) < ratio < 2:
        return math.log1p(float(ratio - 1))
    if 2**-1000 < ratio < 2**1000:
        return math.log(float(ratio))  # not the difference of two logarithms: their ulps are larger
    return math.log(ratio.numerator) - math.log(ratio.denominator)
