"""A state is the same however one came by it: decided, folded from the entries, or restored."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from odometer_accountant.ledger.fold import fold
from odometer_accountant.ledger.snapshot import catch_up, load_state
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores import Store
from odometer_accountant.stores.memory import MemoryStore


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


PARTS = {"composition": "by_partition", "partitions": ["eu", "us"]}
LIVES: dict[str, dict[str, Any]] = {
    "sequential": {"budgets": [{"name": "n", "kind": "zcdp", "rho": 9.0}]},
    "windows": {
        "budgets": [
            {"name": "n", "kind": "zcdp", "rho": 9.0},
            {"name": "day", "kind": "zcdp", "rho": 5.0, "window": "day"},
            {"name": "each", "kind": "zcdp", "rho": 5.0, "scope": "principal/*", "window": "hour"},
        ]
    },
    "by_partition": {"budgets": [{"name": "n", "kind": "zcdp", "rho": 9.0, "scope": "partition/*"}], **PARTS},
}


@pytest.mark.parametrize("life", LIVES)
@pytest.mark.parametrize("more", [0, 1, 3, 40])
def test_caught_up_is_reloaded(life: str, more: int) -> None:
    """What others append meanwhile: charges, holds, settlements, few and many."""
    store = MemoryStore()
    accountant = Accountant(store)
    document = {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-5}
    accountant.create_dataset({**document, **LIVES[life]}, "p")
    body = {"mechanism": {"kind": "gaussian", "noise_multiplier": 9.0}, "count": 3}
    body |= {"partitions": ["eu"]} if life == "by_partition" else {}
    accountant.hold("d", {**body, "expires_in_s": 60}, "first", "p")  # later ones leave the configuration
    before = load_state(store, "d")
    assert before is not None
    for number in range(more):
        accountant.charge("d", body, f"k{number}", "q")
        held = accountant.hold("d", {**body, "expires_in_s": 60}, f"h{number}", "p")[0]
        if number % 2:
            accountant.settle("d", held["hold"]["id"], {"used": 1}, "p")
    names = [*before.standing, *before.blob_names(["principal/p", "principal/q", "mechanism/gaussian"])]
    found = catch_up(store, before, names)
    assert found is not None
    assert found[0] == load_state(store, "d", names)
    assert found[0].limits == before.limits


def changed(accountant: Accountant, store: MemoryStore) -> None:
    accountant.add_budget("d", {"name": "b", "kind": "gdp", "mu": 1.0}, "p")


def closed(accountant: Accountant, store: MemoryStore) -> None:
    accountant.close_dataset("d", "p")


def rolled_back(accountant: Accountant, store: MemoryStore) -> None:
    stream = store._streams["d"]
    stream.rows.pop()


def rewritten(accountant: Accountant, store: MemoryStore) -> None:
    """The entry at which the state ended is another one, and the ledger went on."""
    accountant.charge("d", CHARGE, "more", "p")
    rows = store._streams["d"].rows
    rows[-2] = replace(rows[-2], hash="0" * 64)


CHARGE = {"mechanism": {"kind": "gaussian", "noise_multiplier": 100.0}, "count": 1}


@pytest.mark.parametrize("what", [changed, closed, rolled_back, rewritten])
def test_nothing_but_spending_is_caught_up(what: Callable[[Accountant, MemoryStore], None]) -> None:
    """Then the state is read anew, with all that is checked there."""
    store = MemoryStore()
    accountant = opened(store)
    accountant.charge("d", CHARGE, "one", "p")
    before = load_state(store, "d")
    assert before is not None
    what(accountant, store)
    assert catch_up(store, before, before.standing) is None
