"""Truths of PATE's queries: pure ε = 2γ, and a Gaussian of sensitivity √2."""

from typing import Any

import mpmath as mp

from tests.support.oracles import number

Real = Any


def epsilon(document: dict[str, Any]) -> Real:
    """One teacher moves two counts by one, each by γ."""
    return 2 * number(document["gamma"])


def lnmax(document: dict[str, Any], alpha: Real) -> Real:
    """Binary randomised response of ε = 2γ."""
    with mp.extradps(60):
        p = 1 / (1 + mp.exp(-epsilon(document)))
        q = 1 / (1 + mp.exp(epsilon(document)))
        return mp.log(p**alpha * q ** (1 - alpha) + q**alpha * p ** (1 - alpha)) / (alpha - 1)


def gnmax(document: dict[str, Any], alpha: Real) -> Real:
    """α/σ² with σ of the counts."""
    deviation = document.get("standard_deviation_of_counts")
    sigma = mp.sqrt(2) * number(document["noise_multiplier"]) if deviation is None else number(deviation)
    return alpha / sigma**2 if sigma else mp.inf


def worst_lnmax(document: dict[str, Any]) -> Any:
    """δ(ε) of binary randomised response."""
    top = epsilon(document)
    return lambda other: max(mp.mpf(0), (mp.exp(top) - mp.exp(other)) / (1 + mp.exp(top)))


RENYI = {"pate_lnmax": lnmax, "pate_gnmax": gnmax}
PURE = {"pate_lnmax": epsilon}
WORST = {"pate_lnmax": worst_lnmax}
DELTA = {"pate_gnmax": lambda document: mp.mpf(0) if mp.isfinite(gnmax(document, mp.mpf(2))) else mp.inf}
