"""A state is the same however one came by it: decided, folded from the entries, or restored."""

from typing import Any

from accountant.ledger import fold
from accountant.service import Accountant
from accountant.stores import Store
from accountant.stores.memory import MemoryStore


def opened(store: Store) -> Accountant:
    accountant = Accountant(store)
    document = {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-5}
    budgets = [{"name": name, "kind": "zcdp", "rho": 1.0} for name in ("n", "c")]
    accountant.create_dataset({**document, "budgets": budgets}, "p")
    accountant.add_budget("d", {"name": "a", "kind": "gdp", "mu": 1.0}, "p")
    return accountant


def names(documents: Any) -> list[str]:
    return [document["budget"] for document in documents]


def test_budgets_stand_in_one_order() -> None:
    """By name: on receipts of the running service, after a restart, and in the folded ledger."""
    store = MemoryStore()
    charge = {"mechanism": {"kind": "gaussian", "noise_multiplier": 100.0}, "count": 1}
    running = opened(store)
    live = running.charge("d", charge, "one", "p")[0]["left"]
    restarted = Accountant(store).charge("d", charge, "two", "p")[0]["left"]
    folded = fold((row.hash, row.body) for row in store.entries("d", 0, 100))
    assert names(live) == names(restarted) == ["a", "c", "n"]
    assert folded is not None
    assert list(folded.budgets) == ["a", "c", "n"]
