"""A charge on many units or partitions is judged count by count, and keeps nobody else waiting."""

from functools import cache
from typing import Any

import pytest
from amount import examples
from hypothesis import given
from hypothesis import strategies as st

from odometer_accountant.budgets.approximate import ApproximateFilter
from odometer_accountant.errors import BudgetExceeded, InvalidRequest
from odometer_accountant.ledger.active_budgets import (
    ActiveBudget,
    ChargeContext,
    find_refusals,
    surely_allowed,
)
from odometer_accountant.ledger.charge_checks import COUNTS_MAX
from odometer_accountant.ledger.snapshot import load_state
from odometer_accountant.ledger.totals import Totals
from odometer_accountant.mechanisms import ANY_MECHANISM
from odometer_accountant.numerics.grid import CURRENT_GRID
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.scopes import AffectedScopes, shard_stream
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores.memory import MemoryStore

GAUSSIAN = {"kind": "gaussian", "noise_multiplier": 1.0}
UNITS = [f"u{number}" for number in range(1000)]
PARTITIONS = [f"p{number}" for number in range(1024)]
NOW = "2026-01-01T00:00:00.000000Z"


def budgets(count: int, scope: str, epsilon: float = 90.0) -> list[dict[str, Any]]:
    """Approximate budgets, whose rule takes the longest."""
    return [
        {
            "name": f"b{number}",
            "kind": "approximate",
            "epsilon": epsilon + number,
            "delta": 1e-6,
            "scope": scope,
        }
        for number in range(count)
    ]


def opened(**more: Any) -> Accountant:
    accountant = Accountant(MemoryStore())
    document = {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-6}
    accountant.create_dataset({**document, **more}, "p")
    return accountant


@cache
def limits_of_units() -> tuple[ActiveBudget, ...]:
    some = [*budgets(3, "unit/*", 40.0), {"name": "rho", "kind": "zcdp", "rho": 20.0, "scope": "unit/*"}]
    with opened(composition="by_unit", shards=1, budgets=some) as accountant:
        return tuple(accountant.state("d").limits)


def loss_of(mechanism: dict[str, Any]) -> Loss:
    return ANY_MECHANISM.validate_python(mechanism).curve(CURRENT_GRID).times(1)


@pytest.mark.parametrize(
    ("more", "whose"),
    [
        ({"composition": "by_unit", "shards": 1, "budgets": budgets(8, "unit/*")}, {"units": UNITS}),
        (
            {"composition": "by_partition", "partitions": PARTITIONS, "budgets": budgets(8, "partition/*")},
            {"partitions": "all"},
        ),
    ],
    ids=["units", "partitions"],
)
def test_the_largest_charge_is_judged_in_a_few_tests_of_each_budget(
    more: dict[str, Any], whose: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Admitted or refused: equal totals are judged once, and a refusal is not looked for twice."""
    asked: list[Loss] = []
    real = ApproximateFilter.allows

    def noted(rule: ApproximateFilter, loss: Loss) -> bool:
        asked.append(loss)
        return real(rule, loss)

    with opened(**more) as accountant:
        monkeypatch.setattr(ApproximateFilter, "allows", noted)
        accountant.charge("d", {"mechanism": GAUSSIAN, "count": 1, **whose}, "fits", "x")
        assert len(asked) <= 2 * 8
        asked.clear()
        with pytest.raises(BudgetExceeded) as refused:
            accountant.charge("d", {"mechanism": GAUSSIAN, "count": 10_000, **whose}, "over", "x")
        assert len(asked) <= 100 * 8
    assert {one["budget"] for one in refused.value.fields["refusals"]} == {f"b{n}" for n in range(8)}


@pytest.mark.parametrize("named", ["units", "partitions"])
def test_more_counts_than_one_charge_may_have_are_refused_by_name(named: str) -> None:
    """Nothing is charged, and fewer at once are taken."""
    documents: dict[str, dict[str, Any]] = {
        "units": {"composition": "by_unit", "shards": 1, "budgets": budgets(9, "unit/*")},
        "partitions": {
            "composition": "by_partition",
            "partitions": PARTITIONS,
            "budgets": budgets(9, "partition/*"),
        },
    }
    names = UNITS if named == "units" else PARTITIONS
    with opened(**documents[named]) as accountant:
        body = {"mechanism": GAUSSIAN, "count": 1, named: names}
        with pytest.raises(InvalidRequest, match=rf"{len(names)} {named} .* 9 budgets .* {COUNTS_MAX}"):
            accountant.charge("d", body, "k", "x")
        with pytest.raises(InvalidRequest, match=named):
            accountant.check("d", body)
        accountant.charge("d", {**body, named: names[: COUNTS_MAX // 9]}, "k", "x")


def test_budgets_of_single_units_count_once_each() -> None:
    """They concern one unit however many a charge names."""
    single = [budget | {"scope": f"unit/u{n}"} for n, budget in enumerate(budgets(20, "unit/*"))]
    everybody = [budget | {"name": "all"} for budget in budgets(1, "unit/*")]
    with opened(composition="by_unit", shards=1, budgets=everybody + single) as accountant:
        accountant.charge("d", {"mechanism": GAUSSIAN, "count": 1, "units": UNITS}, "k", "x")


@examples(40)
@given(
    spent=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3)), min_size=1, max_size=40),
    asked=st.integers(1, 40),
)
def test_a_count_is_refused_exactly_when_its_own_total_is_too_large(
    spent: list[tuple[int, int]], asked: int
) -> None:
    """What is judged for all at once never admits one that would be refused alone, nor refuses another."""
    units = tuple(f"u{number}" for number in range(len(spent)))
    limits, grid = limits_of_units(), CURRENT_GRID
    gaussian, pure = loss_of(GAUSSIAN), loss_of({"kind": "pure", "epsilon": 0.5})
    life = {
        f"unit/{unit}": Loss.zero(grid).plus(gaussian.scaled(some)).plus(pure.scaled(others))
        for unit, (some, others) in zip(units, spent, strict=True)
    }
    situation = ChargeContext("by_unit", (), Totals(grid, life, {}), AffectedScopes("x", units=units))
    loss = gaussian.scaled(asked)
    alone = {
        (limit.filter.name, scope)
        for limit in limits
        for scope, before in life.items()
        if not limit.filter.allows(before.plus(loss))
    }
    assert {
        (one.limit.filter.name, one.scope) for one in find_refusals(limits, situation, loss, NOW)
    } == alone
    first = find_refusals(limits, situation, loss, NOW, most=1)
    assert [one.limit.filter.name for one in first] == [
        limit.filter.name for limit in limits if any(name == limit.filter.name for name, _ in alone)
    ]
    assert all((one.limit.filter.name, one.scope) in alone for one in first)
    if surely_allowed(limits, situation, loss, NOW):
        assert not alone
    elif len(spent) <= 16:
        assert alone


def test_equal_counts_of_many_units_are_read_as_one() -> None:
    """Of a thousand units with the same total, the total is one object; of one that differs, another."""
    with opened(composition="by_unit", shards=1, budgets=budgets(1, "unit/*")) as accountant:
        accountant.charge("d", {"mechanism": GAUSSIAN, "count": 1, "units": UNITS}, "all", "x")
        accountant.charge("d", {"mechanism": GAUSSIAN, "count": 1, "units": UNITS[:1]}, "one", "x")
        state = load_state(accountant.store, shard_stream("d", 0), [f"totals/unit/{unit}" for unit in UNITS])
    assert state is not None
    first, *others = (state.totals.of(f"unit/{unit}") for unit in UNITS[:500])
    assert len({id(loss) for loss in others}) == 1
    assert first == others[0].plus(others[0])
