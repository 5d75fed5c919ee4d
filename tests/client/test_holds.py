"""Holds and sweeps, against a real service and in this process: what is spent, and what comes back."""

import os
import pickle
import time
from collections.abc import Callable

import pytest

from odometer_client import BudgetExceeded, Client
from odometer_client.errors import HoldExpired, HoldSettled, InvalidRequest, UnknownHold, UsedUp
from odometer_client.mechanisms import Pure

STEP = Pure(epsilon=0.125)
Opened = Callable[..., str]


def spent(client: Client, dataset: str) -> float:
    return float(client.dataset(dataset).budgets[0]["spent"])


def test_a_hold_is_spent_at_once_and_settled_for_what_was_used(both: Client, opened: Opened) -> None:
    dataset = opened()
    hold = both.hold(dataset, STEP, 8, expires_in_s=1000)
    assert spent(both, dataset) == both.odometer(dataset).held["pure"] == 1.0
    with pytest.raises(BudgetExceeded):
        both.charge(dataset, STEP)
    settled = hold.settle(3)
    assert (settled.used, settled.held, settled.replayed) == ([3], [8], False)
    assert spent(both, dataset) == 0.375
    assert settled.left[0]["left"] == 0.625


def test_the_same_key_is_the_same_hold(both: Client, opened: Opened) -> None:
    dataset = opened()
    first = both.hold(dataset, STEP, 4, expires_in_s=1000, key="k")
    again = both.hold(dataset, STEP, 4, expires_in_s=1000, key="k")
    assert (again.id, again.expires, again.replayed) == (first.id, first.expires, True)
    assert spent(both, dataset) == 0.5


def test_settling_again_for_the_same_changes_nothing_and_for_another_number_is_refused(
    both: Client, opened: Opened
) -> None:
    dataset = opened()
    hold = both.hold(dataset, STEP, 8, expires_in_s=1000)
    hold.settle(3)
    assert both.settle(dataset, hold.id, 3).replayed
    with pytest.raises(HoldSettled, match=f"hold {hold.id} was settled"):
        hold.settle(2)
    assert spent(both, dataset) == 0.375


def test_more_than_was_held_is_refused_and_so_is_an_unknown_hold(both: Client, opened: Opened) -> None:
    dataset = opened()
    hold = both.hold(dataset, STEP, 2, expires_in_s=1000)
    with pytest.raises(InvalidRequest, match="more than the 2"):
        hold.settle(3)
    number, _, mark = hold.id.partition(".")
    for name in (number, f"99.{mark}", f"{number}.00000000", "none", "", ".."):
        with pytest.raises((UnknownHold, InvalidRequest)):
            both.settle(dataset, name, 0)
    assert spent(both, dataset) == 0.25


def test_a_list_is_settled_by_a_number_for_each(both: Client, opened: Opened) -> None:
    dataset = opened()
    hold = both.hold(dataset, [(STEP, 2), (Pure(epsilon=0.25), 2)], expires_in_s=1000)
    hold.settle([0, 1])
    assert spent(both, dataset) == 0.25


def test_open_holds_are_listed_and_settled_from_there(both: Client, opened: Opened) -> None:
    dataset = opened()
    both.hold(dataset, STEP, 2, expires_in_s=1000)
    both.hold(dataset, STEP, 1, expires_in_s=1000)
    first, second = both.holds(dataset)
    assert [first.charges[0]["count"], second.charges[0]["count"]] == [2, 1]
    assert first.principal == both.me()["principal"]
    first.settle(0)
    assert [hold.id for hold in both.holds(dataset)] == [second.id]
    assert spent(both, dataset) == 0.125


def test_an_expired_hold_is_spent_for_good(both: Client, opened: Opened) -> None:
    dataset = opened()
    hold = both.hold(dataset, STEP, 2, expires_in_s=1)
    deadline = time.monotonic() + 30
    while both.holds(dataset):  # until the ledger says so
        assert time.monotonic() < deadline
    with pytest.raises(HoldExpired):
        hold.settle(0)
    assert spent(both, dataset) == 0.25


# -- sweeps


def test_a_sweep_is_charged_for_the_runs_that_started(both: Client, opened: Opened) -> None:
    dataset = opened()
    with both.sweep(dataset, STEP, 2, runs=4, name="lr", expires_in_s=1000) as sweep:
        assert spent(both, dataset) == 1.0
        assert [sweep.run(), sweep.run()] == [1, 2]
    assert spent(both, dataset) == 0.5
    assert both.odometer(dataset, scope="group/lr")["totals"]["pure"] == 0.5


def test_a_sweep_starts_no_more_runs_than_it_holds_and_none_when_it_is_over(
    both: Client, opened: Opened
) -> None:
    dataset = opened()
    with both.sweep(dataset, STEP, 1, runs=1, name="lr", expires_in_s=1000) as sweep:
        sweep.run()
        with pytest.raises(UsedUp, match="all 1 runs"):
            sweep.run()
    with pytest.raises(UsedUp, match="over"):
        sweep.run()
    assert spent(both, dataset) == 0.125


def test_runs_of_a_sweep_that_fails_are_spent_and_its_error_comes_out(both: Client, opened: Opened) -> None:
    dataset = opened()

    def sweeping() -> None:
        with both.sweep(dataset, STEP, 1, runs=8, name="lr", expires_in_s=1000) as sweep:
            sweep.run()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sweeping()
    assert spent(both, dataset) == 0.125


def test_a_sweep_of_lists_settles_each_charge(both: Client, opened: Opened) -> None:
    dataset = opened()
    one_run = [(STEP, 1), (Pure(epsilon=0.0625), 2)]
    with both.sweep(dataset, one_run, None, runs=4, name="lr", expires_in_s=1000) as sweep:
        sweep.run()
    assert sweep.used == [1, 2]
    assert spent(both, dataset) == 0.25


def test_an_expired_sweep_stays_spent_and_says_so(
    both: Client, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = opened()
    with both.sweep(dataset, STEP, 1, runs=2, name="lr", expires_in_s=1) as sweep:
        sweep.run()
        deadline = time.monotonic() + 30
        while both.holds(dataset):
            assert time.monotonic() < deadline
    assert "all 2 runs stay spent" in caplog.text
    assert spent(both, dataset) == 0.25


def test_a_worker_neither_counts_nor_settles(
    both: Client, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forked copy of a sweep knows nothing of the other runs: if it settled, it would say too few."""
    dataset = opened()
    sweep = both.sweep(dataset, STEP, 1, runs=4, name="lr", expires_in_s=1000)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(sweep)
    parent = os.getpid()
    with monkeypatch.context() as forked:
        forked.setattr("odometer_client.sweeps.os.getpid", lambda: parent + 1)
        with pytest.raises(RuntimeError, match="before their workers"):
            sweep.run()
        sweep.__exit__(None, None, None)
    assert spent(both, dataset) == 0.5
