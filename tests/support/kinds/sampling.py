"""Truths of batches of a fixed size, shuffled epochs, compositions and groups, by their formulas."""

from functools import lru_cache
from typing import Any

import mpmath as mp
from hypothesis import strategies as st

from odometer_accountant.numerics.grid import GRID_V1
from tests.support import oracles
from tests.support.oracles import Real, number

Document = dict[str, Any]
TOP = 64
"""The largest order whose truth is summed here."""


# -- without replacement: Wang, Balle, Kasiviswanathan 2019, Theorem 27, of Gaussians -------------------


def without_replacement(document: Document, alpha: Real) -> Real:
    """The chords under all points: (alpha-1) D_alpha is convex, 0 at order 1, and below every bound."""
    batch, population = document["batch_size"], document["population"]
    if batch == 0:
        return mp.mpf(0)
    if batch == population:
        return oracles.renyi(document["base"], alpha)
    points = _points(document["base"]["noise_multiplier"], batch, population)
    known = dict(points)
    best = known.get(alpha, mp.inf)
    for x0, y0 in points:
        for x1, y1 in points:
            if x0 < alpha < x1:
                best = min(best, y0 + (y1 - y0) * (alpha - x0) / (x1 - x0))
    return best / (alpha - 1)


@lru_cache(maxsize=64)
def _points(noise_multiplier: float, batch: int, population: int) -> list[tuple[Real, Real]]:
    with mp.workdps(oracles.DIGITS + 300):
        z, q = number(noise_multiplier), mp.mpf(batch) / population
        orders = [number(order) for order in GRID_V1.exact_orders if order <= TOP]
        base = {order: order * (order - 1) / (2 * z * z) for order in orders}
        even = {n: _central(z, n) for n in range(2, TOP + 1, 2)}
        for order in orders:
            if order == int(order):
                base[order] = min(base[order], mp.log1p(_excess(z, q, int(order), even)))
        return [(mp.mpf(1), mp.mpf(0)), *sorted(base.items())]


def _central(z: Real, n: int) -> Real:
    """E_Q[(P/Q - 1)^n] by the binomial theorem."""
    return mp.fsum(
        mp.binomial(n, i) * (-1) ** (n - i) * mp.exp(i * (i - 1) / (2 * z * z)) for i in range(n + 1)
    )


def _excess(z: Real, q: Real, alpha: int, even: dict[int, Real]) -> Real:
    total = mp.binomial(alpha, 2) * q**2 * min(4 * mp.expm1(1 / z**2), 2 * mp.exp(1 / z**2))
    for j in range(3, alpha + 1):
        plain = 2 * mp.exp(j * (j - 1) / (2 * z * z))
        if j + j % 2 in even:
            plain = min(plain, 4 * mp.sqrt(even[j - j % 2] * even[j + j % 2]))
        total += mp.binomial(alpha, j) * q**j * plain
    return total


@st.composite
def batches(draw: st.DrawFn) -> Document:
    population = draw(st.integers(10, 10**9))
    batch = draw(st.one_of(st.integers(0, population // 10), st.just(population), st.just(1)))
    noise = draw(st.floats(-0.5, 2).map(lambda x: 10.0**x))
    base = {"kind": "gaussian", "noise_multiplier": noise}
    kind = "sampled_without_replacement"
    return {"kind": kind, "base": base, "batch_size": batch, "population": population}


# -- shuffled epochs, compositions ---------------------------------------------------------------------

_noises = st.one_of(st.floats(-2, 9).map(lambda x: min(max(10.0**x, 0.01), 1e9)), st.just(0.0))
_gaussians = st.fixed_dictionaries({"kind": st.just("gaussian"), "noise_multiplier": _noises})
_laplaces = st.fixed_dictionaries({"kind": st.just("laplace"), "epsilon": st.floats(1e-6, 1e3)})
_zcdps = st.fixed_dictionaries({"kind": st.just("zcdp"), "rho": st.floats(1e-9, 1e3)})
_approximates = st.fixed_dictionaries(
    {"kind": st.just("approximate"), "epsilon": st.floats(1e-6, 5), "delta": st.floats(1e-30, 1e-3)}
)


def shuffled_epochs(document: Document, alpha: Real) -> Real:
    return document["epochs"] * oracles.renyi(document["base"], alpha)


def no_noise(document: Document) -> Real:
    return oracles.delta(document["base"])


def _terms(document: Document) -> list[tuple[int, Document]]:
    counts = document.get("counts") or [1] * len(document["mechanisms"])
    return list(zip(counts, document["mechanisms"], strict=True))


def composed(document: Document, alpha: Real) -> Real:
    return mp.fsum(count * oracles.renyi(part, alpha) for count, part in _terms(document))


def composed_pure(document: Document) -> Real:
    return mp.fsum(count * oracles.pure(part) for count, part in _terms(document))


def composed_delta(document: Document) -> Real:
    return mp.fsum(count * oracles.delta(part) for count, part in _terms(document))


@st.composite
def compositions(draw: st.DrawFn) -> Document:
    parts = draw(st.lists(st.one_of(_gaussians, _laplaces, _zcdps, _approximates), min_size=1, max_size=5))
    document: Document = {"kind": "composed", "mechanisms": parts}
    if draw(st.booleans()):
        counts = st.lists(st.integers(1, 10**6), min_size=len(parts), max_size=len(parts))
        document["counts"] = draw(counts)
    return document


# -- groups: of Gaussians, of rho-zCDP and of (epsilon, delta) -----------------------------------------


def group_delta(document: Document) -> Real:
    base, k = document["base"], document["group_size"]
    one = oracles.delta(base)
    if base["kind"] != "approximate" or k == 1:
        return one
    found = one * mp.fsum(mp.exp(i * number(base["epsilon"])) for i in range(k))
    return found if found < 1 else mp.inf


def group_pure(document: Document) -> Real:
    return (
        mp.inf if mp.isinf(group_delta(document)) else document["group_size"] * oracles.pure(document["base"])
    )


def grouped(document: Document, alpha: Real) -> Real:
    base, k = document["base"], document["group_size"]
    if base["kind"] != "approximate":
        return k * k * oracles.renyi(base, alpha)
    if mp.isinf(group_delta(document)):
        return mp.inf
    with mp.extradps(60):
        epsilon = k * number(base["epsilon"])
        p, q = 1 / (1 + mp.exp(-epsilon)), 1 / (1 + mp.exp(epsilon))
        return mp.log(p**alpha * q ** (1 - alpha) + q**alpha * p ** (1 - alpha)) / (alpha - 1)


RENYI = {
    "sampled_without_replacement": without_replacement,
    "shuffled_epochs": shuffled_epochs,
    "composed": composed,
    "grouped": grouped,
}
PURE = {
    "sampled_without_replacement": lambda document: mp.inf if document["batch_size"] else mp.mpf(0),
    "shuffled_epochs": lambda _document: mp.inf,
    "composed": composed_pure,
    "grouped": group_pure,
}
DELTA = {"shuffled_epochs": no_noise, "composed": composed_delta, "grouped": group_delta}
DRAWS = {
    "sampled_without_replacement": batches(),
    "shuffled_epochs": st.fixed_dictionaries(
        {"kind": st.just("shuffled_epochs"), "base": _gaussians, "epochs": st.integers(1, 10**6)}
    ),
    "composed": compositions(),
    "grouped": st.one_of(
        st.fixed_dictionaries(
            {
                "kind": st.just("grouped"),
                "base": st.one_of(_gaussians, _zcdps),
                "group_size": st.integers(1, 10**6),
            }
        ),
        st.fixed_dictionaries(
            {"kind": st.just("grouped"), "base": _approximates, "group_size": st.integers(1, 20)}
        ),
    ),
}
PLACES = {
    "sampled_without_replacement": lambda _document: [
        place for place, order in enumerate(GRID_V1.exact_orders) if order <= TOP
    ]
}
