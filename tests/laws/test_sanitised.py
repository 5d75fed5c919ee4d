"""A hold of PATE queries is settled at a sanitised figure: for what it pays, never for more than was held."""

import json
from typing import Any

import pytest

from odometer_accountant.errors import BudgetExceeded, HoldSettled, InvalidRequest
from odometer_accountant.ledger.commands import Caller
from odometer_accountant.ledger.entries import canonical, entry_hash
from odometer_accountant.ledger.entry_parts import entry_losses
from odometer_accountant.ledger.fold import fold
from odometer_accountant.numerics.grid import CURRENT_GRID
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores import EMPTY_HEAD, NewEntry, Write
from odometer_accountant.stores.memory import MemoryStore
from odometer_accountant.verify.walk import verify

LIFE = {"name": "life", "kind": "approximate", "epsilon": 20, "delta": 1e-5}
QUERIES = {"mechanism": {"kind": "pate_gnmax", "standard_deviation_of_counts": 40.0}, "count": 1000}
TELLING = {
    "mechanism": {"kind": "renyi_curve", "orders": [2.0, 8.0, 16.0], "epsilons": [0.1, 0.2, 0.4]},
    "count": 1,
}
FAILURE = {"mechanism": {"kind": "approximate", "epsilon": 0, "delta": 5e-7}, "count": 1}
CURVE = {"kind": "renyi_curve", "orders": [4.0, 8.0], "epsilons": [0.5, 0.75]}
FIGURE = {"curves": [CURVE, None, None], "failure_probability": 5e-7}
ADA = Caller("ada")


def opened() -> Accountant:
    accountant = Accountant(MemoryStore())
    document = {"name": "d", "unit": "person", "adjacency": "replace_one", "delta": 1e-5, "budgets": [LIFE]}
    accountant.create_dataset(document, "root")
    return accountant


def held(accountant: Accountant, *charges: dict[str, Any]) -> str:
    body = {"charges": list(charges or (QUERIES, TELLING, FAILURE)), "expires_in_s": 600}
    return str(accountant.hold("d", body, "k", ADA)[0]["hold"]["id"])


def settled_loss(accountant: Accountant, place: int = 0) -> Any:
    entry = json.loads(accountant.store.entries("d", 0, 100)[-1].body)
    assert entry["type"] == "settled"
    return entry_losses(CURRENT_GRID, entry)[place]


def at(loss: Any, order: float) -> float:
    return float(loss.amount([float(o) for o in CURRENT_GRID.exact_orders].index(order)))


def test_orders_that_the_figure_reaches_are_settled_at_it() -> None:
    """At the next given order above; higher orders, ρ and μ² stay as they were held."""
    accountant = opened()
    accountant.settle("d", held(accountant), {"used": [1000, 1, 1], "sanitised": FIGURE}, ADA)
    loss = settled_loss(accountant)
    assert at(loss, 4.0) == pytest.approx(0.5)
    assert at(loss, 5.0) == at(loss, 8.0) == pytest.approx(0.75)
    assert at(loss, 9.0) == pytest.approx(9 * 1000 / 1600)
    assert loss.amount(CURRENT_GRID.rho) == pytest.approx(1000 / 1600)
    assert loss.amount(CURRENT_GRID.mu_squared) == pytest.approx(2 * 1000 / 1600)


def test_a_figure_never_raises_what_was_held() -> None:
    """At no coordinate; nor above what the used queries cost without it."""
    accountant = opened()
    high = {**FIGURE, "curves": [{**CURVE, "epsilons": [100.0, 200.0]}, None, None]}
    accountant.settle("d", held(accountant), {"used": [10, 1, 1], "sanitised": high}, ADA)
    assert at(settled_loss(accountant), 4.0) == pytest.approx(4 * 10 / 1600)


def test_totals_are_the_same_when_the_ledger_is_read_again() -> None:
    """Replayed, verified, and after a restart."""
    accountant = opened()
    accountant.settle("d", held(accountant), {"used": [1000, 1, 1], "sanitised": FIGURE}, ADA)
    state = fold([(row.hash, row.body) for row in accountant.store.entries("d", 0, 100)])
    assert state is not None
    again = Accountant(accountant.store)
    assert state.spent == accountant.state("d").spent == again.state("d").spent
    assert not [one for verdict in verify(accountant.store) for one in verdict.findings]


def test_the_same_again_is_replayed_and_another_figure_is_not_taken() -> None:
    """A hold is settled once: for the same counts at the same figure."""
    accountant = opened()
    hold, body = held(accountant), {"used": [1000, 1, 1], "sanitised": FIGURE}
    first, replayed = accountant.settle("d", hold, body, ADA)
    assert not replayed
    again, replayed = accountant.settle("d", hold, body, ADA)
    assert replayed
    assert again["sequence"] == first["sequence"]
    other = {**FIGURE, "failure_probability": 4e-7}
    for wrong in ({"used": [1000, 1, 1], "sanitised": other}, {"used": [1000, 1, 1]}):
        with pytest.raises(HoldSettled):
            accountant.settle("d", hold, wrong, ADA)


@pytest.mark.parametrize(
    ("used", "figure", "what"),
    [
        ([1000, 1, 0], FIGURE, "approximate charge"),
        ([1000, 1, 1], {**FIGURE, "failure_probability": 5.1e-7}, "approximate charge"),
        ([1000, 0, 1], FIGURE, "release of its own"),
        ([1000, 1, 1], {**FIGURE, "curves": [CURVE]}, "3 charges"),
        ([1000, 1, 1], {**FIGURE, "curves": [None, CURVE, None]}, "renyi_curve is not settled"),
        ([1000, 1, 1], {**FIGURE, "curves": [{"kind": "pure", "epsilon": 0.1}, None, None]}, "kind"),
        ([1000, 1, 1], {"curves": [CURVE, None, None]}, "failure_probability"),
        ([1000, 1, 1], {**FIGURE, "failure_probability": 0}, "above 0"),
    ],
)
def test_a_figure_that_the_hold_does_not_pay_for_is_refused(used: list[int], figure: Any, what: str) -> None:
    """Its failure and its own release are charges of the same hold, used; and nothing changes."""
    accountant = opened()
    hold = held(accountant)
    before = accountant.state("d").spent
    with pytest.raises(InvalidRequest, match=what):
        accountant.settle("d", hold, {"used": used, "sanitised": figure}, ADA)
    assert accountant.state("d").spent == before


def test_an_approximate_charge_with_an_epsilon_covers_no_failure() -> None:
    """It is a release that needs its delta itself."""
    accountant = opened()
    other = {"mechanism": {"kind": "approximate", "epsilon": 0.1, "delta": 5e-7}, "count": 1}
    with pytest.raises(InvalidRequest, match="approximate charge"):
        accountant.settle(
            "d", held(accountant, QUERIES, TELLING, other), {"used": [1000, 1, 1], "sanitised": FIGURE}, ADA
        )


def test_a_gaussian_check_is_not_settled_at_a_figure() -> None:
    """Only kinds whose data-dependent loss is a theorem here."""
    accountant = opened()
    check = {"mechanism": {"kind": "gaussian", "noise_multiplier": 40.0}, "count": 1000}
    with pytest.raises(InvalidRequest, match="gaussian is not settled"):
        accountant.settle(
            "d", held(accountant, check, TELLING, FAILURE), {"used": [1000, 1, 1], "sanitised": FIGURE}, ADA
        )


def test_the_figure_decides_no_refusal() -> None:
    """The hold is refused at its data-independent cost, whatever it might be settled at."""
    accountant = opened()
    many = {**QUERIES, "count": 100_000}
    with pytest.raises(BudgetExceeded):
        held(accountant, many, TELLING, FAILURE)
    assert accountant.holds("d")["items"] == []


@pytest.mark.parametrize("lowered", ["figure", "failure"])
def test_verify_finds_a_settlement_that_was_not_paid_for(lowered: str) -> None:
    """A ledger that was rewritten, with every hash made right."""
    accountant = opened()
    accountant.settle("d", held(accountant), {"used": [1000, 1, 1], "sanitised": FIGURE}, ADA)
    made, previous, new, sealed = MemoryStore(), "", [], []
    for row in accountant.store.entries("d", 0, 100):
        entry = json.loads(row.body)
        if entry["type"] == "settled":
            if lowered == "figure":
                entry["sanitised"]["curves"][0]["epsilons"] = ["1.0", "1.0"]
            else:
                entry["sanitised"]["failure_probability"] = "0.5"
        body = canonical({**entry, "prev": previous})
        previous = entry_hash(body)
        key = f"~settled/{entry['hold']}" if entry["type"] == "settled" else None
        new.append(NewEntry(previous, body, key or ("ada/k" if entry["type"] == "held" else None)))
        sealed.append((previous, body))
    state = fold(sealed)
    assert state is not None
    made.append([Write("d", EMPTY_HEAD, new, state.blobs())])
    said = [one.what for verdict in verify(made) for one in verdict.findings]
    assert any(("parameters cost" if lowered == "figure" else "does not pay") in what for what in said), said


NOTHINGS = {
    "pure": {"kind": "pure", "epsilon": 0},
    "zcdp": {"kind": "zcdp", "rho": 0},
    "gdp": {"kind": "gdp", "mu": 0},
    "exponential": {"kind": "exponential", "epsilon": 0},
    "permute_and_flip": {"kind": "permute_and_flip", "epsilon": 0},
    "composed": {"kind": "composed", "mechanisms": [{"kind": "pure", "epsilon": 0}], "counts": [3]},
    "a delta within": {
        "kind": "composed",
        "mechanisms": [{"kind": "approximate", "epsilon": 0, "delta": 1e-9}],
    },
    "approximate of nothing": {"kind": "approximate", "epsilon": 0, "delta": 0},
}


@pytest.mark.parametrize("name", NOTHINGS)
def test_a_charge_of_nothing_pays_for_no_telling(name: str) -> None:
    accountant = opened()
    hold = held(accountant, QUERIES, {"mechanism": NOTHINGS[name], "count": 1}, FAILURE)
    with pytest.raises(InvalidRequest, match="telling the figure is a release of its own"):
        accountant.settle("d", hold, {"used": [1000, 1, 1], "sanitised": FIGURE}, ADA)
    accountant.settle("d", hold, {"used": [1000, 1, 1]}, ADA)


def test_what_was_settled_on_a_charge_of_nothing_before_stays_readable(monkeypatch: Any) -> None:
    """It verifies, folds and is answered again; only what comes in is refused."""
    accountant = opened()
    hold = held(accountant, QUERIES, {"mechanism": NOTHINGS["pure"], "count": 1}, FAILURE)
    body = {"used": [1000, 1, 1], "sanitised": FIGURE}
    with monkeypatch.context() as earlier:
        earlier.setattr("odometer_accountant.ledger.holds.check_told", lambda *_: None)
        first, _ = accountant.settle("d", hold, body, ADA)
    again, replayed = accountant.settle("d", hold, body, ADA)
    assert (again["sequence"], replayed) == (first["sequence"], True)
    assert not [finding for verdict in verify(accountant.store) for finding in verdict.findings]
