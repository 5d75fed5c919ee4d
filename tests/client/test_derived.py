"""The client records what was made of a release, and charges plans that are written as events."""

from collections.abc import Callable
from typing import Any

import pytest
from dp_accounting import dp_event as events

from odometer_client import Client
from odometer_client.errors import InvalidRequest, KeyReused, NotValidUnderAdjacency
from odometer_client.mechanisms import Pure

Opens = Callable[..., str]
WIDE = {"name": "life", "kind": "approximate", "epsilon": 100.0, "delta": 1e-6}


def test_what_was_made_of_a_release_is_recorded_once(both: Client, opened: Opens) -> None:
    name = opened()
    receipt = both.charge(name, Pure(epsilon=0.1))
    before = both.odometer(name)["totals"]
    table = both.derive(name, receipt, "a table", key="k")
    assert (table.sequence, table.parent, table["depth"], table.replayed) == (3, 2, 1, False)
    assert both.derive(name, receipt.sequence, "a table", key="k").replayed
    with pytest.raises(KeyReused):
        both.derive(name, receipt, "another table", key="k")
    plot = both.derive(name, table, "a plot of it")
    found = both.lineage(name, receipt.sequence)
    assert [one["sequence"] for one in found["descendants"]] == [table.sequence, plot.sequence]
    assert [one["sequence"] for one in both.lineage(name, plot.sequence)["ancestors"]] == [3, 2]
    assert both.odometer(name)["totals"] == before


def test_a_hold_is_a_parent(both: Client, opened: Opens) -> None:
    name = opened()
    hold = both.hold(name, Pure(epsilon=0.1), 3, expires_in_s=60)
    assert both.derive(name, hold, "of what was held").parent == hold.sequence


def test_what_let_nothing_out_is_no_parent(both: Client, opened: Opens) -> None:
    with pytest.raises(InvalidRequest, match="of type opened and let nothing out"):
        both.derive(opened(), 1, "a plot")


def test_a_units_charge_is_no_parent(both: Client, opened: Opens) -> None:
    """Its number is one of its shard's: in the dataset's own ledger that is another entry."""
    life = {"name": "life", "kind": "pure", "epsilon": 1.0, "scope": "unit/*"}
    name = opened(life, composition="by_unit", shards=2)
    receipt = both.charge(name, Pure(epsilon=0.1), units=["u1"])
    with pytest.raises(ValueError, match="is in shard"):
        both.derive(name, receipt, "a plot")


def test_what_of_a_plan_loses_nothing_is_said(both: Client, opened: Opens) -> None:
    never = events.SelfComposedDpEvent(events.GaussianDpEvent(1.1), 0)
    charges = both.dp_event_charges(events.ComposedDpEvent([never, events.LaplaceDpEvent(10.0)]))
    assert [mechanism["kind"] for mechanism, _ in charges] == ["laplace"]
    assert charges.notes == [
        "dp_event.events.0: SelfComposedDpEvent: runs 0 times: it loses nothing and is not charged"
    ]
    assert both.dp_event_charges(events.LaplaceDpEvent(10.0)).notes == []
    with pytest.raises(ValueError, match=r"nothing to charge\ndp_event: SelfComposedDpEvent: runs 0 times"):
        both.charge_event(opened(), never, adjacency="add_remove")


def test_a_plan_is_charged_as_a_whole(both: Client, opened: Opens) -> None:
    name = opened(WIDE)
    step = events.PoissonSampledDpEvent(0.01, events.GaussianDpEvent(1.1))
    plan = events.ComposedDpEvent([events.SelfComposedDpEvent(step, 1000), events.LaplaceDpEvent(10.0)])
    assert [count for _, count in both.dp_event_charges(plan)] == [1000, 1]
    receipt = both.charge_event(name, plan, adjacency="add_remove", key="plan")
    assert receipt.sequence == 2
    assert both.charge_event(name, plan.to_named_tuple(), adjacency="add_remove", key="plan").replayed
    assert both.check(name, both.dp_event_charges(plan)).fits


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (events.UnsupportedDpEvent(), InvalidRequest),
        ({"class_name": "NewDpEvent"}, InvalidRequest),
        (
            events.SampledWithoutReplacementDpEvent(100, 10, events.GaussianDpEvent(3.0)),
            NotValidUnderAdjacency,
        ),
        (events.NoOpDpEvent(), ValueError),
        (3, TypeError),
    ],
    ids=str,
)
def test_what_has_no_sound_charge_is_not_charged(
    both: Client, opened: Opens, event: Any, error: type[Exception]
) -> None:
    name = opened(WIDE)
    with pytest.raises(error):
        both.charge_event(name, event, adjacency="add_remove")
    assert both.dataset(name)["sequence"] == 1


def test_an_event_of_another_adjacency_is_refused(both: Client, opened: Opens) -> None:
    with pytest.raises(NotValidUnderAdjacency):
        both.charge_event(opened(WIDE), events.GaussianDpEvent(3.0), adjacency="replace_one")
