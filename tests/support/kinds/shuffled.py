"""Truths of shuffling: the closed form and its range at 50 digits."""

from collections.abc import Callable
from typing import Any

import mpmath as mp
from hypothesis import strategies as st

from tests.support.oracles import Real, number

Document = dict[str, Any]


def amplified(document: Document) -> tuple[Real, Real]:
    """(epsilon, delta) that is charged."""
    local, n, delta = number(document["epsilon0"]), number(document["population"]), number(document["delta"])
    log_4 = mp.log(4 / delta)
    if local <= mp.log(n / (16 * log_4)):
        s = 8 * mp.sqrt(mp.exp(local) * log_4 / n) + 8 * mp.exp(local) / n
        share = (1 - mp.exp(-local)) / (1 + mp.exp(-local - mp.log(1 + s)))
        epsilon = mp.log(1 + share * s)
        if epsilon < local:
            return epsilon, delta
    return local, mp.mpf(0)


def renyi(document: Document, alpha: Real) -> Real:
    """Binary randomised response of that epsilon."""
    with mp.extradps(80):
        epsilon, _ = amplified(document)
        p, q = 1 / (1 + mp.exp(-epsilon)), 1 / (1 + mp.exp(epsilon))
        return mp.log(p**alpha * q ** (1 - alpha) + q**alpha * p ** (1 - alpha)) / (alpha - 1)


def pure(document: Document) -> Real:
    with mp.extradps(80):
        return amplified(document)[0]


def delta(document: Document) -> Real:
    with mp.extradps(80):
        return amplified(document)[1]


def worst(document: Document) -> Callable[[Real], Real]:
    def found(x: Real) -> Real:
        with mp.extradps(80):
            top = amplified(document)[0]
            return max(mp.mpf(0), (mp.exp(top) - mp.exp(x)) / (1 + mp.exp(top)))

    return found


RENYI = {"shuffled": renyi}
PURE = {"shuffled": pure}
DELTA = {"shuffled": delta}
WORST = {"shuffled": worst}
DRAWS = {
    "shuffled": st.fixed_dictionaries(
        {
            "kind": st.just("shuffled"),
            "epsilon0": st.one_of(st.floats(1e-6, 12), st.floats(1e-3, 100), st.sampled_from([0.0, 100.0])),
            "population": st.one_of(st.integers(1, 10**12), st.integers(100, 10**7)),
            "delta": st.floats(-12, -0.01).map(lambda x: 10.0**x),
        }
    )
}
