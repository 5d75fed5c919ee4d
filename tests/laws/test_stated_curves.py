"""A stated Rényi curve is one that a mechanism can have; what was taken before that was asked is answered."""

import json
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
from amount import examples
from hypothesis import given
from hypothesis import strategies as st

from odometer_accountant.errors import InvalidRequest
from odometer_accountant.mechanisms import ANY_MECHANISM, stated
from odometer_accountant.numerics.grid import CURRENT_GRID
from odometer_accountant.numerics.rounding import decimal
from odometer_accountant.requests.bodies import CreateDataset
from odometer_accountant.requests.json_input import validated
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores.memory import MemoryStore
from odometer_accountant.verify.walk import verify

OPENING: dict[str, Any] = {
    "name": "d",
    "unit": "person",
    "adjacency": "add_remove",
    "delta": 1e-6,
    "budgets": [{"name": "life", "kind": "approximate", "epsilon": 20, "delta": 1e-6}],
}


@pytest.fixture
def accountant() -> Iterator[Accountant]:
    with Accountant(MemoryStore()) as found:
        found.create_dataset(OPENING, "root")
        yield found


def curve(orders: list[float], epsilons: list[float]) -> dict[str, Any]:
    return {"kind": "renyi_curve", "orders": orders, "epsilons": epsilons}


PLACEHOLDER = curve([14, 64], [0, 1e6])
CONTRADICTIONS = [
    (PLACEHOLDER, "0 at order 14", "1000000.0 at order 64"),
    (curve([2, 3, 4], [0, 0, 1e-300]), "0 at order 3", "1e-300 at order 4"),
    (curve([2, 3], [2, 1]), "2.0 at order 2", "1.0 at order 3"),
    (curve([2, 3, 4], [1, 2, 2]), "2.0 at order 3", "2.0 at order 4"),
    (curve([1.5, 2, 64], [1, 50, 50]), "50.0 at order 2", "50.0 at order 64"),
    (curve([1.001, 1.002, 1e6], [1e-9, 1e-3, 1.5e-3]), "0.001 at order 1.002", "0.0015 at order 1e+06"),
]


@pytest.mark.parametrize(("mechanism", "one", "other"), CONTRADICTIONS)
def test_a_curve_that_no_mechanism_has_is_refused_and_the_two_points_are_named(
    accountant: Accountant, mechanism: dict[str, Any], one: str, other: str
) -> None:
    for count in (1, 10**9):
        with pytest.raises(InvalidRequest) as refused:
            accountant.charge("d", {"mechanism": mechanism, "count": count}, "k", "ada")
        assert refused.value.status == 422
        assert f"{one} and {other} contradict each other" in refused.value.detail
    assert accountant.dataset("d")["sequence"] == 1


WITHIN: list[dict[str, Any]] = [
    {"kind": "composed", "mechanisms": [{"kind": "pure", "epsilon": 0.1}, PLACEHOLDER]},
    {"kind": "poisson_subsampled", "base": PLACEHOLDER, "sampling_rate": 0.1},
    {"kind": "sampled_without_replacement", "base": PLACEHOLDER, "population": 100, "batch_size": 10},
    {"kind": "grouped", "base": PLACEHOLDER, "group_size": 2},
    {"kind": "grouped", "base": {"kind": "composed", "mechanisms": [PLACEHOLDER]}, "group_size": 2},
]


@pytest.mark.parametrize("mechanism", WITHIN, ids=lambda one: str(one["kind"]))
def test_it_is_refused_wherever_a_mechanism_is_taken(
    accountant: Accountant, mechanism: dict[str, Any]
) -> None:
    """In a charge, a check, a hold, a list, the workload of a budget and of a dataset, a conversion."""
    charge = {"mechanism": mechanism, "count": 1}
    budget = {"name": "b", "kind": "approximate", "epsilon": 1, "delta": 1e-6, "workload": [charge]}
    asks = [
        lambda: accountant.charge("d", charge, "k", "ada"),
        lambda: accountant.charge("d", {"charges": [charge, charge]}, "k", "ada"),
        lambda: accountant.hold("d", {**charge, "expires_in_s": 60}, "k", "ada"),
        lambda: accountant.check("d", charge),
        lambda: accountant.add_budget("d", budget, "root"),
        lambda: accountant.convert({**charge, "delta": 1e-6}),
        lambda: validated(CreateDataset, {**OPENING, "name": "e", "workload": [charge]}),
    ]
    for ask in asks:
        with pytest.raises(InvalidRequest, match="contradict each other"):
            ask()
    assert accountant.dataset("d")["sequence"] == 1


def test_what_was_taken_before_is_answered_again_counted_on_and_verified(
    accountant: Accountant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look-up of an idempotency key comes before a rule that is younger than the charge."""
    body = {"mechanism": {"kind": "composed", "mechanisms": [PLACEHOLDER]}, "count": 1}
    held = {"charges": [body], "expires_in_s": 600}
    with monkeypatch.context() as before:
        before.setattr(stated, "contradiction", lambda _: None)
        receipt, _ = accountant.charge("d", body, "old", "ada")
        hold, _ = accountant.hold("d", held, "old-hold", "ada")
    again, replayed = accountant.charge("d", json.dumps(body).encode(), "old", "ada")
    assert replayed
    assert again["hash"] == receipt["hash"]
    assert accountant.hold("d", held, "old-hold", "ada")[0]["hold"] == hold["hold"]
    accountant.settle("d", hold["hold"]["id"], {"used": 1}, "ada")
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="contradict"):
            accountant.charge("d", body, "new", "ada")
    accountant.charge("d", {"mechanism": {"kind": "pure", "epsilon": 0.1}, "count": 1}, "on", "ada")
    assert not any(verdict.findings for verdict in verify(accountant.store))


FIGURE_OF = [
    {"mechanism": {"kind": "pate_gnmax", "standard_deviation_of_counts": 400.0}, "count": 10},
    {"mechanism": curve([2.0, 8.0], [0.001, 0.002]), "count": 1},
    {"mechanism": {"kind": "approximate", "epsilon": 0, "delta": 5e-8}, "count": 1},
]


def test_a_settlement_at_such_a_figure_is_answered_again_and_else_refused(
    accountant: Accountant, monkeypatch: pytest.MonkeyPatch
) -> None:
    accountant.create_dataset({**OPENING, "name": "r", "adjacency": "replace_one"}, "root")
    ids = [
        accountant.hold("r", {"charges": FIGURE_OF, "expires_in_s": 600}, f"h{n}", "ada")[0]["hold"]["id"]
        for n in range(2)
    ]
    figure = {"curves": [curve([2, 3], [0, 1]), None, None], "failure_probability": 5e-8}
    body = {"used": [10, 1, 1], "sanitised": figure}
    with monkeypatch.context() as before:
        before.setattr(stated, "contradiction", lambda _: None)
        accountant.settle("r", ids[0], body, "ada")
    assert accountant.settle("r", ids[0], body, "ada")[1]
    with pytest.raises(InvalidRequest, match="contradict"):
        accountant.settle("r", ids[1], body, "ada")
    assert not any(verdict.findings for verdict in verify(accountant.store))


REAL = [
    {"kind": "gaussian", "noise_multiplier": 3.0},
    {"kind": "laplace", "scale_over_sensitivity": 2.0},
    {"kind": "pure", "epsilon": 3.0},
    {"kind": "randomized_response", "k": 4, "epsilon": 2.0},
    {"kind": "discrete_gaussian", "noise_multiplier": 0.7},
    {
        "kind": "poisson_subsampled",
        "base": {"kind": "gaussian", "noise_multiplier": 1.0},
        "sampling_rate": 0.01,
    },
]


AMOUNTS = [ANY_MECHANISM.validate_python(mechanism).curve(CURRENT_GRID).amounts for mechanism in REAL]


@examples(60)
@given(
    st.sampled_from(AMOUNTS),
    st.integers(1, 100),
    st.integers(6, 17),
    st.sets(st.integers(0, CURRENT_GRID.n_orders - 1), min_size=1),
)
def test_a_curve_of_a_mechanism_is_taken_in_six_digits_or_more(
    amounts: tuple[Fraction | None, ...], count: int, digits: int, places: set[int]
) -> None:
    orders = sorted(places)
    epsilons = [float(f"{float(count * (amounts[place] or 0)):.{digits}g}") for place in orders]
    found = [float(CURRENT_GRID.exact_orders[place]) for place in orders]
    ANY_MECHANISM.validate_python(curve(found, epsilons))


@examples(60)
@given(st.lists(st.floats(1e-6, 1e3), min_size=3, max_size=12), st.integers(1, 10), st.floats(1.01, 1e3))
def test_a_point_below_what_two_others_leave_is_refused(rises: list[float], at: int, factor: float) -> None:
    """Slopes of the moment that fall by more than rounding can explain: no such curve, whatever the rest."""
    slopes = sorted(rises)
    at = min(at, len(slopes) - 1)
    slopes[at] = slopes[at - 1] / factor
    moments = [math.fsum(slopes[: place + 1]) for place in range(len(slopes))]
    epsilons = [moment / (place + 1) for place, moment in enumerate(moments)]
    assert stated.contradiction(list(zip([float(n + 2) for n in range(len(slopes))], epsilons, strict=True)))


@given(st.floats(1e-12, 1e6), st.integers(1, 10**9))
def test_so_many_releases_cost_as_many_times_one(epsilon: float, count: int) -> None:
    """Exactly: up to 1e9 times the stated number, in units, rounded up once."""
    loss = ANY_MECHANISM.validate_python(curve([2], [epsilon])).curve(CURRENT_GRID).times(count)
    place = CURRENT_GRID.exact_orders.index(Fraction(2))
    assert loss.values[place] == math.ceil(count * decimal(epsilon) / CURRENT_GRID.units[place])
    assert loss.unbounded[place + 1] == count


def test_the_limit_of_an_old_budget_can_be_changed_whatever_its_workload_is(
    accountant: Accountant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other parts are left as they were; anything else is judged by the rules of today."""
    work = [{"mechanism": curve([2, 3], [0, 1]), "count": 1}]
    budget = {"name": "old", "kind": "approximate", "epsilon": 1, "delta": 1e-6, "workload": work}
    with monkeypatch.context() as before:
        before.setattr(stated, "contradiction", lambda _: None)
        accountant.add_budget("d", budget, "root")
    assert accountant.change_budget("d", "old", {**budget, "epsilon": 2}, '"v1"', "root")["limit"] == 2
    for change in ({"delta": 1e-7}, {"workload": [*work, *work]}):
        with pytest.raises(InvalidRequest, match="contradict each other"):
            accountant.change_budget("d", "old", {**budget, **change}, '"v2"', "root")
