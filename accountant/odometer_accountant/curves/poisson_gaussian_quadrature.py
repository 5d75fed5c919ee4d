"""Rényi moments of the Poisson-subsampled Gaussian at orders that are not whole, by the trapezoid rule.

E[u] = 0 (see `poisson_gaussian`), so A - 1 = E[g(u)] with g(u) = (1+u)^alpha - 1 - alpha u >= 0:
nothing cancels across nodes, and the sum is accurate relative to A - 1 itself, however tiny.
The binomial *series* at such orders (Mironov, Talwar, Zhang 2019, section 3.3) alternates in sign;
implementations lost those signs or stopped early, hence quadrature (SOUNDNESS section 8).

Why 1e-9 covers the error
-------------------------
Write m = max(alpha, 2), E = E[g(u)], phi the normal density, 0 < q < 1. For w >= 0 and c >= 1,
g(w) = alpha (alpha-1) w^2 * integral over s in [0,1] of (1-s) (1+sw)^(alpha-2): g is convex,
increasing, g(cw) <= c^m g(w), and g(w) <= alpha (alpha-1)/2 w^2 (1+w)^max(alpha-2, 0).
Where u < 0, g(u) >= (alpha-1)/2 u^2. For -1 < t < 0 that yields
                E >= (alpha-1)/2 * 0.039 q^2 / max(1, z^2).                                       (0)

*Trapezoid.* phi(t) g(u(t)) is analytic in |Im t| < pi z (1 + u meets the cut only where
Im t / z is an odd multiple of pi) and vanishes at both ends of the strip. Trefethen, Weideman 2014,
Theorem 5.1: |sum - E| <= 2M / (e^{2 pi a/h} - 1), M >= integral of |phi g| on every line |Im t| < a <= pi z.
 - |phi(s + ia)| = phi(s) e^{a^2/2}.
 - |g(u)| <= C g(|u|): C = 1 if alpha >= 2 (bound the integral along the segment from 0 to u). If
   alpha < 2, the segment gives 3^(2-alpha) for |u| <= 1/2, and the triangle inequality gives
   C = (3^alpha + 2^alpha + alpha 2^(alpha-1)) / (3^alpha - 2^alpha - alpha 2^(alpha-1)), the larger,
   beyond (g(w)/w^alpha increases there, the numerator over w^alpha decreases).
 - |u(s + ia)| <= |u(s)| + v with v = q e^x theta, theta = a/z, x = s/z - 1/(2 z^2). By convexity
   g(|u| + v) <= (g(2|u|) + g(2v)) / 2. First, g(2|u|) <= 2^m r g(u) with r = max(1, alpha 2^(alpha-3)),
   the ratio of g(|u|) to g(-|u|) on [0, 1]. Second, where e^x >= 2, v <= 2 theta u, so g(2v) <=
   max(1, 4 theta)^m g(u); where e^x < 2, 2v <= 4 q theta and (0) gives
   g(2v) <= 411 alpha max(theta^2, a^2) (1 + 4 theta)^max(alpha-2, 0) E.
So M <= e^{a^2/2} K E, K = C/2 times the sum of the three factors, and
h = 2 pi a / (log 1e11 + a^2/2 + log 4K) makes the error at most 1e-11 E.

*Right tail.* Let t = m/z + y. For 0 < y1 < y, (e^x - 1) grows at most by e^{(y-y1)/z} y/y1 and g(u) by
that to the power m, so phi g at y over phi g at y1 is at most (y/y1)^m e^{-(y^2 - y1^2)/2}: the mass
beyond y is at most that of a chi variable with m+1 degrees of freedom, which puts at most e^{-s^2/2}
above sqrt(m+1) + s. We go to s = 8; dropped nodes weigh less than the integral from one step (h < 1)
earlier, s = 7: 3e-11.

*Small noise* (z <= 0.15, alpha >= 2). Let w = q e^x >= u. Where u > 0, g <= alpha (alpha-1) 2^(alpha-3) times
the larger of w^2 and w^alpha; under phi these are Gaussians about 2/z and alpha/z of masses q^2 e^{1/z^2} and
q^alpha e^{alpha(alpha-1)/(2 z^2)}. E is at least (alpha-1) E[u^2], the first mass, and at least
E[u^alpha; u > 0], half the second. So nodes further than sqrt(80 + 1.4 alpha) from both centres weigh
below 1e-14 E, those with u < 0 (g <= alpha (alpha-1)/2 q^2) below alpha e^{-1/z^2} E < 1e-17 E: neither
are visited.

*Left tail.* For t < 0, g(u) <= (alpha-1) m/2 u^2 and |u| <= q min(1, |t|/z + 1/(2 z^2)); by (0) the part
below -9 + h is at most 26 m * integral of (|t| + 1/2)^2 phi: below 1e-11 up to alpha = 60.

*Rounding.* g is evaluated to about 1e-11 (`_excess`); weights and exponents to a few ulps of their
magnitude, which is added. One ulp in a node moves phi g as its exponent moves.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_ULP: Final = 2.0**-53
_LOG_TOLERANCE: Final = math.log(1e11)
_SLACK: Final = 1e-9
_LEFT: Final = -9.0
_SERIES: Final = 0.01
"""Below this alpha |u| the series of g is used."""
_FEW_WINDOWS: Final = 0.15
_CHUNK: Final = 8192
"""Nodes worked on at a time: bounds the memory where small noise needs many."""


@dataclass(frozen=True)
class Quadrature:
    """Orders and the constants of the error bound that depend on them alone."""

    orders: Floats
    """Shape (f, 1)."""
    top: float
    """m of the largest order."""
    log_c: float
    """log of C, the largest over the orders."""
    log_reflection: float
    """log of 2^m r."""

    @classmethod
    def of(cls, orders: Floats) -> "Quadrature":
        top = max(float(orders.max()), 2.0)
        log_c = 0.0
        for alpha in orders[orders < 2.0]:
            part = 2.0**alpha + alpha * 2.0 ** (alpha - 1.0)
            log_c = max(log_c, math.log((3.0**alpha + part) / (3.0**alpha - part)))
        log_r = max(0.0, math.log(top) + (top - 3.0) * math.log(2.0))
        return cls(orders[:, np.newaxis], top, log_c, top * math.log(2.0) + log_r)

    def step(self, z: float) -> float:
        """The h of the error bound above."""
        a = min(math.pi * z, 9.0)  # about sqrt(2 (log 1e11 + log K)), the best a where z is large
        theta = a / z
        worst = max(
            self.log_reflection,
            self.top * math.log(max(1.0, 4.0 * theta)),
            math.log(411.0 * self.top * max(theta, a) ** 2) + (self.top - 2.0) * math.log1p(4.0 * theta),
        )
        log_k = self.log_c + worst + math.log(3.0 / 2.0)
        return 2.0 * math.pi * a / (_LOG_TOLERANCE + a * a / 2.0 + log_k + math.log(4.0))

    def windows(self, z: float) -> list[tuple[Floats, float, float]]:
        """(orders, least t, greatest t) of the parts of the lattice that are summed where z is small."""
        if z > _FEW_WINDOWS:
            return [(self.orders, _LEFT, self.right(z))]
        low = self.orders[self.orders < 2.0]
        parts = [(low[:, np.newaxis], _LEFT, 2.0 / z + math.sqrt(3.0) + 8.0)] if low.size else []
        for alpha in self.orders[self.orders >= 2.0]:
            reach = math.sqrt(80.0 + 1.4 * alpha)
            order = np.array([[alpha]])
            if alpha - 2.0 < 2.0 * reach * z:
                parts.append((order, 2.0 / z - reach, alpha / z + reach))
            else:
                parts += [(order, centre / z - reach, centre / z + reach) for centre in (2.0, float(alpha))]
        return parts

    def right(self, z: float) -> float:
        """The point where the right tail is cut."""
        return self.top / z + math.sqrt(self.top + 1.0) + 8.0


def log_excess_quadrature(q: float, z: float, rule: Quadrature) -> Floats:
    """Upper bounds of log(A - 1), shape (f,), for 1e-100 <= q < 1."""
    h, right = rule.step(z), rule.right(z)
    largest_x = (right + h) / z
    if right < 36.0 and rule.top * max(0.0, largest_x + math.log(q)) < 600.0:
        t = h * np.arange(math.floor(_LEFT / h), math.ceil(right / h) + 1.0)
        total = np.log(_sum_plain(q, z, t, rule.orders))
    else:
        total = np.full(rule.orders.shape[0], -np.inf)
        for orders, least, greatest in rule.windows(z):
            where = np.isin(rule.orders[:, 0], orders)
            last = math.ceil(greatest / h) + 1
            for first in range(math.floor(least / h), last, _CHUNK):
                t = h * np.arange(float(first), min(first + _CHUNK, last))
                total[where] = np.logaddexp(total[where], _log_sum(q, z, t, orders))
    total += math.log(h / math.sqrt(2.0 * math.pi))
    multiplied = largest_x + 0.5 / (z * z) - math.log(q) - math.log1p(-q)
    magnitude = right * right / 2.0 + rule.top * multiplied + 50.0
    return np.asarray(total + (_SLACK + 16.0 * _ULP * magnitude), dtype=np.float64)


def _sum_plain(q: float, z: float, t: Floats, orders: Floats) -> Floats:
    """Sum over nodes of e^{-t^2/2} g(u), shape (f,), where nothing overflows or underflows."""
    u = q * np.expm1(t / z - 0.5 / (z * z))
    return np.asarray(_excess(u, orders) @ np.exp(-0.5 * t * t), dtype=np.float64)


def _excess(u: Floats, orders: Floats) -> Floats:
    """g(u) for ascending u > -1, shape (f, n_nodes).

    By its series to u^6 where alpha |u| is small (the next term is below 1e-12 of the first); elsewhere
    the subtraction loses about 4 / ((alpha-1) |u|) ulps: under 1e-11 on grid version 1, where
    |u| >= .01/7.5 and alpha >= 1.25; under 1e-10 for any orders between 1.1 and 60.
    """
    g = np.expm1(orders * np.log1p(u))
    g -= orders * u
    bound = _SERIES / float(orders.max())
    low, high = np.searchsorted(u, (-bound, bound))
    if low < high:
        small = u[low:high]
        g[:, low:high] = 0.5 * orders * (orders - 1.0) * small * small * _series(small, orders)
    return np.asarray(g, dtype=np.float64)


def _series(u: Floats, orders: Floats) -> Floats:
    """2 g(u) / (alpha (alpha-1) u^2) for small u, shape (f, n_nodes)."""
    nested = np.ones((orders.shape[0], u.shape[0]))
    for power in (6.0, 5.0, 4.0, 3.0):
        nested = 1.0 + (orders - (power - 1.0)) / power * u * nested
    return nested


def _log_sum(q: float, z: float, t: Floats, orders: Floats) -> Floats:
    """Log of the sum over nodes of e^{-t^2/2} g(u), shape (f,), at any magnitude; t ascending."""
    x = t / z - 0.5 / (z * z)
    large = int(np.searchsorted(x, min(80.0, 600.0 / float(orders.max())) - math.log(q)))
    log_g = np.empty((orders.shape[0], t.shape[0]))
    with np.errstate(divide="ignore"):  # a node where u = 0 adds nothing
        log_g[:, :large] = np.log(_excess(q * np.expm1(x[:large]), orders))
    # Beyond, (1 + u)^alpha may overflow: with its log in `power` and log(1 + alpha u) in `line`.
    log_u = math.log(q) + x[large:] + np.log1p(-np.exp(-x[large:]))
    power = orders * (log_u + np.log1p(np.exp(-log_u)))
    line = np.log(orders) + log_u + np.log1p(np.exp(-log_u) / orders)
    log_g[:, large:] = power + np.log1p(-np.exp(line - power))
    log_g -= 0.5 * t * t
    peak = log_g.max(axis=1)
    return np.asarray(peak + np.log(np.exp(log_g - peak[:, np.newaxis]).sum(axis=1)), dtype=np.float64)
