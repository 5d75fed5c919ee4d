"""What is open counts in every window that it reaches, and what was used of it stays in each."""

import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from odometer_accountant.errors import BudgetExceeded, LedgerCorrupt
from odometer_accountant.ledger.blobs import window_blob
from odometer_accountant.ledger.commands import Caller
from odometer_accountant.ledger.entries import timestamp
from odometer_accountant.ledger.fold import fold
from odometer_accountant.ledger.totals import InWindow
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores import Store, Write
from odometer_accountant.stores.memory import MemoryStore
from odometer_accountant.transfer.export import export
from odometer_accountant.transfer.import_ import Import
from odometer_accountant.verify.walk import verify

ADA, BEN = Caller("ada", "red"), Caller("ben")
LIFE = {"name": "life", "kind": "pure", "epsilon": 1000}
SPARSE = {"kind": "sparse_vector", "epsilon_threshold": 0.4, "epsilon_answers": 0.6, "max_above": 3}


class Clock:
    """A clock that tests set."""

    def __init__(self, time: str = "2026-11-30T23:59:00+00:00") -> None:
        self.now = datetime.fromisoformat(time)

    def __call__(self) -> str:
        return timestamp(self.now)

    def goes(self, **by: int) -> None:
        self.now += timedelta(**by)


def pure(epsilon: float, count: int = 1, **more: Any) -> dict[str, Any]:
    return {"mechanism": {"kind": "pure", "epsilon": epsilon}, "count": count, **more}


def opened(clock: Clock, *budgets: dict[str, Any], **more: Any) -> Accountant:
    accountant = Accountant(MemoryStore(), clock)
    document = {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-6, **more}
    accountant.create_dataset({**document, "budgets": [LIFE, *budgets]}, "root")
    return accountant


def budget(window: str = "day", epsilon: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"name": "window", "kind": "pure", "epsilon": epsilon, "window": window, **more}


def hold(accountant: Accountant, body: dict[str, Any], by: Caller = ADA, key: str = "h", **time: int) -> str:
    seconds = int(timedelta(**time).total_seconds())
    return str(accountant.hold("d", {**body, "expires_in_s": seconds}, key, by)[0]["hold"]["id"])


def room(accountant: Accountant, most: float, by: Caller = BEN, **more: Any) -> float:
    """How much still fits, in tenths up to `most`."""
    tenths = round(most * 10)
    fitting = [n for n in range(tenths + 1) if accountant.check("d", pure(n / 10, **more), by)["fits"]]
    return max(fitting) / 10


def sound(accountant: Accountant) -> bool:
    return not [finding for verdict in verify(accountant.store) for finding in verdict.findings]


def test_a_hold_over_midnight_counts_on_both_days() -> None:
    """Held at 23:59 and used at 00:01, it leaves no room for another charge after midnight."""
    clock = Clock()
    with opened(clock, budget()) as accountant:
        one = hold(accountant, pure(1.0), hours=1)
        clock.goes(minutes=2)
        with pytest.raises(BudgetExceeded):
            accountant.charge("d", pure(1.0), "open", BEN)
        accountant.settle("d", one, {"used": 1}, ADA)
        for number in range(2):
            with pytest.raises(BudgetExceeded):
                accountant.charge("d", pure(1e-9), f"settled-{number}", BEN)
            clock.goes(hours=12)
        accountant.charge("d", pure(1.0), "next", BEN)
        assert sound(accountant)


def test_what_was_not_used_comes_back_to_the_day_it_is_settled_on() -> None:
    clock = Clock()
    with opened(clock, budget()) as accountant:
        one = hold(accountant, pure(0.1, 8), hours=1)
        assert room(accountant, 1) == 0.2
        clock.goes(minutes=2)
        assert room(accountant, 1) == 0.2
        accountant.settle("d", one, {"used": 3}, ADA)
        assert room(accountant, 1) == 0.7
        clock.goes(days=1)
        assert room(accountant, 1) == 1.0


def test_an_expired_hold_counts_in_the_windows_that_it_reached_and_in_no_other() -> None:
    """Nobody asked anything on the day on which it expired: that day has it all the same."""
    clock = Clock()
    with opened(clock, budget()) as accountant:
        hold(accountant, pure(0.4), days=1)
        clock.goes(days=1, hours=-2)
        assert room(accountant, 1) == 0.6
        clock.goes(minutes=118)  # after it expired, on the same day
        accountant.charge("d", pure(0.1), "another", BEN)
        assert room(accountant, 1) == 0.5
        clock.goes(hours=3)
        assert room(accountant, 1) == 1.0
        assert accountant.odometer("d")["totals"]["pure"] == 0.5
        assert sound(accountant)


@pytest.mark.parametrize(
    ("window", "start", "step"),
    [
        ("hour", "2026-12-31T23:59:30+00:00", {"minutes": 40}),
        ("day", "2026-12-31T23:59:30+00:00", {"hours": 20}),
        ("week", "2026-12-27T23:59:30+00:00", {"days": 5}),
        ("month", "2026-12-31T23:59:30+00:00", {"days": 25}),
    ],
)
def test_every_kind_of_window_that_is_reached_counts_it(
    window: str, start: str, step: dict[str, int]
) -> None:
    clock = Clock(start)
    with opened(clock, budget(window)) as accountant:
        one = hold(accountant, pure(0.1, 7), days=300)
        for number in range(5):
            clock.goes(**step)
            accountant.charge("d", pure(0.01), f"k{number}", BEN)
            assert room(accountant, 1) == 0.2, number
            clock.goes(**step)
        accountant.settle("d", one, {"used": 5}, ADA)
        assert room(accountant, 1) >= 0.4
        clock.goes(days=62)
        assert room(accountant, 1) == 1.0
        assert sound(accountant)


def test_a_session_counts_until_it_is_closed_with_all_that_was_paid_for_it() -> None:
    clock = Clock()
    with opened(clock, budget(epsilon=5.0)) as accountant:
        one = accountant.open_session("d", {"session": SPARSE}, "s", ADA)[0]["session"]["id"]
        clock.goes(days=3)
        assert room(accountant, 5) == 4.0
        accountant.answer_session("d", one, {"above": True}, "a1", ADA)
        assert room(accountant, 5) == 3.0
        clock.goes(days=1)
        assert room(accountant, 5) == 3.0
        accountant.close_session("d", one, ADA)
        assert room(accountant, 5) == 3.0
        clock.goes(days=1)
        assert room(accountant, 5) == 5.0
        assert sound(accountant)


@pytest.mark.parametrize("kind", ["sparse_vector", "confident_gnmax"])
def test_a_session_that_its_last_answer_ends_counts_no_longer(kind: str) -> None:
    """Also where the last answer is charged."""
    session = {**SPARSE, "max_above": 1}
    if kind == "confident_gnmax":
        session = {
            "kind": kind,
            "noise_multiplier_check": 10.0,
            "noise_multiplier_answer": 10.0,
            "max_answers": 1,
        }
    clock = Clock()
    day = {"name": "window", "kind": "zcdp", "rho": 2.0, "window": "day"}
    accountant = Accountant(MemoryStore(), clock)
    document = {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-6}
    accountant.create_dataset(
        {**document, "budgets": [{"name": "life", "kind": "zcdp", "rho": 50}, day]}, "root"
    )
    one = accountant.open_session("d", {"session": session}, "s", ADA)[0]["session"]["id"]
    clock.goes(days=1)
    accountant.answer_session("d", one, {"above": True}, "a1", ADA)
    assert not accountant.session("d", one)["open"]
    state = accountant.state("d")
    within = state.totals.windows["dataset@day"]
    assert not within.loss.is_zero
    assert within.open == {}
    clock.goes(days=1)
    assert state.totals.within("dataset", "day", clock()).is_zero
    assert sound(accountant)
    accountant.close()


def test_a_budget_that_is_new_counts_what_is_open_and_nothing_that_was() -> None:
    clock = Clock("2026-11-30T10:00:00+00:00")
    with opened(clock) as accountant:
        accountant.charge("d", pure(0.9), "before", BEN)
        one = hold(accountant, pure(0.1, 4), days=3)
        hold(accountant, pure(0.5), key="gone", minutes=1)
        session = accountant.open_session("d", {"session": SPARSE}, "s", ADA)[0]["session"]["id"]
        clock.goes(hours=1)
        accountant.add_budget("d", budget(epsilon=3.0), "root")
        assert room(accountant, 3) == 1.6
        clock.goes(days=1)
        assert room(accountant, 3) == 1.6
        accountant.settle("d", one, {"used": 1}, ADA)
        assert room(accountant, 3) == 1.9
        accountant.close_session("d", session, ADA)
        clock.goes(days=1)
        assert room(accountant, 3) == 3.0
        assert sound(accountant)


def test_of_budgets_that_come_one_after_the_other_each_counts_it_once() -> None:
    clock = Clock("2026-11-30T10:00:00+00:00")
    with opened(clock, budget(epsilon=2.0)) as accountant:
        hold(accountant, pure(0.6), days=3)
        accountant.add_budget("d", {**budget("hour", 2.0), "name": "hourly"}, "root")
        accountant.add_budget("d", {**budget("day", 2.0), "name": "ada", "scope": "principal/ada"}, "root")
        for _ in range(3):
            left = {one["budget"]: one["left"] for one in accountant.check("d", pure(0.1), ADA)["left"]}
            assert {left[name] for name in ("window", "hourly", "ada")} == {1.3}
            clock.goes(hours=20)
        assert sound(accountant)


@pytest.mark.parametrize("parts", ["all", ["eu"]])
def test_partitions_have_it_too(parts: Any) -> None:
    clock = Clock()
    more = {"composition": "by_partition", "partitions": ["eu", "us"]}
    with opened(clock, budget(scope="partition/*"), **more) as accountant:
        one = hold(accountant, pure(0.1, 6, partitions=parts), hours=2)
        clock.goes(minutes=2)
        assert room(accountant, 1, partitions=["eu"]) == 0.4
        assert room(accountant, 1, partitions=["us"]) == (0.4 if parts == "all" else 1.0)
        accountant.settle("d", one, {"used": 2}, ADA)
        assert room(accountant, 1, partitions=["eu"]) == 0.8
        assert sound(accountant)


def test_units_have_it_too() -> None:
    clock = Clock()
    more = {"composition": "by_unit", "shards": 2, "adjacency": "replace_one"}
    accountant = Accountant(MemoryStore(), clock)
    document = {"name": "d", "unit": "phone", "delta": 1e-6, **more}
    each = {"name": "window", "kind": "pure", "epsilon": 1.0, "window": "day", "scope": "unit/*"}
    life = {"name": "life", "kind": "pure", "epsilon": 9.0, "scope": "unit/*"}
    accountant.create_dataset({**document, "budgets": [life]}, "root")
    one = hold(accountant, pure(0.1, 6, units=["u1"]), hours=2)
    accountant.add_budget("d", each, "root")
    accountant.charge("d", pure(0.1, units=["u1"]), "first", BEN)
    clock.goes(minutes=2)
    assert room(accountant, 1, units=["u1"]) == 0.4
    assert room(accountant, 1, units=["u2"]) == 1.0
    accountant.settle("d", one, {"used": 2}, ADA)
    assert room(accountant, 1, units=["u1"]) == 0.8
    assert sound(accountant)
    accountant.close()


def test_a_refusal_names_the_first_window_that_has_room() -> None:
    """A hold that expires in three days leaves none before the fourth."""
    clock = Clock("2026-11-30T12:00:00+00:00")
    with opened(clock, budget()) as accountant:
        hold(accountant, pure(0.6), days=3)
        with pytest.raises(BudgetExceeded) as refused:
            accountant.charge("d", pure(0.5), "k", BEN)
        wait = refused.value.fields["retry_after_s"]
        assert wait == (3 * 24 + 12) * 3600
        clock.now += timedelta(seconds=wait - 1)
        with pytest.raises(BudgetExceeded):
            accountant.charge("d", pure(0.5), "k", BEN)
        clock.goes(seconds=1)
        accountant.charge("d", pure(0.5), "k", BEN)


def moved(accountant: Accountant) -> Store:
    """The ledger, exported and imported."""
    file, store = io.BytesIO(), MemoryStore()
    export(accountant.store, file, "2026-12-01T00:00:00Z", keys=False, notes=False)
    with Import(file) as one:
        one.check()
        one.write(store)
    return store


def test_an_imported_ledger_knows_what_is_open() -> None:
    clock = Clock()
    with opened(clock, budget(epsilon=3.0)) as accountant:
        one = hold(accountant, pure(0.1, 6), days=3)
        accountant.open_session("d", {"session": SPARSE}, "s", ADA)
        clock.goes(days=1)
        with Accountant(moved(accountant), clock) as other:
            assert room(other, 3) == room(accountant, 3) == 1.4
            other.settle("d", one, {"used": 0}, ADA)
            assert room(other, 3) == 2.0
            assert sound(other)


def test_what_is_open_of_a_window_is_verified_and_read_or_nothing_is_admitted() -> None:
    """A stored count that says of less that it is open, or says nothing that can be read."""
    clock = Clock()
    accountant = opened(clock, budget())
    hold(accountant, pure(0.4), days=3)
    store, name, state = accountant.store, window_blob("dataset", "day"), accountant.state("d")
    head, blobs = store.load("d", [name])
    within = InWindow.decode(state.dataset.grid, blobs[name].decode("ascii"), state.loss_dictionary)
    assert set(within.open) == {"2026-12-03"}
    less = InWindow(within.name, within.loss).encode(state.loss_dictionary).encode("ascii")
    for value in (less, blobs[name] + b";2026-12-04 x", blobs[name].replace(b";", b";2026-12-03 ")):
        store.append([Write("d", head, [], {name: value})])
        assert [one for verdict in verify(store, ["d"]) for one in verdict.findings], value
        if value != less:
            again = Accountant(store, clock)
            with pytest.raises(LedgerCorrupt):
                again.charge("d", pure(0.1), "k", BEN)
            again.writer.close()
    accountant.close()


def test_the_entries_alone_say_what_is_open() -> None:
    """Folded again they come to the windows that are stored, and formats are no higher than they must be."""
    clock = Clock()
    with opened(clock, budget(epsilon=5.0)) as accountant:
        accountant.charge("d", pure(0.1), "k1", BEN)
        one = hold(accountant, pure(0.1, 6), days=3)
        accountant.charge("d", pure(0.1), "k2", BEN)
        clock.goes(days=1)
        accountant.settle("d", one, {"used": 0}, ADA)
        rows = accountant.store.entries("d", 0, 100)
        folded = fold([(row.hash, row.body) for row in rows])
        assert folded is not None
        assert dict(folded.totals.windows) == dict(accountant.state("d").totals.windows)
    assert [json.loads(row.body)["v"] for row in rows[1:]] == [3, 4, 3, 4]


def test_without_windows_nothing_is_of_a_later_format() -> None:
    clock = Clock()
    with opened(clock) as accountant:
        one = hold(accountant, pure(0.1, 6), days=3)
        session = accountant.open_session("d", {"session": SPARSE}, "s", ADA)[0]["session"]["id"]
        accountant.settle("d", one, {"used": 0}, ADA)
        accountant.close_session("d", session, ADA)
        assert {json.loads(row.body)["v"] for row in accountant.store.entries("d", 1, 100)} == {3}


def test_a_thousand_open_holds_cost_a_charge_next_to_nothing() -> None:
    """Holds that end in the same window are one number: a count does not grow with them."""
    clock = Clock("2026-11-30T12:00:00+00:00")
    with opened(clock, budget(epsilon=900.0)) as accountant:
        for number in range(300):
            one = Caller(f"p{number % 10}")  # one alone may have fewer
            hold(accountant, pure(0.1), one, f"h{number}", minutes=60 + number)
        within = accountant.state("d").totals.windows["dataset@day"]
        assert set(within.open) == {"2026-11-30"}
        clock.now = datetime(2026, 12, 1, tzinfo=UTC)
        accountant.charge("d", pure(0.1), "k", BEN)
        assert accountant.state("d").totals.windows["dataset@day"].open == {}
