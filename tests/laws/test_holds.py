"""A hold is a charge made ahead of the work: settled, it leaves what a charge of what was used would have."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from odometer_accountant.errors import (
    BudgetExceeded,
    DatasetClosed,
    Forbidden,
    HoldExpired,
    HoldSettled,
    InvalidRequest,
    KeyReused,
    LedgerCorrupt,
    TooManyHolds,
    UnknownHold,
)
from odometer_accountant.ledger import charges
from odometer_accountant.ledger.checkpoints import CHECKPOINT_EVERY
from odometer_accountant.ledger.commands import Caller, SettleCommand
from odometer_accountant.ledger.decisions import Admitted, DecisionInput
from odometer_accountant.ledger.entries import canonical, entry_hash, timestamp
from odometer_accountant.ledger.fold import fold
from odometer_accountant.ledger.holds import settle
from odometer_accountant.mechanisms import Adjacency, Mechanism
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores.memory import MemoryStore
from odometer_accountant.verify.walk import verify

OPENED = {"name": "d", "unit": "person", "delta": 1e-6}
HALF = {"mechanism": {"kind": "pure", "epsilon": 0.5}}
MAKER = Caller("ada", "red")
KINDS = [
    pytest.param(kind, example, id=f"{name}-{number}")
    for name, kind in Mechanism.registry.items()
    for number, example in enumerate(kind.examples[:1])
]


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = datetime(2026, 12, 31, 22, 10, tzinfo=UTC)

    def __call__(self) -> str:
        return timestamp(self.now)


def limited(*budgets: dict[str, Any], clock: Clock | None = None) -> Accountant:
    accountant = Accountant(MemoryStore(), clock or Clock())
    document = {**OPENED, "adjacency": "add_remove", "budgets": list(budgets)}
    accountant.create_dataset(document | ({} if budgets else {"odometer_only": True}), "root")
    return accountant


PURE = {"name": "life", "kind": "pure", "epsilon": 5}


def counts(accountant: Accountant) -> dict[str, bytes]:
    """Every stored count that is not zero."""
    store = accountant.store
    blobs = [*store.blobs("d", "totals/", "", 1000), *store.blobs("d", "window/", "", 1000)]
    return {name: blob for name, blob in blobs if any(part.strip("0 |") for part in blob.decode().split("|"))}


@pytest.mark.parametrize(("kind", "example"), KINDS)
@pytest.mark.parametrize("used", [0, 2, 5])
def test_settled_for_a_number_it_has_cost_exactly_that_number(
    kind: type[Mechanism], example: dict[str, Any], used: int
) -> None:
    """Of every kind of mechanism, those without a bound too: all totals are those of a charge of `used`."""
    adjacency = next(one for one in Adjacency if one in kind.adjacencies)
    found = []
    for held in (True, False):
        with Accountant(MemoryStore()) as accountant:
            accountant.create_dataset({**OPENED, "adjacency": adjacency, "odometer_only": True}, "root")
            if held:
                request = {"mechanism": example, "count": 5, "expires_in_s": 60}
                hold = accountant.hold("d", request, "k", MAKER)[0]["hold"]
                accountant.settle("d", hold["id"], {"used": used}, MAKER)
            elif used:
                accountant.charge("d", {"mechanism": example, "count": used}, "k", MAKER)
            found.append(counts(accountant))
    assert found[0] == found[1]


def test_a_list_is_settled_charge_by_charge_and_a_group_for_all_its_runs() -> None:
    with limited() as accountant:
        charges = [{**HALF, "count": 3}, {"mechanism": {"kind": "non_private", "what": "x"}, "count": 2}]
        request = {"charges": charges, "group": {"name": "sweep", "runs": 4}, "expires_in_s": 60}
        hold = accountant.hold("d", request, "k", MAKER)[0]["hold"]
        said, _ = accountant.settle("d", hold["id"], {"used": [5, 0]}, MAKER)
        assert (said["used"], said["held"]) == ([5, 0], [12, 8])
        assert accountant.odometer("d", scope="group/sweep")["totals"]["pure"] == 2.5
        assert accountant.odometer("d")["held"]["pure"] == 0


def test_what_is_held_is_spent_at_once_and_what_was_not_used_fits_again() -> None:
    with limited(PURE) as accountant:
        hold = accountant.hold("d", {**HALF, "count": 10, "expires_in_s": 60}, "h", MAKER)[0]["hold"]
        with pytest.raises(BudgetExceeded):
            accountant.charge("d", {**HALF, "count": 1}, "k", "ben")
        accountant.settle("d", hold["id"], {"used": 7}, MAKER)
        with pytest.raises(BudgetExceeded):
            accountant.charge("d", {**HALF, "count": 4}, "k", "ben")
        accountant.charge("d", {**HALF, "count": 3}, "k", "ben")


@pytest.mark.parametrize("hours", [0, 1, 2])
def test_what_was_not_used_comes_back_to_the_window_that_lasts_and_the_rest_counts_in_it(hours: int) -> None:
    clock = Clock()
    hourly = {"name": "hourly", "kind": "pure", "epsilon": 2, "window": "hour"}
    with limited({**PURE, "epsilon": 100}, hourly, clock=clock) as accountant:
        hold = accountant.hold("d", {**HALF, "count": 4, "expires_in_s": 9999}, "h", MAKER)[0]["hold"]
        clock.now += timedelta(hours=hours)
        with pytest.raises(BudgetExceeded, match="hourly"):
            accountant.charge("d", {**HALF, "count": 1}, "before", MAKER)
        accountant.settle("d", hold["id"], {"used": 1}, MAKER)
        with pytest.raises(BudgetExceeded, match="hourly"):
            accountant.charge("d", {**HALF, "count": 4}, "more", MAKER)
        accountant.charge("d", {**HALF, "count": 3}, "more", MAKER)


def test_a_closed_datasets_holds_can_be_settled_and_no_more_can_be_made() -> None:
    with limited(PURE) as accountant:
        hold = accountant.hold("d", {**HALF, "count": 10, "expires_in_s": 60}, "h", MAKER)[0]["hold"]
        accountant.close_dataset("d", "root")
        accountant.settle("d", hold["id"], {"used": 1}, MAKER)
        assert accountant.odometer("d")["totals"]["pure"] == 0.5
        with pytest.raises(DatasetClosed):
            accountant.hold("d", {**HALF, "count": 1, "expires_in_s": 60}, "more", MAKER)


def test_once_by_its_maker_or_an_admin_and_for_no_more_than_was_held() -> None:
    with limited(PURE) as accountant:
        hold = accountant.hold("d", {**HALF, "count": 3, "expires_in_s": 60}, "h", MAKER)[0]["hold"]["id"]
        before = counts(accountant)
        with pytest.raises(Forbidden):
            accountant.settle("d", hold, {"used": 0}, "ben")
        for used in (4, [1, 1], [4]):
            with pytest.raises(InvalidRequest):
                accountant.settle("d", hold, {"used": used}, MAKER)
        mark = hold.partition(".")[2]
        unknowns = (f"1.{mark}", f"3.{mark}", f"999.{mark}", f"0000-2.{mark}", "2.00000000", "x")
        # Without its hash a number could be that of another hold, after entries were lost.
        for unknown in (*unknowns, "2", "2.", f"2.{mark[:7]}", f"2.{mark.upper()}x"):
            with pytest.raises(UnknownHold):
                accountant.settle("d", unknown, {"used": 0}, MAKER)
        assert counts(accountant) == before
        said, replayed = accountant.settle("d", hold, {"used": 1}, Caller("root", admin=True))
        assert not replayed
        again, replayed = accountant.settle("d", hold, {"used": [1]}, MAKER)
        assert replayed
        assert again["sequence"] == said["sequence"]
        after = counts(accountant)
        for used in (0, 2):
            with pytest.raises(HoldSettled):
                accountant.settle("d", hold, {"used": used}, MAKER)
        assert counts(accountant) == after


def test_past_its_end_it_is_spent_for_good_but_its_settlement_is_answered_again() -> None:
    clock = Clock()
    with limited(PURE, clock=clock) as accountant:
        holds = [
            accountant.hold("d", {**HALF, "count": 2, "expires_in_s": 60}, key, MAKER)[0]["hold"]["id"]
            for key in ("one", "two")
        ]
        clock.now += timedelta(seconds=60)  # its last moment
        accountant.settle("d", holds[0], {"used": 1}, MAKER)
        clock.now += timedelta(microseconds=1)
        with pytest.raises(HoldExpired):
            accountant.settle("d", holds[1], {"used": 1}, MAKER)
        assert accountant.settle("d", holds[0], {"used": 1}, MAKER)[1]
        assert accountant.holds("d")["items"] == []
        assert accountant.odometer("d")["totals"]["pure"] == 1.5
        clock.now -= timedelta(hours=1)  # a clock that steps back does not bring it back
        accountant.charge("d", {**HALF, "count": 1}, "k", MAKER)


def test_the_ledgers_time_ends_a_hold_whatever_the_clock_says() -> None:
    clock = Clock()
    with limited(PURE, clock=clock) as accountant:
        hold = accountant.hold("d", {**HALF, "count": 2, "expires_in_s": 60}, "h", MAKER)[0]["hold"]["id"]
        clock.now += timedelta(seconds=61)
        accountant.charge("d", {**HALF, "count": 1}, "k", MAKER)
        clock.now -= timedelta(seconds=61)
        with pytest.raises(HoldExpired):
            accountant.settle("d", hold, {"used": 0}, MAKER)


def test_a_hold_and_a_charge_do_not_share_a_key() -> None:
    with limited(PURE) as accountant:
        accountant.hold("d", {**HALF, "count": 1, "expires_in_s": 60}, "k", MAKER)
        with pytest.raises(KeyReused):
            accountant.charge("d", {**HALF, "count": 1}, "k", MAKER)
        with pytest.raises(KeyReused):
            accountant.hold("d", {**HALF, "count": 1, "expires_in_s": 61}, "k", MAKER)
        assert accountant.hold("d", {**HALF, "count": 1, "expires_in_s": 60}, "k", MAKER)[1]


def test_a_settlement_carries_the_checkpoint_where_its_number_asks_for_one() -> None:
    with limited() as accountant:
        accountant.charge("d", {**HALF, "count": 1}, "first", MAKER)
        for number in range(CHECKPOINT_EVERY // 2 - 1):
            hold = accountant.hold("d", {**HALF, "count": 2, "expires_in_s": 60}, f"{number}", MAKER)[0]
            accountant.settle("d", hold["hold"]["id"], {"used": 1}, MAKER)
        rows = accountant.store.entries("d", 0, 1000)
        entry = json.loads(rows[CHECKPOINT_EVERY - 1].body)
        assert (entry["type"], entry["totals"].encode()) == ("settled", counts(accountant)["totals/dataset"])
        assert [one for verdict in verify(accountant.store) for one in verdict.findings] == []
        entry["totals"] = "1" + entry["totals"]
        body = canonical(entry)
        with pytest.raises(LedgerCorrupt, match="checkpoint"):
            fold([*((row.hash, row.body) for row in rows[:-1]), (entry_hash(body), body)])


def test_a_stream_has_only_so_many_open_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A settled or an expired one makes room."""
    monkeypatch.setattr(charges, "HOLDS_MAX", 2)
    clock = Clock()

    def hold(key: str, seconds: int = 3600) -> str:
        body = {**HALF, "count": 1, "expires_in_s": seconds}
        return str(accountant.hold("d", body, key, MAKER)[0]["hold"]["id"])

    with limited(clock=clock) as accountant:
        first = hold("1")
        hold("2", 60)
        with pytest.raises(TooManyHolds):
            hold("3")
        accountant.charge("d", {**HALF, "count": 1}, "charge", MAKER)
        accountant.settle("d", first, {"used": 1}, MAKER)
        hold("3")
        with pytest.raises(TooManyHolds):
            hold("4")
        clock.now += timedelta(seconds=61)
        hold("4")
        assert len(accountant.holds("d")["items"]) == 2


def test_a_settlement_computed_higher_than_the_hold_gives_nothing_back_and_takes_nothing_more() -> None:
    """Another version of the service may have a looser bound than the one that made the hold."""
    with limited() as accountant:
        accountant.hold("d", {**HALF, "count": 2, "expires_in_s": 60}, "h", MAKER)
        rows = accountant.store.entries("d", 0, 10)
    state = fold((row.hash, row.body) for row in rows)
    assert state is not None
    higher = (state.spent.scaled(3),)
    given = DecisionInput(state.time, state.time, None, rows[1])
    outcome = settle(state, SettleCommand(2, (1,), higher, "ada"), given)
    assert isinstance(outcome, Admitted)
    assert outcome.state.spent == state.spent


def test_at_its_last_moment_it_can_be_settled_though_others_are_made_then() -> None:
    clock = Clock()
    with limited(clock=clock) as accountant:
        body = {**HALF, "count": 2, "expires_in_s": 60}
        first = accountant.hold("d", body, "1", MAKER)[0]["hold"]["id"]
        clock.now += timedelta(seconds=60)
        accountant.hold("d", body, "2", MAKER)
        accountant.settle("d", first, {"used": 0}, MAKER)


def test_a_hold_that_expired_stays_so_when_the_clock_goes_back() -> None:
    """Also where nothing was written in between: the ledger's time never goes back while it is asked."""
    clock = Clock()
    with limited(PURE, clock=clock) as accountant:
        hold = accountant.hold("d", {**HALF, "count": 1, "expires_in_s": 60}, "h", MAKER)[0]["hold"]
        clock.now += timedelta(seconds=61)
        with pytest.raises(HoldExpired):
            accountant.settle("d", hold["id"], {"used": 0}, MAKER)
        clock.now -= timedelta(seconds=30)
        with pytest.raises(HoldExpired):
            accountant.settle("d", hold["id"], {"used": 0}, MAKER)
        assert accountant.holds("d")["items"] == []
