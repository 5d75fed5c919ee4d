"""Rows of vectors.json on integer noise and on trees of noise."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from odometer_accountant.curves.integer_noise import skellam
from odometer_accountant.curves.tree_sensitivity import squared_sensitivity
from odometer_accountant.mechanisms import ANY_MECHANISM
from odometer_accountant.mechanisms.training import TreeAggregation
from odometer_accountant.numerics import conversions
from odometer_accountant.numerics.grid import GRID_V1
from odometer_accountant.numerics.loss import total

Row = dict[str, Any]


def laplaces(row: Row) -> None:
    losses = [
        ANY_MECHANISM.validate_python({"kind": "discrete_laplace", "scale": 1 / p, "sensitivity": 1})
        .curve(GRID_V1)
        .times(1)
        for p in row["params"]["parameters"]
    ]
    assert total(GRID_V1, losses).amount(GRID_V1.pure) == pytest.approx(row["expected"], abs=1e-12)


def gaussian(row: Row) -> None:
    """The closed form; where the row has the exact sum, ours is above it."""
    from tests.golden.test_vectors import grid_of

    params = row["params"]
    noise = params["sigma"] / params["sensitivity"]
    one = ANY_MECHANISM.validate_python({"kind": "discrete_gaussian", "noise_multiplier": noise})
    found = float(one.curve(grid_of([params["order"]])).amounts[0] or 0)
    assert found == pytest.approx(row["expected"], rel=1e-6)
    assert found >= row["tolerance"].get("exact_value", 0.0)


def skellam_curve(row: Row) -> None:
    params = row["params"]
    scale = params["scale"]
    found = skellam(
        params["l1"] * scale, params["l2"] * scale, params["variance"] * scale**2, np.array([params["order"]])
    )
    assert found[0] == pytest.approx(row["expected"], rel=1e-9)


def skellam_noise(row: Row) -> None:
    """A federation's calibrated noise meets its target, one part in 1e5 less does not."""
    params, orders = row["params"], np.array([*range(2, 129), 256], dtype=float)
    scale, clip, dim = params["scale"], params["l2_clip"], params["dim"]
    # Conditional rounding to the grid 1/scale (Kairouz, Liu, Steinke 2021, Prop. 22).
    squares = (
        clip**2
        + dim / (4 * scale**2)
        + math.sqrt(2 * math.log(1 / params["beta"])) / scale * (clip + math.sqrt(dim) / (2 * scale))
    )
    l2 = math.sqrt(min(squares, (clip + math.sqrt(dim) / scale) ** 2)) * scale
    l1 = min(math.sqrt(dim) * l2, l2**2)
    for local, fits in ((row["expected"], True), (row["expected"] * (1 - 1e-5), False)):
        variance = params["clients"] * (local * scale) ** 2
        curve = skellam(l1, l2, variance, orders) * params["steps"]
        epsilon = conversions.rdp_epsilon(curve, orders, params["delta"])[0]
        assert (epsilon <= params["epsilon"] * (1 + 1e-6)) is fits


def squared(row: Row) -> None:
    params = row["params"]
    found = squared_sensitivity(params["steps"], 1, params["max_participations"], params["min_separation"])
    assert found == row["expected"]
    assert found != row.get("reject")


def tree_epsilon(row: Row) -> None:
    params = row["params"]
    tree = TreeAggregation(noise_multiplier=params["sigma"], steps=params["steps"], trees=1, participations=1)
    loss = tree.curve(GRID_V1).times(1)
    mu = math.sqrt(loss.amount(GRID_V1.mu_squared))
    assert conversions.gdp_epsilon(mu, params["delta"]) <= row["expected"]
    assert conversions.rdp_epsilon(loss.renyi(), GRID_V1.orders, params["delta"])[0] <= row["expected"] * 1.03


BY_ID: dict[str, Callable[[Row], None]] = {
    "dlaplace-comp": laplaces,
    "dgauss-01": gaussian,
    "dgauss-02": gaussian,
    "dgauss-03": gaussian,
    "skellam-01": skellam_noise,
    "skellam-rdp-a8-l14-s1": skellam_curve,
    "skellam-rdp-a32-l14-s1": skellam_curve,
    "skellam-rdp-a8-l1100-s1": skellam_curve,
    "skellam-rdp-a8-l14-s100": skellam_curve,
    "tree-1-7-8": squared,
    "tree-3-3-9": squared,
    "tree-3-2-7": squared,
    "tree-8-2-24": squared,
    "tree-so-1": tree_epsilon,
    "tree-so-2": tree_epsilon,
}
BY_KIND: dict[tuple[str, str], Callable[[Row], None]] = {}
