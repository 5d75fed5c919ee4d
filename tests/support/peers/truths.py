"""What pairs are judged by where a kind has no formula of its own: the true distributions, integrated."""

from fractions import Fraction
from typing import Any

import mpmath as mp

from tests.support import oracles
from tests.support.oracles import Real, number

Document = dict[str, Any]


def sampled_gaussians(document: Document, order: Fraction) -> Real:
    """Several Gaussians from one Poisson sample: one of 1/z² = Σ 1/zᵢ²."""
    base = document["base"]
    counted = zip(base["mechanisms"], base["counts"], strict=True)
    noise = 1 / mp.sqrt(mp.fsum(n / number(one["noise_multiplier"]) ** 2 for one, n in counted))
    # The oracle reads parameters as decimals or fractions.
    return oracles.renyi({**document, "base": {"kind": "gaussian", "noise_multiplier": noise}}, order)


def sampled_laplace(document: Document, order: Fraction) -> Real:
    """The Poisson-subsampled Laplace by the integral over its three pieces, the larger direction."""
    return _laplace(number(document["sampling_rate"]), document["base"], number(order))


def _laplace(q: Real, base: Document, alpha: Real) -> Real:
    with mp.workdps(50):  # of which tiny rates and losses take 30
        inverse = 1 / number(base["scale_over_sensitivity"])

        def excess(power: Real) -> Real:
            """E[(1 + u)^power - 1 - power u], u = q (r - 1), E[u] = 0: nothing of the result cancels."""

            def at(r: Real) -> Real:
                u = q * (r - 1)
                return (1 + u) ** power - 1 - power * u

            ends = at(mp.exp(-inverse)) / 2 + at(mp.exp(inverse)) * mp.exp(-inverse) / 2
            parts = mp.linspace(0, 1, 2 + int(min(40, inverse)))
            middle = mp.quad(
                lambda x: at(mp.exp((2 * x - 1) * inverse)) * mp.exp(-x * inverse),
                parts,
                method="gauss-legendre",
            )
            return ends + middle * inverse / 2

        return mp.log1p(max(excess(alpha), excess(1 - alpha))) / (alpha - 1)


def sampled_pure(document: Document, order: Fraction) -> Real:
    """The Poisson-subsampled binary randomised response of the same ε, the larger direction."""
    with mp.extradps(100):
        q, odds, alpha = (
            number(document["sampling_rate"]),
            mp.exp(number(document["base"]["epsilon"])),
            number(order),
        )
        high = odds / (1 + odds)

        def moment(power: Real) -> Real:
            return (1 - high) * (1 - q + q * odds) ** power + high * (1 - q + q / odds) ** power

        return mp.log(max(moment(alpha), moment(1 - alpha))) / (alpha - 1)


def batch(document: Document, order: Fraction) -> Real:
    """At least so much is lost on a batch of a fixed size: where one of the two units contributes nothing.

    Then the outputs are those of a Poisson sample with and without the unit.
    """
    q, base = Fraction(document["batch_size"], document["population"]), document["base"]
    if base["kind"] == "laplace":
        return _laplace(number(q), base, number(order))
    return oracles.renyi({"kind": "poisson_subsampled", "sampling_rate": q, "base": base}, order)
