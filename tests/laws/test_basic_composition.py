"""delta_add may be all of delta: then epsilons and deltas add up, exactly, and nothing else is promised."""

import math
import warnings
from typing import Any

import pytest

from odometer_accountant.errors import BudgetExceeded, InvalidRequest
from odometer_accountant.numerics.grid import CURRENT_GRID, GRID_V1
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.numerics.mixture import Mixture
from odometer_accountant.numerics.prior import default_prior, reading_prior, workload_prior
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores.memory import MemoryStore
from odometer_accountant.verify.walk import verify

BASIC = {"name": "life", "kind": "approximate", "epsilon": 8, "delta": 1e-5, "delta_add": 1e-5}
STATED = {"mechanism": {"kind": "approximate", "epsilon": 0.8, "delta": 1e-6}, "count": 1}
GAUSSIAN = {"mechanism": {"kind": "gaussian", "noise_multiplier": 100.0}, "count": 1}


def opened(*budgets: dict[str, Any], **more: Any) -> Accountant:
    accountant = Accountant(MemoryStore())
    document = {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-5, **more}
    accountant.create_dataset({**document, "budgets": list(budgets)}, "root")
    return accountant


def test_ten_stated_shares_fit_and_no_eleventh() -> None:
    with opened(BASIC) as accountant:
        assert accountant.check("d", STATED)["would_fit"]["largest_count"] == 10
        for number in range(10):
            left = accountant.charge("d", STATED, f"k{number}", "ada")[0]["left"][0]
            assert left["spent"] == pytest.approx(0.8 * (number + 1))
        [budget] = accountant.budgets("d")["items"]
        assert (budget["spent"], budget["left"], budget["used"]) == (8.0, 0.0, 1.0)
        with pytest.raises(BudgetExceeded):
            accountant.charge("d", STATED, "eleventh", "ada")
        assert not any(verdict.findings for verdict in verify(accountant.store))


@pytest.mark.parametrize(
    ("charge", "said"),
    [
        ({**STATED, "count": 11}, "delta_add, the part of its delta"),
        (
            {"mechanism": {"kind": "pure", "epsilon": 8.1}, "count": 1},
            "with a smaller delta_add they may fit",
        ),
        (GAUSSIAN, "the charge has no pure epsilon: a budget with a smaller delta_add would take it"),
    ],
)
def test_what_refuses_is_named(charge: dict[str, Any], said: str) -> None:
    with opened(BASIC) as accountant:
        with pytest.raises(BudgetExceeded) as refused:
            accountant.charge("d", charge, "k", "ada")
        [refusal] = refused.value.fields["refusals"]
        assert said in refusal["reason"]
        assert "would_fit" in refused.value.fields


def test_a_budget_whose_delta_add_is_too_small_says_that_it_may_be_all_of_delta() -> None:
    with opened({**BASIC, "delta_add": 1e-6}) as accountant:
        accountant.charge("d", STATED, "k", "ada")
        with pytest.raises(BudgetExceeded) as refused:
            accountant.charge("d", STATED, "l", "ada")
        [refusal] = refused.value.fields["refusals"]
        assert "delta_add may be as large as its delta" in refusal["reason"]


def test_more_than_delta_is_refused() -> None:
    for document in ({**BASIC, "delta_add": 1.1e-5}, {**BASIC, "delta_add": 1e-4}):
        with pytest.raises(InvalidRequest, match="delta_add must be at most delta"):
            opened(document)
    with pytest.raises(InvalidRequest, match="delta_add must be at most delta"):
        opened(BASIC, delta_add=1e-4)


def test_everything_that_is_read_copes() -> None:
    """Readings, history, scopes, what-ifs, checks, edits, shares: numbers or no bound, and no warning."""
    workload = [GAUSSIAN]
    budgets = [
        BASIC,
        {**BASIC, "name": "work", "workload": workload},
        {**BASIC, "name": "each", "scope": "principal/*"},
        {**BASIC, "name": "daily", "window": "day"},
        {**BASIC, "name": "shared", "reserved": {"red": 0.5}},
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with opened(*budgets, delta_add=1e-5) as accountant:
            accountant.charge("d", STATED, "k", "ada")
            found = accountant.odometer("d")
            readings = {one["name"]: one["value"] for one in found["readings"] if one["budget"] is None}
            assert readings["if_stopped_now"] == readings["odometer"] == 0.8
            for delta in (1e-7, 1e-3, 0.5):
                accountant.odometer("d", delta)
            accountant.odometer("d", scope="principal/ada")
            accountant.scopes("d", "principal")
            accountant.spend("d")
            assert accountant.history("d")["points"][-1]["if_stopped_now"] == 0.8
            for body in (GAUSSIAN, STATED, {"charges": [STATED, GAUSSIAN]}):
                accountant.check("d", body)
            accountant.change_budget("d", "life", {**BASIC, "epsilon": 7}, '"v1"', "root")
            accountant.change_budget("d", "life", {**BASIC, "delta_add": 0}, '"v2"', "root")
            accountant.change_budget("d", "life", BASIC, '"v3"', "root")
            assert not any(verdict.findings for verdict in verify(accountant.store))


def test_a_gaussian_leaves_no_bound_and_no_number() -> None:
    """Counted only: nothing can be promised of it where all of delta is kept for approximate charges."""
    with opened(odometer_only=True, delta_add=1e-5) as accountant:
        accountant.charge("d", GAUSSIAN, "k", "ada")
        readings = {one["name"]: one["value"] for one in accountant.odometer("d")["readings"]}
        assert readings["if_stopped_now"] is None
        assert readings["odometer"] is None
        assert readings["fixed_plan"] > 0


def test_a_mixture_of_no_delta_admits_nothing() -> None:
    nothing, some = Loss.zero(CURRENT_GRID).renyi(), CURRENT_GRID.orders * 1e-9
    mixture = Mixture(CURRENT_GRID, reading_prior(CURRENT_GRID), 0.0)
    for losses in (nothing, some):
        assert mixture.if_stopped_now(losses) == mixture.odometer(losses) == math.inf
        assert mixture.log_delta_filter(losses, 1.0) > mixture.log_delta
    assert set(mixture.capacity(1e4)) == {-math.inf}
    workload = Loss.zero(CURRENT_GRID)
    assert default_prior(CURRENT_GRID, 1.0, 0.0) == workload_prior(CURRENT_GRID, workload, 0.0)


def test_an_entry_that_says_so_has_format_4_on_an_old_dataset_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier version has no logarithm of 0: it must not read on."""
    monkeypatch.setattr("odometer_accountant.ledger.administration.CURRENT_GRID", GRID_V1)
    with opened({"name": "first", "kind": "pure", "epsilon": 8}) as accountant:
        assert accountant.dataset("d")["grid_version"] == 1
        accountant.add_budget("d", {**BASIC, "delta_add": 0}, "root")
        assert accountant.state("d").version == 3
        accountant.change_budget("d", "life", BASIC, '"v1"', "root")
        assert [item["entry"]["v"] for item in accountant.ledger("d")["items"]] == [3, 3, 4]
        assert accountant.state("d").version == 4
