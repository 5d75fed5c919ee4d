"""Reads rows of a ledger file and checks them. Every function raises LedgerCorrupt for damaged rows."""

import sqlite3
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from odometer_accountant.errors import LedgerCorrupt
from odometer_accountant.stores.base import EMPTY_HEAD, Head, Row
from odometer_accountant.stores.marks import (
    checked_head,
)
from odometer_accountant.stores.sqlite_file import SEQUENCE_BITS

KEYS_PER_QUERY = 256
_HEAD = "SELECT id, sequence, hash FROM streams WHERE name=?"
_HEAD_MARK = "SELECT CAST(mark AS TEXT) FROM marks WHERE stream=0 AND name=?"
# CAST: a database tool may have stored text instead of bytes; the bytes are the same.
_BLOB = "SELECT CAST(value AS BLOB) FROM blobs WHERE stream=? AND name=?"
_MARK = "SELECT CAST(mark AS BLOB) FROM marks WHERE stream=? AND name=?"
_BLOBS = (
    "SELECT name, CAST(value AS BLOB) FROM blobs WHERE stream=? AND name>? AND name>=? ORDER BY name LIMIT ?"
)
_MARKS = (
    "SELECT name, CAST(mark AS BLOB) FROM marks WHERE stream=? AND name>? AND name>=? ORDER BY name LIMIT ?"
)
ENTRIES = "SELECT id, hash, CAST(body AS BLOB) FROM entries WHERE id>? AND id<=? ORDER BY id"
# Also streams whose row is gone: they were lost and must not be skipped.
STREAMS = """SELECT name FROM streams WHERE name>?1
    UNION SELECT name FROM marks WHERE stream=0 AND name>?1 ORDER BY name LIMIT ?2"""


# LEFT JOIN: a key whose entry is gone is damage, not a free key.
_FIND = """SELECT keys.key, keys.sequence, entries.hash, CAST(entries.body AS BLOB)
    FROM keys LEFT JOIN entries ON entries.id = (keys.stream << {bits}) + keys.sequence
    WHERE keys.stream=? AND keys.key IN ({marks})"""
_KEY_MARKS = "SELECT name, CAST(mark AS BLOB) FROM marks WHERE stream=? AND name IN ({marks})"
NOTE = "SELECT salt, text FROM notes WHERE name=?"


def read_head(connection: sqlite3.Connection, stream: str) -> tuple[int, Head]:
    """The stream's number and head; number 0 if there is no such stream."""
    row = connection.execute(_HEAD, (stream,)).fetchone()
    if row is None:
        return 0, EMPTY_HEAD
    number, sequence, digest = row
    if not isinstance(sequence, int) or not isinstance(digest, str):
        raise LedgerCorrupt(f"The head of the stream {stream!r} is damaged: run odometer verify")
    return number, Head(sequence, digest)


def to_row(stream: str, sequence: Any, digest: Any, body: Any) -> Row:
    """An entry from SQLite's values. LedgerCorrupt unless they are a whole number, text and bytes."""
    if isinstance(sequence, int) and isinstance(digest, str) and isinstance(body, bytes):
        return Row(sequence, digest, body)
    raise LedgerCorrupt(f"An entry of {stream!r} is damaged: run odometer verify")


def check_order(what: str, after: str, names: Sequence[Any]) -> None:
    """LedgerCorrupt unless all names are text in rising order. A torn page may hold anything.

    Otherwise a caller that continues after the last name could loop for ever or skip names.
    """
    texts = all(isinstance(name, str) for name in names)
    if not texts or any(name <= before for before, name in pairwise((after, *names))):
        raise LedgerCorrupt(f"{what} is damaged: run odometer verify")


def read_checked_head(connection: sqlite3.Connection, stream: str) -> tuple[int, Head]:
    """As `read_head`, checked against its mark."""
    number, head = read_head(connection, stream)
    return number, checked_head(stream, number, head, read_head_mark(connection, stream))


def read_head_mark(connection: sqlite3.Connection, stream: str) -> str | None:
    """The mark of the stream's head; None if there is none."""
    row = connection.execute(_HEAD_MARK, (stream,)).fetchone()
    return None if row is None else str(row[0])


def read_blob(connection: sqlite3.Connection, number: int, name: str) -> tuple[bytes | None, bytes | None]:
    """The blob of that name and its mark, each None if missing."""
    place = (number, name)
    return _first_column(connection.execute(_BLOB, place).fetchone()), _first_column(
        connection.execute(_MARK, place).fetchone()
    )


def read_names(
    connection: sqlite3.Connection, number: int, prefix: str, after: str, limit: int
) -> tuple[dict[str, bytes], dict[str, bytes], list[str]]:
    """Blobs and marks with a name > `after`, and the names of either that start with `prefix`, in order.

    Up to `limit` of each: a blob may lack its mark, or a mark its blob.
    """
    limit = max(limit, 0)
    page = (number, after, prefix, limit)
    found = [list(connection.execute(statement, page)) for statement in (_BLOBS, _MARKS)]
    for rows in found:
        check_order("The list of blobs", after, [name for name, _ in rows])
    stored, marks = map(dict, found)
    names = sorted({*stored, *marks})[:limit]
    return stored, marks, [name for name in names if name.startswith(prefix)]


def _first_column(row: tuple[Any] | None) -> Any:
    return None if row is None else row[0]


FIND_BY_SIZE = {
    1 << power: _FIND.format(bits=SEQUENCE_BITS, marks=",".join("?" * (1 << power)))
    for power in range(KEYS_PER_QUERY.bit_length())
}
KEY_MARKS_BY_SIZE = {marks: _KEY_MARKS.format(marks=",".join("?" * marks)) for marks in FIND_BY_SIZE}
