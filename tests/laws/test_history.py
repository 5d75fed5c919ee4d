"""A history says what a count of the entries says, and reads each of them once."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

import odometer_accountant.queries.history
import odometer_accountant.queries.scopes
from odometer_accountant.budgets.approximate import if_stopped_now
from odometer_accountant.ledger.entry_types import LossChange, loss_change
from odometer_accountant.ledger.snapshot import count_entry
from odometer_accountant.numerics.grid import CURRENT_GRID, Grid
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores.memory import MemoryStore

PARTS = [f"p{number}" for number in range(6)]


def gaussian(noise: float, count: int = 1, **more: Any) -> dict[str, Any]:
    return {"mechanism": {"kind": "gaussian", "noise_multiplier": noise}, "count": count, **more}


def opened(**more: Any) -> Accountant:
    accountant = Accountant(MemoryStore())
    document = {
        "name": "d",
        "unit": "person",
        "adjacency": "add_remove",
        "delta": 1e-6,
        "odometer_only": True,
    }
    accountant.create_dataset({**document, **more}, "root")
    return accountant


@pytest.fixture
def partitioned() -> Iterator[Accountant]:
    with opened(composition="by_partition", partitions=PARTS[:4]) as accountant:
        yield accountant


def naive(accountant: Accountant) -> dict[int, float]:
    """The reading after each entry, counted partition by partition."""
    state = accountant.state("d")
    scopes = ["dataset", *(f"partition/{name}" for name in state.partitions)]
    spent = {scope: Loss.zero(CURRENT_GRID) for scope in scopes}
    found = {}
    for row in accountant.store.entries("d", 0, 1000):
        entry = json.loads(row.body)
        for scope in scopes:
            spent[scope] = count_entry(CURRENT_GRID, state.composition, spent[scope], entry, scope)
        worst = Loss.zero(CURRENT_GRID)
        for scope, lost in spent.items():
            worst = worst if scope == "dataset" else worst.at_least(lost)
        whole = spent["dataset"].plus(worst)
        found[row.sequence] = if_stopped_now(whole, state.dataset.mixture, int(state.dataset.delta_add))
    return found


def shown(accountant: Accountant, points: int = 1000) -> dict[int, float]:
    return {one["sequence"]: one["if_stopped_now"] for one in accountant.history("d", points)["points"]}


def spend_in_every_way(accountant: Accountant, count: int) -> None:
    ways: list[Any] = [PARTS[:1], PARTS[1:3], "all", PARTS[:4], PARTS[3:4]]
    for number, parts in enumerate(ways):
        accountant.charge("d", gaussian(3.0 + number, count, partitions=parts), f"c{number}", "x")
    held, _ = accountant.hold("d", gaussian(2.0, 4 * count, partitions=PARTS[:2], expires_in_s=60), "h", "x")
    accountant.settle("d", held["hold"]["id"], {"used": count}, "x")
    accountant.add_partitions("d", {"partitions": PARTS[4:]}, "root")
    accountant.charge("d", gaussian(1.0, count, partitions=PARTS[4:]), "last", "x")


@pytest.mark.parametrize("count", [1, 200_000_000], ids=["small", "beyond 64 bits"])
def test_a_partitioned_history_is_what_its_entries_come_to(partitioned: Accountant, count: int) -> None:
    """Charges of some and of all partitions, holds, settlements, and partitions that came later."""
    spend_in_every_way(partitioned, count)
    counted, found = naive(partitioned), shown(partitioned)
    assert len(found) == 9
    for sequence, reading in found.items():  # each entry counted up to units of 1e-12
        assert reading >= counted[sequence] * (1 - 1e-12)
        assert reading == pytest.approx(counted[sequence], rel=1e-10)


@pytest.mark.parametrize("points", [2, 3, 5])
def test_a_thinner_history_has_some_of_the_points(partitioned: Accountant, points: int) -> None:
    spend_in_every_way(partitioned, 1)
    all_of_them, some = shown(partitioned), shown(partitioned, points)
    assert some.items() <= all_of_them.items()
    assert len(some) <= points
    assert max(some) == max(all_of_them)


def test_the_history_of_a_whole_dataset_is_what_its_entries_come_to() -> None:
    with opened() as accountant:
        for number in range(5):
            accountant.charge("d", gaussian(2.0 + number), f"c{number}", "x")
        held, _ = accountant.hold("d", gaussian(2.0, 4, expires_in_s=60), "h", "x")
        accountant.settle("d", held["hold"]["id"], {"used": 1}, "x")
        counted, found = naive(accountant), shown(accountant)
    assert found == counted


def test_each_entry_is_read_once_however_many_partitions_it_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def noted(grid: Grid, composition: str, entry: Any) -> LossChange | None:
        read.append(entry)
        return real(grid, composition, entry)

    names = [f"p{number}" for number in range(300)]
    read: list[object] = []
    real = loss_change
    with opened(composition="by_partition", partitions=names) as service:
        for number in range(5):
            service.charge("d", gaussian(3.0, partitions=names), f"c{number}", "x")
        monkeypatch.setattr(odometer_accountant.queries.history, "loss_change", noted)
        assert len(shown(service)) == 6
    assert len(read) == 6  # the opening and five charges


def test_who_spent_says_when_there_are_more_than_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that just ends would look complete."""
    monkeypatch.setattr(odometer_accountant.queries.scopes, "_SCOPES_MAX", 3)
    with opened() as service:
        for number in range(4):
            found = service.spend("d")
            assert (found["more"], len(found["by_principal"])) == (False, number)
            service.charge("d", gaussian(3.0), f"c{number}", f"ada{number}")
        found = service.spend("d")
    assert (found["more"], len(found["by_principal"])) == (True, 3)
