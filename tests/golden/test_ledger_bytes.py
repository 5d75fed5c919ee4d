"""A ledger that an earlier version wrote opens, answers its old keys, charges on and verifies."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from odometer_accountant.errors import UpgradeNeeded
from odometer_accountant.ledger.entries import LATEST, canonical, entry_hash
from odometer_accountant.ledger.fold import apply, fold
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.service.api_keys import KeyRing
from odometer_accountant.stores import Head, NewEntry, Store, Write
from odometer_accountant.stores.memory import MemoryStore
from odometer_accountant.verify.walk import verify
from tests.golden.ledger.drive import ADA, CALLERS, GAUSSIAN, Clock
from tests.golden.ledger.opened import calls, lines, restore

FILE = "format_3.txt"
DATASETS = ("counted", "parts", "phones", "plain", "strict", "trained")
ENTRY_TYPES = {
    *("opened", "charged", "held", "settled", "budget_set", "partitions_added", "closed", "derived"),
    *("frozen", "unfrozen", "session_closed", "shard_opened", "synced", "key_created", "key_revoked"),
}
BLOBS = {"config", "holds", "lexicon", "sessions", "totals", "window"}


@pytest.fixture
def store() -> Store:
    return restore(FILE, MemoryStore())


@pytest.fixture
def clock() -> Clock:
    return Clock("2026-03-02T09:00:00.000000Z")


@pytest.fixture
def accountant(store: Store, clock: Clock) -> Iterator[Accountant]:
    with Accountant(store, clock) as found:
        yield found


def entries(stream: str | None = None) -> list[dict[str, Any]]:
    found, here = [], ""
    for line in lines(FILE):
        what, _, rest = line.partition(" ")
        here = rest if what == "stream" else here
        if what == "entry" and stream in (None, here):
            found.append(json.loads(rest.split(" ", 2)[2]))
    return found


def test_it_has_every_type_of_entry_and_blob() -> None:
    """The net has no hole: what the format can say is in it."""
    assert {entry["type"] for entry in entries()} == ENTRY_TYPES
    assert {line.split(" ")[1].partition("/")[0] for line in lines(FILE) if line.startswith("blob ")} == BLOBS


def test_the_bytes_of_entries_are_canonical() -> None:
    """What is read and written again is the same bytes under the same hash."""
    for line in lines(FILE):
        if line.startswith("entry "):
            _, digest, body = line.removeprefix("entry ").split(" ", 2)
            assert canonical(json.loads(body)) == body.encode("ascii")
            assert entry_hash(body.encode("ascii")) == digest


@pytest.mark.parametrize("name", DATASETS)
def test_its_entries_fold_to_what_is_shown(accountant: Accountant, store: Store, name: str) -> None:
    """The state that the entries fold to is the one that is read beside them."""
    rows = [(row.hash, row.body) for row in store.entries(name, 0, 1000)]
    state = fold(rows)
    assert state is not None
    shown = accountant.state(name)
    assert (shown.head, shown.config(), shown.holds, shown.sessions) == (
        state.head,
        state.config(),
        state.holds,
        state.sessions,
    )
    assert all(state.totals.of(scope) == loss for scope, loss in shown.totals.life.items())


def test_it_verifies(store: Store) -> None:
    assert [finding for verdict in verify(store) for finding in verdict.findings] == []


def keyed() -> list[dict[str, Any]]:
    return [call for call in calls(FILE) if call["method"] in ("charge", "derive", "settle")]


@pytest.mark.parametrize("call", keyed(), ids=lambda call: f"{call['method']}-{call['arguments'][2]}")
def test_its_keys_are_answered(accountant: Accountant, call: dict[str, Any]) -> None:
    """A reply that was lost before an upgrade is given after it, also for what is refused by now."""
    answer, replayed = getattr(accountant, call["method"])(*call["arguments"], CALLERS[call["who"]])
    assert replayed
    assert (answer["sequence"], answer["hash"]) == (call["said"]["sequence"], call["said"]["hash"])


@pytest.mark.parametrize("name", ["counted", "parts", "plain", "strict"])
def test_it_charges_on(accountant: Accountant, store: Store, name: str) -> None:
    """New charges are added to what was spent, and the whole verifies."""
    before = accountant.state(name).head.sequence
    body: dict[str, Any] = {"mechanism": {"kind": "pure", "epsilon": 0.01}, "count": 1}
    if name == "parts":
        body |= {"mechanism": GAUSSIAN, "partitions": ["eu"]}
    assert accountant.charge(name, body, "new", ADA)[0]["sequence"] > before
    assert [finding for verdict in verify(store) for finding in verdict.findings] == []


def test_a_unit_is_charged_on(accountant: Accountant, store: Store) -> None:
    """Shards go on too; what a unit has spent still counts."""
    answer = {"kind": "randomized_response", "epsilon": 0.5, "k": 2}
    accountant.charge("phones", {"mechanism": answer, "count": 4, "units": ["phone-1"]}, "new", ADA)
    assert [finding for verdict in verify(store) for finding in verdict.findings] == []


def test_an_open_hold_is_settled(accountant: Accountant, store: Store) -> None:
    """A hold of before the upgrade is settled after it."""
    hold = accountant.holds("plain")["items"][0]
    assert accountant.settle("plain", hold["id"], {"used": 1}, ADA)[0]["used"] == [1]
    assert [finding for verdict in verify(store) for finding in verdict.findings] == []


def test_an_open_session_goes_on(accountant: Accountant, store: Store) -> None:
    """A session of before the upgrade takes its next answer after it."""
    session = accountant.sessions("plain")["items"][0]["id"]
    accountant.answer_session("plain", session, {"above": True}, "a2", ADA)
    assert [finding for verdict in verify(store) for finding in verdict.findings] == []


def test_its_keys_open(store: Store) -> None:
    """The key ring reads them: two of one name, one revoked."""
    found = KeyRing(store).keys()
    assert [(key["role"], key["name"], key["revoked"]) for key in found] == [
        ("admin", None, False),
        ("reader", "ann", False),
        ("charger", "ann", True),
        ("charger", None, False),
    ]


def later(stream: str, store: Store) -> None:
    """Append what a later version might: an entry of a format that this one does not know."""
    head, _ = store.load(stream, [])
    body = canonical(
        {"type": "new", "v": LATEST + 1, "seq": head.sequence + 1, "prev": head.hash, "time": "2026-03-02"}
    )
    assert store.append([Write(stream, head, [NewEntry(entry_hash(body), body)])]) == [True]


def test_an_entry_of_a_later_format_is_not_damage(store: Store, clock: Clock) -> None:
    """A worker that was not upgraded says so, charges nothing there, and goes on elsewhere."""
    later("plain", store)
    with Accountant(store, clock) as accountant:
        body = {"mechanism": GAUSSIAN, "count": 1}
        with pytest.raises(UpgradeNeeded, match="upgrade this worker"):
            accountant.charge("plain", body, "new", ADA)
        with pytest.raises(UpgradeNeeded):
            accountant.odometer("plain")
        accountant.charge("counted", body, "new", ADA)


def test_a_key_record_of_a_later_format_is_not_damage(store: Store) -> None:
    """Nor is it in the stream of keys."""
    later("~keys", store)
    with pytest.raises(UpgradeNeeded):
        KeyRing(store)


def test_a_configuration_of_a_later_format_is_not_damage(store: Store, clock: Clock) -> None:
    """Entries after a later one may be of an early format: the configuration keeps the latest."""
    head, blobs = store.load("plain", ["config"])
    config = canonical({**json.loads(blobs["config"]), "format": LATEST + 1})
    store.append([Write("plain", head, [], {"config": config})])
    with Accountant(store, clock) as accountant, pytest.raises(UpgradeNeeded):
        accountant.odometer("plain")


def test_the_latest_format_is_kept_in_the_configuration(store: Store) -> None:
    """An entry of format 4 marks its stream, whatever comes after it."""
    state = fold([(row.hash, row.body) for row in store.entries("plain", 0, 1000)])
    assert state is not None
    assert b'"format"' not in state.config()
    budgets, closed = {name: one.document() for name, one in state.budgets.items()}, state.closed
    document = {"type": "synced", "budgets": budgets, "closed": closed, "time": state.time, "principal": "x"}
    body = canonical({**document, "v": 4, "seq": state.head.sequence + 1, "prev": state.head.hash})
    after = apply(state, entry_hash(body), body)
    assert json.loads(after.config())["format"] == 4
    assert after.head == Head(state.head.sequence + 1, entry_hash(body))
