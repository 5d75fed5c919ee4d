"""A dataset that is opened with unusual numbers is taken, and what they mean is said."""

from typing import Any

import pytest

from odometer_accountant.queries.warnings import LOCAL
from odometer_client import Client

LIFE = {"name": "life", "kind": "approximate", "epsilon": 1.0, "delta": 1e-6}
UNITS = {"name": "life", "kind": "pure", "epsilon": 1.0, "scope": "unit/*"}


def notes(delta: float = 1e-6, adjacency: str = "add_remove", budget: Any = LIFE, **more: Any) -> list[str]:
    with Client("memory://") as client:
        made = client.create_dataset(
            "d", unit="person", adjacency=adjacency, delta=delta, budgets=[budget], **more
        )
        assert "notes" not in client.dataset("d")
        return list(made.get("notes", []))


def test_there_is_nothing_to_say_of_a_usual_dataset() -> None:
    assert notes() == []
    assert notes(budget=LIFE | {"delta": 1e-7}) == []
    assert notes(adjacency="replace_one", budget=UNITS, composition="by_unit", shards=2) == []


@pytest.mark.parametrize(("delta", "units"), [(0.5, "2"), (0.01, "100"), (0.001, "1000")])
def test_a_large_delta_is_said_with_for_how_many_units_it_is(delta: float, units: str) -> None:
    (said,) = notes(delta)
    assert f"δ is {delta:g}" in said
    assert f"far fewer than {units} of them" in said


def test_a_budget_above_the_datasets_delta_is_said() -> None:
    (said,) = notes(budget=LIFE | {"delta": 1e-5})
    assert "budget life promises its ε at δ = 1e-05, which is above the dataset's 1e-06" in said


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out"])
def test_units_whose_randomisers_are_all_refused_are_said(adjacency: str) -> None:
    assert {"randomized_response", "unary_encoding", "rappor", "hadamard_response"} <= set(LOCAL)
    (said,) = notes(adjacency=adjacency, budget=UNITS, composition="by_unit", shards=2)
    assert ", ".join(LOCAL) in said
    assert f"adjacency {adjacency}" in said


def test_a_budget_that_is_added_or_changed_says_it_too() -> None:
    with Client("memory://") as client:
        client.create_dataset("d", unit="person", adjacency="add_remove", delta=1e-6, budgets=[LIFE])
        assert (
            "above the dataset's" in client.add_budget("d", LIFE | {"name": "two", "delta": 1e-5})["warning"]
        )
        assert not client.add_budget("d", LIFE | {"name": "three"}).get("warning")
        budget = client.dataset("d").budgets[0]
        wanted = {"kind": "approximate", "epsilon": 2.0, "delta": 1e-5}
        warning = client.set_budget("d", "life", wanted, etag=budget["etag"])["warning"]
        assert "the limit was raised" in warning
        assert "above the dataset's" in warning
