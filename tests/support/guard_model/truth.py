"""What a set of releases costs at least: Rényi divergences by sums and integrals of its own.

A record's place in draw d is a coin of probability q_d. Release k is a Gaussian whose mean moves by
a[d][k] standard deviations if the record was in draw d. The pair of laws, a record there or not there, is a
mixture of Gaussians against one Gaussian. Draws and releases that share nothing add up.

Nothing here is taken from the accountant or from Opacus.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product

import numpy as np

ORDERS = (2, 8, 32)
"""Rényi orders at which charges are compared."""
MOST_DRAWS_TOGETHER = 10
"""Of more draws in one release only so many are counted, which lowers the truth and never raises it."""

Moves = Mapping[int, Sequence[float]]
"""For each draw, how far each release moves, in standard deviations of its noise."""


def rate_of_coin(rate: float) -> float:
    """The probability of `torch.rand(n) < rate`: multiples of 2^-24, compared in single precision."""
    if not rate > 0:
        return 0.0
    return min(1.0, math.ceil(float(np.float32(rate)) * 2**24) / 2**24)


def divergence(rates: Mapping[int, float], moves: Moves, order: int) -> float:
    """A lower bound, in nats, on the Rényi divergence of that order of all the releases together."""
    return sum(
        _of_component({draw: moves[draw] for draw in draws}, rates, order) for draws in _components(moves)
    )


def _components(moves: Moves) -> list[list[int]]:
    """Draws that share a release, directly or by others."""
    groups: list[tuple[set[int], set[int]]] = []
    for draw, row in moves.items():
        touched = {k for k, move in enumerate(row) if move}
        if not touched:
            continue
        draws = {draw}
        apart = []
        for others, theirs in groups:
            if theirs & touched:
                draws |= others
                touched |= theirs
            else:
                apart.append((others, theirs))
        groups = [*apart, (draws, touched)]
    return [sorted(draws) for draws, _ in groups]


def _of_component(moves: Moves, rates: Mapping[int, float], order: int) -> float:
    if len(moves) == 1:
        ((draw, row),) = moves.items()
        return _one_draw(rates[draw], math.fsum(move * move for move in row), order)
    together = sorted(moves, key=lambda draw: -sum(map(abs, moves[draw])))[:MOST_DRAWS_TOGETHER]
    rows = np.array([moves[draw] for draw in together], dtype=float)
    directions = [rows.sum(axis=0), *np.eye(rows.shape[1])[rows.any(axis=0)]]
    best = 0.0
    for direction in directions:  # to look at one direction alone never raises a divergence
        length = float(np.linalg.norm(direction))
        if length:
            means = tuple(round(float(mean), 9) for mean in rows @ direction / length)
            best = max(best, _one_release(tuple(rates[draw] for draw in together), means, order))
    return best


@lru_cache(maxsize=10_000)
def _one_draw(rate: float, squared: float, order: int) -> float:
    """One coin, seen by Gaussians of that many squared standard deviations together.

    E[(1 − q + q e^L)^α] − 1 = Σ_k C(α, k) (1 − q)^(α−k) q^k (e^(k(k−1)a/2) − 1), all terms positive.
    """
    if rate == 0 or squared == 0:
        return 0.0
    if math.isinf(squared):
        return math.inf
    logs = []
    for k in range(2, order + 1):
        growth = k * (k - 1) * squared / 2
        log_growth = math.log(math.expm1(growth)) if growth < 500 else growth
        stay = 0.0 if k == order else (order - k) * math.log1p(-rate) if rate < 1 else -math.inf
        logs.append(math.log(math.comb(order, k)) + stay + k * math.log(rate) + log_growth)
    return _log1p_of(_log_sum(logs)) / (order - 1)


@lru_cache(maxsize=10_000)
def _one_release(rates: tuple[float, ...], means: tuple[float, ...], order: int) -> float:
    """Several coins in one Gaussian: the larger of both directions, by the trapezoid rule."""
    if any(math.isinf(mean) for mean in means):
        return math.inf
    weights: dict[float, float] = {}
    for sides in product((0, 1), repeat=len(rates)):
        weight = math.prod(q if side else 1 - q for q, side in zip(rates, sides, strict=True))
        mean = round(sum(m for m, side in zip(means, sides, strict=True) if side), 9)
        weights[mean] = weights.get(mean, 0.0) + weight
    points = [(mean, weight) for mean, weight in weights.items() if weight]
    far = order * max(abs(mean) for mean, _ in points) + 14
    x, step = np.linspace(-far, far, 12_001, retstep=True)
    log_ratio = np.full_like(x, -np.inf)
    for mean, weight in points:
        log_ratio = np.logaddexp(log_ratio, math.log(weight) + mean * x - mean * mean / 2)
    log_base = -x * x / 2 - math.log(math.sqrt(2 * math.pi))
    to = [
        np.logaddexp.reduce(log_base + order * log_ratio) + math.log(step),
        np.logaddexp.reduce(log_base + (1 - order) * log_ratio) + math.log(step),
    ]
    return max(0.0, float(max(to))) / (order - 1)


def _log_sum(logs: Sequence[float]) -> float:
    top = max(logs)
    return top + math.log(math.fsum(math.exp(log - top) for log in logs))


def _log1p_of(log: float) -> float:
    """log(1 + e^log)."""
    return log if log > 40 else math.log1p(math.exp(log))
