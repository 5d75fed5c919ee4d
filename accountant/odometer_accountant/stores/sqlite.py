"""The default store: one SQLite file, for any number of threads and processes on one machine.

Write-ahead log with synchronous=FULL: a commit is on the disk when it returns. Appends go through one
connection under a lock; reads have their own connections and wait for no writer. Log pages are copied
into the file by the append that fills SQLite's default of 1,000 (4 MB): the log stays small whatever the
load, and the copied pages are synchronised before the log is used again.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock

from odometer_accountant.errors import LedgerCorrupt, StoreUnavailable
from odometer_accountant.stores.base import Examined, Head, Note, Row, View, Write
from odometer_accountant.stores.marks import (
    HEAD,
    check_key,
    examined,
    examined_head,
    unsealed,
)
from odometer_accountant.stores.sqlite_append import append_write
from odometer_accountant.stores.sqlite_file import SEQUENCE_BITS, LedgerFile
from odometer_accountant.stores.sqlite_reading import (
    ENTRIES,
    FIND_BY_SIZE,
    KEY_MARKS_BY_SIZE,
    KEYS_PER_QUERY,
    NOTE,
    STREAMS,
    check_order,
    read_blob,
    read_checked_head,
    read_head,
    read_head_mark,
    read_names,
    to_row,
)

BUSY_TIMEOUT_S = 5.0
IDLE_READERS_MAX = 8

_PUT_NOTE = """INSERT INTO notes(name, salt, text) VALUES (?, ?, ?)
    ON CONFLICT (name) DO UPDATE SET salt=excluded.salt, text=excluded.text"""
_ERASE_NOTE = "DELETE FROM notes WHERE name=?"


class SqliteStore:
    """A ledger file. Every method raises StoreUnavailable, or LedgerCorrupt when the file is damaged."""

    def __init__(self, path: str, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        """Open the ledger at `path`. Create it (mode 0600) if it is missing; the folder must exist.

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
            return [append_write(writer, write) for write in writes]

    def load(self, stream: str, names: Sequence[str]) -> tuple[Head, dict[str, bytes]]:
        with self._reading() as reader:
            number, head = read_checked_head(reader, stream)
            blobs = {}
            for name in names:
                stored, mark = read_blob(reader, number, name)
                value = unsealed(stream, name, stored, mark, marked=head.marked)
                if value is not None:
                    blobs[name] = value
            return head, blobs

    def examine(self, stream: str, names: Sequence[str]) -> Examined:
        with self._reading() as reader:
            number, plain = read_head(reader, stream)
            head, fault = examined_head(number, plain, read_head_mark(reader, stream))
            blobs, faults = {}, {HEAD: fault} if fault else {}
            for name in names:
                stored, mark = read_blob(reader, number, name)
                value, fault = examined(stream, name, stored, mark, marked=head.marked)
                if value is not None:
                    blobs[name] = value
                if fault:
                    faults[name] = fault
            return Examined(head, blobs, faults)

    def entries(self, stream: str, after: int, limit: int) -> list[Row]:
        with self._reading() as reader:
            number, head = read_head(reader, stream)
            first = max(after, 0) + 1
            last = min(head.sequence, first - 1 + max(limit, 0))
            if last < first:
                return []
            base = number << SEQUENCE_BITS
            found = reader.execute(ENTRIES, (base + first - 1, base + last))
            rows = [to_row(stream, id_ - base, hash_, body) for id_, hash_, body in found]
            # A torn page may hold an entry with any number.
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
            number, _ = read_head(reader, stream)
            for start in range(0, len(keys), KEYS_PER_QUERY):
                chunk = tuple(keys[start : start + KEYS_PER_QUERY])
                # Padded to a power of two: few different statements, so each is compiled once.
                marks = 1 << (len(chunk) - 1).bit_length()
                padded = chunk + chunk[-1:] * (marks - len(chunk))
                for key, sequence, hash_, body in reader.execute(FIND_BY_SIZE[marks], (number, *padded)):
                    if body is None:
                        raise LedgerCorrupt(f"Entry {sequence} of {stream!r} is gone, but its key is there")
                    found[key] = to_row(stream, sequence, hash_, body)
                for key, mark in reader.execute(KEY_MARKS_BY_SIZE[marks], (-number, *padded)):
                    check_key(stream, key, found[key].sequence if key in found else None, mark)
        return found

    def view(self, stream: str, names: Sequence[str], after: int, limit: int, keys: Sequence[str]) -> View:
        head, blobs = self.load(stream, names)
        return View(head, blobs, self.entries(stream, after, limit), self.find(stream, keys))

    def blobs(self, stream: str, prefix: str, after: str, limit: int) -> list[tuple[str, bytes]]:
        with self._reading() as reader:
            number, head = read_checked_head(reader, stream)
            stored, marks, names = read_names(reader, number, prefix, after, limit)
        values = (
            (name, unsealed(stream, name, stored.get(name), marks.get(name), marked=head.marked))
            for name in names
        )
        return [(name, value) for name, value in values if value is not None]

    def names(self, stream: str, prefix: str, after: str, limit: int) -> list[str]:
        with self._reading() as reader:
            number, _ = read_head(reader, stream)
            return read_names(reader, number, prefix, after, limit)[2]

    def streams(self, after: str, limit: int) -> list[str]:
        """Names > `after` of the streams that were written to, in order."""
        with self._reading() as reader:
            found = [name for (name,) in reader.execute(STREAMS, (after, max(limit, 0)))]
        check_order("The list of streams", after, found)
        return found

    def put_note(self, name: str, note: Note) -> None:
        self._write_note(_PUT_NOTE, (name, note.salt, note.text))

    def notes(self, names: Sequence[str]) -> dict[str, Note]:
        with self._reading() as reader:
            rows = ((name, reader.execute(NOTE, (name,)).fetchone()) for name in names)
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
            writer.execute("PRAGMA secure_delete=ON")  # zeroes freed bytes; too slow for blobs
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
        """One transaction: on disk when the block ends, rolled back when it raises."""
        with self._file.translate_errors(f"write {self._file.name}"), self._holding_writer() as writer:
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
        """A connection in one read transaction. Reused unless an error occurred."""
        with self._file.translate_errors(f"read {self._file.name}"):
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
            # Checked after it is given back, so that either this or close() closes it.
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
