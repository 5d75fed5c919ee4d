"""The examination that the tests of faults rely on finds each kind of broken promise."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from promises import Ask, Dataset, Promises, Refusal, examine
from workload import datasets

from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores.memory import MemoryStore

BODY = {"mechanism": {"kind": "gaussian", "noise_multiplier": 1.0}, "count": 1}
(TIGHT,) = (one for one in datasets((), 9, 9, tight=3) if one.name == "tight")


class Told:
    """A ledger with two charges of three that fit, and what their callers were told."""

    def __init__(self) -> None:
        self.accountant = Accountant(MemoryStore())
        self.accountant.create_dataset(TIGHT.document, "admin")
        self.promises = Promises()
        for key in ("k1", "k2"):
            self.charge(key)

    def charge(self, key: str, by: str = "caller") -> None:
        receipt, _ = self.accountant.charge("tight", BODY, key, by)
        self.promises.heard(self.ask(key), 201, receipt, time.time(), 1)

    def ask(self, key: str) -> Ask:
        return Ask(TIGHT, "", BODY, key, 1, ("dataset",))

    def faults(self, dataset: Dataset = TIGHT) -> dict[str, list[str]]:
        return examine(self.accountant.store, [dataset], self.promises).faults()


@pytest.fixture
def told() -> Iterator[Told]:
    made = Told()
    yield made
    made.accountant.close()


def test_a_kept_promise_is_no_fault(told: Told) -> None:
    assert told.faults() == {}


def test_a_receipt_of_another_entry_is_lost(told: Told) -> None:
    ask, receipt = told.promises.acked["tight", "k1"]
    told.promises.acked["tight", "k1"] = ask, {**receipt, "hash": "0" * 64}
    assert list(told.faults()) == ["lost"]


def test_two_entries_of_one_key_are_doubled(told: Told) -> None:
    told.accountant.charge("tight", BODY, "k1", "somebody-else")
    assert list(told.faults()) == ["doubled"]


def test_more_entries_than_fit_overshoot(told: Told) -> None:
    assert list(told.faults(replace(TIGHT, cap=1))) == ["overshot"]


def test_a_refusal_is_wrong_until_the_budget_is_used_up(told: Told) -> None:
    now = time.time()
    told.promises.refused.append(Refusal(told.ask("k9"), now, now, {}))
    told.charge("k3")
    assert list(told.faults()) == ["wrong"]
    later = time.time()
    told.promises.refused = [Refusal(told.ask("k9"), later, later, {})]
    assert told.faults() == {}


@pytest.mark.parametrize(
    ("status", "document"),
    [
        (500, {"type": "/problems/internal-error"}),
        (404, {"type": "/problems/unknown-dataset"}),
        (404, {"type": "/problems/unknown-hold"}),
        (409, {"type": "/problems/hold-settled"}),
        (503, {"type": "/problems/ledger-corrupt"}),
        (201, {"replayed": True, "sequence": 2, "hash": ""}),
    ],
)
def test_an_answer_that_no_fault_excuses_is_wrong(told: Told, status: int, document: dict[str, Any]) -> None:
    told.promises.heard(told.ask("k9"), status, document, time.time(), 1)
    assert "wrong" in told.faults()
