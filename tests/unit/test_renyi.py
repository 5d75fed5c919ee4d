"""Rényi curves, rho and mu of the basic mechanisms against closed forms at 50 digits, and their laws."""

import itertools
import json
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from odometer_accountant.curves import basic
from odometer_accountant.numerics.grid import GRID_V1, Grid

GOLDEN = Path(__file__).parents[1] / "golden" / "vectors.json"
ORDERS = [float(order) for order in GRID_V1.exact_orders]
RNG = np.random.default_rng(20240614)


@pytest.fixture(autouse=True)
def _digits() -> Any:
    with mp.workdps(50):
        yield


def assert_tight(value: float, truth: Any) -> None:
    """Never below, at most 1e-10 above, relative to the true value (promised: 1e-6, plus 1e-12)."""
    excess = float((mp.mpf(float(value)) - truth) / truth)
    assert 0.0 <= excess <= 1e-10


def log_uniform(low: float, high: float, n: int) -> list[float]:
    """Draws between 10^low and 10^high, and both ends."""
    return [10.0**low, *(float(x) for x in 10 ** RNG.uniform(low, high, n)), 10.0**high]


def exact_laplace(b: Any, a: Any) -> Any:
    """Mironov 2017, Proposition 6."""
    return mp.log(a / (2 * a - 1) * mp.exp((a - 1) / b) + (a - 1) / (2 * a - 1) * mp.exp(-a / b)) / (a - 1)


def exact_pure(eps: Any, a: Any) -> Any:
    """SOUNDNESS section 8."""
    return (mp.log(mp.exp(a * eps) + mp.exp((1 - a) * eps)) - mp.log1p(mp.exp(eps))) / (a - 1)


def exact_randomized_response(eps: Any, k: int, a: Any) -> Any:
    """The definition: sum of P^alpha Q^(1-alpha) over the k answers, true with p and each other with r."""
    r = 1 / (mp.exp(eps) + k - 1)
    p = r * mp.exp(eps)
    return mp.log(p**a * r ** (1 - a) + r**a * p ** (1 - a) + (k - 2) * r) / (a - 1)


def quantile(middle: Any, tail: Any, start: float) -> Any:
    """The x with Phi(x) = 1/2 + middle = 1 - tail, by Newton from `start` on the form that keeps digits."""
    x = mp.mpf(start)
    for _ in range(5):
        above = mp.erfc(x / mp.sqrt(2)) / 2
        if middle < 0.4:
            x -= (mp.erf(x / mp.sqrt(2)) / 2 - middle) / mp.npdf(x)
        else:
            x -= (mp.log(tail) - mp.log(above)) * above / mp.npdf(x)
    return x


@pytest.mark.parametrize("scale", log_uniform(-3, 12, 20))
def test_laplace(scale: float) -> None:
    """The curve lies just above the exact one, at most at 1/b; so does rho."""
    curve = basic.laplace(scale, GRID_V1)
    for order, value in zip(ORDERS, curve, strict=True):
        assert_tight(value, exact_laplace(mp.mpf(scale), mp.mpf(order)))
    assert np.all(curve <= (1 / scale) * (1 + 1e-15))
    assert_tight(basic.laplace_rho(scale), 1 / mp.mpf(scale) + mp.expm1(-1 / mp.mpf(scale)))


@pytest.mark.parametrize("epsilon", log_uniform(-12, 6, 20))
def test_pure(epsilon: float) -> None:
    """The curve of the worst epsilon-DP mechanism lies just above the exact one, never above epsilon."""
    curve = basic.pure(epsilon, GRID_V1)
    for order, value in zip(ORDERS, curve, strict=True):
        assert_tight(value, exact_pure(mp.mpf(epsilon), mp.mpf(order)))
    assert np.all(curve <= epsilon * (1 + 1e-15))
    assert_tight(basic.pure_rho(epsilon), mp.mpf(epsilon) * mp.tanh(mp.mpf(epsilon) / 2))


@pytest.mark.parametrize("epsilon", log_uniform(-6, 3, 12))
@pytest.mark.parametrize("k", [2, 3, 1_000_000_000])
def test_randomized_response(epsilon: float, k: int) -> None:
    """Given epsilon and the probability that follows, the curve lies just above the definition's."""
    truth = 1 / (1 + (k - 1) * math.exp(-epsilon))
    curve = basic.randomized_response(epsilon, truth, k, GRID_V1)
    for order, value in zip(ORDERS, curve, strict=True):
        assert_tight(value, exact_randomized_response(mp.mpf(epsilon), k, mp.mpf(order)))


def test_more_answers_cost_less() -> None:
    """At one epsilon the binary response is the worst, and it is the worst of all pure mechanisms."""
    curves = [
        basic.randomized_response(1.0, 1 / (1 + (k - 1) * math.exp(-1.0)), k, GRID_V1)
        for k in (2, 3, 10, 1000)
    ]
    assert curves[0] == pytest.approx(basic.pure(1.0, GRID_V1), rel=1e-14)
    assert all(np.all(more <= fewer) for fewer, more in itertools.pairwise(curves))


@pytest.mark.parametrize("epsilon", log_uniform(-12, 6, 20))
def test_pure_mu(epsilon: float) -> None:
    """It is 2 Phi^-1(e^eps / (1 + e^eps)), to full relative accuracy at both ends."""
    mu, eps = basic.pure_mu(epsilon), mp.mpf(epsilon)
    assert_tight(mu, 2 * quantile(mp.tanh(eps / 2) / 2, 1 / (1 + mp.exp(eps)), mu / 2))


@pytest.mark.parametrize("scale", log_uniform(-3, 12, 20))
def test_laplace_mu(scale: float) -> None:
    """It is -2 Phi^-1(e^{-1/(2b)} / 2), to full relative accuracy at both ends."""
    mu, half = basic.laplace_mu(scale), 1 / (2 * mp.mpf(scale))
    assert_tight(mu, 2 * quantile(-mp.expm1(-half) / 2, mp.exp(-half) / 2, mu / 2))


@pytest.mark.parametrize(
    "curve",
    [
        lambda size: basic.laplace(1 / size, GRID_V1),
        lambda size: basic.pure(size, GRID_V1),
        lambda size: basic.randomized_response(size, 1 / (1 + 9 * math.exp(-size)), 10, GRID_V1),
    ],
    ids=["laplace", "pure", "randomized_response"],
)
@pytest.mark.parametrize("size", [1e-9, 1e-3, 0.1, 1.0, 10.0, 39.9, 40.1, 500.0])
def test_laws(curve: Callable[[float], Any], size: float) -> None:
    """D never falls with the order nor with less noise; (alpha-1) D is convex and 0 at alpha = 1."""
    values = curve(size)
    slopes = np.diff([0.0, *((np.array(ORDERS) - 1) * values)]) / np.diff([1.0, *ORDERS])
    assert np.all(np.diff(values) >= -1e-14 * values[1:])
    assert np.all(np.diff(slopes) >= -1e-9 * slopes[1:])
    for step in (1e-9, 0.01, 0.9):
        assert np.all(curve(size * (1 - step)) <= values)


def golden(mechanism: str, quantity: str, adjacency: str) -> list[Any]:
    rows = json.loads(GOLDEN.read_text(encoding="utf-8"))
    keep = (mechanism, quantity, adjacency)
    found = [row for row in rows if (row["mechanism"], row["quantity"], row["adjacency"]) == keep]
    assert found
    return [pytest.param(row, id=row["id"]) for row in found]


def grid_of(*orders: float) -> Grid:
    return Grid(99, tuple(Fraction(str(order)) for order in orders))


@pytest.mark.parametrize("row", golden("laplace", "rdp", "add-or-remove-one"))
def test_golden_laplace(row: dict[str, Any]) -> None:
    """The numbers recomputed from Mironov's closed form come out."""
    params = row["params"]
    value = basic.laplace(params["scale"] / params["sensitivity"], grid_of(params["order"]))[0]
    assert value == pytest.approx(row["expected"], rel=row["tolerance"]["rel"])


@pytest.mark.parametrize("row", golden("k-ary randomized response", "rdp at each order", "replace-one"))
def test_golden_randomized_response(row: dict[str, Any]) -> None:
    """A peer's numbers come out (its noise parameter is the chance that the answer is redrawn from all k)."""
    params = row["params"]
    k, redrawn = params["buckets"], params["noise_parameter"]
    truth = 1 - redrawn + redrawn / k
    epsilon = math.log(truth * k / redrawn)
    *orders, infinity = params["orders"]
    *expected, pure = row["expected"]
    assert infinity == "inf"
    assert epsilon == pytest.approx(pure, rel=1e-12)
    values = basic.randomized_response(epsilon, truth, k, grid_of(*orders))
    assert values == pytest.approx(np.array(expected), rel=row["tolerance"]["rel"])


@pytest.mark.parametrize(
    "row", golden("gaussian-dp parameter of binary randomized response", "mu", "replace-one")
)
def test_golden_mu(row: dict[str, Any]) -> None:
    """A peer's mu of binary randomised response comes out."""
    for redrawn, expected in zip(row["params"]["noise_parameter"], row["expected"], strict=True):
        assert basic.pure_mu(math.log(2 / redrawn - 1)) == pytest.approx(
            expected, rel=row["tolerance"]["rel"]
        )


def test_nothing_costs_nothing() -> None:
    """An epsilon of 0 is exactly 0 in every coordinate."""
    assert not basic.pure(0.0, GRID_V1).any()
    assert not basic.randomized_response(0.0, 0.1, 10, GRID_V1).any()
    assert basic.pure_rho(0.0) == basic.pure_mu(0.0) == 0.0


def test_the_least_epsilon_is_charged() -> None:
    """A product that underflows is rounded up, not to 0."""
    assert np.all(basic.pure(5e-324, GRID_V1) > 0.0)
    assert basic.pure_rho(5e-324) > 0.0


@pytest.mark.parametrize("wrong", [math.nan, -1e-9, math.inf])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: basic.laplace(x, GRID_V1),
        lambda x: basic.pure(x, GRID_V1),
        lambda x: basic.randomized_response(x, 0.5, 3, GRID_V1),
        lambda x: basic.randomized_response(1.0, x, 3, GRID_V1),
        basic.laplace_rho,
        basic.laplace_mu,
        basic.pure_rho,
        basic.pure_mu,
    ],
)
def test_outside_the_range(function: Callable[[float], Any], wrong: float) -> None:
    """A parameter out of range is refused with its name and what works."""
    with pytest.raises(ValueError, match=r"(scale|epsilon|probability_of_truth) is .* between .* works"):
        function(wrong)


def test_one_answer_is_no_response() -> None:
    with pytest.raises(ValueError, match="2 possible answers"):
        basic.randomized_response(1.0, 1.0, 1, GRID_V1)
