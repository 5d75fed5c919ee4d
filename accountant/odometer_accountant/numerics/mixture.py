"""The mixture over orders: the filter's rule and both running readings (SOUNDNESS sections 2 and 3).

Every function errs on the refusing side: a delta is never below the true one, an epsilon neither.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from odometer_accountant.numerics.conversions import log_c
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.prior import WEIGHT_UNIT
from odometer_accountant.once import once

Floats = npt.NDArray[np.float64]

_ULPS = 16 * 2.0**-53
"""Bound on the relative float error of one term of a sum, with room to spare."""
_STEPS = 60
_NEAR = 1e-7
"""A Newton step of this relative size is the last one: what is left of the error is its square."""


@dataclass(frozen=True)
class Mixture:
    """Weights on the orders of a grid, in units of 1/10^18, and the delta they answer for.

    `delta` is delta_mix, 0 <= delta < 1: at 0 it admits nothing and bounds nothing. Losses are arrays
    S(alpha) in nats, shape (n_orders,), infinity where there is no bound.
    """

    grid: Grid
    weights: tuple[int, ...]
    delta: float

    @once
    def log_w(self) -> Floats:
        with np.errstate(divide="ignore"):
            return np.log(np.array(self.weights, dtype=float) / WEIGHT_UNIT)

    @once
    def log_c(self) -> Floats:
        return log_c(self.grid.orders)

    @once
    def log_delta(self) -> float:
        return math.nextafter(math.log(self.delta), -math.inf) if self.delta else -math.inf

    def capacity(self, epsilon: float) -> Floats:
        """C(alpha): the totals that one order alone admits at `epsilon`, rounded down; shape (n_orders,)."""
        if not self.delta:
            return np.full(self.grid.n_orders, -np.inf)
        steps = self.grid.orders - 1
        gap = (self.log_w + self.log_delta - self.log_c) / steps
        terms = (np.abs(self.log_w) + abs(self.log_delta) + np.abs(self.log_c) + 1) / steps
        total = abs(epsilon) + np.abs(gap)
        # The rounding error is within a quarter of the slack of the sum, and half of that of the terms,
        # which may cancel.
        return np.asarray(epsilon + gap - _ULPS * np.maximum(total, total / 4 + terms / 2))

    def log_delta_filter(self, losses: Floats, epsilon: float) -> float:
        """An upper bound of log delta_filter(S; epsilon), equal at the optimum up to rounding.

        The certificate of SOUNDNESS section 3: true for every Gibbs weight v, so a search that
        stops early only refuses more.
        """
        return self._certificate(losses, epsilon)[0]

    def if_stopped_now(self, losses: Floats) -> float:
        """The least epsilon >= 0 with delta_filter(S; epsilon) <= delta; infinity when there is none.

        For fixed Gibbs weights the certificate is linear in epsilon, so each step moves to the root
        of a valid bound and falls towards the least epsilon; the last one is checked again.
        """
        if not self.delta or not np.isfinite(losses).any():
            return math.inf
        if self.log_delta_filter(losses, 0.0) <= self.log_delta:
            return 0.0
        epsilon, x = float(np.min(losses - self.capacity(0.0))), None
        for _ in range(_STEPS):
            bound, slope, x = self._certificate(losses, epsilon, x)
            root = epsilon + (self.log_delta - bound) / slope
            if not 0 < root < epsilon:
                break
            near, epsilon = root > epsilon * (1 - _NEAR), root
            if near:
                break
        return self._admissible(losses, epsilon, x)

    def odometer(self, losses: Floats) -> float:
        """The epsilon that holds at all moments at once: log sum w e^{(a-1)(eps-S)} = log(1/delta).

        Before the minimum with the pure part; floor 0; infinity when no order has a bound.
        The left side is convex and grows in epsilon: Newton from the right falls to the root.
        """
        if not self.delta or not np.isfinite(losses).any():
            return math.inf
        orders = self.grid.orders
        # One order alone reaches the target there, so the sum does too.
        start = losses + (-self.log_delta - self.log_w) / (orders - 1)
        epsilon = float(np.min(start))
        for _ in range(_STEPS):
            level, slope, size = self._level(losses, epsilon)
            lower = epsilon - (level + self.log_delta) / slope
            if lower >= epsilon:
                break
            near, epsilon = lower > epsilon - _NEAR * abs(epsilon), lower
            if near:
                break
        slack = _ULPS * (size + abs(self.log_delta)) / slope
        return max(0.0, epsilon + slack + _ULPS * abs(epsilon))

    def _admissible(self, losses: Floats, epsilon: float, x: float | None) -> float:
        """`epsilon`, moved up until the certificate, searched for from `x`, accepts it."""
        step = 1e-14 * (1 + abs(epsilon))
        while self._certificate(losses, epsilon, x)[0] > self.log_delta:
            epsilon, step = epsilon + step, step * 2
        return epsilon

    def _terms(self, losses: Floats, epsilon: float) -> Floats:
        with np.errstate(invalid="ignore"):
            terms = self.log_w + (self.grid.orders - 1) * (epsilon - losses)
        return np.where(np.isfinite(terms), terms, -np.inf)

    def _level(self, losses: Floats, epsilon: float) -> tuple[float, float, float]:
        """Log sum exp of the terms, its slope in epsilon, and the size of what was added up."""
        terms = self._terms(losses, epsilon)
        top = float(np.max(terms))
        shares = np.exp(terms - top)
        mass = float(shares.sum())
        shares /= mass
        live = shares > 0
        size = float(np.sum(shares[live] * self._sizes(losses, epsilon)[live]))
        return top + math.log(mass), float(np.dot(shares, self.grid.orders - 1)), size

    def _sizes(self, losses: Floats, epsilon: float) -> Floats:
        with np.errstate(invalid="ignore"):
            return (self.grid.orders - 1) * (abs(epsilon) + losses) + np.abs(self.log_w) + 1

    def _certificate(
        self, losses: Floats, epsilon: float, start: float | None = None
    ) -> tuple[float, float, float | None]:
        """The bound on log delta_filter at `epsilon`, its slope -(mean order - 1), and the x it was found at.

        `start` is the x of an epsilon near by: fewer steps from there, and the same bound.
        """
        terms = self._terms(losses, epsilon)
        steps = self.grid.orders - 1
        if not np.isfinite(terms).any():
            return math.inf, -1.0, start
        x = _inner_maximum(terms, steps, start)
        shares = _gibbs(terms + steps * x)
        live = shares > 0
        mean = float(np.dot(shares, self.grid.orders))
        logs = terms[live] - np.log(shares[live])
        kept = shares[live]
        bound = float(log_c(np.array([mean]))[0]) - float(np.dot(kept, logs))
        size = (
            float(np.dot(kept, self._sizes(losses, epsilon)[live] + np.abs(np.log(kept))))
            + math.log(mean)
            + 1
        )
        return bound + _ULPS * size, -(mean - 1), x


def _gibbs(logits: Floats) -> Floats:
    shares = np.exp(logits - np.max(logits))
    return np.asarray(shares / shares.sum())


def _inner_maximum(terms: Floats, steps: Floats, start: float | None = None) -> float:
    """X > 0 where (1 - e^{-x}) / sum exp(terms + steps x) is largest: a few safeguarded Newton steps.

    The logarithm is concave in x; its slope is 1/(e^x - 1) - mean(steps). Any x is safe to return.
    """
    low, high = 0.0, math.inf
    x = start or 1.0 / (1.0 + float(np.dot(_gibbs(terms), steps)))
    for _ in range(_STEPS):
        shares = _gibbs(terms + steps * x)
        mean = float(np.dot(shares, steps))
        spread = float(np.dot(shares, (steps - mean) ** 2))
        slope = 1 / math.expm1(x) - mean
        if slope > 0:
            low = x
        else:
            high = x
        step = slope / ((slope + mean) * (slope + mean + 1) + spread)
        proposal = x + step
        if not low < proposal < high:
            proposal = 2 * x if math.isinf(high) else (low + high) / 2
        near, x = abs(proposal - x) <= _NEAR * x, proposal
        if near:
            break
    return x
