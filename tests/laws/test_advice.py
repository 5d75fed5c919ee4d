"""Advice is about what the service would take: in range, and never a fault of its own."""

from collections.abc import Iterator
from typing import Any

import pytest

from accountant.service import Accountant
from accountant.stores.memory import MemoryStore


@pytest.fixture
def accountant() -> Iterator[Accountant]:
    with Accountant(MemoryStore()) as accountant:
        document = {"name": "d", "unit": "person", "adjacency": "replace_one", "delta": 1e-5}
        accountant.create_dataset(
            {**document, "budgets": [{"name": "b", "kind": "pure", "epsilon": 1e6}]}, "p"
        )
        yield accountant


@pytest.mark.parametrize(
    "mechanism",
    [
        {"kind": "pure", "epsilon": 5000.0},
        {"kind": "approximate", "epsilon": 5000.0, "delta": 0.0},
        {"kind": "randomized_response", "k": 2, "epsilon": 10.0},
        {"kind": "laplace", "epsilon": 10.0},
    ],
    ids=lambda mechanism: str(mechanism["kind"]),
)
def test_the_least_noise_under_a_huge_budget_is_in_range(
    accountant: Accountant, mechanism: dict[str, Any]
) -> None:
    """The search goes far below the noise that was asked for; what it finds can be charged as it stands."""
    least = accountant.check("d", {"mechanism": mechanism, "count": 1})["would_fit"]["least_noise"]
    assert accountant.check("d", {"mechanism": least, "count": 1})["fits"]


def test_a_budget_with_a_round_rest_advises_the_round_rest() -> None:
    """Not the digits at which a search happened to stop."""
    with Accountant.open("memory://") as accountant:
        accountant.create_dataset(
            {
                "name": "d",
                "unit": "person",
                "adjacency": "add_remove",
                "delta": 1e-6,
                "budgets": [{"name": "life", "kind": "pure", "epsilon": 0.5}],
            },
            "p",
        )
        checked = accountant.check("d", {"mechanism": {"kind": "pure", "epsilon": 1.0}, "count": 1})
    assert checked["would_fit"]["least_noise"] == {"kind": "pure", "epsilon": 0.5}
