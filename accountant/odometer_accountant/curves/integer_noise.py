"""Rényi curves of integer noise: upper bounds in nats, rounded up by a bound on their own error."""

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from odometer_accountant.numerics.grid import Grid

Floats = npt.NDArray[np.float64]

_SLACK: Final = 2.0**-36
"""Relative, 1.5e-11: the sums below are of positive terms, each right to some tens of ulps."""
_TINY: Final = float(np.finfo(np.float64).tiny)
_DIRECT: Final = 128
"""Up to this sensitivity every integer between the two centres is summed."""
_BINS: Final = 256
_TERMS: Final = 10_000
_FAR: Final = 1e-3
"""Above this pure loss, A - 1 is large enough to be the closed form less one."""


def discrete_laplace(scale: float, sensitivity: int, grid: Grid) -> Floats:
    """Rényi curve of noise P(x) = (1-p)/(1+p) p^|x|, p = e^{-1/scale}, shape (n_orders,).

    scale: of the noise, within [1e-3, 1e12]; sensitivity: D >= 1, whole; D/scale at most 1e3. Relation: the
    one that the sensitivity is meant under. Never above D/scale, the loss at order infinity.

    With l = log P/Q and a = alpha - 1, E_P[e^-l] = 1, so A - 1 = E_P[f(l)] with
    f(l) = e^{al} - 1 + a (e^-l - 1) = h(al) + a h(-l), h(x) = e^x - 1 - x >= 0: nothing cancels. l is D/scale
    with probability 1/(1+p), -D/scale with p^D/(1+p), and (D - 2x)/scale at each x in between with P(x). Too
    many of these are summed in closed form (the geometric sum) or, where that cancels, in bins with the chord
    of the convex f, which is above it.
    """
    t = 1.0 / scale
    top = sensitivity * t
    a = (grid.orders - 1.0)[:, np.newaxis]
    if sensitivity > _DIRECT and top >= _FAR:
        log_a = _closed(t, sensitivity, grid.orders)
    else:
        loss, log_weight = _atoms(t, sensitivity)
        log_f = np.logaddexp(_log_h(a * loss), np.log(a) + _log_h(-loss))
        log_a = np.logaddexp(0.0, _log_sum(log_f + log_weight))
    curve = log_a / (grid.orders - 1.0)
    return np.minimum(curve * (1.0 + _SLACK) + _TINY, top * (1.0 + 2.0**-50))


def skellam(l1: float, l2: float, variance: float, orders: Floats) -> Floats:
    """Bound of D_alpha for symmetric Skellam noise of this total variance on an integer vector.

    l1, l2: its sensitivities, in the same integer units. Shape as `orders`. Whole orders: Agarwal, Kairouz,
    Liu 2021, Theorem 3.5; between them (alpha-1) D_alpha, which is convex, is at most its chord.
    """
    below, above = np.floor(orders), np.ceil(orders)
    share = orders - below
    low, high = (
        (below - 1.0) * _skellam_whole(l1, l2, variance, below),
        (above - 1.0) * _skellam_whole(l1, l2, variance, above),
    )
    return np.asarray((low + share * (high - low)) / (orders - 1.0) * (1.0 + _SLACK), dtype=np.float64)


def _skellam_whole(l1: float, l2: float, variance: float, alpha: Floats) -> Floats:
    square = l2 * l2
    more = np.minimum(
        ((2.0 * alpha - 1.0) * square + 6.0 * l1) / (4.0 * variance * variance), 1.5 * l1 / variance
    )
    return alpha * square / (2.0 * variance) + more


def distributed_gaussian(
    client_noise: float, clients: int, l2: float, dimension: int, orders: Floats
) -> Floats:
    """Bound of D_alpha for a sum of `clients` independent discrete Gaussians on each coordinate.

    client_noise: the parameter sigma of each, at least 1/2; l2: sensitivity D of the integer vector;
    dimension: d; orders from 1 on: at 1 it is rho, the largest D_alpha / alpha. Shape as `orders`. A sum of
    discrete Gaussians is not one: tau bounds the difference. Source: Kairouz, Liu, Steinke 2021, Proposition
    14: with s = sqrt(n) sigma, the lesser of alpha D^2/(2 s^2) + tau d and
    alpha (D^2/s^2 + 2 tau L1/s + tau^2 d)/2; for whole numbers L1 <= min(D sqrt(d), D^2). The form with
    alpha tau d/4 for tau d is not used: near order 1 it is below the exact sum (sigma = 1/2, n = 100, D = 50;
    see the tests).
    """
    tau = 10.0 * _sum_of_decays(2.0 * math.pi**2 * client_noise**2, clients)
    spread = math.sqrt(clients) * client_noise
    square = (l2 / spread) ** 2
    l1 = min(math.sqrt(dimension) * l2, l2 * l2)
    added = orders * (square / 2.0) + tau * dimension
    within = orders * ((square + 2.0 * tau * l1 / spread + tau * tau * dimension) / 2.0)
    return np.asarray(np.minimum(added, within) * (1.0 + _SLACK), dtype=np.float64)


def _sum_of_decays(c: float, clients: int) -> float:
    """Sum of e^{-c k/(k+1)} over k = 1..clients-1.

    From the K-th on e^{c/(k+1)} <= 1 + e^{c/K} c/(k+1), and the harmonic sum is below a logarithm.
    """
    k = np.arange(1.0, min(clients, _TERMS))
    total = float(np.exp(-c * (k / (k + 1.0))).sum())
    if clients > _TERMS:
        more = clients - _TERMS
        total += math.exp(-c) * more + c * math.exp(c / _TERMS - c) * math.log(clients / (_TERMS - 1.0))
    return total * (1.0 + 2.0**-40)


def _atoms(t: float, sensitivity: int) -> tuple[Floats, Floats]:
    """(values of l, log of their weights): exact, or with the bins' weights moved to their ends."""
    p = math.exp(-t)
    log_end = -math.log1p(p)
    top = sensitivity * t
    ends = np.array([top, -top]), np.array([log_end, log_end - top])
    if sensitivity == 1:
        return ends
    log_unit = math.log(-math.expm1(-t)) - math.log1p(p)
    if sensitivity <= _DIRECT:
        x = np.arange(1.0, sensitivity)
        return np.append(ends[0], (sensitivity - 2.0 * x) * t), np.append(ends[1], log_unit - t * x)
    # Integers first..last of a bin. All of its weight counts at both ends, in the proportion that keeps the
    # mean; the proportion is bounded by giving each end the share of the other's distance, rounded up.
    edges = np.unique(np.floor(np.linspace(1.0, float(sensitivity), _BINS + 1)))
    first, last = edges[:-1], edges[1:] - 1.0
    n = last - first + 1.0
    # t n <= 1e-3: weights p^x of a bin are equal to within e^{t n}; the mean is in the middle or to its left.
    log_mass = log_unit - t * first + np.log(-np.expm1(-t * n) / -math.expm1(-t))
    # The mean of a bin lies in [middle - t n^2/8, middle]: both ends get half, the first a little more.
    first_share = np.log(0.5 + t * n / 8.0)
    return (
        np.concatenate([ends[0], (sensitivity - 2.0 * first) * t, (sensitivity - 2.0 * last) * t]),
        np.concatenate([ends[1], log_mass + first_share, log_mass + math.log(0.5)]),
    )


def _closed(t: float, sensitivity: int, orders: Floats) -> Floats:
    """Log A by the geometric sum, for A - 1 not tiny; every part is positive."""
    top, c = sensitivity * t, 2.0 * orders - 1.0
    peak = (orders - 1.0) * top
    inner = np.exp(-c * t) * -np.expm1(-c * t * (sensitivity - 1)) / -np.expm1(-c * t)
    inner *= -math.expm1(-t)
    # Over e^{(alpha-1) top}: [1 + e^{-c top} + inner] / (1 + p).
    return np.asarray(
        peak + np.log1p(np.exp(-c * top) + inner) - math.log1p(math.exp(-t)) + 2.0**-46, dtype=np.float64
    )


def _log_h(x: Floats) -> Floats:
    """log(e^x - 1 - x), -inf at 0: below |x| = 2^-9 by its series to x^6, whose next term is 2^-45/2520."""
    small = np.clip(x, -(2.0**-9), 2.0**-9)
    series = 0.5 * small * small * (1 + small / 3 * (1 + small / 4 * (1 + small / 5 * (1 + small / 6))))
    middle = np.clip(x, -700.0, 40.0)
    h = np.where(small == x, series, np.expm1(middle) - middle)
    with np.errstate(divide="ignore"):
        found = np.log(h)
    low = np.log(np.maximum(-1.0 - x, 1.0))
    found = np.where(x < -40.0, low, found)
    return np.asarray(np.where(x > 40.0, x, found), dtype=np.float64)


def _log_sum(terms: Floats) -> Floats:
    peak = terms.max(axis=1)
    return np.asarray(peak + np.log(np.exp(terms - peak[:, np.newaxis]).sum(axis=1)), dtype=np.float64)
