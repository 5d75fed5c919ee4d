"""Truths of AboveThreshold: the lesser of its two bounds, by their formulas at 50 digits."""

from typing import Any

import mpmath as mp

from tests.support.oracles import Real, number

Document = dict[str, Any]


def above_threshold(document: Document, alpha: Real) -> Real:
    """Randomised response of e1 + e2 (SOUNDNESS section 8), or Laplace (Mironov 2017, Prop. 6) plus e2."""
    e1, e2 = number(document["epsilon_threshold"]), number(document["epsilon_answers"])
    with mp.extradps(60):
        both = e1 + e2
        pure = mp.log((mp.exp(alpha * both) + mp.exp((1 - alpha) * both)) / (1 + mp.exp(both))) / (alpha - 1)
        up = alpha / (2 * alpha - 1) * mp.exp((alpha - 1) * e1)
        down = (alpha - 1) / (2 * alpha - 1) * mp.exp(-alpha * e1)
        return min(pure, mp.log(up + down) / (alpha - 1) + e2)


def both_epsilons(document: Document) -> Real:
    return number(document["epsilon_threshold"]) + number(document["epsilon_answers"])


RENYI = {"above_threshold": above_threshold}
PURE = {"above_threshold": both_epsilons}
