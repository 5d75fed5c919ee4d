"""Adds one write to the open transaction of a ledger file."""

import sqlite3
from collections.abc import Sequence

from odometer_accountant.errors import LedgerCorrupt
from odometer_accountant.stores.base import Head, NewEntry, Write
from odometer_accountant.stores.marks import (
    ADVICE,
    head_mark,
    key_mark,
    mark_of,
    sealed,
)
from odometer_accountant.stores.sqlite_file import SEQUENCE_BITS
from odometer_accountant.stores.sqlite_reading import (
    read_checked_head,
)

_NEW_STREAM = "INSERT INTO streams(name, sequence, hash) VALUES (?, ?, ?)"
_MOVE_HEAD = "UPDATE streams SET sequence=?, hash=? WHERE id=?"
_NEW_ENTRY = "INSERT INTO entries(id, hash, body) VALUES (?, ?, ?)"
_NEW_KEY = "INSERT INTO keys(stream, key, sequence) VALUES (?, ?, ?)"
_PUT_BLOB = """INSERT INTO blobs(stream, name, value) VALUES (?, ?, ?)
    ON CONFLICT (stream, name) DO UPDATE SET value=excluded.value"""
_NEW_MARK = "INSERT INTO marks(stream, name, mark) VALUES (?, ?, ?)"
_PUT_MARK = """INSERT INTO marks(stream, name, mark) VALUES (?, ?, ?)
    ON CONFLICT (stream, name) DO UPDATE SET mark=excluded.mark"""


def append_write(writer: sqlite3.Connection, write: Write) -> bool:
    """Add one write to the open transaction. False, without changes, when its head is stale."""
    number, head = read_checked_head(writer, write.stream)
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
        # Under the negative number, so that no list of blobs finds them.
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
    """Insert the entries and keys. Returns the new rows of `keys`."""
    base = (number << SEQUENCE_BITS) + first
    writer.executemany(_NEW_ENTRY, [(base + i, entry.hash, entry.body) for i, entry in enumerate(entries)])
    keys = [(number, entry.key, first + i) for i, entry in enumerate(entries) if entry.key is not None]
    try:
        writer.executemany(_NEW_KEY, keys)
    except sqlite3.IntegrityError as error:
        raise ValueError("A key is already in its stream: nothing was appended") from error
    return keys
