"""Losses of single PATE queries on the votes that were cast. Pure functions; their results are private.

The module `pate_votes` says what must not leave the process, and offers these functions too.
"""

import math
from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from scipy import special

Floats = npt.NDArray[np.float64]
Noise = Literal["gaussian", "laplace"]
SLACK: Final = 1e-9
"""Relative, far above the rounding of the formulas."""
DEVIATION: Final = (0.01, 1e9)
"""Range of standard deviations of noise, in votes."""
GAMMA: Final = (1e-12, 500.0)
"""Range of gamma, as a charge of `pate_lnmax` has it."""


def log_q_gaussian(votes: Sequence[float], deviation: float) -> float:
    """Logarithm of an upper bound on the probability that GNMax answers other than the most voted label.

    votes: one count a label, two or more; deviation: of the noise on each, 0.01 to 1e9. Papernot et al. 2018,
    Prop. 7. Raises ValueError, as every function here, for what is out of range.
    """
    check_within("deviation", deviation, DEVIATION)
    return _capped(log_tail(_gaps(votes) / 2 * (1.0 / deviation), "gaussian"), len(votes))


def log_q_laplace(votes: Sequence[float], gamma: float) -> float:
    """As `log_q_gaussian` for LNMax, noise of scale 1/gamma, 1e-12 to 500. Papernot et al. 2017, Lemma 4."""
    check_within("gamma", gamma, GAMMA)
    return _capped(log_tail(_gaps(votes) * gamma, "laplace"), len(votes))


def log_q_threshold(votes: Sequence[float], threshold: float, deviation: float) -> float:
    """Logarithm of the probability of the less likely outcome of max(votes) + N(0, deviation²) >= T."""
    check_within("deviation", deviation, DEVIATION)
    if not math.isfinite(threshold):
        raise ValueError(f"threshold is {threshold}: a finite number of votes works")
    z = (threshold - float(np.max(_votes(votes)))) / deviation
    return float(min(special.log_ndtr(z), special.log_ndtr(-z)))


def gnmax_rdp(log_q: float | Floats, deviation: float, order: float) -> Floats:
    """D_order of a GNMax query whose answer differs from the likely one with probability at most e^log_q.

    Papernot et al. 2018, Theorem 6 with the orders of Proposition 10; order/deviation² (Prop. 8) where this
    is less or the theorem's conditions do not hold. Same shape as log_q, 0 or below; deviation 0.01 to 1e9;
    order above 1.
    """
    check_within("deviation", deviation, DEVIATION)
    return _gnmax_rdp(log_q, deviation, order)


def _gnmax_rdp(log_q: float | Floats, deviation: float, order: float) -> Floats:
    logs = _logs(log_q)
    check_order(order)
    variance = deviation**2
    flat = np.full_like(logs, order / variance)
    mu2 = deviation * np.sqrt(-logs)
    mu1 = mu2 + 1.0
    applies = (mu1 > order) & (mu2 > 1.0 + 1e-9)
    safe2 = np.where(applies, mu2, 2.0)
    safe1 = safe2 + 1.0
    epsilon1, epsilon2 = safe1 / variance, safe2 / variance
    limit = (safe2 - 1) * epsilon2 - safe2 * (np.log1p(1 / (safe1 - 1)) + np.log1p(1 / (safe2 - 1)))
    applies &= (logs <= limit) & (logs + epsilon2 < 0)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        log_stays = _log1mexp(logs)
        log_a = (order - 1) * (log_stays - _log1mexp((logs + epsilon2) * (1 - 1 / safe2)))
        log_b = (order - 1) * (epsilon1 - logs / (safe1 - 1))
        found = np.logaddexp(log_stays + log_a, logs + log_b) / (order - 1)
    return np.where(applies & np.isfinite(found), np.clip(found, 0.0, flat), flat)


def threshold_rdp(log_q: float | Floats, deviation: float, order: float) -> Floats:
    """As `gnmax_rdp` for the threshold check, where a teacher moves one count by one."""
    check_within("deviation", deviation, DEVIATION)
    return _gnmax_rdp(log_q, math.sqrt(2.0) * deviation, order)


def lnmax_rdp(log_q: float | Floats, gamma: float, order: float) -> Floats:
    """D_order of an LNMax query.

    Papernot et al. 2017, Theorem 3 (its moment of order - 1, over that) for q < 1/(e^{2 gamma} + 1), or what
    2 gamma-DP gives. gamma 1e-12 to 500; log_q and order as there.
    """
    logs = _logs(log_q)
    check_within("gamma", gamma, GAMMA)
    check_order(order)
    pure = 2.0 * gamma
    flat = np.full_like(logs, min(pure, order * pure * pure / 2))
    applies = logs < -np.logaddexp(0.0, pure)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        log_stays = _log1mexp(logs)
        first = log_stays + (order - 1) * (log_stays - _log1mexp(np.where(applies, logs + pure, -1.0)))
        found = np.logaddexp(first, logs + pure * (order - 1)) / (order - 1)
    return np.where(applies & np.isfinite(found), np.clip(found, 0.0, flat), flat)


def check_within(name: str, value: float, between: tuple[float, float]) -> None:
    """Raise ValueError unless `value` is in the closed range (NaN is not)."""
    least, most = between
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}: {least:g} to {most:g} works")


def check_order(order: float) -> None:
    """Raise ValueError unless the order is finite and above 1."""
    if not 1 < order < math.inf:
        raise ValueError(f"order is {order}: a finite one above 1 works")


def _logs(log_q: float | Floats) -> Floats:
    """Logarithms of probabilities, kept off 0."""
    logs = np.asarray(log_q, dtype=float)
    if not np.all(logs <= 0):
        raise ValueError("log_q: the logarithm of a probability works, 0 or below")
    return np.asarray(np.minimum(logs, -1e-300))


def _votes(votes: Sequence[float]) -> Floats:
    """One query's counts."""
    counts = np.asarray(votes, dtype=float)
    if counts.ndim != 1 or counts.size < 2 or not np.all((counts >= 0) & (counts < math.inf)):
        raise ValueError("votes: a count of 0 or more for each label, two labels or more, work")
    return counts


def _gaps(votes: Sequence[float]) -> Floats:
    """From the most voted label to each other one."""
    counts = np.sort(_votes(votes))
    return np.asarray(counts[-1] - counts[:-1])


def _capped(log_tails: Floats, labels: int) -> float:
    return float(min(np.logaddexp.reduce(log_tails), math.log1p(-1.0 / labels)))


def log_tail(y: Floats, noise: Noise) -> Floats:
    """Logarithm of the probability that noise bridges a gap: y is gap/(2 deviation), or gap gamma."""
    if noise == "gaussian":
        return np.asarray(special.log_ndtr(-math.sqrt(2.0) * y))
    return np.asarray(np.log((2.0 + y) / 4.0) - y)


def _log1mexp(x: Floats) -> Floats:
    """log(1 - e^x) for x < 0."""
    return np.where(x < -0.7, np.log1p(-np.exp(x)), np.log(-np.expm1(x)))
