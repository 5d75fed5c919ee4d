"""From losses to (epsilon, delta) and back (SOUNDNESS section 8). Every answer is on the safe side.

An epsilon is at least the true one at the given delta, a delta at least the true one at the given
epsilon: each formula is a valid bound at every argument that a numerical search may stop at.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq, minimize_scalar
from scipy.special import erfcx, ndtr

Floats = npt.NDArray[np.float64]

_ROOT_HALF = math.sqrt(0.5)
_SLACK = 1e-14
"""Slack for the float evaluation of a closed form, relative to the sum of the sizes of its terms.

The terms may cancel: the error is relative to what is added up, not to the result.
"""


def log_c(orders: Floats) -> Floats:
    """Log c_a = (a-1) log(1 - 1/a) - log a of Canonne, Kamath, Steinke 2020, Prop. 12; shape of `orders`."""
    t = orders - 1
    return np.asarray(-t * np.log1p(1 / t) - np.log1p(t))


def rdp_epsilons(losses: Floats, orders: Floats, delta: float) -> Floats:
    """The epsilon that each order gives at `delta`: S + (log c_a - log delta)/(a-1); shape (n,).

    0 < delta < 1; infinite losses give infinity. May be negative: the caller takes the floor 0.
    """
    c, d = log_c(orders), math.log(delta)
    size = np.abs(losses) + (np.abs(c) + abs(d)) / (orders - 1)
    return np.asarray(losses + (c - d) / (orders - 1) + _SLACK * size)


def rdp_epsilon(losses: Floats, orders: Floats, delta: float) -> tuple[float, int]:
    """Least epsilon over the orders, floor 0, and the index of the order (CKS 2020, Prop. 12)."""
    if delta >= 1:
        return 0.0, 0
    if delta <= 0:
        return (0.0 if not losses.any() else math.inf), len(orders) - 1
    epsilons = rdp_epsilons(losses, orders, delta)
    best = int(np.argmin(epsilons))
    return max(0.0, float(epsilons[best])), best


def rdp_delta(losses: Floats, orders: Floats, epsilon: float) -> tuple[float, int]:
    """Least delta over the orders at `epsilon` >= 0, and the index of the order; at most 1."""
    if math.isinf(epsilon):
        return 0.0, 0
    gap, c = (orders - 1) * (losses - epsilon), log_c(orders)
    logs = gap + c + _SLACK * (np.abs(gap) + np.abs(c))
    best = int(np.argmin(logs))
    return (0.0 if not losses.any() else min(1.0, _exp_up(float(logs[best])))), best


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Epsilon of rho-zCDP at delta: CKS 2020 minimised over real orders."""
    if rho == 0 or delta >= 1:
        return 0.0
    if math.isinf(rho) or delta <= 0:
        return math.inf
    log_delta = math.log(delta)

    def epsilon(log_t: float) -> float:
        t = math.exp(log_t)
        loss, gain, log_order = rho * (1 + t), math.log1p(1 / t), math.log1p(t)
        size = loss + gain + (log_order - log_delta) / t
        return loss - gain - (log_delta + log_order) / t + _SLACK * size

    return max(0.0, _minimum(epsilon, -30.0, 700.0 - max(0.0, math.log(rho))))


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Delta of rho-zCDP at epsilon: CKS 2020 minimised over real orders (sound down to rho = 5e-30)."""
    if rho == 0 or math.isinf(epsilon):
        return 0.0
    if math.isinf(rho):
        return 1.0

    def log_delta(log_t: float) -> float:
        t = math.exp(log_t)
        loss, log_c = rho * (1 + t), -t * math.log1p(1 / t) - math.log1p(t)
        return t * (loss - epsilon) + log_c + _SLACK * (t * (loss + epsilon) - log_c)

    return min(1.0, _exp_up(_minimum(log_delta, -30.0, min(340.0, 345.0 - 0.5 * math.log(rho)))))


def gdp_delta(mu: float, epsilon: float) -> float:
    """Exact delta(epsilon) of mu-GDP, any epsilon >= 0 (Balle, Wang 2018, Thm. 8; Dong, Roth, Su 2022).

    With u = eps/mu - mu/2 and v = u + mu: Phi(-u) - e^eps Phi(-v), where e^eps Phi(-v) is
    e^{-u^2/2} erfcx(v/sqrt2)/2. Written so, nothing of the size of eps cancels (large mu).
    """
    if mu == 0 or math.isinf(epsilon):
        return 0.0
    if math.isinf(mu):
        return 1.0
    ratio = epsilon / mu
    u, v = ratio - mu / 2, ratio + mu / 2
    density = 0.5 * math.exp(-u * u / 2)
    first = density * float(erfcx(u * _ROOT_HALF)) if u > 0 else float(ndtr(-u))
    second = density * float(erfcx(v * _ROOT_HALF))
    value = max(0.0, first - second)
    # The functions and the subtraction; eps/mu (derivative: mu times the second term); the density.
    slack = 2.0**-52 * (8 * first + epsilon * second + u * u * (value if u > 0 else second))
    return min(1.0, value + slack + 5e-324)  # the last: it may have underflowed


def gdp_epsilon(mu: float, delta: float) -> float:
    """Least epsilon with gdp_delta(mu, epsilon) <= delta, from above."""
    if mu == 0 or delta >= 1 or gdp_delta(mu, 0.0) <= delta:
        return 0.0
    if math.isinf(mu) or delta <= 0:
        return math.inf
    high = mu
    while gdp_delta(mu, high) > delta:
        high *= 2

    def excess(epsilon: float) -> float:
        return math.log(gdp_delta(mu, epsilon)) - math.log(delta)

    root = float(brentq(excess, 0.0, high, xtol=1e-15 * high, rtol=1e-14))
    step = 1e-15 * high
    while gdp_delta(mu, root) > delta:
        root, step = root + step, step * 2
    return root


def advanced_epsilon(rho: float, delta: float) -> float:
    """Rho + 2 sqrt(rho log(1/delta)): the closed form of Bun, Steinke 2016, Prop. 1.3; for comparison."""
    if rho == 0 or delta >= 1:
        return 0.0
    if math.isinf(rho) or delta <= 0:
        return math.inf
    return (rho + 2 * math.sqrt(rho * -math.log(delta))) * (1 + _SLACK)


def _minimum(objective: Callable[[float], float], low: float, high: float) -> float:
    """The least value seen of a unimodal function on [low, high]; any value it returns was taken."""
    grid = np.linspace(low, high, 120)
    values = [objective(float(point)) for point in grid]
    best = int(np.argmin(values))
    around = (float(grid[max(0, best - 1)]), float(grid[min(len(grid) - 1, best + 1)]))
    refined = minimize_scalar(objective, bounds=around, method="bounded", options={"xatol": 1e-12})
    return min(values[best], float(refined.fun))


def _exp_up(logarithm: float) -> float:
    return math.exp(min(logarithm, 700.0)) * (1 + _SLACK) + 5e-324  # it may have underflowed
