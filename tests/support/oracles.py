"""Independent truths at 50 digits: textbook formulas in mpmath that share no code with the accountant.

Parameters are taken as the decimals they mean. Losses in nats.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import mpmath as mp

DIGITS = 50
Real = Any  # an mpmath number


def number(value: Any) -> Real:
    """A number as the decimal it means (a fraction: exactly)."""
    if isinstance(value, Fraction):
        return mp.mpf(value.numerator) / value.denominator
    return mp.mpf(repr(value) if isinstance(value, float) else value)


# -- one release of each kind: D_alpha, by the defining formula ------------------------------------


def renyi(document: dict[str, Any], order: Fraction) -> Real:
    """D_alpha of one release at a finite order, infinity for no bound."""
    return _renyi()[document["kind"]](document, number(order))


def kinds() -> frozenset[str]:
    """The kinds that have a truth."""
    return frozenset(_renyi())


def _renyi() -> dict[str, Callable[[dict[str, Any], Real], Real]]:
    from tests.support.kinds import RENYI  # they use the functions of this module

    return _RENYI | RENYI


def _gaussian(document: dict[str, Any], alpha: Real) -> Real:
    z = number(document["noise_multiplier"])
    return alpha / (2 * z * z) if z else mp.inf


def _laplace_scale(document: dict[str, Any]) -> Real:
    scale = document.get("scale_over_sensitivity")
    return 1 / number(document["epsilon"]) if scale is None else number(scale)


def _laplace(document: dict[str, Any], alpha: Real) -> Real:
    b = _laplace_scale(document)
    with mp.extradps(60):  # tiny losses cancel twice
        terms = alpha * mp.exp((alpha - 1) / b) + (alpha - 1) * mp.exp(-alpha / b)
        return mp.log(terms / (2 * alpha - 1)) / (alpha - 1)


def answer_probabilities(document: dict[str, Any]) -> tuple[Real, Real]:
    """(p, r): the probability of the true answer and of each other one."""
    k = document["k"]
    if document.get("epsilon") is not None:
        odds = mp.exp(number(document["epsilon"]))
        return odds / (odds + k - 1), 1 / (odds + k - 1)
    p = number(document["probability_of_truth"])
    return p, (1 - p) / (k - 1)


def _randomized_response(document: dict[str, Any], alpha: Real) -> Real:
    with mp.extradps(60):
        p, r = answer_probabilities(document)
        if r == 0:
            return mp.inf
        rest = (document["k"] - 2) * r
        return mp.log(p**alpha * r ** (1 - alpha) + r**alpha * p ** (1 - alpha) + rest) / (alpha - 1)


def _pure(document: dict[str, Any], alpha: Real) -> Real:
    with mp.extradps(60):
        epsilon = number(document["epsilon"])
        p = 1 / (1 + mp.exp(-epsilon))
        q = 1 / (1 + mp.exp(epsilon))
        return mp.log(p**alpha * q ** (1 - alpha) + q**alpha * p ** (1 - alpha)) / (alpha - 1)


def _stated_curve(document: dict[str, Any], alpha: Real) -> Real:
    given = zip(document["orders"], document["epsilons"], strict=True)
    return next((number(epsilon) for order, epsilon in given if number(order) >= alpha), mp.inf)


def _poisson_subsampled(document: dict[str, Any], alpha: Real) -> Real:
    q, z = number(document["sampling_rate"]), number(document["base"]["noise_multiplier"])
    if q == 0:
        return mp.mpf(0)
    if q == 1 or z == 0:
        return _gaussian(document["base"], alpha)
    excess = _whole_excess(q, z, int(alpha)) if alpha == int(alpha) else _quadrature_excess(q, z, alpha)
    return mp.log1p(excess) / (alpha - 1)


def _whole_excess(q: Real, z: Real, alpha: int) -> Real:
    """A - 1 by the binomial sum, each binomial term from the one before."""
    odds, spread = q / (1 - q), 1 / (2 * z * z)
    term, excess = (1 - q) ** alpha * odds * alpha, mp.mpf(0)
    for k in range(2, alpha + 1):
        term *= odds * (alpha - k + 1) / k
        excess += term * mp.expm1(k * (k - 1) * spread)
    return excess


def _quadrature_excess(q: Real, z: Real, alpha: Real) -> Real:
    """A - 1 by the trapezoid rule on E[(1 + u)^alpha - 1 - alpha u], E[u] = 0, u = q (e^{t/z - 1/2z^2} - 1).

    On an entire-enough integrand with Gaussian decay the rule converges like e^{-2 pi d / h}, where d is
    the distance to the branch points of (1 + u)^alpha: pi z or more. Halved until 16 digits stand.
    """
    # u is about q/z, and what is wanted is of the size of its square: digits for what cancels.
    with mp.extradps(30 + int(2 * max(0, mp.log10(z / q)))):
        shift = 1 / (2 * z * z)
        low, high = mp.mpf(-16), alpha / z + 16

        def at(t: Real) -> Real:
            u = q * mp.expm1(t / z - shift)
            return ((1 + u) ** alpha - 1 - alpha * u) * mp.npdf(t)

        def rule(step: Real) -> Real:
            n = int((high - low) / step) + 1
            return step * mp.fsum(at(low + i * step) for i in range(n + 1))

        step = min(mp.mpf(1) / 4, z / 2)
        before, now = mp.mpf(0), rule(step)
        while abs(now - before) > abs(now) * mp.mpf(10) ** -16:
            step /= 2
            before, now = now, rule(step)
        return now


_RENYI: dict[str, Callable[[dict[str, Any], Real], Real]] = {
    "gaussian": _gaussian,
    "laplace": _laplace,
    "randomized_response": _randomized_response,
    "pure": _pure,
    "approximate": _pure,
    "zcdp": lambda document, alpha: number(document["rho"]) * alpha,
    "gdp": lambda document, alpha: number(document["mu"]) ** 2 * alpha / 2,
    "renyi_curve": _stated_curve,
    "non_private": lambda _document, _alpha: mp.inf,
    "poisson_subsampled": _poisson_subsampled,
}


# -- the other coordinates --------------------------------------------------------------------------


def pure(document: dict[str, Any]) -> Real:
    """The largest loss, infinity where there is none."""
    from tests.support.kinds import PURE

    kind = document["kind"]
    if kind in PURE:
        return PURE[kind](document)
    if kind == "laplace":
        return 1 / _laplace_scale(document)
    if kind == "randomized_response":
        p, r = answer_probabilities(document)
        return mp.log(p / r) if r else mp.inf
    if kind in ("pure", "approximate"):
        return number(document["epsilon"])
    spends = {"zcdp": "rho", "gdp": "mu", "poisson_subsampled": "sampling_rate"}
    return mp.mpf(0) if kind in spends and document[spends[kind]] == 0 else mp.inf


def delta(document: dict[str, Any]) -> Real:
    """The probability that the bound does not cover; infinity where there is no noise at all."""
    from tests.support.kinds import DELTA

    kind = document["kind"]
    if kind in DELTA:
        return DELTA[kind](document)
    sampled = kind == "poisson_subsampled" and document["sampling_rate"] > 0
    base = document["base"] if sampled else document
    bare = base.get("noise_multiplier") == 0 or base.get("probability_of_truth") == 1
    return mp.inf if kind == "non_private" or bare else number(document.get("delta", 0))


def worst_pair(document: dict[str, Any]) -> Callable[[Real], Real] | None:
    """delta(epsilon) of the mechanism as a trade-off, where it has a mu; None elsewhere."""
    from tests.support.kinds import WORST

    kind = document["kind"]
    if kind in WORST:
        found: Callable[[Real], Real] | None = WORST[kind](document)
        return found
    if kind == "laplace":
        b = _laplace_scale(document)
        return lambda epsilon: max(mp.mpf(0), -mp.expm1((epsilon - 1 / b) / 2))
    if kind == "randomized_response":
        p, r = answer_probabilities(document)
        return lambda epsilon: max(mp.mpf(0), p - mp.exp(epsilon) * r)
    if kind in ("pure", "approximate"):
        top = number(document["epsilon"])
        return lambda epsilon: max(mp.mpf(0), (mp.exp(top) - mp.exp(epsilon)) / (1 + mp.exp(top)))
    return None


def gdp_delta(mu: Real, epsilon: Real) -> Real:
    """delta(epsilon) of N(0,1) against N(mu,1)."""
    with mp.extradps(60):
        first = mp.erfc((epsilon / mu - mu / 2) / mp.sqrt(2)) / 2
        second = mp.erfc((epsilon / mu + mu / 2) / mp.sqrt(2)) / 2
        return first - mp.exp(epsilon) * second


# -- the mixture -------------------------------------------------------------------------------------


class TrueMixture:
    """What the filter and the odometer compare with delta (SOUNDNESS sections 2 and 3), at 50 digits."""

    def __init__(self, weights: Sequence[Any], orders: Sequence[Fraction], losses: Sequence[Any]) -> None:
        self._rows = [
            (mp.log(number(weight)), number(order) - 1, mp.mpf(float(loss)))  # the float's own binary value
            for weight, order, loss in zip(weights, orders, losses, strict=True)
            if weight and math.isfinite(loss)
        ]

    def log_delta_filter(self, epsilon: Any) -> Real:
        """Log max over x > 0 of (1 - e^-x) / sum w e^{(a-1)(eps + x - S)}."""
        epsilon = number(epsilon)
        terms = [log_w + step * (epsilon - loss) for log_w, step, loss in self._rows]
        steps = [step for _, step, _ in self._rows]
        top = max(terms)

        def grown(x: Real) -> list[Real]:
            return [mp.exp(term - top + step * x) for term, step in zip(terms, steps, strict=True)]

        def rises(x: Real) -> bool:
            parts = grown(x)
            mean = mp.fsum(map(mp.fmul, parts, steps)) / mp.fsum(parts)
            return bool(1 / mp.expm1(x) > mean)

        low, high = mp.mpf(10) ** -8, mp.mpf(10)
        for _ in range(60):  # the maximum is flat: 18 digits of x give 36 of the value
            middle = (low + high) / 2
            low, high = (middle, high) if rises(middle) else (low, middle)
        return mp.log(-mp.expm1(-low)) - top - mp.log(mp.fsum(grown(low)))

    def level(self, epsilon: Any) -> Real:
        """Log sum w e^{(a-1)(eps - S)}: what the odometer holds at log 1/delta."""
        epsilon = number(epsilon)
        return mp.log(mp.fsum(mp.exp(log_w + step * (epsilon - loss)) for log_w, step, loss in self._rows))
