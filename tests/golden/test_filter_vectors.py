"""Every row and field of filter_vectors.json; some rows again at 50 digits, where nothing may lie below."""

import json
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from odometer_accountant.budgets.approximate import ApproximateBudget
from odometer_accountant.mechanisms.charge import Charge
from odometer_accountant.numerics import conversions, prior
from odometer_accountant.numerics.grid import GRID_V1
from odometer_accountant.numerics.loss import Loss, total
from odometer_accountant.numerics.mixture import Mixture
from tests.support.oracles import DIGITS, TrueMixture

Row = dict[str, Any]
ROWS: list[Row] = json.loads((Path(__file__).parent / "filter_vectors.json").read_text("utf-8"))
FIELDS = {
    "id", "plan", "delta_mix", "orders", "totals", "fixed_plan_eps", "if_stopped_now_eps", "odometer_eps",
    "odometer_eps_note", "named_workload_order", "named_workload_eps", "least_default_budget_eps", "budget",
}  # fmt: skip
BUDGET_FIELDS = {"eps", "focus_order", "weights_head", "weights_sum", "log_delta_filter", "capacity"}
BELOW = 2e-12
"""The file is in double precision and partly by bisection (filter_vectors.md)."""
ABOVE = 1e-9

each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])


def assert_refusing_side(value: float, expected: float) -> None:
    """At most 1e-9 above, relative; below only by what the file itself is off."""
    assert -BELOW <= (value - expected) / abs(expected) <= ABOVE


def totals(row: Row) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array(row["totals"])


def reading(row: Row) -> Mixture:
    return Mixture(GRID_V1, prior.reading_prior(GRID_V1), row["delta_mix"])


def default(row: Row, epsilon: float) -> Mixture:
    return Mixture(GRID_V1, prior.default_prior(GRID_V1, epsilon, row["delta_mix"]), row["delta_mix"])


def as_loss(row: Row) -> Loss:
    """The row's totals as a loss that has Rényi coordinates alone."""
    units = tuple(math.ceil(Fraction(value) * 10**12) for value in row["totals"])
    return Loss(GRID_V1, (*units, 0, 0, 0, 0), (0,) * GRID_V1.n_orders + (1, 1, 1, 0))


def charges(plan: str) -> list[Charge]:
    """`gaussian z=20, 50 times + laplace b=10, once` as charges."""
    mechanisms = {
        "gaussian z": lambda x: {"kind": "gaussian", "noise_multiplier": x},
        "laplace b": lambda x: {"kind": "laplace", "scale_over_sensitivity": x},
        "randomised response eps": lambda x: {"kind": "randomized_response", "k": 2, "epsilon": x},
    }
    found = []
    for part in plan.split(" + "):
        match = re.fullmatch(r"(.+)=([\d.]+), (?:once|(\d+) times)", part)
        assert match, part
        mechanism = mechanisms[match[1]](float(match[2]))
        found.append(Charge.model_validate({"mechanism": mechanism, "count": int(match[3] or 1)}))
    return found


def test_no_field_is_left_out() -> None:
    """15 rows, each with exactly the fields that are tested here."""
    assert len(ROWS) == 15
    for row in ROWS:
        assert (set(row), set(row["budget"])) == (FIELDS, BUDGET_FIELDS)
        assert row["orders"] == list(GRID_V1.orders)
        assert row["odometer_eps_note"] == "before the min with S(inf)"


@each_row
def test_the_totals_of_the_plan(row: Row) -> None:
    """Charging the plan gives the row's totals, at most one unit per charge above."""
    spent = total(GRID_V1, (charge.loss(GRID_V1) for charge in charges(row["plan"])))
    over = spent.renyi() - totals(row)
    assert np.all(over >= -1e-15 * totals(row))
    assert np.all(over <= 1e-9 * totals(row) + 3e-12)


@each_row
def test_fixed_plan(row: Row) -> None:
    epsilon, _ = conversions.rdp_epsilon(totals(row), GRID_V1.orders, row["delta_mix"])
    assert_refusing_side(epsilon, row["fixed_plan_eps"])


@each_row
def test_running_readings(row: Row) -> None:
    """Both, before the minimum with the pure part."""
    assert_refusing_side(reading(row).if_stopped_now(totals(row)), row["if_stopped_now_eps"])
    assert_refusing_side(reading(row).odometer(totals(row)), row["odometer_eps"])


@each_row
def test_named_workload(row: Row) -> None:
    """A budget that names the plan focuses on the row's order and admits from the row's epsilon on."""
    workload, delta = as_loss(row), row["delta_mix"]
    order = GRID_V1.orders[prior.workload_order(GRID_V1, workload, delta)]
    assert order == row["named_workload_order"]
    mixture = Mixture(GRID_V1, prior.workload_prior(GRID_V1, workload, delta), delta)
    assert_refusing_side(mixture.if_stopped_now(totals(row)), row["named_workload_eps"])


@each_row
def test_least_default_budget(row: Row) -> None:
    """The least epsilon whose budget, weights focused by that epsilon, admits the totals."""

    def admits(epsilon: float) -> bool:
        mixture = default(row, epsilon)
        return mixture.log_delta_filter(totals(row), epsilon) <= mixture.log_delta

    expected = row["least_default_budget_eps"]
    assert not admits(expected * (1 - BELOW))
    assert admits(expected * (1 + ABOVE))


@each_row
def test_focus_and_weights(row: Row) -> None:
    """The focus order; the weights, rounded down, never above 1 in total."""
    budget, delta = row["budget"], row["delta_mix"]
    assert prior.focus_order(budget["eps"], delta) == pytest.approx(budget["focus_order"], rel=1e-9)
    weights = prior.default_prior(GRID_V1, budget["eps"], delta)
    heads = [weight / prior.WEIGHT_UNIT for weight in weights[: len(budget["weights_head"])]]
    assert heads == pytest.approx(budget["weights_head"], rel=1e-9)
    assert 0 <= budget["weights_sum"] - sum(weights) / prior.WEIGHT_UNIT <= 1e-15 * len(weights)
    assert sum(weights) <= prior.WEIGHT_UNIT


@each_row
def test_filter_and_capacity(row: Row) -> None:
    """Log delta is at or above the row's, each order's capacity at or below, in units too."""
    epsilon = row["budget"]["eps"]
    mixture = default(row, epsilon)
    assert_refusing_side(mixture.log_delta_filter(totals(row), epsilon), row["budget"]["log_delta_filter"])
    capacity = mixture.capacity(epsilon)
    assert len(capacity) == len(row["budget"]["capacity"])
    budget = ApproximateBudget(name="b", epsilon=epsilon, delta=row["delta_mix"], delta_add=0.0)
    rule: Any = budget.filter(GRID_V1, budget.fixed(GRID_V1))
    for ours, units, expected in zip(capacity, rule.capacity, row["budget"]["capacity"], strict=True):
        assert_refusing_side(-ours, -expected)
        assert -1 - ABOVE * abs(expected) * 1e12 <= units - expected * 1e12 <= BELOW * abs(expected) * 1e12


@each_row
def test_a_budget_admits_the_row_exactly_when_it_should(row: Row) -> None:
    """Whole budgets, through units: admitted a little above the least epsilon, refused a little below."""
    for factor, allowed in ((1 + 2e-9, True), (1 - 2e-9, False)):
        epsilon = row["least_default_budget_eps"] * factor
        budget = ApproximateBudget(name="b", epsilon=epsilon, delta=row["delta_mix"], delta_add=0.0)
        assert budget.filter(GRID_V1, budget.fixed(GRID_V1)).allows(as_loss(row)) is allowed


@pytest.mark.parametrize("row", [ROWS[0], ROWS[3], ROWS[4], ROWS[14]], ids=lambda row: row["id"])
def test_at_fifty_digits(row: Row) -> None:
    """Nothing is below the truth: the readings, the named workload, the filter's delta."""
    losses, delta, orders = row["totals"], row["delta_mix"], GRID_V1.exact_orders
    with mp.workdps(DIGITS):
        for mixture in (
            reading(row),
            Mixture(GRID_V1, prior.workload_prior(GRID_V1, as_loss(row), delta), delta),
        ):
            stored = [Fraction(weight, prior.WEIGHT_UNIT) for weight in mixture.weights]
            truth = TrueMixture(stored, orders, losses)
            goal, lower = mp.log(mp.mpf(delta)), mp.mpf(1) - mp.mpf(ABOVE)
            stopped, always = (
                mp.mpf(mixture.if_stopped_now(totals(row))),
                mp.mpf(mixture.odometer(totals(row))),
            )
            assert truth.log_delta_filter(stopped) <= goal < truth.log_delta_filter(stopped * lower)
            assert truth.level(always) >= -goal > truth.level(always * lower)
            epsilon = row["budget"]["eps"]
            certified = mp.mpf(mixture.log_delta_filter(totals(row), epsilon))
            assert 0 <= certified - truth.log_delta_filter(epsilon) <= ABOVE
