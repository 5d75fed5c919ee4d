"""A hold that was settled is not promised again, and only who made it says what of it was used."""

import pytest

from odometer_accountant.errors import Forbidden, HoldSettled, NotValidUnderAdjacency
from odometer_accountant.ledger.commands import Caller
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores.memory import MemoryStore

BODY = {"mechanism": {"kind": "gaussian", "noise_multiplier": 1.0}, "count": 4, "expires_in_s": 100}


@pytest.fixture
def accountant() -> Accountant:
    made = Accountant(MemoryStore())
    budgets = [{"name": "life", "kind": "zcdp", "rho": 10.0}]
    made.create_dataset(
        {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-6, "budgets": budgets}, "p"
    )
    return made


def test_a_settled_hold_is_not_answered_again(accountant: Accountant) -> None:
    """Or a job that resumes under its old key would release what nobody pays for."""
    made, _ = accountant.hold("d", BODY, "k", "job")
    assert accountant.hold("d", BODY, "k", "job")[1]
    accountant.settle("d", made["hold"]["id"], {"used": 0}, "job")
    with pytest.raises(HoldSettled, match="use a new key"):
        accountant.hold("d", BODY, "k", "job")


def test_whom_a_hold_is_for_does_not_settle_it(accountant: Accountant) -> None:
    """The gateway that made it knows what went out."""
    gateway, bob = Caller("gateway", acts_for=frozenset({"bob"})), Caller("bob")
    made, _ = accountant.hold("d", {**BODY, "principal": "bob"}, "k", gateway)
    with pytest.raises(Forbidden):
        accountant.settle("d", made["hold"]["id"], {"used": 0}, bob)
    assert accountant.settle("d", made["hold"]["id"], {"used": 4}, gateway)[0]["used"] == [4]


def test_a_team_spends_its_share_though_others_had_spent_before_it_was_kept(accountant: Accountant) -> None:
    charge = {"mechanism": BODY["mechanism"], "count": 16}
    accountant.charge("d", charge, "k", "other")
    etag = accountant.dataset("d")["budgets"][0]["etag"]
    edited = {"kind": "zcdp", "rho": 10.0, "reserved": {"red": 0.5}}
    accountant.change_budget("d", "life", edited, etag, "p")
    assert accountant.charge("d", {**charge, "count": 4}, "k2", Caller("r", "red"))[0]["left"]


def test_shares_do_not_go_unsaid(accountant: Accountant) -> None:
    """A change that leaves `reserved` out takes the shares away, and says so."""
    budget = {"kind": "zcdp", "rho": 10.0}
    etag = accountant.dataset("d")["budgets"][0]["etag"]
    kept = accountant.change_budget("d", "life", {**budget, "reserved": {"red": 0.5}}, etag, "p")
    assert "shares" not in kept.get("warning", "")
    gone = accountant.change_budget("d", "life", budget, kept["etag"], "p")
    assert "shares are gone" in gone["warning"]


@pytest.mark.parametrize("other", ["replace_one", "zero_out"])
def test_a_replay_does_not_pay_for_noise_of_another_adjacency(accountant: Accountant, other: str) -> None:
    """A key pays for what was charged with it, not for the same numbers over another sensitivity."""
    body = {"mechanism": {"kind": "pure", "epsilon": 0.1}, "count": 1}
    accountant.charge("d", body, "once", "ada")
    with pytest.raises(NotValidUnderAdjacency):
        accountant.charge("d", {**body, "adjacency": other}, "once", "ada")
    assert accountant.charge("d", {**body, "adjacency": "add_remove"}, "once", "ada")[1]
    assert accountant.charge("d", body, "once", "ada")[1]
