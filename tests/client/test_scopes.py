"""Partitions, units, groups, principals, teams: whose odometer moves, through both faces of the client."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from odometer_accountant.scopes import shard_of as service_shard_of
from odometer_client import BudgetExceeded, Client, OutcomeUnknown, Receipt
from odometer_client.errors import (
    Forbidden,
    InvalidRequest,
    NotFrozen,
    PartitionExists,
    PartlyCharged,
    SeveralShards,
)
from odometer_client.mechanisms import Pure
from odometer_client.shards import parts, shard_of
from odometer_client.testing import Service

STEP = Pure(epsilon=0.25)
EACH_PARTITION = {"name": "each", "kind": "pure", "epsilon": 0.5, "scope": "partition/*"}
EACH_UNIT = {"name": "each", "kind": "pure", "epsilon": 0.5, "scope": "unit/*"}
UNITS = [f"u{number}" for number in range(20)]
Opened = Callable[..., str]


def lost(client: Client, dataset: str, scope: str) -> float:
    return float(client.odometer(dataset, scope=scope)["totals"]["pure"])


def test_a_charge_on_one_partition_costs_the_others_nothing(both: Client, opened: Opened) -> None:
    dataset = opened(EACH_PARTITION, composition="by_partition", partitions=["eu", "us"])
    both.charge(dataset, STEP, 2, partitions=["eu"])
    assert not both.check(dataset, STEP, partitions=["eu"])
    assert both.check(dataset, STEP, partitions=["us"])
    with pytest.raises(BudgetExceeded) as refused:
        both.charge(dataset, STEP, partitions="all")
    assert refused.value.refusals[0]["scope"] == "partition/eu"
    assert (lost(both, dataset, "partition/eu"), lost(both, dataset, "partition/us")) == (0.5, 0)


def test_partitions_are_added_and_charges_on_all_count_there_too(both: Client, opened: Opened) -> None:
    dataset = opened(EACH_PARTITION, composition="by_partition", partitions=["eu"])
    both.charge(dataset, STEP, partitions="all")
    assert both.add_partitions(dataset, ["us"])["partitions"] == ["eu", "us"]
    assert lost(both, dataset, "partition/us") == 0.25
    with pytest.raises(PartitionExists):
        both.add_partitions(dataset, ["us"])


def test_one_name_is_not_a_list_of_letters(both: Client) -> None:
    for option in ({"partitions": "eu"}, {"units": "u1"}):
        with pytest.raises(TypeError, match="give a list"):
            both.check("d", STEP, **option)  # type: ignore[arg-type]


def test_a_group_is_charged_for_all_its_runs(both: Client, opened: Opened) -> None:
    dataset = opened()
    both.charge(dataset, Pure(epsilon=0.125), 2, group=("lr", 3))
    assert lost(both, dataset, "group/lr") == 0.75
    assert [scope["scope"] for scope in both.scopes(dataset, "group")] == ["group/lr"]


def test_scopes_come_in_pages(both: Client, opened: Opened) -> None:
    dataset = opened()
    for name in ("a", "b", "c"):
        both.charge(dataset, Pure(epsilon=0.125), group=(name, 1))
    found = [scope["scope"] for scope in both.scopes(dataset, "group", limit=2)]
    assert found == ["group/a", "group/b", "group/c"]


def test_a_dataset_that_is_not_frozen_is_not_unfrozen(both: Client, opened: Opened) -> None:
    with pytest.raises(NotFrozen):
        both.unfreeze(opened(), "to see")


def test_a_charge_on_somebodys_behalf_is_theirs(running: Service) -> None:
    with Client(running.url, running.admin_key) as admin:
        admin.create_dataset("behalf", unit="person", adjacency="add_remove", delta=1e-6, odometer_only=True)
        made = admin.create_key("charger", "portal", team="ads", acts_for=["alice"])
        assert (made["team"], made["acts_for"]) == ("ads", ["alice"])
        with Client(running.url, made["token"]) as portal:
            receipt = portal.charge("behalf", STEP, principal="alice")
            assert (receipt["principal"], receipt["by"]) == ("alice", made["principal"])
            with pytest.raises(Forbidden, match="acts_for"):
                portal.charge("behalf", STEP, principal="bob")
            made_of_it = portal.derive("behalf", receipt, "a plot", principal="alice")
            assert (made_of_it["principal"], made_of_it["by"]) == ("alice", made["principal"])
            with pytest.raises(Forbidden, match="acts_for"):
                portal.derive("behalf", receipt, "a plot", principal="bob")
        assert lost(admin, "behalf", "principal/alice") == lost(admin, "behalf", "team/ads") == 0.25


# -- units


@pytest.mark.parametrize("unit", ["u", "alice", "A.b:c-d_9", "0"])
@pytest.mark.parametrize("shards", [1, 7, 256, 4096])
def test_a_unit_is_in_the_shard_where_the_service_keeps_it(unit: str, shards: int) -> None:
    assert shard_of(unit, shards) == service_shard_of(unit, shards)


def test_the_split_does_not_depend_on_the_order_and_no_part_is_too_large() -> None:
    many = [f"u{number}" for number in range(2500)]
    found = list(parts(many, 1))
    assert found == list(parts(many[::-1], 1))
    assert [(suffix, len(names)) for suffix, names in found] == [
        ("~0000.0", 1000),
        ("~0000.1", 1000),
        ("~0000.2", 500),
    ]
    with pytest.raises(ValueError, match="twice"):
        list(parts(["u1", "u1"], 4))


def test_units_are_charged_by_shard_and_again_with_the_same_key_only_once(
    both: Client, opened: Opened
) -> None:
    dataset = opened(EACH_UNIT, composition="by_unit", shards=4)
    with pytest.raises(SeveralShards):
        both.charge(dataset, STEP, units=UNITS)
    first = both.charge_units(dataset, STEP, 1, UNITS, key="k")
    again = both.charge_units(dataset, STEP, 1, UNITS[::-1], key="k")
    assert sorted(receipt["shard"] for receipt in first) == [0, 1, 2, 3]
    assert [receipt.hash for receipt in again] == [receipt.hash for receipt in first]
    assert all(receipt.replayed for receipt in again)
    assert lost(both, dataset, "unit/u1") == 0.25


def test_after_a_refusal_the_rest_goes_on_under_the_same_key_and_nobody_is_charged_twice(
    both: Client, opened: Opened
) -> None:
    dataset = opened(EACH_UNIT, composition="by_unit", shards=4)
    last = list(parts(UNITS, 4))[-1][1][0]  # a unit of the last shard: those before it are charged
    both.charge(dataset, STEP, 2, units=[last])
    with pytest.raises(PartlyCharged, match="of 20 units") as partly:
        both.charge_units(dataset, STEP, 1, UNITS)
    assert isinstance(partly.value.__cause__, BudgetExceeded)
    assert last not in partly.value.units
    rest = [unit for unit in UNITS if unit != last]
    both.charge_units(dataset, STEP, 1, rest, key=partly.value.key)
    assert {lost(both, dataset, f"unit/{unit}") for unit in rest} == {0.25}


def test_after_a_lost_answer_the_same_call_charges_each_unit_once(
    both: Client, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = opened(EACH_UNIT, composition="by_unit", shards=4)
    charge, made = both.charge, []

    def losing(*arguments: Any, **options: Any) -> Receipt:
        receipt = charge(*arguments, **options)
        made.append(receipt)
        if len(made) == 2:
            raise OutcomeUnknown("lost", options["key"])
        return receipt

    with monkeypatch.context() as lossy:
        lossy.setattr(both, "charge", losing)
        with pytest.raises(PartlyCharged) as partly:
            both.charge_units(dataset, STEP, 1, UNITS)
    assert len(partly.value.receipts) == 1
    again: Sequence[Receipt] = both.charge_units(dataset, STEP, 1, UNITS, key=partly.value.key)
    assert [receipt.replayed for receipt in again] == [True, True, False, False]
    assert {lost(both, dataset, f"unit/{unit}") for unit in UNITS} == {0.25}


def test_a_refusal_of_the_first_shard_is_the_refusal_itself(both: Client, opened: Opened) -> None:
    dataset = opened(EACH_UNIT, composition="by_unit", shards=1)
    with pytest.raises(BudgetExceeded):
        both.charge_units(dataset, STEP, 3, ["u1"])


def test_units_of_a_dataset_that_has_none_are_refused_before_anything_is_charged(
    both: Client, opened: Opened
) -> None:
    dataset = opened()
    with pytest.raises(ValueError, match="not by_unit"):
        both.charge_units(dataset, STEP, 1, ["u1"])
    with pytest.raises(ValueError, match="112"):
        both.charge_units(dataset, STEP, 1, ["u1"], key="k" * 113)
    with pytest.raises(InvalidRequest):
        both.charge(dataset, STEP, units=["u1"])


def test_a_full_window_is_a_refusal_at_once_that_says_when_it_renews(
    both: Client, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retryable, but tomorrow: the client does not wait for it."""
    daily = {"name": "daily", "kind": "pure", "epsilon": 0.25, "window": "day"}
    dataset = opened(daily, odometer_only=True)
    both.charge(dataset, STEP)
    waited: list[float] = []
    monkeypatch.setattr(both, "_sleep", waited.append)
    with pytest.raises(BudgetExceeded) as refused:
        both.charge(dataset, STEP)
    assert not waited
    assert 0 < refused.value.problem["retry_after_s"] <= 86_400


def test_the_third_report_of_a_day_is_refused_and_accepted_after_midnight_utc(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The odometer goes on growing."""
    daily = {"name": "daily", "kind": "pure", "epsilon": 0.5, "scope": "unit/*", "window": "day"}
    with Client("memory://") as client:
        accountant = client._transport._accountant  # type: ignore[attr-defined]
        times = ["2030-01-01T23:59:58.000000Z"]
        monkeypatch.setattr(accountant, "clock", lambda: times[0])
        monkeypatch.setattr(accountant.writer, "_clock", lambda: times[0])
        client.create_dataset(
            "d",
            unit="user",
            adjacency="replace_one",
            delta=1e-6,
            budgets=[daily],
            composition="by_unit",
            odometer_only=True,
        )
        client.charge_units("d", STEP, 1, ["ann"])
        client.charge_units("d", STEP, 1, ["ann"])
        with pytest.raises(BudgetExceeded) as refused:
            client.charge_units("d", STEP, 1, ["ann"])
        assert refused.value.problem["retry_after_s"] == 2
        times[0] = "2030-01-02T00:00:00.000000Z"
        client.charge_units("d", STEP, 1, ["ann"])
        times[0] = "2030-01-01T12:00:00.000000Z"  # a clock that steps back opens no window again
        client.charge_units("d", STEP, 1, ["ann"])
        with pytest.raises(BudgetExceeded):
            client.charge_units("d", STEP, 1, ["ann"])
        assert lost(client, "d", "unit/ann") == 1.0


def test_a_scope_that_was_never_charged_is_not_known(both: Client, opened: Opened) -> None:
    """It reads zero, and says which one may be meant."""
    dataset = opened()
    both.charge(dataset, STEP, group=("sweep", 1))
    typo, right = (both.odometer(dataset, scope=f"group/{name}") for name in ("swep", "sweep"))
    assert (typo.known, typo.notes) == (
        False,
        ["nothing was ever charged to group/swep: did you mean sweep?"],
    )
    assert (right.known, right.notes) == (True, [])
    assert both.odometer(dataset).known
