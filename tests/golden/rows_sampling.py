"""Rows of vectors.json about samples of other kinds and about groups."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from odometer_accountant.mechanisms import ANY_MECHANISM
from odometer_accountant.numerics import conversions
from odometer_accountant.numerics.curve import Curve
from odometer_accountant.numerics.grid import GRID_V1, Grid

Row = dict[str, Any]
FINE = Grid(
    99, tuple(Fraction(n, 10) for n in range(11, 110)) + tuple(map(Fraction, (*range(11, 64), 128, 256, 512)))
)


def curve(grid: Grid, **document: Any) -> Curve:
    return ANY_MECHANISM.validate_python(document).curve(grid)


def gaussian(noise_multiplier: float) -> dict[str, Any]:
    return {"kind": "gaussian", "noise_multiplier": noise_multiplier}


def batch_rdp(row: Row) -> None:
    """Of 50 steps at the row's order; an empty batch loses nothing at all."""
    params = row["params"]
    batch, population = params.get("batch", 1), params.get("n", 100)
    found = curve(
        Grid(99, (Fraction(str(params.get("order", 2))),)),
        kind="sampled_without_replacement",
        base=gaussian(float(params["sigma"])),
        batch_size=batch,
        population=population,
    )
    if batch == 0:
        assert found == Curve.zero(found.grid)
        return
    assert params["q"] == batch / population
    value = float(found.amounts[0] or 0) * params["steps"]
    assert value == pytest.approx(row["expected"], rel=row["tolerance"]["rel"])


def sampled_laplace(row: Row) -> None:
    params = row["params"]
    base = {"kind": "laplace", "scale_over_sensitivity": params["scale"]}
    found = curve(GRID_V1, kind="poisson_subsampled", base=base, sampling_rate=params["q"])
    value = found.times(params["steps"]).amount(GRID_V1.pure)
    assert value == pytest.approx(row["expected"], abs=row["tolerance"]["abs"])
    assert value >= row["expected"]


def sampled_pure(row: Row) -> None:
    params = row["params"]
    base = {"kind": "pure", "epsilon": float(params["epsilon"])}
    found = curve(GRID_V1, kind="poisson_subsampled", base=base, sampling_rate=params["q"])
    value = float(found.amounts[GRID_V1.pure] or 0)
    assert row["expected"] <= value == pytest.approx(row["expected"], rel=row["tolerance"]["rel"])


def user_level(row: Row) -> None:
    """Each pass a Gaussian for the three records of a user; or the (epsilon, delta) of the run, for
    the group.

    With microbatches the sensitivity is doubled. Our epsilon of the sampled run is by Rényi orders, as
    theirs.
    """
    params = row["params"]
    k, noise = params["k"], params["sigma"] / 2
    plain, poisson = row["expected"]
    whole = curve(FINE, kind="grouped", base=gaussian(noise), group_size=k).times(params["epochs"])
    epsilon = conversions.rdp_epsilon(whole.renyi(), FINE.orders, params["delta"])[0]
    assert epsilon == pytest.approx(plain, abs=5e-4)
    steps = -(-params["epochs"] * params["n"] // params["batch"])
    rate = params["batch"] / params["n"]
    run = curve(FINE, kind="poisson_subsampled", base=gaussian(noise), sampling_rate=rate).times(steps)
    low, high = 1e-30, params["delta"]
    for _ in range(100):
        delta = (low * high) ** 0.5
        one = conversions.rdp_epsilon(run.renyi(), FINE.orders, delta)[0]
        base = {"kind": "approximate", "epsilon": one, "delta": delta}
        grouped = curve(GRID_V1, kind="grouped", base=base, group_size=k)
        together = grouped.amounts[GRID_V1.delta]
        low, high = (delta, high) if together is not None and together <= params["delta"] else (low, delta)
    assert float(grouped.amounts[GRID_V1.pure] or 0) == pytest.approx(poisson, abs=5e-4)


BY_ID: dict[str, Callable[[Row], None]] = {
    "laplace-pois": sampled_laplace,
    "amp-pure": sampled_pure,
    "user-k3": user_level,
}
BY_KIND: dict[tuple[str, str], Callable[[Row], None]] = {
    ("sampled-without-replacement-gaussian", "rdp"): batch_rdp,
}
