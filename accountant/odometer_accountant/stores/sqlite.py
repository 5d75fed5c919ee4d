"""The default store: one SQLite file, for any number of threads and processes on one machine.

Write-ahead log with synchronous=FULL: a commit is on the disk when it returns. Appends go through one
connection under a lock; reads have their own connections and wait for no writer. Log pages are copied
into the file by the append that fills SQLite's default of 1,000 (4 MB): the log stays small whatever the
load, and the copied pages are synchronised before the log is used again.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from threading import Lock
from typing import Any

from odometer_accountant.errors import LedgerCorrupt, StoreUnavailable
from odometer_accountant.stores.base import EMPTY_HEAD, Examined, Head, NewEntry, Note, Row, View, Write
from odometer_accountant.stores.marks import (
    ADVICE,
    HEAD,
    check_key,
    checked_head,
    examined,
    examined_head,
    head_mark,
    key_mark,
    mark_of,
    sealed,
    unsealed,
)
from odometer_accountant.stores.sqlite_file import SEQUENCE_BITS, LedgerFile

BUSY_TIMEOUT_S = 5.0
IDLE_READERS_MAX = 8
KEYS_PER_QUERY = 256

_HEAD = "SELECT id, sequence, hash FROM streams WHERE name=?"
_HEAD_MARK = "SELECT CAST(mark AS TEXT) FROM marks WHERE stream=0 AND name=?"
_NEW_STREAM = "INSERT INTO streams(name, sequence, hash) VALUES (?, ?, ?)"
_MOVE_HEAD = "UPDATE streams SET sequence=?, hash=? WHERE id=?"
_NEW_ENTRY = "INSERT INTO entries(id, hash, body) VALUES (?, ?, ?)"
_NEW_KEY = "INSERT INTO keys(stream, key, sequence) VALUES (?, ?, ?)"
_PUT_BLOB = """INSERT INTO blobs(stream, name, value) VALUES (?, ?, ?)
    ON CONFLICT (stream, name) DO UPDATE SET value=excluded.value"""
# CAST: a person's database tool may have put text in the place of bytes; the bytes are the same.
_BLOB = "SELECT CAST(value AS BLOB) FROM blobs WHERE stream=? AND name=?"
_MARK = "SELECT CAST(mark AS BLOB) FROM marks WHERE stream=? AND name=?"
_NEW_MARK = "INSERT INTO marks(stream, name, mark) VALUES (?, ?, ?)"
_PUT_MARK = """INSERT INTO marks(stream, name, mark) VALUES (?, ?, ?)
    ON CONFLICT (stream, name) DO UPDATE SET mark=excluded.mark"""
_BLOBS = (
    "SELECT name, CAST(value AS BLOB) FROM blobs WHERE stream=? AND name>? AND name>=? ORDER BY name LIMIT ?"
)
_MARKS = (
    "SELECT name, CAST(mark AS BLOB) FROM marks WHERE stream=? AND name>? AND name>=? ORDER BY name LIMIT ?"
)
_ENTRIES = "SELECT id, hash, CAST(body AS BLOB) FROM entries WHERE id>? AND id<=? ORDER BY id"
# Those whose row is gone too: they were lost, and are not to be passed over.
_STREAMS = """SELECT name FROM streams WHERE name>?1
    UNION SELECT name FROM marks WHERE stream=0 AND name>?1 ORDER BY name LIMIT ?2"""
# LEFT JOIN: a key whose entry is gone must be seen as damage, not as a key that is free.
_FIND = """SELECT keys.key, keys.sequence, entries.hash, CAST(entries.body AS BLOB)
    FROM keys LEFT JOIN entries ON entries.id = (keys.stream << {bits}) + keys.sequence
    WHERE keys.stream=? AND keys.key IN ({marks})"""
_KEY_MARKS = "SELECT name, CAST(mark AS BLOB) FROM marks WHERE stream=? AND name IN ({marks})"
_PUT_NOTE = """INSERT INTO notes(name, salt, text) VALUES (?, ?, ?)
    ON CONFLICT (name) DO UPDATE SET salt=excluded.salt, text=excluded.text"""
_NOTE = "SELECT salt, text FROM notes WHERE name=?"
_ERASE_NOTE = "DELETE FROM notes WHERE name=?"


class SqliteStore:
    """A ledger file. Every method raises StoreUnavailable, or LedgerCorrupt when the file is damaged."""

    def __init__(self, path: str, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        """Open the ledger at `path`; make it (mode 0600) where there is none, in a folder that is there.

        `busy_timeout_s` bounds each wait for another writer, in seconds.
        """
        self._timeout_s = busy_timeout_s
        self._file = LedgerFile(path, busy_timeout_s)
        self._lock = Lock()
        self._idle: list[sqlite3.Connection] = []
        self._closed = False

    def append(self, writes: Sequence[Write]) -> list[bool]:
        """Append in one transaction, on the disk when this returns. False: stale head, that write skipped.

        ValueError (a key is already in its stream, a stream stands in two writes) is certain: nothing of any
        of the writes was kept. A stale write's keys are not looked at.
        """
        if len({write.stream for write in writes}) < len(writes):
            raise ValueError("A stream stands in two writes of one append: make them one write")
        with self._writing() as writer:
            return [_append(writer, write) for write in writes]

    def load(self, stream: str, names: Sequence[str]) -> tuple[Head, dict[str, bytes]]:
        with self._reading() as reader:
            number, head = _checked_head(reader, stream)
            blobs = {}
            for name in names:
                stored, mark = _blob(reader, number, name)
                value = unsealed(stream, name, stored, mark, marked=head.marked)
                if value is not None:
                    blobs[name] = value
            return head, blobs

    def examine(self, stream: str, names: Sequence[str]) -> Examined:
        with self._reading() as reader:
            number, plain = _head(reader, stream)
            head, fault = examined_head(number, plain, _head_mark(reader, stream))
            blobs, faults = {}, {HEAD: fault} if fault else {}
            for name in names:
                stored, mark = _blob(reader, number, name)
                value, fault = examined(stream, name, stored, mark, marked=head.marked)
                if value is not None:
                    blobs[name] = value
                if fault:
                    faults[name] = fault
            return Examined(head, blobs, faults)

    def entries(self, stream: str, after: int, limit: int) -> list[Row]:
        with self._reading() as reader:
            number, head = _head(reader, stream)
            first = max(after, 0) + 1
            last = min(head.sequence, first - 1 + max(limit, 0))
            if last < first:
                return []
            base = number << SEQUENCE_BITS
            found = reader.execute(_ENTRIES, (base + first - 1, base + last))
            rows = [_row(stream, id_ - base, hash_, body) for id_, hash_, body in found]
            # A torn page may have an entry of any number where another is looked for.
            there, due = [row.sequence for row in rows], range(first, last + 1)
            if there != list(due):
                missing = sorted({*due} - {*there})
                raise LedgerCorrupt(
                    f"The stream {stream!r} has {head.sequence} entries, but of those from {first} to {last} "
                    f"{f'entry {missing[0]} is not' if missing else 'some are twice'} in {self._file.name}"
                )
            return rows

    def find(self, stream: str, keys: Sequence[str]) -> dict[str, Row]:
        found: dict[str, Row] = {}
        with self._reading() as reader:
            number, _ = _head(reader, stream)
            for start in range(0, len(keys), KEYS_PER_QUERY):
                chunk = tuple(keys[start : start + KEYS_PER_QUERY])
                # Padded to a power of two: few different statements, so each is compiled once.
                marks = 1 << (len(chunk) - 1).bit_length()
                padded = chunk + chunk[-1:] * (marks - len(chunk))
                for key, sequence, hash_, body in reader.execute(_FIND_BY_MARKS[marks], (number, *padded)):
                    if body is None:
                        raise LedgerCorrupt(f"Entry {sequence} of {stream!r} is gone, but its key is there")
                    found[key] = _row(stream, sequence, hash_, body)
                for key, mark in reader.execute(_KEY_MARKS_BY_MARKS[marks], (-number, *padded)):
                    check_key(stream, key, found[key].sequence if key in found else None, mark)
        return found

    def view(self, stream: str, names: Sequence[str], after: int, limit: int, keys: Sequence[str]) -> View:
        head, blobs = self.load(stream, names)
        return View(head, blobs, self.entries(stream, after, limit), self.find(stream, keys))

    def blobs(self, stream: str, prefix: str, after: str, limit: int) -> list[tuple[str, bytes]]:
        with self._reading() as reader:
            number, head = _checked_head(reader, stream)
            stored, marks, names = _page(reader, number, prefix, after, limit)
        values = (
            (name, unsealed(stream, name, stored.get(name), marks.get(name), marked=head.marked))
            for name in names
        )
        return [(name, value) for name, value in values if value is not None]

    def names(self, stream: str, prefix: str, after: str, limit: int) -> list[str]:
        with self._reading() as reader:
            number, _ = _head(reader, stream)
            return _page(reader, number, prefix, after, limit)[2]

    def streams(self, after: str, limit: int) -> list[str]:
        """Names > `after` of the streams that were written to, in order."""
        with self._reading() as reader:
            found = [name for (name,) in reader.execute(_STREAMS, (after, max(limit, 0)))]
        _check_order("The list of streams", after, found)
        return found

    def put_note(self, name: str, note: Note) -> None:
        self._write_note(_PUT_NOTE, (name, note.salt, note.text))

    def notes(self, names: Sequence[str]) -> dict[str, Note]:
        with self._reading() as reader:
            rows = ((name, reader.execute(_NOTE, (name,)).fetchone()) for name in names)
            return {name: Note(*row) for name, row in rows if row is not None}

    def erase_note(self, name: str) -> None:
        """Forget the note; no matter if there is none. Its bytes are overwritten in the file.

        A copy in the log goes with the next checkpoint, which is now unless another process is reading.
        """
        self._write_note(_ERASE_NOTE, (name,))

    def check(self) -> list[str]:
        with self._reading() as reader:
            found = [str(line) for (line,) in reader.execute("PRAGMA integrity_check(10)")]
        return [] if found == ["ok"] else found

    def ping(self) -> None:
        with self._reading() as reader:
            reader.execute("SELECT id FROM streams LIMIT 1").fetchone()

    def close(self) -> None:
        """Close the file. Safe to call twice; afterwards every method raises StoreUnavailable."""
        with self._lock:
            self._closed = True
            self._file.writer.close()
            while self._idle:
                self._idle.pop().close()

    def _write_note(self, statement: str, values: tuple[str, ...]) -> None:
        with self._writing() as writer:
            writer.execute("PRAGMA secure_delete=ON")  # zeroes what it frees; costs too much on blobs
            try:
                writer.execute(statement, values)
            finally:
                writer.execute("PRAGMA secure_delete=OFF")
        with self._holding_writer() as writer, suppress(sqlite3.Error):
            writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def _holding_writer(self) -> Iterator[sqlite3.Connection]:
        if not self._lock.acquire(timeout=self._timeout_s):
            raise StoreUnavailable(f"Another thread is writing {self._file.name} and did not finish")
        try:
            self._check_open()
            yield self._file.writer
        finally:
            self._lock.release()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: on the disk when the block ends, undone when it raises."""
        with self._file.certain(f"write {self._file.name}"), self._holding_writer() as writer:
            if writer.in_transaction:  # an earlier rollback failed
                writer.execute("ROLLBACK")
            try:
                writer.execute("BEGIN IMMEDIATE")
                yield writer
                writer.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    writer.execute("ROLLBACK")
                raise
            self._file.check()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees one moment. Reused, unless something went wrong on it."""
        with self._file.certain(f"read {self._file.name}"):
            self._check_open()
            reader = self._take_reader()
            try:
                reader.execute("BEGIN")
                yield reader
                reader.execute("COMMIT")
                self._file.check_main()
            except BaseException:
                reader.close()
                raise
            self._idle.append(reader)
            # Looked at after it is given back, so that close() or this misses none.
            if self._closed or len(self._idle) > IDLE_READERS_MAX:
                with suppress(IndexError):
                    self._idle.pop().close()

    def _take_reader(self) -> sqlite3.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._file.connect_reader()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"{self._file.name} was closed. Open it again.")
        self._file.check_process()


def _head(connection: sqlite3.Connection, stream: str) -> tuple[int, Head]:
    """The stream's number (0, which no stream has, when there is none) and head."""
    row = connection.execute(_HEAD, (stream,)).fetchone()
    if row is None:
        return 0, EMPTY_HEAD
    number, sequence, digest = row
    if not isinstance(sequence, int) or not isinstance(digest, str):
        raise LedgerCorrupt(f"The head of the stream {stream!r} is damaged: run odometer verify")
    return number, Head(sequence, digest)


def _row(stream: str, sequence: Any, digest: Any, body: Any) -> Row:
    """An entry as SQLite gives it. LedgerCorrupt for what is no number, no text or no bytes."""
    if isinstance(sequence, int) and isinstance(digest, str) and isinstance(body, bytes):
        return Row(sequence, digest, body)
    raise LedgerCorrupt(f"An entry of {stream!r} is damaged: run odometer verify")


def _check_order(what: str, after: str, names: Sequence[Any]) -> None:
    """LedgerCorrupt unless all are texts, each beyond the one before: of a torn page they may be anything.

    Who reads on from the last of them would else read the same page for ever, or pass over some.
    """
    texts = all(isinstance(name, str) for name in names)
    if not texts or any(name <= before for before, name in pairwise((after, *names))):
        raise LedgerCorrupt(f"{what} is damaged: run odometer verify")


def _checked_head(connection: sqlite3.Connection, stream: str) -> tuple[int, Head]:
    """As `_head`, once its mark says the same."""
    number, head = _head(connection, stream)
    return number, checked_head(stream, number, head, _head_mark(connection, stream))


def _head_mark(connection: sqlite3.Connection, stream: str) -> str | None:
    row = connection.execute(_HEAD_MARK, (stream,)).fetchone()
    return None if row is None else str(row[0])


def _blob(connection: sqlite3.Connection, number: int, name: str) -> tuple[bytes | None, bytes | None]:
    """What is stored under a name, and its mark."""
    place = (number, name)
    return _value(connection.execute(_BLOB, place).fetchone()), _value(
        connection.execute(_MARK, place).fetchone()
    )


def _page(
    connection: sqlite3.Connection, number: int, prefix: str, after: str, limit: int
) -> tuple[dict[str, bytes], dict[str, bytes], list[str]]:
    """Blobs and marks whose name is > `after`, and the names of either that start with `prefix`, in order.

    As many of each as there may be names: of a blob or a mark alone, the other one is missing.
    """
    limit = max(limit, 0)
    page = (number, after, prefix, limit)
    found = [list(connection.execute(statement, page)) for statement in (_BLOBS, _MARKS)]
    for rows in found:
        _check_order("The list of blobs", after, [name for name, _ in rows])
    stored, marks = map(dict, found)
    names = sorted({*stored, *marks})[:limit]
    return stored, marks, [name for name in names if name.startswith(prefix)]


def _value(row: tuple[Any] | None) -> Any:
    return None if row is None else row[0]


def _append(writer: sqlite3.Connection, write: Write) -> bool:
    """Put one write into the open transaction; False, and nothing, when its head is stale."""
    number, head = _checked_head(writer, write.stream)
    if head != write.expected:
        return False
    marked = head.marked or write.adopts
    if write.blobs and not marked:
        raise LedgerCorrupt(
            f"The stream {write.stream!r} was not counted again since an earlier version wrote it"
        )
    entries = write.entries
    last = Head(head.sequence + len(entries), entries[-1].hash) if entries else head
    if number == 0:
        cursor = writer.execute(_NEW_STREAM, (write.stream, last.sequence, last.hash))
        number = cursor.lastrowid or 0
    else:
        writer.execute(_MOVE_HEAD, (last.sequence, last.hash, number))
    keys = _append_entries(writer, number, head.sequence + 1, entries)
    if marked:
        _append_blobs(writer, number, write, last)
        # Under the number below zero: a list of blobs does not come upon them.
        writer.executemany(
            _NEW_MARK, [(-number, key, key_mark(write.stream, key, at)) for _, key, at in keys]
        )
    return True


def _append_blobs(writer: sqlite3.Connection, number: int, write: Write, last: Head) -> None:
    stream, blobs = write.stream, write.blobs
    writer.executemany(_PUT_BLOB, [(number, name, sealed(name, value)) for name, value in blobs.items()])
    marks = [(number, name, mark_of(stream, name, blobs[name])) for name in blobs if name not in ADVICE]
    writer.executemany(_PUT_MARK, [*marks, (0, stream, head_mark(number, last))])


def _append_entries(
    writer: sqlite3.Connection, number: int, first: int, entries: Sequence[NewEntry]
) -> list[tuple[int, str, int]]:
    """The keys that came into the stream, as they are stored."""
    base = (number << SEQUENCE_BITS) + first
    writer.executemany(_NEW_ENTRY, [(base + i, entry.hash, entry.body) for i, entry in enumerate(entries)])
    keys = [(number, entry.key, first + i) for i, entry in enumerate(entries) if entry.key is not None]
    try:
        writer.executemany(_NEW_KEY, keys)
    except sqlite3.IntegrityError as error:
        raise ValueError("A key is already in its stream: nothing was appended") from error
    return keys


_FIND_BY_MARKS = {
    1 << power: _FIND.format(bits=SEQUENCE_BITS, marks=",".join("?" * (1 << power)))
    for power in range(KEYS_PER_QUERY.bit_length())
}
_KEY_MARKS_BY_MARKS = {marks: _KEY_MARKS.format(marks=",".join("?" * marks)) for marks in _FIND_BY_MARKS}


def open_url(url: str) -> SqliteStore:
    """Open `sqlite:///relative/path` or `sqlite:////absolute/path`. Raises ValueError for other forms."""
    start = "sqlite:///"
    path = url.removeprefix(start)
    if not url.startswith(start) or not path or path.endswith("/"):
        raise ValueError(
            "A SQLite store is named sqlite:///relative/path or, with four slashes, sqlite:////absolute/path"
        )
    if path == ":memory:" or "?" in path or "\0" in path:
        raise ValueError("A SQLite store is a plain file, without options. For a store in memory: memory://")
    return SqliteStore(path)
