"""A ledger that was exported and imported is the same ledger; what is not whole and sound stays outside."""

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from odometer_accountant.errors import LedgerCorrupt, StoreUnavailable, UnknownDataset
from odometer_accountant.ledger.blobs import CONFIG_BLOB, HOLDS_BLOB, SESSIONS_BLOB, TOTALS, WINDOWS
from odometer_accountant.ledger.checkpoints import CHECKPOINT_EVERY
from odometer_accountant.ledger.commands import Caller, FreezeCommand
from odometer_accountant.ledger.decide import decide
from odometer_accountant.ledger.decisions import Admitted
from odometer_accountant.ledger.entries import canonical, entry_hash
from odometer_accountant.ledger.fold import fold
from odometer_accountant.ledger.snapshot import load_state
from odometer_accountant.numerics.grid import CURRENT_GRID
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.service.api_keys import STREAM, KeyRing, Role
from odometer_accountant.stores import EMPTY_HEAD, Head, NewEntry, Note, Store, Write, open_store
from odometer_accountant.transfer.export import Exported, export
from odometer_accountant.transfer.format import KEYS, MovingRefused
from odometer_accountant.transfer.import_ import Import, Imported, require_empty
from odometer_accountant.verify.walk import all_streams, verify
from tests.support import redis_server
from tests.support.faulty import FaultyStore

GAUSSIAN = {"mechanism": {"kind": "gaussian", "noise_multiplier": 50.5}, "count": 2}
LIFE = {"name": "life", "kind": "zcdp", "rho": 30}
DAILY = {"name": "daily", "kind": "zcdp", "rho": 1, "window": "day", "scope": "principal/*"}
TEAMS = {"name": "teams", "kind": "zcdp", "rho": 40, "reserved": {"red": 0.25}}
ADA = Caller("ada", team="red")
CREATED = "2026-01-01T00:00:00.000000Z"

Line = dict[str, Any]
SVT = {"kind": "sparse_vector", "epsilon_threshold": 0.1, "epsilon_answers": 0.2, "max_above": 3}


def opened(name: str, **more: Any) -> dict[str, Any]:
    document = {"name": name, "unit": "person", "adjacency": "add_remove", "delta": 1e-6, "budgets": [LIFE]}
    return document | more


def fill(store: Store) -> None:
    """A ledger with every type of entry, every composition, API keys and a name."""
    accountant = Accountant(store)
    accountant.create_dataset(opened("people", budgets=[LIFE, DAILY, TEAMS]), "root")
    for index in range(CHECKPOINT_EVERY + 3):
        accountant.charge("people", GAUSSIAN, f"k{index}", ADA if index % 2 else "bob")
    grouped = GAUSSIAN | {"group": {"name": "sweep", "runs": 3}}
    accountant.charge("people", grouped, "sweep", ADA)
    behalf = Caller("job", acts_for=frozenset({"*"}))
    accountant.charge("people", GAUSSIAN | {"principal": "eve"}, "k0", behalf)
    for key in ("open", "settled"):
        receipt, _ = accountant.hold("people", GAUSSIAN | {"expires_in_s": 3600}, key, ADA)
    accountant.settle("people", receipt["hold"]["id"], {"used": 1}, ADA)
    accountant.derive("people", {"parent": 2, "description": "a table"}, "table", ADA)
    for key in ("going-on", "closed"):
        session = accountant.open_session("people", {"session": SVT}, key, ADA)[0]["session"]["id"]
        accountant.answer_session("people", session, {"above": True}, f"{key[:3]}-1", ADA)
    accountant.close_session("people", session, ADA)
    etag = accountant.dataset("people")["budgets"][0]["etag"]
    accountant.change_budget("people", "life", LIFE | {"rho": 35}, etag, "root")
    accountant.add_budget("people", DAILY | {"name": "weekly", "window": "week"}, "root")

    parts = opened("parts", composition="by_partition", partitions=["eu"])
    accountant.create_dataset(parts, "root")
    accountant.add_partitions("parts", {"partitions": ["us"]}, "root")
    accountant.charge("parts", GAUSSIAN | {"partitions": ["eu", "us"]}, "k", ADA)
    accountant.charge("parts", GAUSSIAN | {"partitions": "all"}, "all", ADA)

    units = LIFE | {"scope": "unit/*"}
    accountant.create_dataset(opened("units", composition="by_unit", shards=4, budgets=[units]), "root")
    for unit in ("u1", "u2", "u3", "u4", "u5"):
        accountant.charge("units", GAUSSIAN | {"units": [unit]}, f"k-{unit}", ADA)
    etag = accountant.dataset("units")["budgets"][0]["etag"]
    accountant.change_budget("units", "life", units | {"rho": 20}, etag, "root")
    accountant.charge("units", GAUSSIAN | {"units": ["u1"]}, "synced", ADA)

    accountant.create_dataset(opened("closed"), "root")
    accountant.close_dataset("closed", "root")
    for name in ("frozen", "unfrozen"):
        accountant.create_dataset(opened(name), "root")
        freeze(store, name)
    accountant.unfreeze("unfrozen", {"reason": "looked at it"}, "root")
    accountant.rollback_monitor.close()
    accountant.writer.close()

    ring = KeyRing(store)
    ring.create(Role.admin, "Ada Lovelace", "root", team="red")
    charger, _ = ring.create(Role.charger, None, "root")
    ring.revoke(charger.key, "root")


def freeze(store: Store, name: str) -> None:
    before = load_state(store, name)
    assert before is not None
    frozen = decide(before, FreezeCommand(Head(9, "f" * 64)), None, before.time)
    assert isinstance(frozen, Admitted)
    assert store.append([Write(name, before.head, [frozen.entry], frozen.state.blobs(before))]) == [True]


def exported(store: Store, **options: Any) -> bytes:
    file = io.BytesIO()
    export(store, file, CREATED, **options)
    return file.getvalue()


def imported(file: bytes, store: Store) -> Imported:
    with Import(io.BytesIO(file)) as moved:
        moved.check()
        return moved.write(store)


def refused(file: bytes) -> MovingRefused:
    """Why a file is refused, before anything is written."""
    with Import(io.BytesIO(file)) as moved, pytest.raises(MovingRefused) as caught:
        moved.check()
    return caught.value


def heads(store: Store) -> dict[str, Head]:
    return {name: store.load(name, [])[0] for name in all_streams(store)}


def blobs(store: Store) -> dict[str, dict[str, bytes]]:
    """What follows from the entries; processes keep signs for each other beside it."""
    return {
        stream: {
            name: value
            for name, value in store.blobs(stream, "", "", 10_000)
            if name in (CONFIG_BLOB, HOLDS_BLOB, SESSIONS_BLOB) or name.startswith((TOTALS, WINDOWS))
        }
        for stream in all_streams(store)
    }


def sound(store: Store) -> bool:
    return all(verdict.ok for verdict in verify(store))


def lines(file: bytes) -> list[Line]:
    return [json.loads(line) for line in file.splitlines()]


def joined(documents: list[Line]) -> bytes:
    return b"".join(json.dumps(document, separators=(",", ":")).encode() + b"\n" for document in documents)


def ended(documents: list[Line]) -> bytes:
    """A file of these lines with a last line that is right: counts and hash as somebody would forge them."""
    counts = {
        name: sum(1 for line in documents if next(iter(line)) == kind)
        for name, kind in (("streams", "stream"), ("entries", "entry"), ("notes", "note"))
    }
    body = joined(documents)
    return body + joined([{"end": True, **counts, "sha256": hashlib.sha256(body).hexdigest()}])


def rewritten(documents: list[Line], stream: str, change: Callable[[Line], None]) -> bytes:
    """`change` for every entry of a stream, with every hash made right again, the file's too."""
    previous, inside, start = "", False, 0
    for place, line in enumerate(documents):
        if "stream" in line:
            inside, start = line["stream"] == stream, place
        elif "entry" in line and inside:
            entry = json.loads(line["body"])
            change(entry)
            body = canonical(entry | {"prev": previous})
            previous = entry_hash(body)
            line |= {"hash": previous, "body": body.decode()}
            documents[start]["hash"] = previous
    return ended(documents[:-1])


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A SQLite ledger of everything; tests only read it."""
    with closing(open_store(f"sqlite:///{tmp_path_factory.mktemp('full') / 'ledger.sqlite'}")) as store:
        fill(store)
        yield store


@pytest.fixture(scope="module")
def file(full: Store) -> bytes:
    return exported(full)


@pytest.fixture(scope="module")
def small() -> bytes:
    """A file of few lines: a dataset of three entries, two shards, keys, a name."""
    with Accountant.open("memory://") as accountant:
        accountant.create_dataset(opened("d"), "root")
        for key in ("one", "two"):
            accountant.charge("d", GAUSSIAN, key, ADA)
        units = opened("u", composition="by_unit", shards=2, budgets=[LIFE | {"scope": "unit/*"}])
        accountant.create_dataset(units, "root")
        for unit in ("u1", "u2", "u3", "u4"):
            accountant.charge("u", GAUSSIAN | {"units": [unit]}, unit, ADA)
        KeyRing(accountant.store).create(Role.admin, "Ada L.", "root")
        return exported(accountant.store)


@pytest.fixture
def target() -> Iterator[Store]:
    with closing(open_store("memory://")) as store:
        yield store


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis_server.Server]:
    with redis_server.server(tmp_path_factory.mktemp("redis")) as running:
        yield running


# -- there and back


def test_the_file_holds_every_type_of_entry(file: bytes) -> None:
    bodies = [json.loads(line["body"]) for line in lines(file) if "entry" in line]
    assert {body["type"] for body in bodies} == {
        *("opened", "charged", "held", "settled", "budget_set", "partitions_added", "shard_opened"),
        *("derived", "session_closed", "synced", "closed", "frozen", "unfrozen", "carried"),
        *("key_created", "key_revoked"),
    }


def test_sqlite_to_redis_and_back_is_the_same_ledger(
    full: Store, file: bytes, redis: redis_server.Server, tmp_path: Path
) -> None:
    """Every head, entry, blob, key and note; and the file that comes back is the same to the byte."""
    redis.ask("FLUSHALL")
    with closing(open_store(redis.url)) as there:
        done = imported(file, there)
        assert (heads(there), blobs(there)) == (heads(full), blobs(full))
        assert sound(there)
        back = exported(there)
    assert back == file
    with closing(open_store(f"sqlite:///{tmp_path / 'back.sqlite'}")) as again:
        assert imported(back, again) == done
        assert (heads(again), blobs(again)) == (heads(full), blobs(full))
        assert sound(again)
        assert exported(again) == file


def test_a_retry_gets_its_receipt_and_keys_work_after_the_move(file: bytes, target: Store) -> None:
    imported(file, target)
    with Accountant(target) as accountant:
        receipt, replayed = accountant.charge("people", GAUSSIAN, "k0", "bob")
        assert (receipt["sequence"], replayed) == (2, True)
        behalf = Caller("job", acts_for=frozenset({"*"}))
        assert accountant.charge("people", GAUSSIAN | {"principal": "eve"}, "k0", behalf)[1]
        assert accountant.charge("units", GAUSSIAN | {"units": ["u3"]}, "k-u3", ADA)[1]
        settled = json.loads(target.find("people", ["~settled/136"])["~settled/136"].body)
        opened_hold, settled_hold = (target.entries("people", number - 1, 1)[0] for number in (135, 136))
        assert accountant.settle("people", f"136.{settled_hold.hash[:8]}", {"used": 1}, ADA)[1]
        assert settled["hold"] == 136
        assert accountant.settle("people", f"135.{opened_hold.hash[:8]}", {"used": 0}, ADA) is not None
        assert sound(target)
        names = {key["name"] for key in KeyRing(target).keys()}  # noqa: SIM118
        assert names == {"Ada Lovelace", None}


def test_a_frozen_dataset_stays_frozen(file: bytes, target: Store) -> None:
    imported(file, target)
    state = load_state(target, "frozen")
    assert state is not None
    assert state.frozen == Head(9, "f" * 64)


def test_a_ledger_of_format_1_moves(target: Store) -> None:
    """Before scopes: entries without composition, shards and who asked on whose behalf."""
    with Accountant.open("memory://") as accountant:
        accountant.create_dataset(opened("old"), "root")
        for index in range(3):
            accountant.charge("old", GAUSSIAN, f"k{index}", "bob")
        documents = lines(exported(accountant.store))

    def older(entry: Line) -> None:
        entry["v"] = 1
        for name in ("composition", "shards"):
            entry.get("dataset", {}).pop(name, None)

    imported(rewritten(documents, "old", older), target)
    assert sound(target)
    with Accountant(target) as accountant:
        assert accountant.charge("old", GAUSSIAN, "k1", "bob")[1]
        assert not accountant.charge("old", GAUSSIAN, "new", "bob")[1]
        assert sound(target)


def test_more_entries_than_a_page_or_a_batch_move(monkeypatch: pytest.MonkeyPatch, file: bytes) -> None:
    monkeypatch.setattr("odometer_accountant.transfer.import_.BATCH", 7)
    monkeypatch.setattr("odometer_accountant.transfer.import_.STREAMS_AT_ONCE", 2)
    with closing(open_store("memory://")) as store:
        imported(file, store)
        assert exported(store) == file
        assert sound(store)


def test_an_empty_ledger_moves(target: Store) -> None:
    with closing(open_store("memory://")) as empty:
        assert imported(exported(empty), target).streams == 0
    assert target.streams("", 1) == []


# -- what goes into the file


def test_some_datasets_go_with_their_shards(full: Store, target: Store) -> None:
    imported(exported(full, datasets=["units", "people"], keys=False), target)
    assert heads(target) == {
        name: head
        for name, head in heads(full).items()
        if name in ("units", "people") or name.startswith("~units/units/")
    }
    assert sound(target)


def test_without_keys_and_notes_neither_is_in_the_file(full: Store) -> None:
    def kinds(file: bytes) -> set[str]:
        return {next(iter(line)) for line in lines(file)} | {
            line["stream"] for line in lines(file) if line.get("stream") == KEYS
        }

    everything = {"format", "stream", "entry", "end", "note", "~keys"}
    assert kinds(exported(full)) == everything
    assert kinds(exported(full, keys=False)) == everything - {"~keys"}
    assert kinds(exported(full, notes=False)) == everything - {"note"}


def test_names_come_along_without_the_keys(full: Store, target: Store) -> None:
    file = exported(full, keys=False)
    (note,) = [line for line in lines(file) if "note" in line]
    imported(file, target)
    assert target.notes([note["note"]]) == {note["note"]: Note(note["salt"], "Ada Lovelace")}


def test_the_stream_of_keys_is_the_one_that_the_service_reads() -> None:
    assert KEYS == STREAM


@pytest.mark.parametrize("name", ["nobody", "~keys", "~units/units/0000"])
def test_only_datasets_can_be_chosen(full: Store, name: str) -> None:
    with pytest.raises(UnknownDataset):
        exported(full, datasets=[name])


def test_a_stream_of_an_unknown_kind_is_not_left_out_silently(target: Store) -> None:
    target.append([Write("~later", EMPTY_HEAD, [NewEntry("a" * 64, b"{}")])])
    with pytest.raises(MovingRefused, match="~later"):
        exported(target)


def test_a_damaged_store_gives_no_file(target: Store, file: bytes) -> None:
    imported(file, target)
    rows = target._streams["people"].rows  # type: ignore[attr-defined]
    rows[5] = type(rows[5])(6, rows[5].hash, rows[5].body.replace(b"50.5", b"50.6"))
    with pytest.raises(LedgerCorrupt, match="entry 6 of people"):
        exported(target)


class _Charging(io.BytesIO):
    """A file during whose writing a service charges."""

    def __init__(self, accountant: Accountant) -> None:
        super().__init__()
        self.accountant = accountant
        self.lines = 0

    def write(self, data: Any) -> int:
        self.lines += 1
        if self.lines == 3:
            self.accountant.charge("d", GAUSSIAN, "meanwhile", "bob")
            self.accountant.create_dataset(opened("a"), "root")
        return super().write(data)


def test_charges_meanwhile_are_told_and_the_file_is_sound(target: Store) -> None:
    """The dataset is cut where it ended when its turn came; one that began too late is named too."""
    with Accountant.open("memory://") as accountant:
        accountant.create_dataset(opened("d"), "root")
        accountant.charge("d", GAUSSIAN, "before", "bob")
        file = _Charging(accountant)
        made = export(accountant.store, file, CREATED)
        assert isinstance(made, Exported)
        assert made.moved == ("a", "d")
    assert imported(file.getvalue(), target).entries == 2
    assert sound(target)


def test_nothing_meanwhile_nothing_told(full: Store) -> None:
    assert export(full, io.BytesIO(), CREATED).moved == ()


# -- files that are not whole


def _changed(line: bytes) -> bytes:
    place = len(line) // 2
    return line[:place] + bytes([line[place] ^ 1]) + line[place + 1 :]


def test_every_line_changed_dropped_doubled_moved_or_last_is_refused(small: bytes) -> None:
    whole = small.splitlines(keepends=True)
    tampered = 0
    for place, line in enumerate(whole):
        before, after = whole[:place], whole[place + 1 :]
        versions = [
            [*before, _changed(line), *after],
            [*before, *after],
            [*before, line, line, *after],
            [*before, *after[:1], line, *after[1:]],
            before,
            [*before, line[:-1]],
        ]
        for version in versions:
            if version != whole:
                refused(b"".join(version))
                tampered += 1
    assert tampered >= 5 * len(whole)


def test_an_entry_changed_dropped_doubled_or_moved_is_found_although_the_file_is_hashed_anew(
    small: bytes,
) -> None:
    """Also the lines that say where a stream begins and ends."""
    documents = lines(small)[:-1]
    for place, line in enumerate(documents):
        if not {"stream", "entry"} & line.keys():
            continue
        before, after = documents[:place], documents[place + 1 :]
        other = line | {"hash": "0" * 64}
        for version in ([*before, *after], [*before, line, line, *after], [*before, other, *after]):
            refused(ended(version))
        if after and after != [documents[-1]]:
            refused(ended([*before, after[0], line, *after[1:]]))


@pytest.mark.parametrize("version", [0, 2, True, "1", None])
def test_another_version_of_the_file_is_refused(small: bytes, version: Any) -> None:
    header, *rest = lines(small)[:-1]
    assert "version" in refused(ended([header | {"version": version}, *rest])).detail


@pytest.mark.parametrize("file", [b"", b"\n", b"{}\n", b"[]\n", b"x" * 100, b"\xff\n", b"[" * 10_000 + b"\n"])
def test_what_is_no_such_file_is_refused(file: bytes) -> None:
    refused(file)


@pytest.mark.parametrize(
    "line",
    [
        {"stream": "d", "sequence": 1},
        {"stream": "d", "sequence": 0, "hash": "a"},
        {"stream": 1, "sequence": 1, "hash": "a"},
        {"entry": True, "hash": "a", "body": "b"},
        {"entry": 1, "hash": "a", "body": "ö"},
        {"note": "p", "salt": "s", "text": "\ud800"},
        {"blob": "config"},
        {"stream": "~later", "sequence": 1, "hash": "a"},
    ],
)
def test_a_line_that_no_export_writes_is_refused(small: bytes, line: Line) -> None:
    refused(ended([lines(small)[0], line]))


def test_a_line_without_end_is_not_read_into_memory(monkeypatch: pytest.MonkeyPatch, small: bytes) -> None:
    monkeypatch.setattr("odometer_accountant.transfer.format.LINE_MAX", 200)
    assert "longer than 200 bytes" in refused(small).detail


# -- files that lie


def test_a_loss_lowered_with_every_hash_made_right_is_found(small: bytes) -> None:
    def lower(entry: Line) -> None:
        if entry["type"] == "charged" and entry["key"] == "one":
            entry["losses"] = [Loss.zero(CURRENT_GRID).encode()]

    found = refused(rewritten(lines(small), "d", lower)).findings
    assert [(finding.stream, finding.sequence) for finding in found] == [("d", 2)]
    assert "its parameters cost" in found[0].what


def test_a_charge_over_the_budget_is_found(small: bytes) -> None:
    def shrink(entry: Line) -> None:
        if entry["type"] == "opened":
            entry["budgets"]["life"]["budget"]["rho"] = "1e-05"

    assert "did not allow it" in refused(rewritten(lines(small), "d", shrink)).findings[0].what


def test_an_idempotency_key_twice_is_found_pages_apart(monkeypatch: pytest.MonkeyPatch, small: bytes) -> None:
    monkeypatch.setattr("odometer_accountant.transfer.check.PAGE", 1)

    def same(entry: Line) -> None:
        if entry["type"] == "charged":
            entry["key"] = "one"

    (finding,) = refused(rewritten(lines(small), "d", same)).findings
    assert (finding.sequence, "idempotency key" in finding.what) == (3, True)


def test_a_stream_under_another_name_is_found(small: bytes) -> None:
    documents = lines(small)[:-1]
    renamed = [line | {"stream": "e"} if line.get("stream") == "d" else line for line in documents]
    assert "opens a dataset called 'd'" in refused(ended(renamed)).findings[0].what


def test_shards_without_their_dataset_are_found(small: bytes) -> None:
    documents, kept, inside = lines(small)[:-1], [], False
    for line in documents:
        inside = line["stream"] == "u" if "stream" in line else inside and "note" not in line
        kept += [] if inside else [line]
    (finding,) = refused(ended(kept)).findings
    assert (finding.stream, "shards" in finding.what) == ("u", True)


def test_a_name_that_is_not_the_one_of_its_key_is_found(small: bytes) -> None:
    documents = lines(small)[:-1]
    assert documents[-1]["text"] == "Ada L."
    documents[-1]["text"] = "Eve"
    assert "the name of" in refused(ended(documents)).findings[0].what


def test_key_entries_that_the_service_cannot_read_are_found(small: bytes) -> None:
    def unknown(entry: Line) -> None:
        entry["type"] = "key_lent"

    assert "key_lent" in refused(rewritten(lines(small), "~keys", unknown)).findings[0].what


def test_findings_are_bounded(file: bytes) -> None:
    def lower(entry: Line) -> None:
        if entry["type"] == "charged":
            entry["losses"] = [Loss.zero(CURRENT_GRID).encode()]

    assert len(refused(rewritten(lines(file), "people", lower)).findings) == 100


# -- targets


def test_a_target_that_holds_anything_is_refused_and_left_alone(small: bytes, target: Store) -> None:
    with Accountant(target) as accountant:
        accountant.create_dataset(opened("there"), "root")
        before = heads(target)
        with pytest.raises(MovingRefused, match="not empty"):
            imported(small, target)
        assert heads(target) == before


def test_a_target_on_which_a_service_was_started_is_refused(small: bytes, target: Store) -> None:
    KeyRing(target).create_first()
    with pytest.raises(MovingRefused, match="a service was started on it"):
        imported(small, target)


def _stopping(after: int) -> tuple[FaultyStore, Callable[..., Any]]:
    """A store whose appends and notes end after so many of them."""
    store, done = FaultyStore(), 0

    def stop(verb: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal done
        done += 1
        if done > after:
            raise StoreUnavailable("the power is gone")
        return verb(*arguments)

    store.fail(stop, "append", "put_note")
    return store, stop


def test_wherever_an_import_stops_nothing_of_it_can_be_used(
    monkeypatch: pytest.MonkeyPatch, small: bytes
) -> None:
    """No dataset of the file can be read, charged or opened anew before all of its entries are there."""
    monkeypatch.setattr("odometer_accountant.transfer.import_.BATCH", 1)
    monkeypatch.setattr("odometer_accountant.transfer.import_.STREAMS_AT_ONCE", 1)
    complete = {}
    with closing(open_store("memory://")) as store:
        imported(small, store)
        complete = heads(store)
    for stops in range(1, 1000):
        store, _ = _stopping(stops)
        with Import(io.BytesIO(small)) as moved:
            moved.check()
            try:
                moved.write(store)
            except StoreUnavailable:
                assert (moved.began, moved.ended) == (True, False)
            else:
                assert stops > len(complete)
                assert moved.ended
                return
        _assert_of_no_use(store.sound, complete)
    raise AssertionError("it never ended")


def _assert_of_no_use(store: Store, complete: dict[str, Head]) -> None:
    for name, head in heads(store).items():
        if name == STREAM:
            assert head == complete[STREAM], "a part of the keys"
            continue
        try:
            load_state(store, name)
        except LedgerCorrupt:
            continue
        assert heads(store) == complete, f"{name} can be used before everything is there"
    assert not all(verdict.ok for verdict in verify(store))
    with pytest.raises(MovingRefused, match="did not end"):
        require_empty(store)
    with pytest.raises(MovingRefused, match="did not end"):
        exported(store)


def test_somebody_who_writes_into_the_target_meanwhile_stops_the_import(small: bytes) -> None:
    """A service that is started while the import runs makes an API key: it must not win over the file's."""
    store = FaultyStore()

    def start(verb: Callable[..., Any], *arguments: Any) -> Any:
        store.faults = {}
        KeyRing(store.sound).create_first()
        return verb(*arguments)

    store.fail(start, "append")
    with Import(io.BytesIO(small)) as moved:
        moved.check()
        with pytest.raises(MovingRefused, match="meanwhile"):
            moved.write(store)
        assert not moved.ended
    with pytest.raises(LedgerCorrupt):
        load_state(store.sound, "d")


def test_a_file_that_changes_between_check_and_write_stops_the_import(small: bytes, target: Store) -> None:
    file = io.BytesIO(small)
    with Import(file) as moved:
        moved.check()
        other = ended([lines(small)[0] | {"created": "later"}, *lines(small)[1:-1]])
        file.seek(0)
        file.truncate()
        file.write(other)
        with pytest.raises(MovingRefused, match="was changed while"):
            moved.write(target)
    with pytest.raises(LedgerCorrupt):
        load_state(target, "d")


def test_the_totals_are_those_of_the_entries(full: Store, file: bytes, target: Store) -> None:
    """What stands beside the entries is folded from them, and equals what the service had written."""
    imported(file, target)
    rows = target.entries("people", 0, 10_000)
    state = fold([(row.hash, row.body) for row in rows])
    assert state is not None
    assert dict(target.blobs("people", "", "", 10_000)) == state.blobs()
