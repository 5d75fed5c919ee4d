"""Truths of tuning: the theorems' bounds at 50 digits, and the largest convex function below them."""

import json
from functools import lru_cache
from typing import Any

import mpmath as mp
from hypothesis import strategies as st

from odometer_accountant.numerics.grid import GRID_V1
from tests.support import oracles
from tests.support.oracles import DIGITS, Real, number

Document = dict[str, Any]


def log_mean(repeats: Document) -> Real:
    """Definition 1 of Papernot, Steinke 2022, and its limits."""
    if repeats["distribution"] == "poisson":
        return mp.log(number(repeats["mean"]))
    gamma = number(repeats["gamma"])
    if repeats["distribution"] == "geometric":
        return -mp.log(gamma)
    eta = number(repeats.get("eta", 0))
    if eta == 0:
        return mp.log((1 / gamma - 1) / mp.log(1 / gamma))
    return mp.log(eta * (1 - gamma) / (gamma * (1 - gamma**eta)))


def rho(base: Document) -> Real:
    if base["kind"] == "gaussian":
        return 1 / (2 * number(base["noise_multiplier"]) ** 2)
    epsilon = number(base["epsilon"])
    return epsilon + mp.expm1(-epsilon) if base["kind"] == "laplace" else epsilon * mp.tanh(epsilon / 2)


def delta(curve: list[tuple[Real, Real]], kl: Real, pure: Real, epsilon: Real) -> Real:
    """The least of all conversions and of the bounds of Pinsker and of Bretagnolle, Huber. kl: of D_1."""
    found = [mp.exp((b - 1) * (loss - epsilon)) * (1 - 1 / b) ** (b - 1) / b for b, loss in curve]
    if not mp.isinf(pure):
        found.append(max(mp.mpf(0), (mp.exp(pure) - mp.exp(epsilon)) / (1 + mp.exp(pure))))
    return min([mp.sqrt(kl / 2), mp.sqrt(-mp.expm1(-kl)), *found])


@lru_cache(maxsize=4)
def truths(text: str) -> tuple[dict[Any, Real], Real]:
    """D at every grid order, and at infinity."""
    document = json.loads(text)
    base, repeats = document["base"], document["repeats"]
    with mp.workdps(DIGITS + 30):
        curve = [(number(order), oracles.renyi(base, order)) for order in GRID_V1.exact_orders]
        pure = oracles.pure(base)
        if repeats["distribution"] == "poisson":
            mean = number(repeats["mean"])
            kl = min(curve[0][1], rho(base), pure)
            added = [mean * delta(curve, kl, pure, mp.log(1 + 1 / (a - 1))) for a, _ in curve]
            last = mean * delta(curve, kl, pure, mp.mpf(0))
        else:
            eta = {"geometric": 1, "logarithmic": 0}.get(repeats["distribution"], repeats.get("eta"))
            log_gamma = mp.log(number(repeats["gamma"]))
            least = min([-log_gamma, pure, *((1 - 1 / b) * loss - log_gamma / b for b, loss in curve)])
            last = (1 + number(eta)) * least
            added = [last] * len(curve)
        top = pure + last
        start = log_mean(repeats)
        points = [(mp.mpf(0), mp.mpf(0))]
        points += [(a - 1, (a - 1) * (d + c) + start) for (a, d), c in zip(curve, added, strict=True)]
        if not mp.isinf(top):
            worst = {"kind": "pure", "epsilon": top}
            points = [(x, min(y, x * oracles.renyi(worst, x + 1)) if x else y) for x, y in points]
        found = {}
        for place, order in enumerate(GRID_V1.exact_orders, start=1):
            x = points[place][0]
            chords = [
                low[1] + (high[1] - low[1]) * (x - low[0]) / (high[0] - low[0])
                for low in points[:place]
                for high in points[place:]
            ]
            rays = [] if mp.isinf(top) else [low[1] + (x - low[0]) * top for low in points[: place + 1]]
            found[order] = min([points[place][1], *chords, *rays]) / x
        return found, top


def renyi(document: Document, alpha: Real) -> Real:
    found, _ = truths(json.dumps(document, sort_keys=True))
    return next(value for order, value in found.items() if number(order) == alpha)


def pure(document: Document) -> Real:
    return truths(json.dumps(document, sort_keys=True))[1]


_BASES = st.one_of(
    st.floats(-0.3, 3).map(lambda x: {"kind": "gaussian", "noise_multiplier": 10.0**x}),
    st.floats(-3, 1).map(lambda x: {"kind": "laplace", "epsilon": 10.0**x}),
    st.floats(-3, 1).map(lambda x: {"kind": "pure", "epsilon": 10.0**x}),
)
_GAMMAS = st.floats(-6, -0.01).map(lambda x: 10.0**x)
_REPEATS = st.one_of(
    st.fixed_dictionaries({"distribution": st.sampled_from(["geometric", "logarithmic"]), "gamma": _GAMMAS}),
    st.fixed_dictionaries(
        {
            "distribution": st.just("negative_binomial"),
            "gamma": _GAMMAS,
            "eta": st.one_of(
                st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.floats(-0.9, -0.01), st.floats(0.01, 100)
            ),
        }
    ),
    st.fixed_dictionaries(
        {"distribution": st.just("poisson"), "mean": st.floats(0, 6).map(lambda x: max(1.0, 10.0**x))}
    ),
)

RENYI = {"tuned": renyi}
PURE = {"tuned": pure}
DRAWS = {"tuned": st.fixed_dictionaries({"kind": st.just("tuned"), "base": _BASES, "repeats": _REPEATS})}
