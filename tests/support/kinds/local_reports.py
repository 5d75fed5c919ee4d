"""Truths of local reports: every outcome of the bits that differ, summed."""

import itertools
from collections.abc import Callable
from typing import Any

import mpmath as mp
from hypothesis import strategies as st

from tests.support.oracles import Real, number

Document = dict[str, Any]


def unary_probabilities(document: Document) -> tuple[Real, Real]:
    """(p, q) of a 1 where the bit is set and where it is not."""
    if "optimized_epsilon" in document:
        return mp.mpf(1) / 2, 1 / (mp.exp(number(document["optimized_epsilon"])) + 1)
    if "symmetric_epsilon" in document:
        half = number(document["symmetric_epsilon"]) / 2
        return 1 / (1 + mp.exp(-half)), 1 / (1 + mp.exp(half))
    return number(document["p"]), number(document["q"])


def rappor_probabilities(document: Document) -> tuple[Real, Real]:
    f = number(document["f"])
    if document["permanent_bits"] == "kept":
        return 1 - f / 2, f / 2
    p, q = number(document["p"]), number(document["q"])
    first, second = f * (p + q) / 2 + (1 - f) * q, f * (p + q) / 2 + (1 - f) * p
    return max(first, second), min(first, second)


def coins(p: Real, q: Real, alpha: Real) -> Real:
    """D_alpha between two bits, one set and one not, and the same exchanged."""
    if p == q:
        return mp.mpf(0)
    if q == 0 or p == 1:
        return mp.inf
    terms = [
        (a * b) ** alpha * (c * d) ** (1 - alpha)
        for (a, c), (b, d) in itertools.product(((p, q), (1 - p, 1 - q)), ((q, p), (1 - q, 1 - p)))
    ]
    return mp.log(mp.fsum(terms)) / (alpha - 1)


def unary(document: Document, alpha: Real) -> Real:
    with mp.extradps(150):
        return coins(*unary_probabilities(document), alpha)


def unary_pure(document: Document) -> Real:
    with mp.extradps(150):
        p, q = unary_probabilities(document)
        return mp.log(p * (1 - q) / (q * (1 - p)))


def unary_worst(document: Document) -> Callable[[Real], Real]:
    """Of the four outcomes only (1, 0) can lose more than half, and (0, 0), (1, 1) nothing."""
    with mp.extradps(150):
        p, q = unary_probabilities(document)
    return lambda x: max(mp.mpf(0), p * (1 - q) - mp.exp(x) * q * (1 - p))


def rappor(document: Document, alpha: Real) -> Real:
    with mp.extradps(150):
        return document["h"] * coins(*rappor_probabilities(document), alpha)


def rappor_pure(document: Document) -> Real:
    with mp.extradps(150):
        p, q = rappor_probabilities(document)
        if p == q:
            return mp.mpf(0)
        return document["h"] * mp.log(p * (1 - q) / (q * (1 - p))) if q and p < 1 else mp.inf


def rappor_delta(document: Document) -> Real:
    return mp.inf if mp.isinf(rappor_pure(document)) else mp.mpf(0)


def as_unary(document: Document) -> Document:
    return {"symmetric_epsilon": document["epsilon"]}


def response(document: Document, alpha: Real) -> Real:
    """Randomised response over the buckets, 2 for a single bit."""
    with mp.extradps(60):
        odds = mp.exp(number(document["epsilon"]))
        k = document.get("buckets", 2)
        p, r = odds / (odds + k - 1), 1 / (odds + k - 1)
        return mp.log(p**alpha * r ** (1 - alpha) + r**alpha * p ** (1 - alpha) + (k - 2) * r) / (alpha - 1)


def worst_response(document: Document) -> Callable[[Real], Real]:
    """The outcome that is told alone loses."""
    k = document.get("buckets", 2)

    def delta(x: Real) -> Real:
        with mp.extradps(60):
            odds = mp.exp(number(document["epsilon"]))
            return max(mp.mpf(0), (odds - mp.exp(x)) / (odds + k - 1))

    return delta


def epsilon_of(document: Document) -> Real:
    return number(document["epsilon"])


_EPSILONS = st.one_of(
    st.floats(-12, 2).map(lambda x: min(10.0**x, 1e2)),
    st.floats(1e-3, 10),
    st.sampled_from([0.0, 1e-12, 1e2]),
)
_INSIDE = st.one_of(st.floats(1e-12, 1 - 1e-12), st.floats(-12, -1).map(lambda x: 10.0**x))
_SHARES = st.one_of(_INSIDE, st.sampled_from([0.0, 0.5, 1.0]))


def _kind(name: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Document]:
    return st.fixed_dictionaries({"kind": st.just(name), **fields})


RENYI = {
    "unary_encoding": unary,
    "local_hashing": response,
    "count_mean_sketch": lambda document, alpha: unary(as_unary(document), alpha),
    "hadamard_response": response,
    "rappor": rappor,
}

PURE = {
    "unary_encoding": unary_pure,
    "local_hashing": epsilon_of,
    "count_mean_sketch": epsilon_of,
    "hadamard_response": epsilon_of,
    "rappor": rappor_pure,
}
DELTA = {"rappor": rappor_delta}
WORST = {
    "unary_encoding": unary_worst,
    "local_hashing": worst_response,
    "count_mean_sketch": lambda document: unary_worst(as_unary(document)),
    "hadamard_response": worst_response,
}
DRAWS = {
    "unary_encoding": st.one_of(
        st.tuples(_INSIDE, _INSIDE).map(
            lambda ends: {"kind": "unary_encoding", "p": max(ends), "q": min(ends)}
        ),
        _kind("unary_encoding", optimized_epsilon=_EPSILONS),
        _kind("unary_encoding", symmetric_epsilon=_EPSILONS),
    ),
    "local_hashing": _kind("local_hashing", buckets=st.integers(2, 1000), epsilon=_EPSILONS),
    "count_mean_sketch": _kind("count_mean_sketch", epsilon=_EPSILONS),
    "hadamard_response": _kind("hadamard_response", epsilon=_EPSILONS),
    "rappor": _kind(
        "rappor",
        h=st.integers(1, 1000),
        f=_SHARES,
        p=_SHARES,
        q=_SHARES,
        permanent_bits=st.sampled_from(["kept", "fresh"]),
    ).map(lambda one: one | dict(zip("pq", sorted((one["p"], one["q"])), strict=True))),
}
