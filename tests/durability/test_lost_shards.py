"""A shard that its dataset lists and that is gone took what its units lost with it: it is not begun anew."""

from collections.abc import Sequence
from typing import Any

import pytest
from faulty import Action, FaultyStore

from odometer_accountant.errors import LedgerRolledBack, StoreUnavailable
from odometer_accountant.scopes import shard_stream
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores import Write
from odometer_accountant.stores.memory import MemoryStore
from odometer_accountant.verify.walk import verify

DEVICES = {
    "name": "u",
    "unit": "device",
    "adjacency": "replace_one",
    "delta": 1e-6,
    "composition": "by_unit",
    "shards": 1,
    "budgets": [{"name": "life", "kind": "pure", "epsilon": 1.0, "scope": "unit/*"}],
}
REPORT = {"mechanism": {"kind": "pure", "epsilon": 1.0}, "count": 1, "units": ["x"]}


@pytest.fixture
def store() -> MemoryStore:
    """One on which unit x has spent all that it may."""
    store = MemoryStore()
    accountant = Accountant(store)
    accountant.create_dataset(DEVICES, "p")
    accountant.charge("u", REPORT, "k", "p")
    return store


def test_a_new_process_admits_nothing_on_it(store: MemoryStore) -> None:
    del store._streams[shard_stream("u", 0)]
    again = Accountant(store)
    with pytest.raises(LedgerRolledBack, match="shard 0"):
        again.charge("u", REPORT, "k2", "p")
    with pytest.raises(LedgerRolledBack, match="shard 0"):
        again.odometer("u", scope="unit/x")
    with pytest.raises(LedgerRolledBack, match="shard 0"):
        again.check("u", REPORT, "p")


def test_verify_misses_it(store: MemoryStore) -> None:
    assert all(verdict.ok for verdict in verify(store))
    del store._streams[shard_stream("u", 0)]
    (found,) = [finding.what for verdict in verify(store) for finding in verdict.findings]
    assert found == "its shard 0 was opened, and is not in the store"


def test_one_that_was_opened_and_not_yet_listed_is_listed_then() -> None:
    """The store went away between the two appends, when nothing was admitted on it yet: it goes on."""

    def away_for_the_dataset(verb: Action, writes: Sequence[Write]) -> Any:
        if writes[0].stream == "u":
            raise StoreUnavailable("away")
        return verb(writes)

    store = FaultyStore()
    accountant = Accountant(store)
    accountant.create_dataset(DEVICES, "p")
    store.fail(away_for_the_dataset, "append")
    with pytest.raises(StoreUnavailable):
        accountant.charge("u", REPORT, "k", "p")
    store.heal()
    assert store.load(shard_stream("u", 0), [])[0].sequence == 1
    again = Accountant(store)
    again.charge("u", REPORT, "k", "p")
    assert [item["entry"]["type"] for item in again.ledger("u")["items"]] == ["opened", "shard_opened"]
    assert again.odometer("u", scope="unit/x")["totals"]["pure"] == 1.0
