"""Every kind of budget, held to the same laws."""

import itertools
import math
from fractions import Fraction
from typing import Any

import pytest
from amount import examples
from hypothesis import given
from hypothesis import strategies as st

from odometer_accountant.budgets import ANY_BUDGET
from odometer_accountant.budgets.approximate import split_delta
from odometer_accountant.budgets.base import Budget, Filter
from odometer_accountant.errors import BudgetExceeded, EditConflict, OdometerError
from odometer_accountant.mechanisms.charge import Charge
from odometer_accountant.numerics.grid import CURRENT_GRID
from odometer_accountant.numerics.loss import total
from odometer_accountant.numerics.rounding import decimal
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores.memory import MemoryStore

Document = dict[str, Any]
BUDGETS: dict[str, Document] = {kind: dict(one.examples[0]) for kind, one in Budget.registry.items()}
UNITS: dict[str, Document] = {
    "pure": {"kind": "pure", "epsilon": 0.1},
    "zcdp": {"kind": "zcdp", "rho": 0.1},
    "renyi": {"kind": "zcdp", "rho": 0.1},  # 0.8 at order 8
    "gdp": {"kind": "gdp", "mu": 0.1},
    "approximate": {"kind": "pure", "epsilon": 0.1},
}
"""A charge of a tenth of the budget (gdp: a hundredth, it counts squares)."""
TENTHS = {kind: 100 if one.adds_up == "square" else 10 for kind, one in Budget.registry.items()}
each_kind = pytest.mark.parametrize("kind", BUDGETS)


def test_every_kind_has_a_charge_here() -> None:
    assert set(UNITS) == set(Budget.registry)


@each_kind
def test_what_others_show_of_a_kind_stands_on_its_class(kind: str) -> None:
    """Its examples are valid, its words name fields that exist, and it says what epsilon it promises."""
    one = Budget.registry[kind]
    for example in one.examples:
        budget = ANY_BUDGET.validate_python({"name": "b", **example})
        assert one.words.format(**budget.model_dump())
        epsilon, delta = budget.epsilon_at(1e-5)
        assert epsilon > 0
        assert delta is None or 0 < delta < 1
        assert budget.limit() == getattr(budget, one.parameter)
    assert one.promise
    assert one.source
    assert one.symbol


def filter_of(**document: Any) -> Filter:
    budget = ANY_BUDGET.validate_python({"name": "b", **document})
    return budget.filter(CURRENT_GRID, budget.fixed(CURRENT_GRID))


def loss_of(mechanism: Document, count: int = 1) -> Any:
    return Charge.model_validate({"mechanism": mechanism, "count": count}).loss(CURRENT_GRID)


class Ledger:
    """One dataset with one budget, and new keys for new charges."""

    def __init__(self, **budget: Any) -> None:
        self.accountant = Accountant(MemoryStore())
        self._keys = (f"key-{n}" for n in itertools.count())
        document = {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-5}
        self.accountant.create_dataset({**document, "budgets": [{"name": "b", **budget}]}, "p")

    def charge(self, mechanism: Document, count: int = 1) -> bool:
        """Whether it was admitted."""
        body = {"mechanism": mechanism, "count": count}
        try:
            self.accountant.charge("d", body, next(self._keys), "p")
        except BudgetExceeded:
            return False
        return True

    def set(self, etag: str, **budget: Any) -> Document:
        return self.accountant.change_budget("d", "b", budget, etag, "p")

    @property
    def state(self) -> Document:
        [found] = self.accountant.budgets("d")["items"]
        return dict(found)


@each_kind
def test_ten_tenths_fit_and_eleven_elevenths_do_not(kind: str) -> None:
    """Ten times 0.1 is 1, one at a time or at once. Eleven times 0.09090909090909091 is more than 1."""
    budget = {**BUDGETS[kind], **_without_renyi(kind)}
    for together in (True, False):
        ledger, n = Ledger(**budget), TENTHS[kind]
        assert (
            ledger.charge(UNITS[kind], n) if together else all(ledger.charge(UNITS[kind]) for _ in range(n))
        )
        assert ledger.state["left"] == 0
        assert ledger.state["used"] == 1
        assert not ledger.charge({**UNITS[kind], **_least(kind)})
    elevenths = Ledger(**budget)
    name = next(name for name in UNITS[kind] if name != "kind")
    part = math.sqrt(1 / 11) if Budget.registry[kind].adds_up == "square" else 1 / 11
    part = next(x for x in (part, math.nextafter(part, 1)) if 11 * _square(kind, decimal(x)) > 1)
    assert not elevenths.charge({**UNITS[kind], name: part}, 11)
    assert [elevenths.charge({**UNITS[kind], name: part}) for _ in range(11)] == [True] * 10 + [False]


def _without_renyi(kind: str) -> Document:
    """At so small a delta no order gives less than the sum of pure epsilons."""
    return {"delta": 1e-200} if kind == "approximate" else {}


def _square(kind: str, x: Fraction) -> Fraction:
    return x * x if Budget.registry[kind].adds_up == "square" else x


def _least(kind: str) -> Document:
    """The least parameter that is more than nothing."""
    return {name: 5e-324 for name in UNITS[kind] if name != "kind"}


@each_kind
@examples(20)
@given(parts=st.lists(st.floats(1e-9, 0.4), min_size=2, max_size=6), order=st.randoms())
def test_the_order_of_charges_does_not_matter(kind: str, parts: list[float], order: Any) -> None:
    """To the last unit, so that neither does what fits."""
    name = next(name for name in UNITS[kind] if name != "kind")
    losses = [loss_of({**UNITS[kind], name: part}) for part in parts]
    shuffled = list(losses)
    order.shuffle(shuffled)
    one, other = total(CURRENT_GRID, losses), total(CURRENT_GRID, shuffled)
    assert one == other
    filter_ = filter_of(**BUDGETS[kind])
    assert filter_.allows(one) == filter_.allows(other)


@each_kind
def test_an_over_ask_leaves_everything_as_it_was(kind: str) -> None:
    """Totals, budget and ledger are untouched, and a smaller ask then passes."""
    ledger = Ledger(**BUDGETS[kind])
    assert ledger.charge(UNITS[kind], 3)
    before = ledger.state, ledger.accountant.odometer("d"), ledger.accountant.ledger("d")
    assert not ledger.charge(UNITS[kind], TENTHS[kind])
    assert (ledger.state, ledger.accountant.odometer("d"), ledger.accountant.ledger("d")) == before
    assert ledger.charge(UNITS[kind], TENTHS[kind] - 3)


@each_kind
def test_lowering_below_what_is_spent_leaves_no_room(kind: str) -> None:
    """Nothing left, nothing broken, everything refused; raised again, what was left is back."""
    ledger, limit = Ledger(**BUDGETS[kind]), BUDGETS[kind]
    parameter = Budget.registry[kind].parameter
    assert ledger.charge(UNITS[kind], TENTHS[kind] // 2)
    spent = ledger.state["spent"]
    lowered = ledger.set(ledger.state["etag"], **{**limit, parameter: limit[parameter] / 100})
    assert (lowered["left"], lowered["used"], lowered["spent"]) == (0, 1, spent)
    assert "nothing more is admitted" in lowered["warning"]
    assert not ledger.charge({**UNITS[kind], **_least(kind)})
    with pytest.raises(EditConflict):
        ledger.set('"v1"', **limit)
    raised = ledger.set(lowered["etag"], **limit)
    assert "raised" in raised["warning"]
    assert ledger.charge(UNITS[kind], TENTHS[kind] - TENTHS[kind] // 2)


@each_kind
def test_raising_keeps_the_weights(kind: str) -> None:
    """Whatever was fixed when the budget was set stays fixed: weights are never refocused for a new limit."""
    ledger, limit = Ledger(**BUDGETS[kind]), BUDGETS[kind]
    parameter = Budget.registry[kind].parameter
    before = ledger.accountant.state("d").budgets["b"]
    assert ledger.charge(UNITS[kind])
    ledger.set(ledger.state["etag"], **{**limit, parameter: limit[parameter] * 7})
    after = ledger.accountant.state("d").budgets["b"]
    assert (after.fixed, after.since, after.version) == (before.fixed, 0, 2)
    assert ledger.state["covers"] == "all entries"
    assert after.budget.limit() == 7 * before.budget.limit()


def test_another_delta_fixes_new_weights_for_what_follows() -> None:
    """Only the limit may move under the old promise; the new one covers what comes after."""
    ledger = Ledger(**BUDGETS["approximate"])
    assert ledger.charge(UNITS["approximate"])
    ledger.set(ledger.state["etag"], **{**BUDGETS["approximate"], "delta": 1e-9})
    assert ledger.state["covers"] == "entries after 3"


def test_epsilon_and_delta_move_together() -> None:
    """A charge that fits in epsilon and not in delta moves neither, in any coordinate, in any scope."""
    ledger = Ledger(kind="approximate", epsilon=1.0, delta=1e-5, delta_add=1e-6)
    before = ledger.accountant.state("d").totals
    assert not ledger.charge({"kind": "approximate", "epsilon": 0.01, "delta": 1.1e-6})
    assert ledger.accountant.state("d").totals == before
    assert ledger.charge({"kind": "approximate", "epsilon": 0.01, "delta": 1e-6})
    totals = ledger.accountant.odometer("d")["totals"]
    assert (totals["pure"], totals["delta"]) == (
        pytest.approx(0.01, rel=1e-15),
        pytest.approx(1e-6, rel=1e-15),
    )
    assert not ledger.charge({"kind": "approximate", "epsilon": 0.0, "delta": 1e-18})
    assert ledger.charge({"kind": "pure", "epsilon": 0.01})


def test_once_a_delta_is_in_the_other_kinds_admit_nothing_more() -> None:
    """Charged while there was no budget: a promise that cannot cover it is not made afterwards."""
    accountant = Accountant(MemoryStore())
    document = {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-5}
    accountant.create_dataset({**document, "odometer_only": True}, "p")
    charge = {"mechanism": {"kind": "approximate", "epsilon": 0.1, "delta": 1e-9}, "count": 1}
    accountant.charge("d", charge, "k", "p")
    accountant.add_budget("d", {"name": "b", **BUDGETS["zcdp"]}, "p")
    with pytest.raises(BudgetExceeded) as raised:
        accountant.charge("d", {"mechanism": UNITS["zcdp"], "count": 1}, "l", "p")
    assert "earlier charge" in raised.value.fields["refusals"][0]["reason"]


@examples(200)
@given(st.floats(1e-300, 0.999), st.one_of(st.none(), st.floats(0, 0.999)))
def test_the_parts_of_delta_never_exceed_it(delta: float, share: float | None) -> None:
    """Exactly: delta_add + delta_mix <= delta, and delta_mix is all that is left of it but a rounding."""
    add = None if share is None else delta * share
    kept, mix = split_delta(delta, add)
    exact = decimal(delta)
    assert kept + Fraction(mix) <= exact
    assert exact - kept - Fraction(mix) <= exact * Fraction(1, 10**15) + Fraction(1, 10**323)


@each_kind
@examples(30)
@given(limit=st.floats(1e-9, 600), share=st.floats(0, 1.5))
def test_what_is_shown_as_left_can_be_charged(kind: str, limit: float, share: float) -> None:
    """All of it, at once; and nothing is left, and all used, where more was spent than the limit."""
    parameter = Budget.registry[kind].parameter
    filter_ = filter_of(**{**BUDGETS[kind], parameter: limit})
    name = next(name for name in UNITS[kind] if name != "kind")
    spent = loss_of({**UNITS[kind], name: limit * share})
    shown = filter_.left(spent)
    assert 0 <= shown.used <= 1
    if not filter_.allows(spent):
        assert (shown.left, shown.used) == (0, 1)
    elif shown.order is not None:
        stated = {"kind": "renyi_curve", "orders": [shown.order], "epsilons": [shown.left]}
        assert filter_.allows(spent.plus(loss_of(stated)))
    elif kind != "approximate":
        assert filter_.allows(spent.plus(loss_of({**UNITS[kind], name: shown.left})))


@each_kind
def test_a_budget_reads_back(kind: str) -> None:
    document = {"name": "b", **BUDGETS[kind]}
    assert ANY_BUDGET.validate_python(document).document() == document


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0, -0.0, 1e308, "1", True])
@each_kind
def test_a_limit_is_a_number_in_range(kind: str, wrong: Any) -> None:
    ledger = Ledger(**BUDGETS[kind])
    parameter = Budget.registry[kind].parameter
    with pytest.raises(OdometerError) as raised:
        ledger.accountant.add_budget("d", {"name": "c", **BUDGETS[kind], parameter: wrong}, "p")
    assert raised.value.status in (400, 422)
    assert len(ledger.accountant.budgets("d")["items"]) == 1
