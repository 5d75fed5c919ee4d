"""Truths of private selection: the worst pair of bounded range by its two losses, and of pure ε."""

from collections.abc import Callable
from typing import Any

import mpmath as mp
from hypothesis import strategies as st

from tests.support.oracles import Real, number

Document = dict[str, Any]


def bounded_range(document: Document, alpha: Real) -> Real:
    """The larger loss t of the worst two-point pair found as the zero of a derivative, then summed."""
    epsilon = number(document["epsilon"])
    if not epsilon:
        return mp.mpf(0)
    with mp.extradps(80):
        u = (alpha - 1) * mp.expm1(-alpha * epsilon) / alpha / (mp.exp(-alpha * epsilon) - mp.exp(-epsilon))
        t = mp.log(u)
        low = (mp.exp(-t) - mp.exp(-epsilon)) / -mp.expm1(-epsilon)
        high = mp.expm1(-t) / mp.expm1(-epsilon)
        both = low * mp.exp(alpha * t) + high * mp.exp(alpha * (t - epsilon))
        return mp.log(both) / (alpha - 1)


def pure_curve(document: Document, alpha: Real) -> Real:
    """Binary randomised response of the same ε."""
    with mp.extradps(60):
        epsilon = number(document["epsilon"])
        p, q = 1 / (1 + mp.exp(-epsilon)), 1 / (1 + mp.exp(epsilon))
        return mp.log(p**alpha * q ** (1 - alpha) + q**alpha * p ** (1 - alpha)) / (alpha - 1)


def epsilon_of(document: Document) -> Real:
    return number(document["epsilon"])


def bounded_range_worst(document: Document) -> Callable[[Real], Real]:
    """delta(x) = (1 - e^{(x - eps)/2})^2 / (1 - e^-eps), the largest over t (Dong, Durfee, Rogers 2020)."""
    top = number(document["epsilon"])
    return lambda x: mp.expm1((x - top) / 2) ** 2 / -mp.expm1(-top) if x < top else mp.mpf(0)


def pure_worst(document: Document) -> Callable[[Real], Real]:
    top = number(document["epsilon"])
    return lambda x: max(mp.mpf(0), (mp.exp(top) - mp.exp(x)) / (1 + mp.exp(top)))


_EPSILONS = st.one_of(
    st.floats(-12, 3).map(lambda x: min(10.0**x, 1e3)),
    st.floats(1e-3, 10),
    st.sampled_from([0.0, 1e-12, 1e3]),
)

RENYI = {"exponential": bounded_range, "permute_and_flip": pure_curve, "report_noisy_max": pure_curve}
PURE = dict.fromkeys(RENYI, epsilon_of)
WORST = {
    "exponential": bounded_range_worst,
    "permute_and_flip": pure_worst,
    "report_noisy_max": pure_worst,
}
DRAWS = {
    "exponential": st.fixed_dictionaries({"kind": st.just("exponential"), "epsilon": _EPSILONS}),
    "permute_and_flip": st.fixed_dictionaries({"kind": st.just("permute_and_flip"), "epsilon": _EPSILONS}),
    "report_noisy_max": st.fixed_dictionaries(
        {
            "kind": st.just("report_noisy_max"),
            "noise": st.sampled_from(["laplace", "exponential"]),
            "epsilon": _EPSILONS,
        }
    ),
}
