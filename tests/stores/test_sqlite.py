"""The SQLite store alone: what crashes, races and damaged files do to it. Other processes here are real."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import odometer_accountant
from odometer_accountant.errors import LedgerCorrupt, StoreUnavailable
from odometer_accountant.stores import EMPTY_HEAD, Head, NewEntry, Note, Write
from odometer_accountant.stores.sqlite import SqliteStore
from odometer_accountant.stores.sqlite_file import APPLICATION_ID, SCHEMA_VERSION

PROLOGUE = """
import os, signal, sqlite3, sys
from odometer_accountant.errors import StoreUnavailable
from odometer_accountant.stores import EMPTY_HEAD, Head, NewEntry, Note, Write
from odometer_accountant.stores.sqlite import SqliteStore

def write(n, count=1):
    expected = Head(n - 1, f"hash-{n - 1}") if n > 1 else EMPTY_HEAD
    entries = [NewEntry(f"hash-{i}", b"x" * 400, f"key-{i}") for i in range(n, n + count)]
    return Write("d", expected, entries, {"last": b"%d" % (n + count - 1)})

def say(word):
    os.write(1, f"{word}\\n".encode())
"""


def spawn(script: str, *arguments: object, **options: object) -> subprocess.Popen[str]:
    """A Python process that runs `script` after `PROLOGUE`, with pipes."""
    root = str(Path(odometer_accountant.__file__).parent.parent)
    return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
        [sys.executable, "-c", PROLOGUE + script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
        **options,
    )


def run(script: str, *arguments: object, **options: object) -> tuple[int, str]:
    """Run to the end: exit code (negative: the signal) and output."""
    with spawn(script, *arguments, **options) as process:
        output, _ = process.communicate(timeout=60)
    return process.returncode, output


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(str(path), busy_timeout_s=0.05)
    yield opened
    opened.close()


def write(first: int, count: int = 1, stream: str = "d") -> Write:
    expected = Head(first - 1, f"hash-{first - 1}") if first > 1 else EMPTY_HEAD
    numbers = range(first, first + count)
    entries = [NewEntry(f"hash-{n}", b"x" * 400, f"key-{n}") for n in numbers]
    return Write(stream, expected, entries, {"last": b"%d" % numbers[-1]})


def assert_whole(path: Path, sequence: int) -> None:
    """The stream d has exactly `sequence` entries, each with its key, and the blob of the last one."""
    store = SqliteStore(str(path))
    head, blobs = store.load("d", ["last"])
    assert head == (Head(sequence, f"hash-{sequence}") if sequence else EMPTY_HEAD)
    assert blobs == ({"last": b"%d" % sequence} if sequence else {})
    assert [row.hash for row in store.entries("d", 0, 10**6)] == [f"hash-{n}" for n in range(1, sequence + 1)]
    keys = [f"key-{n}" for n in range(1, sequence + 2)]
    assert {key: row.sequence for key, row in store.find("d", keys).items()} == {
        f"key-{n}": n for n in range(1, sequence + 1)
    }
    store.close()


# Crashes


def test_killed_between_appends_keeps_exactly_those(path: Path) -> None:
    script = """
store = SqliteStore(sys.argv[1])
for n in range(1, 6):
    store.append([write(n)])
say("done")
sys.stdin.read()
"""
    with spawn(script, path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert_whole(path, 5)


@pytest.mark.parametrize("statement", ["BEGIN", "INSERT INTO entries", "INSERT INTO keys", "COMMIT"])
def test_killed_inside_an_append_keeps_nothing_of_it(path: Path, statement: str) -> None:
    """The process dies when SQLite is about to run the statement, after all acknowledged appends."""
    script = """
store = SqliteStore(sys.argv[1])
store.append([write(1, 3)])
def die(sql):
    if sql.startswith(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
store._file.writer.set_trace_callback(die)
store.append([write(4, 50)])
"""
    assert run(script, path, statement)[0] == -signal.SIGKILL
    assert_whole(path, 3)


@pytest.mark.parametrize("acknowledged", [1, 7, 60])
def test_killed_at_full_speed_loses_no_acknowledged_append(path: Path, acknowledged: int) -> None:
    """Killed from outside at any point: all that was acknowledged is there, and at most the one under way."""
    script = """
store = SqliteStore(sys.argv[1])
for n in range(1, 100_000):
    store.append([write(n)])
    say(n)
"""
    with spawn(script, path) as process:
        assert process.stdout is not None
        for _ in range(acknowledged):
            process.stdout.readline()
        process.kill()
        last = int((["", *process.stdout.read().split()])[-1] or acknowledged)
    store = SqliteStore(str(path))
    sequence = store.load("d", [])[0].sequence
    store.close()
    assert sequence in (last, last + 1)
    assert_whole(path, sequence)


def test_killed_while_making_the_file_leaves_no_half_ledger(path: Path) -> None:
    """Under the ledger's name there is a whole ledger or nothing; what is left over does not matter."""
    script = """
os.link = lambda *arguments, **options: os.kill(os.getpid(), signal.SIGKILL)
SqliteStore(sys.argv[1])
"""
    assert run(script, path)[0] == -signal.SIGKILL
    assert not path.exists()
    assert len(list(path.parent.iterdir())) == 1
    assert_whole(path, 0)


# Several processes


def test_of_two_processes_one_wins_each_append(path: Path) -> None:
    """Both expect the same head of each of 60 streams: one append is kept per stream, and both know whose."""
    script = """
store = SqliteStore(sys.argv[1])
say("ready")
sys.stdin.readline()
for n in range(60):
    entry = NewEntry(sys.argv[2], b"", None)
    won = store.append([Write(f"stream-{n:02}", EMPTY_HEAD, [entry])])
    say(won[0])
"""
    with spawn(script, path, "first") as first, spawn(script, path, "second") as second:
        for process in (first, second):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in (first, second):
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = [process.communicate(timeout=60)[0].split() for process in (first, second)]
    store = SqliteStore(str(path))
    kept = [store.entries(name, 0, 10) for name in store.streams("", 100)]
    store.close()
    assert len(kept) == 60
    for rows, first_won, second_won in zip(kept, *answers, strict=True):
        assert [row.hash for row in rows] == (["first"] if first_won == "True" else ["second"])
        assert {first_won, second_won} == {"True", "False"}


def test_processes_that_make_the_file_together_share_it(path: Path) -> None:
    script = """
say("ready")
sys.stdin.readline()
store = SqliteStore(sys.argv[1])
store.append([Write(sys.argv[2], EMPTY_HEAD, [NewEntry("h", b"")])])
"""
    started = [spawn(script, path, name) for name in ("a", "b", "c")]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in started:
        process.communicate(timeout=60)
        assert process.returncode == 0
    store = SqliteStore(str(path))
    assert store.streams("", 10) == ["a", "b", "c"]
    store.close()


def test_a_forked_child_does_not_use_its_parents_connection(store: SqliteStore) -> None:
    """SQLite's locks do not hold across a fork: the child is refused, the parent goes on."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            store.ping()
        except StoreUnavailable:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.append([write(1)]) == [True]


# Locks


def test_a_locked_file_is_unavailable_after_a_bounded_wait(store: SqliteStore, path: Path) -> None:
    """Another writer holds the lock: nothing is written. Once it lets go, the same append passes."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        store.append([write(1)])
    assert store.load("d", [])[0] == EMPTY_HEAD
    other.execute("ROLLBACK")
    other.close()
    assert store.append([write(1)]) == [True]


def test_a_read_does_not_wait_for_a_writer(store: SqliteStore, path: Path) -> None:
    store.append([write(1)])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("DELETE FROM streams")
    assert store.load("d", [])[0] == Head(1, "hash-1")
    other.close()


def test_a_thread_waits_for_another_only_so_long(store: SqliteStore) -> None:
    with store._holding_writer(), pytest.raises(StoreUnavailable, match="did not finish"):
        store.append([write(1)])
    assert store.append([write(1)]) == [True]


# A disk that is full, a file that cannot be written


def test_a_full_disk_keeps_the_acknowledged_appends(path: Path) -> None:
    """When the file system takes no more bytes the append raises; what was acknowledged stays readable."""
    script = """
import resource
store = SqliteStore(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
n = 1
try:
    while n < 10_000:
        store.append([write(n, 20)])
        n += 20
except StoreUnavailable:
    say(n - 1)
    assert store.load("d", [])[0].sequence == n - 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert store.append([write(n, 20)]) == [True]
"""
    code, output = run(script, path)
    assert code == 0
    acknowledged = int(output)
    assert acknowledged > 0
    assert_whole(path, acknowledged + 20)


def test_a_file_that_cannot_be_written_is_refused_when_opened() -> None:
    """As a user without the right to write, so that it is the same when the tests are run by root."""
    script = """
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    SqliteStore(sys.argv[1])
except StoreUnavailable as error:
    say(error)
"""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "ledger.sqlite")
        SqliteStore(str(path)).close()
        path.chmod(0o444)
        Path(folder).chmod(0o555)
        code, output = run(script, path)
        Path(folder).chmod(0o755)
    assert code == 0
    assert str(path) in output


# Files that are not what they were


def test_a_deleted_ledger_is_never_empty(store: SqliteStore, path: Path) -> None:
    """SQLite would go on with the file that has no name any more, and lose it at the end."""
    store.append([write(1)])
    store.ping()  # so that a connection is kept
    path.unlink()
    for call in (store.ping, lambda: store.load("d", []), lambda: store.append([write(2)])):
        with pytest.raises(StoreUnavailable, match=r"ledger\.sqlite"):
            call()
    assert not path.exists()


def test_a_ledger_replaced_by_another_is_noticed(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    store.append([write(1)])
    store.ping()  # so that a connection is kept
    other = tmp_path / "other.sqlite"
    SqliteStore(str(other)).close()
    other.rename(path)
    with pytest.raises(StoreUnavailable, match="replaced"):
        store.load("d", [])


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_a_log_taken_away_is_noticed_before_the_answer(store: SqliteStore, path: Path, suffix: str) -> None:
    """What was committed to a log without a name is lost at the end: such an append is not acknowledged."""
    store.append([write(1)])
    path.with_name(path.name + suffix).unlink()
    with pytest.raises(StoreUnavailable, match="ledger"):
        store.append([write(2)])


def test_a_ledger_cut_short_while_open_is_corrupt(store: SqliteStore, path: Path) -> None:
    store.append([write(1)])
    os.truncate(path, 4096)
    with pytest.raises(LedgerCorrupt):
        store.load("d", [])


def test_a_log_without_its_ledger_is_not_a_new_ledger(path: Path) -> None:
    path.with_name("ledger.sqlite-wal").write_bytes(b"x" * 100)
    with pytest.raises(LedgerCorrupt, match="missing"):
        SqliteStore(str(path))
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"not a database\n" * 500], ids=["empty", "text"])
def test_a_file_that_is_no_database_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(LedgerCorrupt, match=r"ledger\.sqlite"):
        SqliteStore(str(path))
    assert path.read_bytes() == content


def test_a_folder_is_no_ledger(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreUnavailable, match=r"ledger\.sqlite"):
        SqliteStore(str(path))


def test_a_database_of_someone_else_is_refused_and_left_alone(path: Path) -> None:
    foreign = sqlite3.connect(path)
    foreign.execute("CREATE TABLE streams(name)")
    foreign.close()
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match="no ledger of Privacy Odometer"):
        SqliteStore(str(path))
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, 0])
def test_a_format_of_another_version_is_refused(path: Path, version: int) -> None:
    SqliteStore(str(path)).close()
    other = sqlite3.connect(path)
    other.execute(f"PRAGMA user_version={version}")
    other.close()
    with pytest.raises(StoreUnavailable, match=f"format {version}"):
        SqliteStore(str(path))


def test_a_backup_without_a_log_mode_gets_it_back(path: Path, tmp_path: Path) -> None:
    """`VACUUM INTO` makes a sound copy, that is not in write-ahead mode."""
    first = SqliteStore(str(path))
    first.append([write(1, 30)])
    first._file.writer.execute("VACUUM INTO ?", (str(tmp_path / "copy.sqlite"),))
    first.close()
    assert_whole(tmp_path / "copy.sqlite", 30)


READS: dict[str, Callable[[SqliteStore], object]] = {
    "load": lambda store: store.load("d", ["last"]),
    "entries": lambda store: store.entries("d", 0, 1000),
    "find": lambda store: store.find("d", [f"key-{n}" for n in range(1, 301)]),
    "streams": lambda store: store.streams("", 10),
    "blobs": lambda store: store.blobs("d", "", "", 10),
}


def answers(path: Path) -> dict[str, object]:
    """What each read answers, where it answers; the ways to refuse are left out."""
    found: dict[str, object] = {}
    try:
        store = SqliteStore(str(path))
    except (StoreUnavailable, LedgerCorrupt):
        return found
    for name, read in READS.items():
        try:
            found[name] = read(store)
        except (StoreUnavailable, LedgerCorrupt):
            continue
    store.close()
    return found


@pytest.mark.parametrize("damage", [b"\0", b"\xa5"], ids=["zeroes", "noise"])
def test_a_damaged_page_never_makes_the_ledger_shorter(path: Path, damage: bytes) -> None:
    """Each page in turn is overwritten: every read answers the truth or raises, never less than the truth."""
    store = SqliteStore(str(path))
    store.append([write(1, 300), write(1, 3, stream="other")])
    store.close()
    sound, truth = path.read_bytes(), answers(path)
    assert len(truth) == len(READS)
    refused = 0
    for start in range(0, len(sound), 4096):
        path.write_bytes(sound[:start] + damage * 4096 + sound[start + 4096 :])
        found = answers(path)
        assert found == {name: truth[name] for name in found}
        refused += len(found) < len(truth)
    assert refused > len(sound) // 4096 // 2


@pytest.mark.parametrize("table", ["entries", "keys"])
def test_rows_that_vanished_are_damage(store: SqliteStore, path: Path, table: str) -> None:
    """Someone deletes a row by hand: the page that should hold it, and its key, raise."""
    store.append([write(1, 9)])
    other = sqlite3.connect(path)
    other.execute("DELETE FROM entries WHERE id & 0xff = 5")
    other.commit()
    other.close()
    with pytest.raises(LedgerCorrupt, match=r"\b5\b|only 8"):
        store.entries("d", 0, 100) if table == "entries" else store.find("d", ["key-5"])


def _varint(number: int) -> bytes:
    """A row's id as it stands in a page."""
    digits = [number >> shift & 0x7F for shift in range(35, -1, -7)]
    return bytes(digit | 0x80 for digit in digits[:-1]) + bytes(digits[-1:])


def _torn(path: Path, old: bytes, new: bytes) -> None:
    """Bytes of a page that was half written: SQLite itself does not notice."""
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))


def test_an_entry_of_another_number_is_not_one_that_is_looked_for(path: Path) -> None:
    """A torn page gave an entry of another stream: as many rows as were asked for, of which one is not."""
    store = SqliteStore(str(path))
    store.append([write(1, 3)])
    store.close()
    _torn(path, _varint((1 << 40) + 3), _varint((1 << 40) - 5))
    again = SqliteStore(str(path))
    try:
        for after in (0, 1, 2):
            with pytest.raises(LedgerCorrupt):
                again.entries("d", after, 3 - after)
    finally:
        again.close()


def test_names_out_of_order_are_damage(path: Path) -> None:
    """Who reads on from the last name of a page would read the same page for ever."""
    store = SqliteStore(str(path))
    blobs = {f"name-{number}": b"" for number in range(1, 5)}
    store.append([Write("d", EMPTY_HEAD, [NewEntry("hash-1", b"x")], blobs)])
    store.close()
    _torn(path, b"name-4", b"name-0")
    again = SqliteStore(str(path))
    try:
        with pytest.raises(LedgerCorrupt):
            again.names("d", "name-", "", 9)
        with pytest.raises(LedgerCorrupt):
            again.blobs("d", "name-", "", 9)
    finally:
        again.close()


def test_an_entry_beyond_the_head_is_damage(store: SqliteStore, path: Path) -> None:
    """A head that was set back by hand does not let its entries be written again."""
    store.append([write(1, 9)])
    other = sqlite3.connect(path)
    other.execute("UPDATE streams SET sequence=4, hash='hash-4'")
    other.commit()
    other.close()
    with pytest.raises(LedgerCorrupt):
        store.append([write(5)])


# The files themselves


def test_only_the_owner_can_read_the_files(store: SqliteStore, path: Path) -> None:
    store.append([write(1)])
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {"ledger.sqlite": 0o600, "ledger.sqlite-wal": 0o600, "ledger.sqlite-shm": 0o600}


def test_the_file_says_what_it_is(path: Path) -> None:
    SqliteStore(str(path)).close()
    header = path.read_bytes()[:100]
    assert int.from_bytes(header[68:72]) == APPLICATION_ID
    assert int.from_bytes(header[60:64]) == SCHEMA_VERSION


def test_a_commit_is_synchronised(store: SqliteStore) -> None:
    """FULL (2) is what makes an acknowledged charge survive a power cut in write-ahead mode."""
    writer = store._file.writer
    assert writer.execute("PRAGMA synchronous").fetchone() == (2,)
    assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_an_erased_note_leaves_no_bytes(store: SqliteStore, path: Path) -> None:
    """Neither in the file nor in its log, also while the store is open, for short texts and long ones."""
    store.append([write(1, 300)])  # the log is long, so that it is not overwritten by chance
    for name, text in (("p1", "Ada of Lovelace"), ("p2", "Blaise of Clermont" * 500)):
        store.put_note(name, Note("salt", text))
        store.put_note(name, Note("salt", "replaced"))
        store.append([write(301 if name == "p1" else 601, 300)])
        store.put_note(name, Note("salt", text))
        store.erase_note(name)
    # Read by another process: closing the file in this one would drop SQLite's locks.
    script = """
content = b"".join(open(file, "rb").read() for file in sys.argv[1:])
say(b"Lovelace" in content or b"Clermont" in content)
"""
    assert run(script, *path.parent.iterdir()) == (0, "False\n")


def test_a_large_ledger_costs_what_a_small_one_did(store: SqliteStore) -> None:
    """No statement of the charge path scans: SQLite itself says that each goes through a key."""
    store.append([write(1, 100)])
    seen: list[str] = []
    store._file.writer.set_trace_callback(seen.append)
    store.append([write(101)])
    store._file.writer.set_trace_callback(None)
    reader = store._take_reader()
    reader.set_trace_callback(seen.append)
    store._idle.append(reader)
    store.find("d", ["key-1", "key-2", "key-3"])
    store.load("d", ["last"])
    store.entries("d", 50, 10)
    reader.set_trace_callback(None)
    plans = {
        sql: [row[3] for row in reader.execute(f"EXPLAIN QUERY PLAN {sql}")]
        for sql in seen
        if not sql.startswith(("BEGIN", "COMMIT"))
    }
    assert len(plans) >= 8
    assert [(sql, step) for sql, steps in plans.items() for step in steps if "SCAN" in step] == []


def test_a_new_ledger_needs_a_folder_that_is_there(tmp_path: Path) -> None:
    """A folder that was mistyped is no place for an empty ledger with a full budget."""
    with pytest.raises(ValueError, match="there is no folder"):
        SqliteStore(str(tmp_path / "typo" / "ledger.sqlite"))
    assert not (tmp_path / "typo").exists()


def test_the_default_folder_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    SqliteStore("data/ledger.sqlite").close()
    assert (tmp_path / "data" / "ledger.sqlite").is_file()
    with pytest.raises(ValueError, match="there is no folder"):
        SqliteStore("other/data/ledger.sqlite")


def test_a_new_ledger_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """To whoever opens it in a program of theirs: a name that was mistyped begins with nothing spent."""
    SqliteStore(str(tmp_path / "ledger.sqlite")).close()
    assert "ledger.sqlite is a new ledger" in caplog.text
    caplog.clear()
    SqliteStore(str(tmp_path / "ledger.sqlite")).close()
    assert caplog.text == ""
