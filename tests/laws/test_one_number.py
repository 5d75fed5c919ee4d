"""A dataset's readings agree with its one (epsilon, delta) budget; what is unusual of a budget is said."""

from typing import Any

import pytest
from amount import examples
from hypothesis import given
from hypothesis import strategies as st

from odometer_accountant.errors import BudgetExceeded
from odometer_accountant.numerics.prior import reading_prior
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores.memory import MemoryStore

LIFE = {"name": "life", "kind": "approximate", "epsilon": 4, "delta": 1e-6}
SGD = {
    "kind": "poisson_subsampled",
    "base": {"kind": "gaussian", "noise_multiplier": 1.1},
    "sampling_rate": 0.01,
}
WORK = [{"mechanism": SGD, "count": 1000}]


def document(*budgets: dict[str, Any], **more: Any) -> dict[str, Any]:
    facts = {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-6, **more}
    return {**facts, "budgets": list(budgets)}


def opened(*budgets: dict[str, Any], **more: Any) -> Accountant:
    accountant = Accountant(MemoryStore())
    accountant.create_dataset(document(*budgets, **more), "root")
    return accountant


def notes(*budgets: dict[str, Any]) -> list[str]:
    with Accountant(MemoryStore()) as accountant:
        return list(accountant.create_dataset(document(*budgets), "root").get("notes", []))


def reading(accountant: Accountant, name: str = "if_stopped_now") -> float:
    return next(float(one["value"]) for one in accountant.odometer("d")["readings"] if one["name"] == name)


TAKEN = [
    ([LIFE], {}),
    ([{**LIFE, "workload": WORK}], {}),
    ([{**LIFE, "delta_add": 0}], {}),
    ([LIFE], {"delta_add": 1e-7}),
    ([LIFE, {"name": "rho", "kind": "zcdp", "rho": 1}], {}),
    ([LIFE, {**LIFE, "name": "mine", "scope": "principal/*"}, {**LIFE, "name": "day", "window": "day"}], {}),
]
ITS_OWN = [
    ([LIFE, {**LIFE, "name": "other", "epsilon": 3}], {}),
    ([{**LIFE, "delta": 1e-7}], {}),
    ([LIFE], {"delta_add": 0}),
    ([{**LIFE, "scope": "principal/*"}], {"odometer_only": True}),
    ([{**LIFE, "window": "day"}], {"odometer_only": True}),
    ([{"name": "rho", "kind": "zcdp", "rho": 1}], {}),
]


@pytest.mark.parametrize(("budgets", "more"), TAKEN)
def test_the_readings_take_the_weights_and_the_split_of_the_one_budget(
    budgets: list[dict[str, Any]], more: dict[str, Any]
) -> None:
    with opened(*budgets, **more) as accountant:
        state = accountant.state("d")
        fixed = state.budgets["life"].fixed
        dataset = state.dataset
        assert list(dataset.weights) == fixed["weights"]
        assert (dataset.delta_add, dataset.delta_mix) == (fixed["delta_add"], fixed["delta_mix"])


@pytest.mark.parametrize(("budgets", "more"), ITS_OWN)
def test_elsewhere_they_keep_weights_that_suit_any_dataset(
    budgets: list[dict[str, Any]], more: dict[str, Any]
) -> None:
    with opened(*budgets, **more) as accountant:
        dataset = accountant.state("d").dataset
        assert dataset.weights == reading_prior(dataset.grid)


def test_a_workload_that_the_dataset_names_wins() -> None:
    with opened(LIFE, workload=WORK) as accountant:
        state = accountant.state("d")
        assert list(state.dataset.weights) != state.budgets["life"].fixed["weights"]
        assert state.dataset.weights != reading_prior(state.dataset.grid)


MECHANISMS: list[dict[str, Any]] = [
    SGD,
    {"kind": "gaussian", "noise_multiplier": 3.0},
    {"kind": "laplace", "epsilon": 0.3},
    {"kind": "pure", "epsilon": 0.1},
    {"kind": "zcdp", "rho": 0.01},
    {"kind": "approximate", "epsilon": 0.2, "delta": 3e-8},
]


@examples(25)
@given(
    st.lists(st.tuples(st.sampled_from(MECHANISMS), st.floats(0.01, 1)), min_size=1, max_size=5),
    st.sampled_from([0.1, 0.3, 1.0, 4.0, 8.0]),
    st.booleans(),
)
def test_the_reading_never_stands_above_the_limit_of_that_budget(
    parts: list[tuple[dict[str, Any], float]], epsilon: float, work: bool
) -> None:
    """However near to the limit: of each mechanism the largest count that fits, or a part of it."""
    budget = {**LIFE, "epsilon": epsilon} | ({"workload": WORK} if work else {})
    with opened(budget) as accountant:
        for number, (mechanism, part) in enumerate(parts):
            asked = {"mechanism": mechanism, "count": 1}
            most = accountant.check("d", asked)["would_fit"]["largest_count"]
            count = max(1, round(most * part))
            try:
                accountant.charge("d", {**asked, "count": count}, f"k{number}", "ada")
            except BudgetExceeded:
                assert most == 0
            [shown] = accountant.budgets("d")["items"]
            assert reading(accountant) <= epsilon
            assert shown["spent"] == reading(accountant)
            assert accountant.history("d")["points"][-1]["if_stopped_now"] == reading(accountant)


LARGE = [
    {"name": "b", "kind": "pure", "epsilon": 100},
    {"name": "b", "kind": "approximate", "epsilon": 100, "delta": 1e-6},
    {"name": "b", "kind": "zcdp", "rho": 10},
    {"name": "b", "kind": "gdp", "mu": 5},
    {"name": "b", "kind": "renyi", "order": 8, "epsilon": 30},
    {"name": "b", "kind": "pure", "epsilon": 21, "scope": "principal/*"},
]
USUAL = [
    {"name": "b", "kind": "pure", "epsilon": 10},
    {"name": "b", "kind": "approximate", "epsilon": 20, "delta": 1e-6},
    {"name": "b", "kind": "zcdp", "rho": 1},
    {"name": "b", "kind": "gdp", "mu": 1},
    {"name": "b", "kind": "renyi", "order": 8, "epsilon": 1},
]


@pytest.mark.parametrize("budget", LARGE, ids=lambda one: str(one["kind"]))
def test_a_budget_that_promises_next_to_nothing_is_opened_with_a_note(budget: dict[str, Any]) -> None:
    """At the opening, when it is added, and when it is raised to that."""
    assert any("hardly protects" in note for note in notes(LIFE, budget))
    with opened(LIFE) as accountant:
        assert "hardly protects" in accountant.add_budget("d", budget, "root")["warning"]
        raised = accountant.change_budget("d", "life", {**LIFE, "epsilon": 100}, '"v1"', "root")
        assert "10^43 times" in raised["warning"]


@pytest.mark.parametrize("budget", USUAL, ids=lambda one: str(one["kind"]))
def test_a_usual_budget_has_no_note(budget: dict[str, Any]) -> None:
    assert notes(LIFE, budget) == []


def test_a_limit_below_what_is_spent_says_so() -> None:
    """Lowered to that, or set to that when it is added; also within a window. Else nothing is said of it."""
    spent = {"mechanism": {"kind": "pure", "epsilon": 0.5}, "count": 1}
    first = {"name": "life", "kind": "pure", "epsilon": 1}
    with opened(first, {**first, "name": "day", "window": "day"}) as accountant:
        accountant.charge("d", spent, "k", "ada")
        for name, window in (("life", {}), ("day", {"window": "day"})):
            budget = {**first, **window, "name": name}
            kept = accountant.change_budget("d", name, {**budget, "epsilon": 0.6}, '"v1"', "root")
            assert "spent" not in kept["warning"]
            lowered = accountant.change_budget("d", name, {**budget, "epsilon": 0.4}, '"v2"', "root")
            assert "below the 0.5 that are spent" in lowered["warning"]
            assert "spent already" not in lowered["warning"]
        added = accountant.add_budget("d", {"name": "late", "kind": "zcdp", "rho": 0.01}, "root")
        assert "is spent already" in added["warning"]
