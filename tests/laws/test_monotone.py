"""Monotone scores exist where a unit comes or goes; where one is replaced the claim is refused."""

import json
import math
from typing import Any

import pytest

from odometer_accountant.errors import InvalidRequest, NotValidUnderAdjacency
from odometer_accountant.ledger.commands import Caller
from odometer_accountant.queries.convert import convert
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores.memory import MemoryStore
from odometer_accountant.verify.walk import verify

ADA = Caller("ada")
CLAIMS: dict[str, dict[str, Any]] = {
    "exponential": {"kind": "exponential", "epsilon": 1.0, "monotone": True},
    "permute_and_flip": {"kind": "permute_and_flip", "epsilon": 1.0, "monotone": True},
    "laplace": {"kind": "report_noisy_max", "noise": "laplace", "epsilon": 1.0, "monotone": True},
    "noise": {"kind": "report_noisy_max", "noise": "exponential", "epsilon": 1.0, "monotone": True},
}
SPARSE = {"kind": "sparse_vector", "epsilon_threshold": 0.1, "epsilon_answers": 0.2, "max_above": 3}


def within(claim: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The claim inside of other mechanisms."""
    return {
        "alone": claim,
        "composed": {"kind": "composed", "mechanisms": [{"kind": "pure", "epsilon": 0.1}, claim]},
        "sampled": {"kind": "poisson_subsampled", "base": claim, "sampling_rate": 0.1},
        "drawn": {"kind": "sampled_without_replacement", "base": claim, "batch_size": 5, "population": 100},
        "grouped": {"kind": "grouped", "base": claim, "group_size": 2},
        "tuned": {"kind": "tuned", "base": claim, "repeats": {"distribution": "geometric", "gamma": 0.5}},
        "deep": {"kind": "grouped", "group_size": 2, "base": {"kind": "composed", "mechanisms": [claim]}},
    }


def opened(adjacency: str) -> Accountant:
    accountant = Accountant(MemoryStore())
    document = {"name": "d", "unit": "person", "adjacency": adjacency, "delta": 1e-6}
    budget = {"name": "life", "kind": "approximate", "epsilon": 50, "delta": 1e-6}
    accountant.create_dataset({**document, "budgets": [budget]}, "root")
    return accountant


def test_the_claim_is_false_where_a_unit_is_replaced() -> None:
    """Counts (1, 9) become (0, 10): with e^(ε·count), as of monotone scores, the loss of ε = 1 is 1.99971."""
    before, after = ([math.exp(count) for count in counts] for counts in ((1, 9), (0, 10)))
    worst = max(
        abs(math.log(p / sum(before)) - math.log(q / sum(after))) for p, q in zip(before, after, strict=True)
    )
    assert worst == pytest.approx(1.99971, abs=1e-5)


@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize("where", within({}))
def test_it_is_refused_under_replace_one_wherever_it_stands(name: str, where: str) -> None:
    body = {"mechanism": within(CLAIMS[name])[where], "count": 1}
    # Drawn without replacement, a base must be analysed under replace_one: it is no such mechanism at all.
    error = InvalidRequest if where == "drawn" else NotValidUnderAdjacency
    with opened("replace_one") as accountant:
        for verb in ("charge", "check", "hold"):
            arguments = [] if verb == "check" else [f"k-{verb}"]
            asked = {**body, "expires_in_s": 60} if verb == "hold" else body
            with pytest.raises(
                error, match=r"none are monotone there|open the dataset with|without sampling"
            ):
                getattr(accountant, verb)("d", asked, *arguments, ADA)
        assert accountant.odometer("d")["totals"]["pure"] == 0
    with pytest.raises(error):
        convert({**body, "adjacency": "replace_one", "delta": 1e-6})


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out"])
@pytest.mark.parametrize("name", CLAIMS)
def test_it_costs_what_it_states_where_a_unit_comes_or_is_blanked(name: str, adjacency: str) -> None:
    """A record that becomes a blank takes something from every count and adds to none."""
    plain = {part: value for part, value in CLAIMS[name].items() if part != "monotone"}
    with opened(adjacency) as accountant:
        accountant.charge("d", {"mechanism": CLAIMS[name], "count": 1}, "k1", ADA)
        once = accountant.odometer("d")["totals"]["pure"]
        accountant.charge("d", {"mechanism": plain, "count": 1}, "k2", ADA)
        assert accountant.odometer("d")["totals"]["pure"] == pytest.approx(2 * once)
        entries = [json.loads(row.body) for row in accountant.store.entries("d", 1, 2)]
        assert [entry["v"] for entry in entries] == [4, 3]
        assert not [finding for verdict in verify(accountant.store) for finding in verdict.findings]


def test_a_hold_of_it_is_settled() -> None:
    with opened("add_remove") as accountant:
        body = {"mechanism": CLAIMS["exponential"], "count": 3, "expires_in_s": 60}
        hold = accountant.hold("d", body, "h", ADA)[0]["hold"]["id"]
        accountant.settle("d", hold, {"used": 1}, ADA)
        assert [json.loads(row.body)["v"] for row in accountant.store.entries("d", 1, 2)] == [4, 4]
        assert accountant.odometer("d")["totals"]["pure"] == 1.0


def test_not_monotone_is_the_same_charge_as_not_said() -> None:
    plain = {"kind": "exponential", "epsilon": 1.0}
    with opened("replace_one") as accountant:
        accountant.charge("d", {"mechanism": {**plain, "monotone": False}, "count": 1}, "k", ADA)
        assert accountant.charge("d", {"mechanism": plain, "count": 1}, "k", ADA)[1]


@pytest.mark.parametrize("value", ["true", 1, "yes"])
def test_it_is_true_or_false(value: Any) -> None:
    with (
        opened("add_remove") as accountant,
        pytest.raises(InvalidRequest, match="monotone: must be true or false"),
    ):
        accountant.charge(
            "d", {"mechanism": {**CLAIMS["exponential"], "monotone": value}, "count": 1}, "k", ADA
        )


def test_a_session_of_monotone_queries_too() -> None:
    claim = {"session": {**SPARSE, "monotone": True}}
    with opened("replace_one") as accountant:
        with pytest.raises(NotValidUnderAdjacency, match="none are monotone there"):
            accountant.open_session("d", claim, "s", ADA)
        accountant.open_session("d", {"session": {**SPARSE, "monotone": False}}, "s", ADA)
    with opened("zero_out") as accountant:
        one = accountant.open_session("d", claim, "s", ADA)[0]["session"]
        assert one["session"]["monotone"]
        accountant.answer_session("d", one["id"], {"above": True}, "a", ADA)
        assert accountant.odometer("d")["totals"]["pure"] == pytest.approx(0.6)
        assert not [finding for verdict in verify(accountant.store) for finding in verdict.findings]
