"""Windows by the calendar, and by the ledger's time alone, which never goes back."""

import contextlib
import json
from datetime import UTC, datetime, timedelta

import pytest
from amount import examples
from auditor import name_of, start_of
from hypothesis import given
from hypothesis import strategies as st

from odometer_accountant.errors import BudgetExceeded
from odometer_accountant.ledger.entries import timestamp
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores.memory import MemoryStore
from odometer_accountant.windows import WINDOWS, Window, seconds_until, window_end, window_name

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
moments = st.integers(0, 430 * 365 * 86_400 * 10**6).map(lambda us: EPOCH + timedelta(microseconds=us))
windows = st.sampled_from(WINDOWS)
LEAST = timedelta(microseconds=1)
OPENED = {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-6}


@given(moments, windows)
def test_a_name_lasts_until_the_end_and_changes_exactly_there(moment: datetime, window: Window) -> None:
    time = timestamp(moment)
    name, end = window_name(window, time), window_end(window, time)
    assert end > moment
    assert window_name(window, timestamp(end - LEAST)) == name == name_of(window, time)
    assert window_name(window, timestamp(end)) > name
    assert start_of(window, timestamp(end)) == end


@given(moments, moments, windows)
def test_names_sort_as_moments_do(one: datetime, other: datetime, window: Window) -> None:
    first, second = sorted((timestamp(one), timestamp(other)))
    assert window_name(window, first) <= window_name(window, second)
    same = start_of(window, first) == start_of(window, second)
    assert (window_name(window, first) == window_name(window, second)) is same


@pytest.mark.parametrize(
    ("window", "time", "name", "end"),
    [
        ("hour", "2026-11-30T23:59:59.999999Z", "2026-11-30T23", "2026-12-01T00:00"),
        ("day", "2028-02-28T12:00:00.000000Z", "2028-02-28", "2028-02-29T00:00"),
        ("month", "2028-02-29T12:00:00.000000Z", "2028-02", "2028-03-01T00:00"),
        ("month", "2100-02-28T12:00:00.000000Z", "2100-02", "2100-03-01T00:00"),
        ("month", "2026-12-31T23:00:00.000000Z", "2026-12", "2027-01-01T00:00"),
        ("week", "2026-11-30T00:00:00.000000Z", "2026-W49", "2026-12-07T00:00"),
        ("week", "2026-11-29T23:59:59.999999Z", "2026-W48", "2026-11-30T00:00"),
        ("week", "2026-12-31T12:00:00.000000Z", "2026-W53", "2027-01-04T00:00"),
        ("week", "2024-12-30T12:00:00.000000Z", "2025-W01", "2025-01-06T00:00"),
    ],
)
def test_weeks_start_on_monday_and_months_end_when_they_do(
    window: Window, time: str, name: str, end: str
) -> None:
    assert window_name(window, time) == name
    assert window_end(window, time) == datetime.fromisoformat(end).replace(tzinfo=UTC)


@given(moments, windows)
def test_the_wait_is_never_too_short_and_never_a_second_too_long(moment: datetime, window: Window) -> None:
    end = window_end(window, timestamp(moment))
    wait = timedelta(seconds=seconds_until(end, timestamp(moment)))
    assert end <= moment + wait < end + timedelta(seconds=1)
    assert wait >= timedelta(seconds=1)


class Clock:
    """A clock that tests set."""

    def __init__(self, time: str) -> None:
        self.now = datetime.fromisoformat(time)

    def __call__(self) -> str:
        return timestamp(self.now)


def half(epsilon: float = 0.5) -> dict[str, object]:
    return {"mechanism": {"kind": "pure", "epsilon": epsilon}, "count": 1}


def hourly(clock: Clock, **more: object) -> Accountant:
    """Epsilon 1 in an hour, 100 for life."""
    budgets = [
        {"name": "life", "kind": "pure", "epsilon": 100},
        {"name": "hourly", "kind": "pure", "epsilon": 1, "window": "hour", **more},
    ]
    accountant = Accountant(MemoryStore(), clock)
    accountant.create_dataset({**OPENED, "budgets": budgets}, "root")
    return accountant


@examples(20)
@given(st.lists(st.integers(-7200, 7200), min_size=4, max_size=25))
def test_whatever_the_clock_says_no_window_takes_more_than_one_budget(steps: list[int]) -> None:
    """By the ledger's time: a window that it has left stays closed, and is never opened again."""
    clock = Clock("2026-12-31T22:30:00+00:00")
    with hourly(clock) as accountant:
        for number, step in enumerate(steps):
            clock.now += timedelta(seconds=step)
            for more in "ab":
                with contextlib.suppress(BudgetExceeded):
                    accountant.charge("d", half(), f"{number}{more}", "ada")
        entries = [json.loads(row.body) for row in accountant.store.entries("d", 1, 1000)]
    times = [entry["time"] for entry in entries]
    assert times == sorted(times)
    hours = [start_of("hour", time) for time in times]
    assert all(hours.count(hour) <= 2 for hour in hours)


def test_a_window_once_left_stays_closed_when_the_clock_steps_back() -> None:
    clock = Clock("2026-12-31T22:59:59+00:00")
    with hourly(clock) as accountant:
        accountant.charge("d", half(1.0), "before", "ada")
        clock.now += timedelta(seconds=1)
        accountant.charge("d", half(1.0), "after", "ada")
        clock.now -= timedelta(hours=1)
        with pytest.raises(BudgetExceeded) as refused:
            accountant.charge("d", half(), "back", "ada")
        # The ledger's hour is 23:00, and by this clock it is 22:00: it is two hours until midnight.
        assert refused.value.fields["retry_after_s"] == 7200
        clock.now += timedelta(seconds=7200)
        accountant.charge("d", half(), "back", "ada")


def test_after_the_wait_that_a_refusal_names_the_charge_fits() -> None:
    clock = Clock("2026-12-31T22:10:00.300000+00:00")
    with hourly(clock) as accountant:
        accountant.charge("d", half(), "one", "ada")
        with pytest.raises(BudgetExceeded) as refused:
            accountant.charge("d", half(0.6), "two", "ada")
        wait = refused.value.fields["retry_after_s"]
        assert wait == 3000
        clock.now += timedelta(seconds=wait)
        accountant.charge("d", half(0.6), "two", "ada")


@pytest.mark.parametrize("epsilon", [1.5, 99.6])
def test_no_wait_is_named_where_waiting_does_not_help(epsilon: float) -> None:
    """Larger than the window's whole budget; or refused by the budget for life too."""
    with hourly(Clock("2026-12-31T22:10:00+00:00")) as accountant:
        accountant.charge("d", half(), "one", "ada")
        with pytest.raises(BudgetExceeded) as refused:
            accountant.charge("d", half(epsilon), "two", "ada")
        assert "retry_after_s" not in refused.value.fields


def test_each_principal_has_a_window_of_its_own() -> None:
    with hourly(Clock("2026-12-31T22:10:00+00:00"), scope="principal/*") as accountant:
        for who in ("ada", "ben"):
            accountant.charge("d", half(1.0), "all", who)
            with pytest.raises(BudgetExceeded, match="hourly"):
                accountant.charge("d", half(1e-12), "more", who)


def test_a_window_budget_counts_from_the_moment_it_was_set() -> None:
    with Accountant(MemoryStore(), Clock("2026-12-31T22:10:00+00:00")) as accountant:
        life = {"name": "life", "kind": "pure", "epsilon": 100}
        accountant.create_dataset({**OPENED, "budgets": [life]}, "root")
        accountant.charge("d", half(5.0), "before", "ada")
        accountant.add_budget("d", {"name": "day", "kind": "pure", "epsilon": 1, "window": "day"}, "root")
        accountant.charge("d", half(1.0), "after", "ada")
        with pytest.raises(BudgetExceeded, match="day"):
            accountant.charge("d", half(1e-12), "more", "ada")
