"""Rényi curve of the Poisson-subsampled Gaussian mechanism: upper bounds at every order of a grid.

With u = q (e^{t/z - 1/(2 z^2)} - 1) and t standard normal under the law without the person,
A_alpha = E[(1 + u)^alpha] and D_alpha = log A_alpha / (alpha - 1). The other direction is never
larger (Mironov, Talwar, Zhang 2019, Theorems 4 and 5), so this is the curve under `add_remove`.

What is computed is log(A - 1), never A: with tiny q the curve is far below the spacing of floats
near 1, and a charge multiplies it by a count of up to 1e9. Whole orders: a sum of positive terms
(below). Other orders: `poisson_gaussian_quadrature`, or beyond 60 the chord between whole ones.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from odometer_accountant.curves.poisson_gaussian_quadrature import Quadrature, log_excess_quadrature
from odometer_accountant.numerics.grid import Grid

Floats = npt.NDArray[np.float64]

_ULP: Final = 2.0**-53
_TINY: Final = float(np.finfo(np.float64).tiny)
_NOISE_RANGE: Final = (0.01, 1e9)
_LEAST_RATE: Final = 1e-100
"""A smaller sampling rate is charged as this one: an upper bound, and its square is still a float."""
_QUADRATURE_TOP: Final = 60.0
"""Up to here fractional orders are integrated: as far as the proof of `poisson_gaussian_quadrature` goes."""
_FLAT: Final = 40.0
"""Above this, log(e^x - 1) is x to the last bit."""


def poisson_subsampled_gaussian(noise_multiplier: float, sampling_rate: float, grid: Grid) -> Floats:
    """Upper bounds of D_alpha in nats, shape (n_orders,); relation: `add_remove`.

    noise_multiplier: noise standard deviation over the L2 sensitivity, within [0.01, 1e9].
    sampling_rate: each person's own probability of being drawn, within [0, 1].
    Never below the true value; at most 1e-6 relative (typically 1e-9) above it, however small it is.
    Raises ValueError outside these ranges. Source: Mironov, Talwar, Zhang 2019, section 3.3.
    """
    q, z = float(sampling_rate), float(noise_multiplier)
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"sampling_rate is {q}; a probability between 0 and 1 works")
    if not _NOISE_RANGE[0] <= z <= _NOISE_RANGE[1]:
        raise ValueError(f"noise_multiplier is {z}; a number between 0.01 and 1e9 works")
    if q == 0.0:
        return np.zeros(grid.n_orders)
    q = max(q, _LEAST_RATE)
    # Convexity: drawing nobody out never loses more than drawing everybody, the plain Gaussian.
    everybody = grid.orders * (0.5 / (z * z) * (1.0 + 8.0 * _ULP))
    if q == 1.0:
        return everybody
    known = _with_neighbours(grid.orders.tobytes())
    if known is not None:
        return np.minimum(_by_chords(z, q, grid, known), everybody)
    tables = tables_of(grid.orders.tobytes())
    log_excess = np.empty(grid.n_orders)
    if tables.whole.size:
        log_excess[tables.whole] = _log_excess_whole(q, z, tables)
    if tables.quadrature is not None:
        log_excess[tables.fractional] = log_excess_quadrature(q, z, tables.quadrature)
    curve = np.logaddexp(0.0, log_excess) * tables.over_order_less_one
    # A few roundings above, and the excess may have underflowed.
    curve += curve * (16.0 * _ULP) + _TINY
    return np.minimum(curve, everybody, out=curve)


def _by_chords(z: float, q: float, grid: Grid, known: Grid) -> Floats:
    """The curve from that at the orders of `known`: (alpha-1) D_alpha is convex, so below its chords."""
    scaled = poisson_subsampled_gaussian(z, q, known) * (known.orders - 1.0)
    found = np.interp(grid.orders, known.orders, scaled) / (grid.orders - 1.0)
    return np.asarray(found * (1.0 + 16.0 * _ULP) + _TINY, dtype=np.float64)


@lru_cache(maxsize=8)
def _with_neighbours(order_bytes: bytes) -> Grid | None:
    """Orders to evaluate: one that is neither whole nor small is replaced by the whole orders beside it."""
    orders = np.frombuffer(order_bytes)
    far = (orders != np.floor(orders)) & (orders > _QUADRATURE_TOP)
    if not far.any():
        return None
    known = {*orders[~far].tolist(), *np.floor(orders[far]).tolist(), *np.ceil(orders[far]).tolist()}
    return Grid(99, tuple(Fraction(order) for order in sorted(known)))


@dataclass(frozen=True)
class Tables:
    """The parts that depend on the grid alone: terms k = 2..alpha of every whole order, in sequence."""

    over_order_less_one: Floats
    """1 / (alpha - 1) of every order, shape (n_orders,)."""
    whole: npt.NDArray[np.intp]
    """Indices of the whole orders, shape (w,)."""
    fractional: npt.NDArray[np.intp]
    quadrature: Quadrature | None
    orders: Floats
    """The whole orders, shape (w,)."""
    k: Floats
    """2, 3, ..., the largest whole order."""
    k_pairs: Floats
    """k (k - 1)."""
    log_binomial: Floats
    """log C(alpha, k), shape (n_terms,)."""
    term: npt.NDArray[np.intp]
    """k - 2 of each term, shape (n_terms,)."""
    owner: npt.NDArray[np.intp]
    """Position in `orders` of each term, shape (n_terms,)."""
    start: npt.NDArray[np.intp]
    """First term of each whole order, shape (w,)."""


@lru_cache(maxsize=8)
def tables_of(order_bytes: bytes) -> Tables:
    """Build the tables once per grid (keyed by content: hashing 43 fractions costs as much as a curve)."""
    all_orders = np.frombuffer(order_bytes)
    is_whole = all_orders == np.floor(all_orders)
    whole = [int(order) for order in all_orders[is_whole]]
    sizes = [alpha - 1 for alpha in whole]
    k = np.arange(2.0, max(whole, default=1) + 1.0)
    parts = [_log_binomials(alpha) for alpha in whole]
    return Tables(
        over_order_less_one=1.0 / (all_orders - 1.0),
        whole=np.flatnonzero(is_whole),
        fractional=np.flatnonzero(~is_whole),
        quadrature=Quadrature.of(all_orders[~is_whole]) if not is_whole.all() else None,
        orders=all_orders[is_whole],
        k=k,
        k_pairs=k * (k - 1.0),
        log_binomial=np.array([value for part in parts for value in part]),
        term=np.concatenate([np.arange(size) for size in sizes] or [np.empty(0, dtype=np.intp)]),
        owner=np.repeat(np.arange(len(whole)), np.array(sizes, dtype=np.intp)),
        start=np.cumsum([0, *sizes[:-1]]),
    )


def _log_binomials(alpha: int) -> list[float]:
    """Log C(alpha, k) for k = 2..alpha, from exact integers: right to the last bit or two."""
    values = []
    binomial = alpha * (alpha - 1) // 2
    for k in range(2, alpha + 1):
        values.append(math.log(binomial))
        binomial = binomial * (alpha - k) // (k + 1)
    return values


def _log_excess_whole(q: float, z: float, tables: Tables) -> Floats:
    """Upper bounds of log(A - 1) at the whole orders, shape (w,); 0 < q < 1.

    A - 1 = sum over k = 2..alpha of C(alpha, k) (1-q)^(alpha-k) q^k (e^{k(k-1)/(2 z^2)} - 1): the
    binomial sum of Mironov, Talwar, Zhang 2019, section 3.3, less the binomial theorem. Every term
    is positive, so nothing cancels.

    Rounding: a term's log is a sum of log C <= alpha log 2, multiples of log q and log(1-q) up to
    alpha each, and log(e^x - 1), which is at least -42 and at most the log of the whole sum plus
    those multiples (or that term alone would exceed the sum). Each is right to a few ulps and they
    are added in a handful of roundings: 16 ulps of the total magnitude cover it. Summing at most
    2^13 positive terms adds 2^13 ulps; 2^-38 covers that and the last ulps of exp and log.
    """
    by_k = _log_expm1_ascending(tables.k_pairs * (0.5 / (z * z)))
    return log_binomial_sum(by_k, math.log(q), math.log1p(-q), tables)


def log_binomial_sum(log_by_k: Floats, log_q: float, log_rest: float, tables: Tables) -> Floats:
    """Upper bounds of log sum over k = 2..alpha of C(alpha, k) rest^(alpha-k) q^k by_k, shape (w,).

    log_by_k: logs of the terms' own factors, k = 2, 3, ..., finite; overwritten. Its rounding: see above.
    """
    by_k = log_by_k
    by_k += tables.k * (log_q - log_rest)
    terms = by_k[tables.term]
    terms += tables.log_binomial
    peak = np.maximum.reduceat(terms, tables.start)
    terms -= peak[tables.owner]
    np.maximum(terms, -700.0, out=terms)  # exp is slow where it underflows; this only adds
    np.exp(terms, out=terms)
    total = peak + np.log(np.add.reduceat(terms, tables.start)) + tables.orders * log_rest
    magnitude = tables.orders * (0.7 + 2.0 * (abs(log_q) + abs(log_rest))) + np.maximum(total, 0.0) + 50.0
    return np.asarray(total + 16.0 * _ULP * magnitude + 2.0**-38, dtype=np.float64)


def _log_expm1_ascending(x: Floats) -> Floats:
    """log(e^x - 1) for ascending x > 0; overwrites x."""
    few = int(np.searchsorted(x, _FLAT))
    x[:few] = np.log(np.expm1(x[:few]))
    return x
