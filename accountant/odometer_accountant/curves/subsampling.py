"""Rényi curves of any mechanism on a random sample, from its own curve: upper bounds at every order of
a grid.

Whole orders by binomial sums of log(A - 1), which keeps tiny losses; then every bound at hand is brought
together: (alpha-1) D_alpha of a mechanism is convex and 0 at order 1, so it is below the largest convex
function that is below all of them (`convex_below`). That also covers the orders that are not whole.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from odometer_accountant.curves.poisson_gaussian import log_binomial_sum, tables_of
from odometer_accountant.numerics.grid import Grid

Floats = npt.NDArray[np.float64]

_ULP: Final = 2.0**-53
_SLACK: Final = 2.0**-36
_TINY: Final = float(np.finfo(np.float64).tiny)
_LEAST: Final = 1e-300
"""A smaller (alpha-1) D_alpha of a base is taken as this one: its logarithm is a float."""
_LEAST_RATE: Final = 1e-100
"""A smaller sampling rate is charged as this one."""
_TOP: Final = 8192
"""The largest order that the binomial sums go to."""

LADDER: Final = Grid(
    99,
    tuple(
        Fraction(order)
        for order in [
            *range(2, 64),
            *(step << octave for octave in range(7) for step in range(64, 128, 4)),
            _TOP,
        ]
    ),
)
"""Whole orders at which a base is asked for its curve: all up to 64, then 16 in an octave."""


@lru_cache(maxsize=1)
def every_order() -> Grid:
    """All whole orders from 2 on: for a base whose curve is quick at any number of orders."""
    return Grid(99, tuple(Fraction(order) for order in range(2, _TOP + 1)))


@dataclass(frozen=True)
class Moments:
    """Upper bounds of (k-1) D_k of a base at the whole orders k = 2, 3, ..., and at order infinity."""

    log_moments: Floats
    """(k-1) D_k in nats, infinity where there is no bound; shape (8191,)."""
    pure: float
    """D_infinity, rounded up; infinity where there is no bound."""

    @classmethod
    def of(cls, ladder: Grid, curve: Floats, rho: float, pure: float) -> "Moments":
        """curve: D at the whole orders of `ladder`; rho: sup of D_alpha/alpha. All rounded up, infinity
        for no bound.

        Between orders of the ladder by the chord of the convex (k-1) D_k, or by k (k-1) rho where that
        is less.
        """
        k = np.arange(2.0, _TOP + 1.0)
        scaled = curve * (ladder.orders - 1.0)
        bounded = np.isfinite(scaled)
        found = np.full(k.shape, np.inf)
        if bounded.any():
            known = ladder.orders[bounded]
            inside = k <= known[-1]
            found[inside] = np.interp(k[inside], known, scaled[bounded])
        with np.errstate(invalid="ignore"):
            found = np.minimum(found, k * (k - 1.0) * rho)
            found = np.minimum(found, (k - 1.0) * pure)
        return cls(found * (1.0 + 16.0 * _ULP), pure)

    def known(self, grid: Grid) -> Grid:
        """The whole orders around those of `grid` up to which there is a bound."""
        bounded = np.isfinite(self.log_moments)
        top = float(bounded.argmin() + 1) if not bounded.all() else float(_TOP)
        return _whole(grid.orders.tobytes(), top)


@lru_cache(maxsize=16)
def _whole(order_bytes: bytes, top: float) -> Grid:
    orders = np.frombuffer(order_bytes)
    whole = {2.0, *np.floor(orders), *np.ceil(orders)}
    return Grid(99, tuple(Fraction(order) for order in sorted(whole) if 2.0 <= order <= top))


def poisson(moments: Moments, rate: float, grid: Grid, *, reversible: bool) -> list[tuple[Floats, Floats]]:
    """(orders, bounds of (alpha-1) D_alpha) of a base on a Poisson sample; relation: `add_remove`.

    rate: q, within (0, 1). reversible: whether each pair (P, Q) of outputs of the base for neighbours
    has a map
    that is its own inverse and swaps P and Q, as noise that is symmetric about its centre has.

    Let M = (1-q) Q + q P. Both divergences are jointly convex, so it is enough to look at one set of
    the others.
    With the person in the first place, E_Q[(M/Q)^alpha] - 1 is the binomial sum over k >= 2 of
    (E_Q[(P/Q)^k] - 1):
    exact. With the person in the second, the least of
     - the same, where the base is reversible (Mironov, Talwar, Zhang 2019, Theorem 5);
     - the sum with 3 E_Q[(P/Q)^k] - 1 from k = 3 on (Zhu, Wang 2019, Theorem 5, which bounds both);
     - alpha (alpha-1)/2 q^2 (1-q)^-(alpha+1) (E_Q[(P/Q)^2] - 1): with v = q (P/Q - 1) >= -q, E_Q[v] =
     0, it is
       E_Q[(1+v)^(1-alpha) - 1 + (alpha-1) v], and a second derivative is largest at the left end.
    """
    q = max(rate, _LEAST_RATE)
    known = moments.known(grid)
    if not known.n_orders:
        return []
    tables = tables_of(known.orders.tobytes())
    log_q, log_rest = math.log(q), math.log1p(-q)
    own = np.maximum(moments.log_moments[: tables.k.size], _LEAST)
    first = _log_expm1(own)
    excess = log_binomial_sum(first.copy(), log_q, log_rest, tables)
    if not reversible:
        alpha = known.orders
        second = np.log(alpha * (alpha - 1.0) / 2.0) + 2.0 * log_q - (alpha + 1.0) * log_rest + first[0]
        second += (
            32.0 * _ULP * (100.0 + 2.0 * abs(log_q) + (alpha + 1.0) * abs(log_rest) + abs(float(first[0])))
        )
        thrice = _log_expm1(own + math.log(3.0) * (1.0 + 4.0 * _ULP))
        thrice[0] = first[0]
        second = np.minimum(second, log_binomial_sum(thrice, log_q, log_rest, tables))
        excess = np.maximum(excess, second)
    return [(known.orders, _log1p_exp(excess))]


def without_replacement(
    moments: Moments, rate: float, grid: Grid, *, gaussian: float | None
) -> list[tuple[Floats, Floats]]:
    """(orders, bounds of (alpha-1) D_alpha) of a base on a sample of fixed size; relation: `replace_one`.

    rate: q = batch/population, within (0, 1), rounded up. gaussian: the noise multiplier where the
    base is the
    Gaussian mechanism itself: then even moments of P/Q - 1 are known and tighter.
    Source: Wang, Balle, Kasiviswanathan 2019, Theorem 9, and Theorem 27 of its long version for Gaussians.
    """
    known = moments.known(grid)
    if not known.n_orders:
        return []
    tables = tables_of(known.orders.tobytes())
    own = np.maximum(moments.log_moments[: tables.k.size], _LEAST)
    by_k = own + math.log(2.0)
    log_range = float(_log_expm1(np.array([max(moments.pure, _LEAST)]))[0])  # of e^eps(inf) - 1
    np.minimum(by_k, own + tables.k * log_range, out=by_k)
    by_k[0] = min(by_k[0], math.log(4.0) + float(_log_expm1(own[:1])[0]))
    if gaussian is not None:
        even = log_even_moments(gaussian)[: tables.k.size // 2 + 1]
        last = min(2 * even.size, tables.k.size + 1)  # the largest k covered
        k = np.arange(3, last + 1)
        if k.size:
            pair = math.log(4.0) + 0.5 * (even[k // 2 - 1] + even[np.minimum((k + 1) // 2, even.size) - 1])
            covered = (k + 1) // 2 <= even.size
            by_k[1 : last - 1] = np.where(covered, np.minimum(by_k[1 : last - 1], pair), by_k[1 : last - 1])
    by_k += 16.0 * _ULP * (np.abs(by_k) + 2.0)
    return [(known.orders, _log1p_exp(log_binomial_sum(by_k, math.log(rate), 0.0, tables)))]


_EVEN_TOP: Final = 256
_STEP: Final = 0.1


def log_even_moments(z: float) -> Floats:
    """Upper bounds of log E_Q[(P/Q - 1)^(2j)] for j = 1, 2, ... as far as they help; P, Q Gaussians
    1/z apart.

    Not beyond power 256, and none where the moments of P/Q itself are no larger than twice these. By the
    trapezoid rule, every term positive. Trefethen, Weideman 2014, Theorem 5.1 on the strip |Im t| < a
    = 25, with
    r = e^{t/z - 1/(2 z^2)}: |r(s + ia) - 1| <= |r - 1| + r a/z, which is at most (1 + 2a/z) |r - 1|
    where r >= 2 and
    |r - 1| + 2a/z elsewhere, and E|r - 1|^n >= z^-n; so the error is at most e^{a^2/2} (4a)^n of the
    value times 2/(e^{2 pi a/h} - 1): for n <= 256, z >= 1, h = .1 below e^{313 + 1179 - 1570}. Tails: as in
    `poisson_gaussian_quadrature`.
    """
    n = np.arange(2.0, _EVEN_TOP + 1.0, 2.0)
    helps = np.log(n) - n / (z * z) > math.log(0.4)
    if z < 1.0 or not helps.any():
        return np.empty(0)
    n = n[: int(np.flatnonzero(helps)[-1]) + 1]
    reach = math.sqrt(float(n[-1]) + 1.0) + 9.0
    t = np.arange(-reach, float(n[-1]) / z + reach + _STEP, _STEP)
    log_distance = np.log(np.maximum(np.abs(np.expm1(t / z - 0.5 / (z * z))), _TINY))
    terms = n[:, np.newaxis] * log_distance
    terms -= 0.5 * t * t
    peak = terms.max(axis=1)
    terms -= peak[:, np.newaxis]
    np.maximum(terms, -700.0, out=terms)  # exp is slow where it underflows; this only adds
    np.exp(terms, out=terms)
    total = peak + np.log(terms.sum(axis=1)) + math.log(_STEP / math.sqrt(2.0 * math.pi))
    return np.asarray(total + 1e-9 + 64.0 * _ULP * n * (50.0 + math.log(max(z, 1.0))), dtype=np.float64)


def pure_poisson(epsilon: float, rate: float, grid: Grid) -> Floats:
    """(alpha-1) D_alpha of the worst epsilon-DP base on a Poisson sample, shape (n_orders,); exact there.

    Any pair of outputs of an epsilon-DP base comes from that of binary randomised response by a random map
    (Kairouz, Oh, Viswanath 2015), the same one for both, so also the sampled pair; and it is reversible.
    With g(u) = (1+u)^alpha - 1 - alpha u and u = q (e^{+-eps} - 1), whose mean is 0,
    A - 1 = g(q (e^eps - 1)) / (1 + e^eps) + g(q (e^-eps - 1)) / (1 + e^-eps). epsilon within (0, 600].
    """
    q, alpha = max(rate, _LEAST_RATE), grid.orders
    log_low = -math.log1p(math.exp(-epsilon))
    up = _log_g(q * math.expm1(epsilon), alpha) + (log_low - epsilon)
    down = _log_g(q * math.expm1(-epsilon), alpha) + log_low
    return _log1p_exp(np.logaddexp(up, down) + 64.0 * _ULP * (1.0 + epsilon))


def _log_g(u: float, alpha: Floats) -> Floats:
    """Log of g(u) = (1+u)^alpha - 1 - alpha u, rounded up, for u > -1."""
    if u == 0.0:
        return np.full(alpha.shape, 2.0 * math.log(_LEAST_RATE))
    power = alpha * math.log1p(u)
    plain = np.minimum(power, 40.0)
    line = alpha * u
    direct = np.expm1(plain) - line
    direct += 16.0 * _ULP * (np.abs(np.expm1(plain)) * (1.0 + np.abs(plain)) + np.abs(line))
    # By the series to u^6 where alpha |u| is small: the next term is below 1e-12 of the first.
    small = np.abs(line) <= 0.01
    series = np.ones_like(alpha)
    for k in (6.0, 5.0, 4.0, 3.0):
        series = 1.0 + (alpha - (k - 1.0)) / k * np.where(small, u, 0.0) * series
    log_series = (
        np.log(alpha * (alpha - 1.0) / 2.0) + 2.0 * math.log(abs(u)) + np.log(np.where(small, series, 1.0))
    )
    with np.errstate(divide="ignore", over="ignore"):
        log_direct = np.log(np.maximum(direct, _TINY))
        large = power + np.log1p(-np.minimum((1.0 + line) * np.exp(-np.maximum(power, 40.0)), 0.5))
        large += 16.0 * _ULP * np.abs(power)
    found = np.where(
        small, log_series + 64.0 * _ULP * abs(math.log(abs(u))), np.where(power > 40.0, large, log_direct)
    )
    return np.asarray(found + _SLACK, dtype=np.float64)


def pure_epsilon(epsilon: float, rate: float) -> float:
    """Epsilon on a sample: log(1 + q (e^epsilon - 1)), rounded up (Li, Qardaji, Su 2012; Balle et al.
    2018).
    """
    if epsilon > 40.0:
        found = (
            epsilon + math.log(rate) + math.log1p((1.0 - rate) / rate * math.exp(-epsilon))
            if rate > 1e-280
            else epsilon
        )
    else:
        found = math.log1p(rate * math.expm1(epsilon))
    return min(max(found, 0.0) * (1.0 + _SLACK) + epsilon * 2.0**-50 * (epsilon > 40.0) + _TINY, epsilon)


def convex_below(points: Iterable[tuple[Floats, Floats]], grid: Grid) -> Floats:
    """D_alpha of a mechanism from bounds of (alpha-1) D_alpha at some orders, shape (n_orders,).

    The truth is convex in the order and 0 at order 1 (van Erven, Harremoës 2014, Corollary 2), so it
    is nowhere
    above the lower convex hull of the bounds. Infinity above the last order with a bound.
    """
    least: dict[float, float] = {1.0: 0.0}
    for orders, bounds in points:
        for order, bound in zip(orders.tolist(), bounds.tolist(), strict=True):
            if bound < least.get(order, math.inf):
                least[order] = bound
    hull: list[tuple[float, float]] = []
    for x, y in sorted(least.items()):
        while len(hull) > 1:
            (x0, y0), (x1, y1) = hull[-2:]
            if (y1 - y0) * (x - x0) < (y - y0) * (x1 - x0):
                break
            hull.pop()
        hull.append((x, y))
    x_known, y_known = np.array([x for x, _ in hull]), np.array([y for _, y in hull])
    found = np.interp(grid.orders, x_known, y_known) / (grid.orders - 1.0)
    found = found * (1.0 + 16.0 * _ULP) + _TINY
    return np.where(grid.orders <= x_known[-1], found, np.inf)


def _log_expm1(x: Floats) -> Floats:
    """log(e^x - 1) for x > 0."""
    return np.where(x < 40.0, np.log(np.expm1(np.minimum(x, 40.0))), x)


def _log1p_exp(log_excess: Floats) -> Floats:
    return np.asarray(np.logaddexp(0.0, log_excess) * (1.0 + 16.0 * _ULP) + _TINY, dtype=np.float64)
