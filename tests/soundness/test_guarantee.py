"""A guarantee never says less than what was already spent."""

from typing import Any

import pytest

from accountant.service import Accountant

EIGHT = {"kind": "pure", "epsilon": 8}


def guarantee(accountant: Accountant, budget: str = "b") -> dict[str, Any]:
    readings = accountant.odometer("d")["readings"]
    return next(item for item in readings if item["name"] == "guarantee" and item["budget"] == budget)


@pytest.fixture
def accountant() -> Any:
    with Accountant.open("memory://") as opened:
        document = {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-6}
        opened.create_dataset(document | {"budgets": [{"name": "b", "kind": "pure", "epsilon": 10}]}, "p")
        opened.charge("d", {"mechanism": EIGHT, "count": 1}, "k", "p")
        yield opened


def test_a_limit_lowered_below_what_is_spent_promises_what_is_spent(accountant: Accountant) -> None:
    """The release of ε = 8 is out: no later limit makes it ε = 1."""
    accountant.change_budget("d", "b", {"kind": "pure", "epsilon": 1}, '"v1"', "p")
    found = guarantee(accountant)
    assert found["value"] == 8
    assert "lowered" in found["holds"]
    accountant.change_budget("d", "b", {"kind": "pure", "epsilon": 9}, '"v2"', "p")
    assert guarantee(accountant)["value"] == 9


def test_a_limit_lowered_to_what_is_spent_is_the_promise(accountant: Accountant) -> None:
    accountant.change_budget("d", "b", {"kind": "pure", "epsilon": 8}, '"v1"', "p")
    assert guarantee(accountant)["value"] == 8
    assert "lowered" not in guarantee(accountant)["holds"]


def test_a_budget_added_with_less_than_is_spent_promises_for_what_comes(accountant: Accountant) -> None:
    """It admits nothing more, so its promise about later entries is true."""
    accountant.add_budget("d", {"name": "late", "kind": "pure", "epsilon": 1}, "p")
    found = guarantee(accountant, "late")
    assert found["value"] == 1
    assert "entries after" in found["holds"]
