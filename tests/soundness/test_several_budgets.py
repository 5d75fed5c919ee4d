"""All budgets must hold: "the Gaussian rule or the Rényi rule" would reach up to 1.11 delta (SOUNDNESS 3)."""

from collections.abc import Iterator
from typing import Any

import pytest

from odometer_accountant.errors import BudgetExceeded
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores.memory import MemoryStore

Document = dict[str, Any]
OTHERS: list[Document] = [
    {"name": "b", "kind": "pure", "epsilon": 100.0},
    {"name": "b", "kind": "zcdp", "rho": 100.0},
    {"name": "b", "kind": "renyi", "order": 8, "epsilon": 100.0},
    {"name": "b", "kind": "gdp", "mu": 100.0},
]


@pytest.fixture
def accountant() -> Iterator[Accountant]:
    with Accountant(MemoryStore()) as accountant:
        yield accountant


def opened(accountant: Accountant, *budgets: Document) -> None:
    accountant.create_dataset(
        {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-5, "budgets": list(budgets)},
        "p",
    )


def refused(accountant: Accountant, **mechanism: Any) -> list[Document]:
    """The refusals of one charge; nothing is charged."""
    before = accountant.dataset("d")
    with pytest.raises(BudgetExceeded) as raised:
        accountant.charge("d", {"mechanism": mechanism, "count": 1}, "key", "p")
    assert accountant.dataset("d") == before
    refusals: list[Document] = raised.value.fields["refusals"]
    return refusals


@pytest.mark.parametrize("other", OTHERS, ids=lambda budget: budget["kind"])
def test_an_approximate_charge_is_refused(accountant: Accountant, other: Document) -> None:
    """None of these promises covers a delta, however much room there is; the reason says what would."""
    opened(accountant, other)
    [refusal] = refused(accountant, kind="approximate", epsilon=0.001, delta=1e-12)
    assert "delta" in refusal["reason"]
    assert "budget of kind approximate" in refusal["reason"]
    accountant.charge("d", {"mechanism": {"kind": "pure", "epsilon": 0.001}, "count": 1}, "key", "p")


def test_gaussian_or_renyi_is_not_offered(accountant: Accountant) -> None:
    """With both budgets a charge must fit both: what fits one alone is refused, whichever it is."""
    rdp = {"name": "rdp", "kind": "approximate", "epsilon": 1.0, "delta": 1e-5}
    opened(accountant, rdp, {"name": "gdp", "kind": "gdp", "mu": 0.26})
    [refusal] = refused(accountant, kind="gaussian", noise_multiplier=3.9)
    assert refusal["budget"] == "rdp"
    sampled = {"kind": "poisson_subsampled", "sampling_rate": 0.01}
    [refusal] = refused(accountant, **sampled, base={"kind": "gaussian", "noise_multiplier": 2.0})
    assert refusal["budget"] == "gdp"
    assert "approximate" in refusal["reason"]
    both = {item["budget"] for item in refused(accountant, kind="gaussian", noise_multiplier=1.0)}
    assert both == {"rdp", "gdp"}
    accountant.charge("d", {"mechanism": {"kind": "gaussian", "noise_multiplier": 6.0}, "count": 1}, "k", "p")


def test_no_bound_is_refused_by_every_kind(accountant: Accountant) -> None:
    """Raw data, noise of 0, truth always told: every budget refuses, saying why."""
    opened(
        accountant,
        *[{**other, "name": f"b{place}"} for place, other in enumerate(OTHERS)],
        {"name": "e", "kind": "approximate", "epsilon": 100.0, "delta": 0.1},
    )
    for mechanism in (
        {"kind": "non_private", "what": "raw data"},
        {"kind": "gaussian", "noise_multiplier": 0.0},
        {"kind": "approximate", "epsilon": 0.0, "delta": 0.5},
    ):
        found = refused(accountant, **mechanism)
        assert len(found) == len(OTHERS) + 1
        assert all(refusal["reason"] for refusal in found)
