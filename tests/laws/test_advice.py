"""Advice is about what the service would take: in range, and never a fault of its own."""

from collections.abc import Iterator
from typing import Any

import pytest

from odometer_accountant.budgets.base import NO_BOUND
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores.memory import MemoryStore


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


def _asked(mechanism: dict[str, Any], epsilon: float = 3.0, spent: float = 0.0, count: int = 1) -> Any:
    """What is said of a charge on a budget of ε and δ 1e-6, whose delta_add is 1e-7."""
    with Accountant.open("memory://") as accountant:
        accountant.create_dataset(
            {
                "name": "d",
                "unit": "person",
                "adjacency": "replace_one",
                "delta": 1e-6,
                "budgets": [
                    {
                        "name": "life",
                        "kind": "approximate",
                        "epsilon": epsilon,
                        "delta": 1e-6,
                        "delta_add": 1e-7,
                    }
                ],
            },
            "p",
        )
        if spent:
            before = {"kind": "approximate", "epsilon": 0.0, "delta": spent}
            accountant.charge("d", {"mechanism": before, "count": 1}, "before", "p")
        checked = accountant.check("d", {"mechanism": mechanism, "count": count})
        least = checked["would_fit"]["least_noise"]
        if least is not None:
            assert accountant.check("d", {"mechanism": least, "count": count})["fits"]
        return checked


SHUFFLED = {"kind": "shuffled", "epsilon0": 1.0, "population": 100_000, "delta": 1e-6}
APPROXIMATE = {"kind": "approximate", "epsilon": 0.5, "delta": 1e-6}


@pytest.mark.parametrize("mechanism", [SHUFFLED, APPROXIMATE], ids=["shuffled", "approximate"])
@pytest.mark.parametrize(("spent", "count", "fits"), [(0.0, 1, 1e-7), (4e-8, 1, 6e-8), (0.0, 4, 2.5e-8)])
def test_where_only_delta_is_too_much_only_delta_is_lowered(
    mechanism: dict[str, Any], spent: float, count: int, fits: float
) -> None:
    """To what is left of delta_add, over the count; ε stays."""
    assert _asked(mechanism, spent=spent, count=count)["would_fit"]["least_noise"] == mechanism | {
        "delta": fits
    }


def test_a_delta_within_others_is_lowered_there() -> None:
    """Of ten releases in one."""
    small = APPROXIMATE | {"epsilon": 0.01}
    inner = {
        "kind": "composed",
        "mechanisms": [small, {"kind": "pure", "epsilon": 0.1}],
        "counts": [10, 1],
    }
    least = _asked(inner)["would_fit"]["least_noise"]
    assert least == inner | {"mechanisms": [small | {"delta": 1e-8}, inner["mechanisms"][1]]}


def test_where_epsilon_is_too_much_too_delta_is_lowered_no_further() -> None:
    """δ to what fits, then ε to what fits."""
    least = _asked(APPROXIMATE | {"epsilon": 30.0})["would_fit"]["least_noise"]
    assert least["delta"] == 1e-7
    assert 2.0 < least["epsilon"] < 30.0


def test_where_only_epsilon_is_too_much_delta_stays() -> None:
    least = _asked(APPROXIMATE | {"epsilon": 30.0, "delta": 1e-9})["would_fit"]["least_noise"]
    assert least["delta"] == 1e-9
    assert 2.0 < least["epsilon"] < 30.0


def test_a_refused_delta_is_told_delta_add_and_what_is_left_of_it() -> None:
    (refusal,) = _asked(SHUFFLED, spent=4e-8)["refusals"]
    assert refusal["reason"] == (
        "the deltas of charges stated as (ε, δ) would go above the budget's delta_add, the part of its delta "
        "that is kept for them: 1e-06 asked, 6e-08 of 1e-07 left. A budget's "
        "delta_add may be as large as its delta: then epsilons and deltas add up"
    )


def test_where_nothing_of_delta_add_is_left_no_delta_is_advised() -> None:
    """An approximate charge without δ is another one."""
    checked = _asked(APPROXIMATE, spent=1e-7)
    assert checked["would_fit"]["least_noise"] is None
    assert checked["refusals"][0]["reason"].count("0 of 1e-07 left") == 1


def test_a_release_without_noise_is_told_so_by_every_kind_of_budget() -> None:
    """Not that its δ is too much: it has no bound in any notion."""
    kinds: list[dict[str, Any]] = [
        {"kind": "pure", "epsilon": 1.0},
        {"kind": "approximate", "epsilon": 1.0, "delta": 1e-6},
        {"kind": "zcdp", "rho": 1.0},
        {"kind": "renyi", "order": 8.0, "epsilon": 1.0},
        {"kind": "gdp", "mu": 1.0},
    ]
    with Accountant.open("memory://") as accountant:
        budgets = [{"name": budget["kind"], **budget} for budget in kinds]
        document = {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-6}
        accountant.create_dataset({**document, "budgets": budgets}, "p")
        noiseless = {"kind": "gaussian", "noise_multiplier": 0.0}
        checked = accountant.check("d", {"mechanism": noiseless, "count": 1})
        stated = {"kind": "approximate", "epsilon": 0.1, "delta": 1e-9}
        with_delta = accountant.check("d", {"mechanism": stated, "count": 1})
    said = {item["budget"]: item["reason"] for item in checked["refusals"]}
    assert said == dict.fromkeys((budget["kind"] for budget in kinds), NO_BOUND)
    others = {item["budget"]: item["reason"] for item in with_delta["refusals"]}
    assert "has a delta, which a zcdp budget" in others["zcdp"]
