"""`Client("sqlite:///...")` and `Client("memory://")`: the same client over a ledger of this process."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odometer_client import BudgetExceeded, Client
from odometer_client.errors import (
    DatasetExists,
    EditConflict,
    InvalidRequest,
    KeyReused,
    NotFound,
    UnknownDataset,
)
from odometer_client.mechanisms import Pure, Zcdp

LIFE = {"name": "life", "kind": "pure", "epsilon": 1.0}


@pytest.fixture
def client() -> Iterator[Client]:
    with Client("memory://") as client:
        client.create_dataset("d", unit="person", adjacency="add_remove", delta=1e-6, budgets=[LIFE])
        yield client


def test_charges_until_refused_and_says_what_would_fit(client: Client) -> None:
    receipt = client.charge("d", Pure(epsilon=0.25), 3)
    assert receipt.left[0]["left"] == pytest.approx(0.25)
    with pytest.raises(BudgetExceeded) as raised:
        client.charge("d", Pure(epsilon=0.25), 3)
    assert raised.value.would_fit["largest_count"] == 1
    client.charge("d", Pure(epsilon=0.25))


def test_the_same_key_is_the_same_charge(client: Client) -> None:
    first = client.charge("d", Pure(epsilon=0.25), key="k")
    again = client.charge("d", Pure(epsilon=0.25), key="k")
    assert (again.replayed, again.sequence) == (True, first.sequence)
    with pytest.raises(KeyReused):
        client.charge("d", Pure(epsilon=0.5), key="k")


def test_a_list_is_all_or_nothing(client: Client) -> None:
    with pytest.raises(BudgetExceeded):
        client.charge("d", [(Pure(epsilon=0.5), 1), (Zcdp(rho=0.1), 1)])
    assert client.dataset("d").budgets[0]["spent"] == 0
    client.charge("d", [(Pure(epsilon=0.5), 1), (Pure(epsilon=0.25), 2)])


def test_a_check_changes_nothing(client: Client) -> None:
    assert client.check("d", Pure(epsilon=0.5), 2)
    assert not client.check("d", Pure(epsilon=0.5), 3)
    assert client.dataset("d").budgets[0]["spent"] == 0


def test_readings_ledger_history_and_spend_are_there(client: Client) -> None:
    client.charge("d", Pure(epsilon=0.25))
    assert client.odometer("d", delta=1e-5).reading("fixed_plan")["value"] > 0
    types = [item["entry"]["type"] for item in client.ledger("d", limit=1)]
    assert types == ["opened", "charged"]
    assert client.history("d")
    assert client.spend("d")["by_mechanism"][0]["kind"] == "pure"


def test_what_a_plan_costs_needs_no_dataset(client: Client) -> None:
    assert client.convert(Pure(epsilon=0.25), 4, delta=1e-6)["totals"]["pure"] == 1.0
    assert {item["kind"] for item in client.mechanisms()} >= {"gaussian", "poisson_subsampled"}


def test_errors_are_the_clients_own(client: Client) -> None:
    with pytest.raises(UnknownDataset):
        client.charge("elsewhere", Pure(epsilon=0.1))
    with pytest.raises(DatasetExists):
        client.create_dataset("d", unit="person", adjacency="add_remove", delta=1e-6, budgets=[LIFE])
    with pytest.raises(InvalidRequest, match="count"):
        client.charge("d", Pure(epsilon=0.1), 0)
    with pytest.raises(NotFound, match="no API keys"):
        client.create_key("reader")


def test_budgets_are_added_and_changed_by_version(client: Client) -> None:
    etag = client.add_budget("d", {"name": "r", "kind": "zcdp", "rho": 0.5})["etag"]
    assert client.set_budget("d", "r", {"kind": "zcdp", "rho": 0.25}, etag=etag)["limit"] == 0.25
    with pytest.raises(EditConflict):
        client.set_budget("d", "r", {"kind": "zcdp", "rho": 0.5}, etag=etag)


def test_a_file_keeps_what_was_charged(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    with Client(url) as client:
        client.create_dataset("d", unit="person", adjacency="add_remove", delta=1e-6, budgets=[LIFE])
        client.charge("d", Pure(epsilon=0.75), key="k")
    with Client(url) as client:
        assert client.charge("d", Pure(epsilon=0.75), key="k").replayed
        assert next(client.datasets()).budgets[0]["left"] == pytest.approx(0.25)


def test_without_the_accountant_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "odometer_accountant.service.accountant", None)
    with pytest.raises(ImportError, match="pip install privacy-odometer"):
        Client("memory://")
