"""`verify` finds budgets of any scope exceeded, holds misused, shards led astray; and reads format 1."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from odometer_accountant.errors import BudgetExceeded, LedgerCorrupt
from odometer_accountant.ledger.commands import Caller
from odometer_accountant.ledger.entries import canonical, entry_hash
from odometer_accountant.ledger.fold import fold
from odometer_accountant.numerics.grid import CURRENT_GRID
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.scopes import shard_of, shard_stream
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores import EMPTY_HEAD, NewEntry, Store, Write
from odometer_accountant.stores.memory import MemoryStore
from odometer_accountant.verify.walk import verify

GAUSSIAN = {"kind": "gaussian", "noise_multiplier": 50.5}
LIFE = {"name": "life", "kind": "approximate", "epsilon": 3, "delta": 1e-6}
OPENED = {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-6}


def rewritten(store: Store, stream: str, change: Callable[[list[dict[str, Any]]], None]) -> MemoryStore:
    """The same ledger with other entries in one stream, and everything else made right by them."""
    made = MemoryStore()
    for name in store.streams("", 100):
        rows = store.entries(name, 0, 1000)
        entries = [json.loads(row.body) for row in rows]
        if name == stream:
            change(entries)
        previous, new, sealed = "", [], []
        for number, entry in enumerate(entries, 1):
            body = canonical({**entry, "seq": number, "prev": previous} if name == stream else entry)
            previous = entry_hash(body)
            key = None
            if entry["type"] in ("charged", "held"):
                key = f"{entry.get('by', entry['principal'])}/{entry['key']}"
            elif entry["type"] == "settled":
                key = f"~settled/{entry['hold']}"
            new.append(NewEntry(previous, body, key))
            sealed.append((previous, body))
        state = fold(sealed)
        assert state is not None
        made.append([Write(name, EMPTY_HEAD, new, state.blobs())])
    return made


def found(store: Store) -> list[tuple[str, int | None, str | None]]:
    """(stream, sequence, scope) of each finding."""
    return [(one.stream, one.sequence, one.scope) for verdict in verify(store) for one in verdict.findings]


ONE = {"mechanism": {"kind": "zcdp", "rho": 0.5}, "count": 1}
RED = Caller("ada", "red")
WIDE: dict[str, dict[str, Any]] = {
    "dataset": {},
    "principal/*": {"scope": "principal/*"},
    "principal/ada": {"scope": "principal/ada"},
    "team/red": {"scope": "team/red"},
    "group/sweep": {"scope": "group/sweep"},
    "dataset, a day": {"window": "day"},
    "principal/*, an hour": {"scope": "principal/*", "window": "hour"},
    "partition/*": {"scope": "partition/*"},
    "partition/eu": {"scope": "partition/eu"},
    "partition/*, a month": {"scope": "partition/*", "window": "month"},
}


def wide_open(composition: str, scopes: Sequence[str]) -> Accountant:
    """A dataset with room for everything, and one charge of team red on it."""
    accountant = Accountant(MemoryStore())
    budgets = [
        {"name": f"b{place}", "kind": "zcdp", "rho": 1000.0, **WIDE[scope]}
        for place, scope in enumerate(scopes)
    ]
    parted = {"composition": composition, "partitions": ["eu", "us"]} if composition != "sequential" else {}
    accountant.create_dataset({**OPENED, "budgets": budgets, **parted}, "root")
    where = {"partitions": ["eu"]} if parted else {}
    accountant.charge("d", {**ONE, **where, "group": {"name": "sweep", "runs": 1}}, "k", RED)
    return accountant


@pytest.mark.parametrize("scope", WIDE)
def test_a_charge_above_any_one_budget_is_found(scope: str) -> None:
    """Of a principal, a team, a group, a partition, within a window: that budget, and no other."""
    parted = "partition" in scope
    scopes = [one for one in WIDE if parted or "partition" not in one]
    accountant = wide_open("by_partition" if parted else "sequential", scopes)

    def shrink(entries: list[dict[str, Any]]) -> None:
        entries[0]["budgets"][f"b{scopes.index(scope)}"]["budget"]["rho"] = "0.4"

    assert found(accountant.store) == []
    due = scope.partition(",")[0].replace("*", "eu" if parted else "ada")
    assert found(rewritten(accountant.store, "d", shrink)) == [("d", 2, due)]
    accountant.close()


def test_a_charge_out_of_another_teams_share_is_found() -> None:
    accountant = wide_open("sequential", ["dataset"])

    def reserve(entries: list[dict[str, Any]]) -> None:
        entries[0]["budgets"]["b0"]["budget"] |= {"rho": "1.0", "reserved": {"blue": "0.6"}}

    (verdict,) = verify(rewritten(accountant.store, "d", reserve))
    assert [finding.sequence for finding in verdict.findings] == [2]
    assert "kept it for other teams" in verdict.findings[0].what
    accountant.close()


def overwritten(
    store: MemoryStore, name: str, value: bytes | None
) -> list[tuple[str, int | None, str | None]]:
    """What is found once a blob of the dataset was replaced, or deleted."""
    blobs = store._streams["d"].blobs
    before = blobs.pop(name)
    if value is not None:
        assert value != before
        blobs[name] = value
    places = found(store)
    blobs[name] = before
    assert found(store) == []
    return places


def test_a_window_count_that_was_lowered_or_lost_is_found() -> None:
    accountant = wide_open("sequential", list(WIDE)[:7])
    name = "window/principal/ada@hour"
    hour, _, line = accountant.store.load("d", [name])[1][name].decode().partition(" ")
    loss = Loss.decode(CURRENT_GRID, line)
    half = Loss(CURRENT_GRID, tuple(value // 2 for value in loss.values), loss.unbounded).encode()
    for value in (f"{hour} {half}".encode(), f"2001-01-01T00 {line}".encode(), b"", None):
        assert overwritten(accountant.store, name, value) == [("d", 2, "principal/ada@hour")]
    accountant.close()


def test_a_changed_list_of_open_holds_is_found() -> None:
    accountant = Accountant(MemoryStore())
    accountant.create_dataset({**OPENED, "budgets": [LIFE]}, "root")
    accountant.hold("d", {"mechanism": GAUSSIAN, "count": 2, "expires_in_s": 60}, "h", "ada")
    for value in (b'{"2":"2999-01-01T00:00:00.000000Z"}', b"{}", None):
        assert overwritten(accountant.store, "holds", value) == [("d", None, "holds")]
    accountant.close()


def held_and_settled(used: int = 1) -> Accountant:
    """Entry 2 holds five releases, entry 3 settles it."""
    accountant = Accountant(MemoryStore())
    accountant.create_dataset({**OPENED, "budgets": [LIFE]}, "root")
    held, _ = accountant.hold("d", {"mechanism": GAUSSIAN, "count": 5, "expires_in_s": 60}, "h", RED)
    accountant.settle("d", held["hold"]["id"], {"used": used}, RED)
    return accountant


def cheaper(entries: list[dict[str, Any]]) -> None:
    entries[2]["losses"] = [Loss.zero(CURRENT_GRID).encode()]


def more_than_held(entries: list[dict[str, Any]]) -> None:
    entries[2]["used"] = [6]


@pytest.mark.parametrize("change", [cheaper, more_than_held])
def test_a_settlement_that_gives_back_too_much_is_found(change: Any) -> None:
    accountant = held_and_settled()
    assert found(accountant.store) == []
    assert ("d", 3, None) in found(rewritten(accountant.store, "d", change))
    accountant.close()


def test_a_hold_settled_twice_is_found() -> None:
    accountant = held_and_settled()
    head, _ = accountant.store.load("d", [])
    entry = json.loads(accountant.store.entries("d", 2, 1)[0].body)
    body = canonical({**entry, "seq": 4, "prev": head.hash})
    accountant.store.append([Write("d", head, [NewEntry(entry_hash(body), body)])])
    (verdict,) = verify(accountant.store)
    assert "settles hold 2, which was not open" in verdict.findings[0].what
    accountant.close()


def test_a_settlement_that_says_other_things_than_its_hold_is_found() -> None:
    """It is counted by what it repeats: another team's, another window's total would go down."""
    accountant = held_and_settled()
    accountant.charge("d", {"mechanism": GAUSSIAN, "count": 9}, "blue", Caller("ben", "blue"))

    def other(entries: list[dict[str, Any]]) -> None:
        entries[2], entries[3] = entries[3], entries[2]
        entries[2]["time"] = entries[3]["time"]
        entries[3]["held"] |= {"team": "blue", "principal": "ben"}

    store = rewritten(accountant.store, "d", other)
    assert [one.what for verdict in verify(store) for one in verdict.findings] == [
        "says other things of hold 2 than its entry"
    ]
    accountant.close()


def test_a_settlement_after_the_end_of_its_hold_is_found() -> None:
    now = ["2026-11-30T10:00:00.000000Z"]
    accountant = Accountant(MemoryStore(), lambda: now[0])
    accountant.create_dataset({**OPENED, "budgets": [LIFE]}, "root")
    held, _ = accountant.hold("d", {"mechanism": GAUSSIAN, "count": 5, "expires_in_s": 60}, "h", RED)
    now[0] = "2026-11-30T10:01:00.000000Z"
    accountant.settle("d", held["hold"]["id"], {"used": 1}, RED)
    assert found(accountant.store) == []
    row = accountant.store.entries("d", 2, 1)[0]
    entry = json.loads(row.body)
    entry["time"] = "2026-11-30T10:01:00.000001Z"
    body = canonical(entry)
    with pytest.raises(LedgerCorrupt, match="which had expired"):
        fold([*((r.hash, r.body) for r in accountant.store.entries("d", 0, 2)), (entry_hash(body), body)])
    accountant.close()


def test_a_hold_that_says_that_it_was_counted_in_other_windows_is_found() -> None:
    """Its settlement would give back to a window what was never in it."""
    accountant = Accountant(MemoryStore())
    daily = {"name": "daily", "kind": "zcdp", "rho": 1, "window": "day"}
    accountant.create_dataset({**OPENED, "budgets": [LIFE, daily]}, "root")
    accountant.hold("d", {"mechanism": GAUSSIAN, "count": 5, "expires_in_s": 60}, "h", RED)
    first, second = accountant.store.entries("d", 0, 2)
    entry = json.loads(second.body)
    for said in ({}, {"dataset@day": "2001-01-01"}):
        body = canonical({**entry, "windows": said})
        with pytest.raises(LedgerCorrupt, match="other windows"):
            fold([(first.hash, first.body), (entry_hash(body), body)])
    accountant.close()


def what_is_open() -> Accountant:
    """A hold and a session are open when a budget by window is set: entry 6 says so, 7 ends the session."""
    accountant = Accountant(MemoryStore())
    accountant.create_dataset({**OPENED, "budgets": [LIFE]}, "root")
    accountant.hold("d", {"mechanism": GAUSSIAN, "count": 5, "expires_in_s": 900_000}, "h", RED)
    sparse = {"kind": "sparse_vector", "epsilon_threshold": 0.01, "epsilon_answers": 0.01, "max_above": 9}
    session = accountant.open_session("d", {"session": sparse}, "s", RED)[0]["session"]["id"]
    accountant.answer_session("d", session, {"above": True}, "a", RED)
    accountant.add_budget("d", {"name": "day", "kind": "zcdp", "rho": 1, "window": "day"}, "root")
    accountant.close_session("d", session, RED)
    return accountant


def without_a_hold(entries: list[dict[str, Any]]) -> None:
    entries[5]["holds"] = {}


def without_a_session(entries: list[dict[str, Any]]) -> None:
    entries[5]["sessions"] = {}


def a_hold_of_less(entries: list[dict[str, Any]]) -> None:
    entries[5]["holds"]["2"]["losses"] = [Loss.zero(CURRENT_GRID).encode()]


def a_hold_of_less_time(entries: list[dict[str, Any]]) -> None:
    entries[5]["holds"]["2"]["expires"] = entries[1]["time"]


def a_session_of_less(entries: list[dict[str, Any]]) -> None:
    entries[5]["sessions"]["3"]["losses"] = entries[2]["losses"]  # one run, where two were paid


def of_somebody_else(entries: list[dict[str, Any]]) -> None:
    entries[5]["sessions"]["3"]["principal"] = "ben"


@pytest.mark.parametrize(
    "change",
    [
        without_a_hold,
        without_a_session,
        a_hold_of_less,
        a_hold_of_less_time,
        a_session_of_less,
        of_somebody_else,
    ],
)
def test_an_entry_that_says_less_than_is_open_is_found(change: Any) -> None:
    accountant = what_is_open()
    assert found(accountant.store) == []
    assert ("d", 6, None) in found(rewritten(accountant.store, "d", change))
    accountant.close()


def ends_another(entries: list[dict[str, Any]]) -> None:
    entries[6]["opened"]["team"] = "blue"


def test_the_end_of_a_session_that_is_said_of_others_is_found() -> None:
    accountant = what_is_open()
    assert ("d", 7, None) in found(rewritten(accountant.store, "d", ends_another))
    accountant.close()


def earlier_format(entries: list[dict[str, Any]]) -> None:
    entries[2]["v"] = 3


def test_a_hold_that_windows_do_not_count_as_open_is_found() -> None:
    """Written by a worker that should have refused, or changed since."""
    accountant = Accountant(MemoryStore())
    daily = {"name": "daily", "kind": "zcdp", "rho": 9, "window": "day"}
    accountant.create_dataset({**OPENED, "budgets": [LIFE, daily]}, "root")
    for key in ("one", "two"):
        accountant.hold("d", {"mechanism": GAUSSIAN, "count": 5, "expires_in_s": 90_000}, key, RED)
    assert found(accountant.store) == []
    assert ("d", 3, None) in found(rewritten(accountant.store, "d", earlier_format))
    accountant.close()


def by_unit() -> Accountant:
    """A dataset of two shards; each keeps one of two units, charged before and after its budget changed."""
    accountant = Accountant(MemoryStore())
    budget = {"name": "each", "kind": "zcdp", "rho": 1.0, "scope": "unit/*"}
    by_unit_ = {"composition": "by_unit", "shards": 2, "budgets": [budget]}
    accountant.create_dataset({**OPENED, **by_unit_}, "root")
    accountant.charge("d", {**ONE, "units": [FIRST]}, "one", "ada")
    accountant.change_budget("d", "each", {**budget, "rho": 0.5}, '"v1"', "root")
    accountant.charge("d", {**ONE, "units": [SECOND]}, "two", "ada")
    accountant.charge("d", {**ONE, "mechanism": {"kind": "zcdp", "rho": 1e-3}, "units": [THIRD]}, "x", "ada")
    return accountant


FIRST, THIRD = [f"u{n}" for n in range(20) if shard_of(f"u{n}", 2) == 0][:2]
SECOND = next(f"u{n}" for n in range(20) if shard_of(f"u{n}", 2) == 1)
SHARD = shard_stream("d", 0)


def raised(entries: list[dict[str, Any]]) -> None:
    """The second budgets of shard 0 are wider than any that the dataset had."""
    entries[2]["budgets"]["each"]["budget"]["rho"] = "7.0"


def backwards(entries: list[dict[str, Any]]) -> None:
    """Shard 0 follows its dataset, and then goes back to the wider budgets of before."""
    entries.insert(3, {**entries[2], "budgets": entries[0]["budgets"]})


def elsewhere(entries: list[dict[str, Any]]) -> None:
    entries[0]["dataset"]["unit"] = "household"


@pytest.mark.parametrize(
    ("change", "at"), [(raised, 3), (backwards, 4), (elsewhere, 1)], ids=["raised", "backwards", "elsewhere"]
)
def test_a_shard_with_other_budgets_than_its_dataset_had_is_found(change: Any, at: int) -> None:
    accountant = by_unit()
    assert found(accountant.store) == []
    assert found(rewritten(accountant.store, SHARD, change)) == [(SHARD, at, None)]
    accountant.close()


def test_a_unit_charged_in_a_shard_that_is_not_its_own_is_found() -> None:
    """It would have a second odometer."""
    accountant = by_unit()

    def move(entries: list[dict[str, Any]]) -> None:
        entries[1]["command"]["units"] = [SECOND]

    assert found(rewritten(accountant.store, SHARD, move)) == [(SHARD, 2, f"unit/{SECOND}")]
    accountant.close()


def test_a_unit_above_its_budget_is_found() -> None:
    accountant = by_unit()

    def again(entries: list[dict[str, Any]]) -> None:
        entries[3]["command"]["units"] = [FIRST]

    assert found(rewritten(accountant.store, SHARD, again)) == [(SHARD, 4, f"unit/{FIRST}")]
    accountant.close()


# -- format 1 and 2


def written(file: str) -> MemoryStore:
    """A ledger as an earlier service wrote it, byte for byte."""
    store, entries, blobs = MemoryStore(), [], {}
    for line in (Path(__file__).parents[1] / "golden" / "ledger" / file).read_text().splitlines():
        what, name, rest = line.split(" ", 2)
        if what == "blob":
            blobs[name] = rest.encode()
        else:
            digest, _, body = rest.partition(" ")
            entries.append(NewEntry(digest, body.encode(), None if name == "-" else name))
    store.append([Write("d", EMPTY_HEAD, entries, blobs)])
    return store


@pytest.fixture
def old() -> Iterator[Accountant]:
    """A ledger as the service wrote it before there were windows, holds and partitions."""
    with Accountant(written("format_1.txt")) as accountant:
        yield accountant


@pytest.fixture
def second() -> Iterator[Accountant]:
    """A ledger as the service wrote it before there were entries of what was derived."""
    # Its holds expire in 2027.
    with Accountant(written("format_2.txt"), lambda: "2026-03-02T10:00:00.000000Z") as accountant:
        yield accountant


def test_a_ledger_of_format_2_verifies(second: Accountant) -> None:
    assert found(second.store) == []


def test_a_ledger_of_format_2_goes_on(second: Accountant) -> None:
    """Charges are answered again, its open hold can be settled, and what is new can be used.

    It has a budget by window and something open: entry 9 says what, before anything else is decided.
    """
    gaussian = {"mechanism": {"kind": "gaussian", "noise_multiplier": 3.0}, "count": 1}
    assert second.charge("d", gaussian | {"partitions": ["eu"]}, "k1", RED)[1]
    hold = f"7.{second.store.entries('d', 6, 1)[0].hash[:8]}"
    second.settle("d", hold, {"used": 0}, "bob")
    assert second.charge("d", gaussian | {"partitions": ["eu"]}, "k5", RED)[0]["sequence"] == 11
    assert second.derive("d", {"parent": 2, "description": "a histogram"}, "k6", "ada")[0]["sequence"] == 12
    assert found(second.store) == []


def test_a_ledger_of_format_1_verifies(old: Accountant) -> None:
    assert found(old.store) == []


def test_a_raised_limit_in_a_configuration_of_format_1_is_found(old: Accountant) -> None:
    head, blobs = old.store.load("d", ["config"])
    raised_ = blobs["config"].replace(b'"rho":"0.75"', b'"rho":"9.75"')
    old.store.append([Write("d", head, [], {"config": raised_})])
    assert found(old.store) == [("d", None, "config")]


def test_a_ledger_of_format_1_goes_on(old: Accountant) -> None:
    """What was charged is answered again, what is left is kept, and all that is new can be used."""
    gaussian = {"kind": "gaussian", "noise_multiplier": 2.0}
    receipt, replayed = old.charge("d", {"mechanism": gaussian, "count": 2}, "k1", "ada")
    assert (receipt["sequence"], replayed) == (2, True)
    with pytest.raises(BudgetExceeded):  # 0.4038 of 0.75 is spent
        old.charge("d", {"mechanism": {"kind": "zcdp", "rho": 0.347}, "count": 1}, "k3", "ada")
    daily = {"name": "daily", "kind": "zcdp", "rho": 0.2, "window": "day", "scope": "principal/*"}
    old.add_budget("d", daily, "root")
    hold = old.hold("d", {"mechanism": gaussian, "count": 1, "expires_in_s": 60}, "k4", RED)[0]["hold"]
    old.settle("d", hold["id"], {"used": 0}, RED)
    assert old.charge("d", {"mechanism": gaussian, "count": 1}, "k5", RED)[0]["sequence"] == 8
    assert found(old.store) == []
