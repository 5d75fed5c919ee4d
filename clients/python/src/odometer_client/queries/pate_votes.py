"""The loss of PATE queries on the votes that were cast, and a sanitised figure of it. Pure functions.

Everything but the result of `sanitise` is computed from private votes and is itself private: it must not
leave the process that has the votes, steer a decision or be shown. Nothing here sends anything.

A data-dependent figure bounds D_alpha(M(D) || M(D')) of the true dataset D against each neighbour, in this
direction (Papernot et al. 2018, Theorem 6): what is settled at it is promised to the people in the true
dataset. Losses in nats; a neighbour changes the vote of one teacher.
"""

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, get_args

import numpy as np
import numpy.typing as npt
from scipy import special

from odometer_client.queries.pate_losses import (
    DEVIATION,
    GAMMA,
    SLACK,
    Floats,
    Noise,
    check_order,
    check_within,
    gnmax_rdp,
    lnmax_rdp,
    log_q_gaussian,
    log_q_laplace,
    log_q_threshold,
    log_tail,
    threshold_rdp,
)

__all__ = [
    "DEVIATION",
    "GAMMA",
    "STEP",
    "Floats",
    "Noise",
    "Plan",
    "Sanitised",
    "gnmax_rdp",
    "lnmax_rdp",
    "local_sensitivities",
    "log_q_gaussian",
    "log_q_laplace",
    "log_q_threshold",
    "sanitise",
    "smooth_release_published",
    "smooth_release_rdp",
    "threshold_rdp",
    "total_and_sensitivity",
]

_CELLS: Final = 16
"""Per teacher who changes: the figure is a step function, so that its sensitivity can be bounded exactly."""
STEP: Final = 1e-6
"""Told figures are rounded up to it: the low bits of a float say more than its value."""
_SCALES: Final = {"gaussian": ("standard deviation", DEVIATION), "laplace": ("gamma", GAMMA)}
_BETA: Final = (1e-12, 100.0)
_PLAN_NOISE: Final = (1e-3, 1e9)


# -- the sanitised figure -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """How the total is told, fixed before any vote is seen: it decides what telling it costs."""

    orders: tuple[float, ...]
    """Orders to be settled, increasing, all above 1."""
    failure_probability: float
    """That the figure is too low at some order, 0 to 1: held as an `approximate` charge of ε 0 and this δ."""
    beta: float
    """How fast the smooth sensitivity decays with each teacher that changes, 1e-12 to 100."""
    noise: float
    """Standard deviation of the noise over the smooth sensitivity, 1e-3 to 1e9."""

    def __post_init__(self) -> None:
        if not self.orders or not all(
            low < high < math.inf for low, high in zip((1.0, *self.orders), self.orders, strict=False)
        ):
            raise ValueError("orders are finite, above 1 and strictly increasing: (4.0, 8.0) works")
        if not 0 < self.failure_probability < 1:
            raise ValueError(f"failure_probability is {self.failure_probability}; above 0 and below 1 works")
        check_within("beta", self.beta, _BETA)
        check_within("noise", self.noise, _PLAN_NOISE)

    @property
    def _quantile(self) -> float:
        """Of the noise, that fails at each of the orders with an equal share."""
        return -float(special.ndtri(self.failure_probability * (1 - SLACK) / len(self.orders))) * (1 + SLACK)

    def charge(self, orders: Sequence[float]) -> dict[str, object]:
        """The `renyi_curve` of telling a figure at every order of the plan: to be in the hold, once.

        orders: increasing, those of the dataset's grid. It has no bound where e^{2 beta} >=
        order/(order - 1), so higher ones are left out. Raises ValueError when none is left.
        """
        costs = [(order, self.cost(order)) for order in orders]
        finite = [(order, cost) for order, cost in costs if math.isfinite(cost)]
        if not finite:
            raise ValueError(f"beta {self.beta} is too large for every order: a smaller one works")
        epsilons = np.maximum.accumulate([cost for _, cost in finite])
        return {
            "kind": "renyi_curve",
            "orders": [float(order) for order, _ in finite],
            "epsilons": [float(epsilon) for epsilon in epsilons],
        }

    def cost(self, order: float) -> float:
        """D_order of telling all figures; infinity where there is no bound."""
        one = smooth_release_rdp(order, self.beta, self.noise, self._quantile)
        return len(self.orders) * one * (1 + SLACK)


@dataclass(frozen=True)
class Sanitised:
    """Publishable upper bounds on the total loss, all true except with the failure probability."""

    orders: tuple[float, ...]
    epsilons: tuple[float, ...]
    failure_probability: float

    def document(self) -> dict[str, object]:
        """The `renyi_curve` to settle at."""
        return {"kind": "renyi_curve", "orders": list(self.orders), "epsilons": list(self.epsilons)}


def sanitise(votes: npt.ArrayLike, noise: Noise, scale: float, teachers: int, plan: Plan) -> Sanitised:
    """Upper bounds, that may be told, on what the queries of these votes cost together.

    votes: one row of whole counts a query, one column a label; all queries of the charge that were answered.
    scale: standard deviation of the counts' noise (noise "gaussian", 0.01 to 1e9) or gamma ("laplace", 1e-12
    to 500). teachers: how many there are. Raises ValueError. Once for each hold: each call is a release that
    `Plan.charge` pays for.

    At each order U = f + s (noise Z + c) is told, with s the smooth sensitivity of the total f, and
    P(noise Z + c < 0) the order's share of the failure probability. Its mean moves by at most
    s (1 + c (e^beta - 1)) between neighbours, so s need not be told beside it (see smooth_release_rdp).
    """
    _check_noise(noise, scale)
    counts = _checked(votes, teachers)
    random = secrets.SystemRandom()
    told = []
    for order in plan.orders:
        total, smooth = total_and_sensitivity(counts, noise, scale, teachers, order, plan.beta)
        up = plan.noise * (random.gauss(0.0, 1.0) + plan._quantile)
        told.append(math.ceil(max(total + smooth * up, 0.0) / STEP + SLACK) * STEP)
    # What is told of one order is told of the others too: a divergence never decreases, and (order - 1) times
    # it is convex. A curve that is not so would be refused.
    return Sanitised(plan.orders, _convex_below(plan.orders, told), plan.failure_probability)


def _convex_below(orders: Sequence[float], told: Sequence[float]) -> tuple[float, ...]:
    """The largest bounds not above those told for which (order - 1) times them is convex, and 0 at order 1.

    What is convex and below the told ones is below these. Rounded up.
    """
    corners = [(0.0, 0.0)]
    for step, moment in ((order - 1, (order - 1) * bound) for order, bound in zip(orders, told, strict=True)):
        while len(corners) > 1:
            (x, f), (y, g) = corners[-2:]
            if (g - f) * (step - y) <= (moment - g) * (y - x):
                break
            corners.pop()
        corners.append((step, moment))
    steps = np.array(orders) - 1
    at, height = np.array(corners).T
    moments = np.interp(steps, at, height)
    bounds = np.minimum(moments / steps * (1 + SLACK), np.minimum.accumulate(told[::-1])[::-1])
    return tuple(float(bound) for bound in np.maximum.accumulate(bounds))


def total_and_sensitivity(
    counts: npt.NDArray[np.int64], noise: Noise, scale: float, teachers: int, order: float, beta: float
) -> tuple[float, float]:
    """(upper bound on the total at an order, its beta-smooth sensitivity): private, both.

    The loss of a query is bounded by a step function of its *effective gap*: that of equal gaps to all other
    labels with the same q. A teacher moves each gap by at most 2, hence the effective gap by at most 2: the
    tail after a shift is a concave function of the one before it (convex in the other direction), so the mean
    of the tails moves at most as one tail would (Papernot et al. 2018, Prop. 13); the cell by at most
    `_CELLS`. No condition on the shape of the bound is needed: it is made monotone first.
    """
    _check_noise(noise, scale)
    check_order(order)
    check_within("beta", beta, _BETA)
    counts = _checked(counts, teachers)
    steps = _CELLS + 1  # one more than the proof says, for rounding at a cell's edge
    table = _table(noise, scale, counts.shape[1], teachers, order)
    one_change = _one_change(table, steps)
    place = _cells(counts, noise, scale)
    total = math.fsum(table[place]) * (1 + SLACK)
    at_distance = np.zeros(teachers + 1)
    for cell, queries in zip(*np.unique(place, return_counts=True), strict=True):
        at_distance += queries * _within_distance(one_change, int(cell), steps, teachers)
    smooth = float(np.max(at_distance * np.exp(-beta * np.arange(teachers + 1)))) * (1 + SLACK)
    return total, smooth


def local_sensitivities(
    votes: Sequence[int], noise: Noise, scale: float, teachers: int, order: float
) -> Floats:
    """Upper bounds on how much one more change moves a query's figure, after 0, 1, … changes; private."""
    _check_noise(noise, scale)
    check_order(order)
    counts = _checked([list(votes)], teachers)
    one_change = _one_change(_table(noise, scale, counts.shape[1], teachers, order), _CELLS + 1)
    return _within_distance(one_change, int(_cells(counts, noise, scale)[0]), _CELLS + 1, teachers)


def smooth_release_rdp(order: float, beta: float, noise: float, quantile: float = 0.0) -> float:
    """D_order of telling f + s (noise Z + noise quantile), s the beta-smooth sensitivity of f.

    The divergence of two normals whose deviations differ by a factor of at most e^beta and whose means by at
    most (1 + noise |quantile| (e^beta - 1)) of the smaller s: finite for e^{2 beta} < order/(order - 1)
    alone. Infinity where there is no bound.
    """
    check_order(order)
    check_within("beta", beta, _BETA)
    check_within("noise", noise, _PLAN_NOISE)
    if not math.isfinite(quantile):
        raise ValueError(f"quantile is {quantile}: a finite number works")
    left = 1.0 - (order - 1) * math.expm1(2 * beta)
    if left <= 0:
        return math.inf
    shift = 1 / noise + abs(quantile) * math.expm1(beta)  # below 0 it moves the mean the other way
    mean = order * shift**2 / (2 * left)
    wider = -math.log(left) - (order - 1) * 2 * beta
    narrower = -math.log1p(-(order - 1) * math.expm1(-2 * beta)) + (order - 1) * 2 * beta
    return (mean + max(wider, narrower, 0.0) / (2 * (order - 1))) * (1 + SLACK)


def smooth_release_published(order: float, beta: float, noise: float) -> float:
    """Papernot et al. 2018, Theorem 23, for comparison alone: never charge it; order below 1/(2 beta).

    Its term in the means lacks a factor up to 1/(2 - 2 order (1 - e^{-2 beta})), so that near the last order
    it lies below the divergence of two normals that smooth sensitivity allows (0.52 for a true 1.6).
    """
    check_within("beta", beta, _BETA)
    check_within("noise", noise, _PLAN_NOISE)
    if not 1 < order < 1 / (2 * beta):
        raise ValueError(f"order is {order}; above 1 and below {1 / (2 * beta):g} works")
    spread = -0.5 * math.log1p(-2 * order * beta) + beta * order
    return order * math.exp(2 * beta) / noise**2 + spread / (order - 1)


# -- what is taken ------------------------------------------------------------------------------------------


def _check_noise(noise: str, scale: float) -> None:
    """Raise ValueError for an unknown noise: the figure of one noise is too low for another."""
    if noise not in get_args(Noise):
        raise ValueError(f"noise is {noise!r}: {' or '.join(repr(name) for name in get_args(Noise))} works")
    name, between = _SCALES[noise]
    check_within(f"scale, of {noise} noise the {name},", scale, between)


def _checked(votes: npt.ArrayLike, teachers: int) -> npt.NDArray[np.int64]:
    """Errors do not repeat the votes: they would go into a log."""
    if not (1 <= teachers < math.inf and int(teachers) == teachers):
        raise ValueError(f"teachers is {teachers}: a whole number of 1 or more works")
    counts = np.asarray(votes)
    if counts.ndim != 2 or counts.shape[1] < 2 or not len(counts):
        raise ValueError(
            f"votes have shape {counts.shape}: a row a query and a column a label, two or more, work"
        )
    if counts.dtype.kind not in "iuf" or not np.all((counts >= 0) & (counts <= teachers)):
        raise ValueError(f"votes are whole counts, 0 to {teachers}: one a teacher")
    whole = counts.astype(np.int64)
    if np.any(whole != counts) or np.any(whole.sum(axis=1) > teachers):
        raise ValueError(f"votes are whole counts, of each query at most {teachers} together: one a teacher")
    return whole


def _inverse_tail(log_tail: Floats, noise: Noise) -> Floats:
    if noise == "gaussian":
        return np.asarray(-special.ndtri_exp(log_tail) / math.sqrt(2.0))
    y = np.maximum(-log_tail, 0.0)
    for _ in range(80):  # a contraction by 1/(2 + y)
        y = np.maximum(np.log((2.0 + y) / 4.0) - log_tail, 0.0)
    return y


def _per_vote(noise: Noise, scale: float) -> float:
    """The argument of `log_tail` for a gap of one vote."""
    return 0.5 / scale if noise == "gaussian" else scale


def _cells(counts: npt.NDArray[np.int64], noise: Noise, scale: float) -> npt.NDArray[np.int64]:
    """The cell of each query's effective gap, rounded down: towards a larger q."""
    ordered = np.sort(counts, axis=1)
    gaps: Floats = (ordered[:, -1:] - ordered[:, :-1]).astype(np.float64)
    tails = log_tail(gaps * _per_vote(noise, scale), noise)
    mean = np.logaddexp.reduce(tails, axis=1) - math.log(counts.shape[1] - 1)
    gap = _inverse_tail(mean, noise) / _per_vote(noise, scale)
    return np.asarray(np.maximum(np.floor(gap * (_CELLS / 2) - 1e-6), 0).astype(np.int64))


def _table(noise: Noise, scale: float, labels: int, teachers: int, order: float) -> Floats:
    """The bound on a query's loss in each cell, never increasing with the gap."""
    gaps: Floats = np.arange(teachers * _CELLS // 2 + 2, dtype=np.float64) / (_CELLS / 2)
    # The lower edge of the cell, moved down a little for what `_cells` may have rounded.
    log_q: Floats = log_tail(np.maximum(gaps - 1e-9, 0.0) * _per_vote(noise, scale), noise) + math.log(
        labels - 1
    )
    log_q = np.minimum(log_q * (1 - 1e-12), math.log1p(-1.0 / labels))
    found = gnmax_rdp(log_q, scale, order) if noise == "gaussian" else lnmax_rdp(log_q, scale, order)
    # A bound for a larger q is one for a smaller q.
    return np.asarray(np.minimum.accumulate(found) * (1 + SLACK))


def _one_change(table: Floats, steps: int) -> Floats:
    """By how much one teacher may move a query that is in each cell."""
    before = np.concatenate([np.full(steps, table[0]), table])[: table.size]
    after = np.concatenate([table, np.full(steps, table[-1])])[steps:]
    return np.asarray(np.maximum(before - table, table - after))


def _within_distance(one_change: Floats, cell: int, steps: int, teachers: int) -> Floats:
    """The largest of `one_change` within 0, 1, … changes of a cell, shape (teachers + 1,)."""
    reach = np.arange(teachers + 1) * steps
    up = np.maximum.accumulate(one_change[cell:])
    down = np.maximum.accumulate(one_change[cell::-1])
    return np.asarray(np.maximum(up[np.minimum(reach, up.size - 1)], down[np.minimum(reach, down.size - 1)]))
