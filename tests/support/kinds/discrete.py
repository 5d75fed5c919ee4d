"""Truths of integer noise, by summation or by the theorem that bounds it."""

from typing import Any

import mpmath as mp
from hypothesis import strategies as st

from tests.support.oracles import DIGITS, Real, number


def logs(least: float, most: float) -> st.SearchStrategy[float]:
    return st.floats(mp.log10(least), mp.log10(most)).map(lambda x: min(max(10.0**x, least), most))


def _discrete_gaussian(document: dict[str, Any], alpha: Real) -> Real:
    z = number(document["noise_multiplier"])
    return alpha / (2 * z * z) if z else mp.inf


def discrete_laplace(document: dict[str, Any], alpha: Real) -> Real:
    """The sum over all integers, its two tails and its middle as geometric series."""
    with mp.workdps(DIGITS + 80):  # tiny losses cancel twice
        p, width = mp.exp(-1 / number(document["scale"])), document["sensitivity"]
        step = p ** (2 * number(alpha) - 1)
        between = step * (1 - step ** (width - 1)) / (1 - step)
        high = p ** ((1 - alpha) * width)
        total = (high + p ** (alpha * width)) / (1 + p) + (1 - p) / (1 + p) * high * between
        return mp.log(total) / (alpha - 1)


def _distributed(document: dict[str, Any], alpha: Real) -> Real:
    sigma, n = number(document["client_noise"]), document["clients"]
    norm, dimension = number(document["l2_sensitivity"]), document["dimension"]
    tau = 10 * mp.fsum(mp.exp(-2 * mp.pi**2 * sigma**2 * k / (k + 1)) for k in range(1, min(n, 500)))
    tau += 10 * max(0, n - 500) * mp.exp(-2 * mp.pi**2 * sigma**2)
    root = mp.sqrt(n) * sigma
    l1 = min(mp.sqrt(dimension) * norm, norm**2)
    moved = norm**2 / root**2
    twice = moved + 2 * tau * l1 / root + tau**2 * dimension
    return min(alpha * moved / 2 + tau * dimension, alpha * twice / 2)


def _skellam(document: dict[str, Any], alpha: Real) -> Real:
    l1, l2 = number(document["l1_sensitivity"]), number(document["l2_sensitivity"])
    v = number(document["variance"])

    def scaled(order: Real) -> Real:
        more = min(((2 * order - 1) * l2**2 + 6 * l1) / (4 * v**2), 3 * l1 / (2 * v))
        return (order - 1) * (order * l2**2 / (2 * v) + more)

    below = mp.floor(alpha)
    return (scaled(below) + (alpha - below) * (scaled(mp.ceil(alpha)) - scaled(below))) / (alpha - 1)


RENYI = {
    "discrete_gaussian": _discrete_gaussian,
    "discrete_laplace": discrete_laplace,
    "distributed_discrete_gaussian": _distributed,
    "skellam": _skellam,
}
PURE = {"discrete_laplace": lambda document: document["sensitivity"] / number(document["scale"])}
DELTA = {
    "discrete_gaussian": lambda document: mp.mpf(0) if document["noise_multiplier"] else mp.inf,
}


@st.composite
def _discrete_laplaces(draw: st.DrawFn) -> dict[str, Any]:
    width = draw(st.one_of(st.integers(1, 20), st.integers(1, 10**9)))
    scale = draw(logs(max(1e-3, width / 999.0), 1e12))
    return {"kind": "discrete_laplace", "scale": scale, "sensitivity": width}


@st.composite
def _skellams(draw: st.DrawFn) -> dict[str, Any]:
    l1 = draw(logs(1, 1e12))
    norms = {"l1_sensitivity": l1, "l2_sensitivity": draw(logs(1, l1))}
    return {"kind": "skellam", "variance": draw(logs(1e-6, 1e18)), **norms}


DRAWS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "discrete_laplace": _discrete_laplaces(),
    "distributed_discrete_gaussian": st.fixed_dictionaries(
        {
            "kind": st.just("distributed_discrete_gaussian"),
            "client_noise": logs(0.5, 1e9),
            "clients": st.one_of(st.integers(1, 100), st.integers(1, 400)),
            "l2_sensitivity": logs(1, 1e12),
            "dimension": st.integers(1, 10**12),
        }
    ),
    "skellam": _skellams(),
}
