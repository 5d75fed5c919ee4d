"""What stands in the keys, read back: anything that no store wrote is LedgerCorrupt."""

import json
from typing import Any

from odometer_accountant.errors import LedgerCorrupt
from odometer_accountant.stores.base import Head, Note, Row
from odometer_accountant.stores.marks import checked_head, examined_head


def head(stream: str, sequence: bytes | None, hash_: bytes | None) -> Head:
    """The head, of its two fields."""
    if sequence is None or hash_ is None:
        raise LedgerCorrupt(f"A part of the head of {stream!r} is gone")
    return Head(number(stream, sequence), _text(stream, hash_))


def checked(stream: str, sequence: bytes | None, hash_: bytes | None, mark: bytes | None) -> Head:
    """The head, once its mark says the same."""
    return checked_head(stream, 0, head(stream, sequence, hash_), _mark(stream, mark))


def examined(
    stream: str, sequence: bytes | None, hash_: bytes | None, mark: bytes | None
) -> tuple[Head, str]:
    """The head, and what is wrong with it."""
    return examined_head(0, head(stream, sequence, hash_), _mark(stream, mark))


def _mark(stream: str, mark: bytes | None) -> str | None:
    return None if mark is None else _text(stream, mark)


def row(stream: str, entry: Any) -> Row:
    """An entry of a Redis Stream: its id, and the fields h and b."""
    id_, fields = entry
    sequence, _, minor = bytes(id_).partition(b"-")
    if minor != b"0" or len(fields) != 4 or fields[0] != b"h" or fields[2] != b"b":
        raise LedgerCorrupt(f"An entry of {stream!r} was not written by Privacy Odometer (id {id_!r})")
    return Row(int(sequence), _text(stream, fields[1]), bytes(fields[3]))


def number(stream: str, text: bytes) -> int:
    """A whole number ≥ 0."""
    if not text.isdigit():
        raise LedgerCorrupt(f"A number in the stream {stream!r} is none")
    return int(text)


def _text(stream: str, text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise LedgerCorrupt(f"A hash in the stream {stream!r} is damaged (no UTF-8)") from None


def note(name: str, value: bytes) -> Note:
    """A note, of its JSON."""
    try:
        salt, text = json.loads(value)
        return Note(str(salt), str(text))
    except (ValueError, TypeError):
        raise LedgerCorrupt(f"The note {name!r} is damaged") from None
