"""Rows of vectors.json that are tighter than what is charged, or approximations: ours is never below."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from odometer_accountant.mechanisms import ANY_MECHANISM
from odometer_accountant.numerics import conversions
from odometer_accountant.numerics.grid import GRID_V1
from odometer_accountant.numerics.loss import Loss

Row = dict[str, Any]


def loss(count: int, **document: Any) -> Loss:
    return ANY_MECHANISM.validate_python(document).curve(GRID_V1).times(count)


def optimal_delta(row: Row) -> None:
    """Deltas add here; products of their complements, for a fixed plan, are a little less."""
    params, expected = row["params"], row["expected"]
    spent = loss(params["k"], kind="approximate", epsilon=params.get("epsilon", 0.0), delta=params["delta"])
    least = expected[1] - params["delta_tilde"] if isinstance(expected, list) else expected
    assert least <= spent.amount(GRID_V1.delta) == pytest.approx(params["k"] * params["delta"])


def shared_noise(row: Row) -> None:
    """Noise that loss distributions calibrate meets the target exactly; by Rényi orders it costs more."""
    params, deviation = row["params"], row["expected"]
    if "Laplace" in params["mechanisms"]:
        spent = loss(10, kind="laplace", scale_over_sensitivity=deviation / math.sqrt(2))
        epsilon = conversions.rdp_epsilon(spent.renyi(), GRID_V1.orders, params["delta"])[0]
        assert params["epsilon"] <= epsilon <= spent.amount(GRID_V1.pure)
    else:
        spent = loss(10, kind="gaussian", noise_multiplier=deviation)
        exact = conversions.gdp_epsilon(math.sqrt(spent.amount(GRID_V1.mu_squared)), params["delta"])
        assert 0 <= params["epsilon"] - exact <= 0.005  # the peer's discretisation rounds up


def central_limit(row: Row) -> None:
    """An approximation below the truth: what is shown and decided on is above it."""
    params = row["params"]
    base = {"kind": "gaussian", "noise_multiplier": float(params["sigma"])}
    spent = loss(params["steps"], kind="poisson_subsampled", base=base, sampling_rate=params["q"])
    assert conversions.rdp_epsilon(spent.renyi(), GRID_V1.orders, params["delta"])[0] > row["expected"] + 0.1


BY_ID: dict[str, Callable[[Row], None]] = {
    "kov-01": optimal_delta,
    "basic-delta": optimal_delta,
    "pdp-01": shared_noise,
    "pdp-02": shared_noise,
    "gdp-01": central_limit,
    "gdp-02": central_limit,
}
BY_KIND: dict[tuple[str, str], Callable[[Row], None]] = {}
