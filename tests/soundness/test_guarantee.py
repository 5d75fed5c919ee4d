"""A guarantee never says less than what was already spent."""

import json
import math
from typing import Any

import numpy as np
import pytest

from odometer_accountant.ledger.decisions import admit
from odometer_accountant.ledger.fold import fold
from odometer_accountant.ledger.state import State
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores import open_store
from odometer_accountant.stores.memory import MemoryStore
from odometer_accountant.verify.walk import verify
from tests.golden.ledger.opened import restore

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


KINDS: dict[str, dict[str, Any]] = {
    "pure": {"parameter": "epsilon"},
    "zcdp": {"parameter": "rho"},
    "renyi": {"parameter": "epsilon", "order": 2},
    "gdp": {"parameter": "mu"},
    "approximate": {"parameter": "epsilon", "delta": 1e-6},
}
ONCE = {"mechanism": {"kind": "pure", "epsilon": 0.01}, "count": 1}


def budget(kind: str, limit: float) -> dict[str, Any]:
    more = {name: value for name, value in KINDS[kind].items() if name != "parameter"}
    return {"name": "b", "kind": kind, KINDS[kind]["parameter"]: limit, **more}


def opened(kind: str, limit: float, store: Any = None) -> Accountant:
    accountant = Accountant(store or MemoryStore())
    document = {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-6}
    accountant.create_dataset(document | {"budgets": [budget(kind, limit)]}, "p")
    return accountant


def change(accountant: Accountant, kind: str, *limits: float) -> list[str | None]:
    """To each limit in turn. What is said of each."""
    said = []
    for limit in limits:
        etag = accountant.dataset("d")["budgets"][0]["etag"]
        said.append(accountant.change_budget("d", "b", budget(kind, limit), etag, "p").get("warning"))
    return said


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_that_was_lowered_is_a_promise_of_epsilon_alone(kind: str) -> None:
    """Elsewhere it stays the largest that was in force since the first charge, up and down, and says why."""
    path = kind in ("pure", "approximate")
    with opened(kind, 1.0) as accountant:
        accountant.charge("d", ONCE, "k", "p")
        for limits, due in (
            ((0.6,), 1.0),
            ((1.0,), 1.0),
            ((0.5, 2.0), 2.0),
            ((0.7,), 2.0),
            ((3.0, 1.0), 3.0),
        ):
            change(accountant, kind, *limits)
            found = guarantee(accountant)
            assert found["value"] == (limits[-1] if path else due), limits
            assert ("largest limit" in found["holds"]) is (not path and due > limits[-1])


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_in_force_before_the_first_charge_does_not_count(kind: str) -> None:
    with opened(kind, 5.0) as accountant:
        change(accountant, kind, 2.0, 0.5)
        accountant.charge("d", ONCE, "k", "p")
        assert guarantee(accountant)["value"] == 0.5
        change(accountant, kind, 0.4)
        assert guarantee(accountant)["value"] == (0.4 if kind in ("pure", "approximate") else 0.5)


def test_a_budget_that_was_added_later_counts_from_its_own_first_entry() -> None:
    with opened("pure", 9.0) as accountant:
        accountant.charge("d", ONCE, "k1", "p")
        accountant.add_budget("d", {"name": "late", "kind": "zcdp", "rho": 5.0}, "p")
        late = {"name": "late", "kind": "zcdp"}
        accountant.change_budget("d", "late", {**late, "rho": 1.0}, '"v1"', "p")
        assert guarantee(accountant, "late")["value"] == 1.0
        accountant.charge("d", ONCE, "k2", "p")
        accountant.change_budget("d", "late", {**late, "rho": 0.5}, '"v2"', "p")
        found = guarantee(accountant, "late")
        assert found["value"] == 1.0
        assert "entries after" in found["holds"]


def test_other_weights_begin_anew() -> None:
    """A Rényi budget of another order covers what comes after, and has no limit of before."""
    with opened("renyi", 4.0) as accountant:
        accountant.charge("d", ONCE, "k", "p")
        changed = {**budget("renyi", 1.0), "order": 8}
        accountant.change_budget("d", "b", changed, '"v1"', "p")
        found = guarantee(accountant)
        assert (found["value"], found["order"]) == (1.0, 8)
        assert "entries after" in found["holds"]


def test_a_rule_of_stopping_breaks_the_lowered_limit_and_never_the_promise() -> None:
    """Half of the tilted mass goes on to ρ = 1, the rest stops and lowers to 0.6: D₂ is 1.62, not 1.2.

    One Gaussian of z = 1 says x; whoever sees x below 2 runs another, else the limit is lowered.
    """
    x, step = np.linspace(-12.0, 16.0, 280_001, retstep=True)
    tilted = np.exp(-((x - 1) ** 2) / 2 + (x - 0.5)) / math.sqrt(2 * math.pi) * step  # P's density times e^L
    second = math.e  # E of e^L of a second one
    order_two = math.log(tilted[x >= 2].sum() + second * tilted[x < 2].sum())
    assert order_two == pytest.approx(math.log((math.e + math.e**2) / 2), rel=1e-4)
    assert 2 * 0.6 < 1.2 + 1e-9 < order_two
    gaussian = {"mechanism": {"kind": "gaussian", "noise_multiplier": 1.0}, "count": 1}
    for lowers in (True, False):
        with opened("zcdp", 1.0) as accountant:
            accountant.charge("d", gaussian, "first", "p")
            if lowers:
                (said,) = change(accountant, "zcdp", 0.6)
                assert said is not None
            else:
                accountant.charge("d", gaussian, "second", "p")
            assert 2 * guarantee(accountant)["value"] >= order_two


@pytest.mark.parametrize("kind", KINDS)
def test_lowering_says_what_it_does(kind: str) -> None:
    with opened(kind, 4.0) as accountant:
        accountant.charge("d", {"mechanism": {"kind": "pure", "epsilon": 1.0}, "count": 1}, "k", "p")
        low, up, same = change(accountant, kind, 3.9, 4.0, 4.0)
        assert low is not None
        assert "lowered from 4 to 3.9" in low
        assert ("largest" in low) is (kind not in ("pure", "approximate"))
        assert up is not None
        assert "raised" in up
        assert "the limit was" not in (same or "")
        (below,) = change(accountant, kind, 0.01)
        assert below is not None
        assert "nothing more is admitted" in below


def test_it_is_known_after_a_restart_and_verified(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    with opened("zcdp", 1.0, open_store(url)) as accountant:
        accountant.charge("d", ONCE, "k", "p")
        change(accountant, "zcdp", 3.0, 0.6)
    with Accountant(open_store(url)) as again:
        assert guarantee(again)["value"] == 3.0
        change(again, "zcdp", 0.5)
        assert guarantee(again)["value"] == 3.0
        assert not [one for verdict in verify(again.store) for one in verdict.findings]
        entries = [json.loads(row.body) for row in again.store.entries("d", 1, 9)]
    assert [(entry["v"], entry.get("largest")) for entry in entries] == [
        (3, None),
        (4, "3.0"),
        (4, "3.0"),
        (4, "3.0"),
    ]


def test_of_an_earlier_ledger_it_is_known_once_its_entries_were_counted_again() -> None:
    """Until then there is no number, rather than the lowered one."""
    store = restore("format_3.txt", MemoryStore())
    state = fold([(row.hash, row.body) for row in store.entries("plain", 0, 1000)])
    with Accountant(store, lambda: "2026-03-02T09:00:00.000000Z") as accountant:
        readings = accountant.odometer("plain", scope="principal/ada")["readings"]
        (daily,) = [one for one in readings if one["budget"] == "daily"]
        assert daily["value"] is None
        assert "No number here" in daily["holds"]
    assert state is not None
    assert (state.budgets["daily"].largest, state.budgets["daily"].budget.limit()) == (0.5, 0.25)
    assert "largest" not in state.budgets["daily"].kept()
    after = admit(state, {"type": "recounted", "time": state.time, "principal": "service"}, version=4).state
    assert after.budgets["daily"].kept()["largest"] == "0.5"
    assert State.restore(after.head, after.time, after.config(), None).budgets["daily"].largest == 0.5
