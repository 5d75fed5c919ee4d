"""Parses replies of Redis. Anything that a store cannot have written raises LedgerCorrupt."""

import json
from collections.abc import Sequence
from typing import Any

from odometer_accountant.errors import LedgerCorrupt
from odometer_accountant.stores.base import Head, Note, Row
from odometer_accountant.stores.marks import (
    checked_head,
    examined_head,
    unsealed,
)


def head(stream: str, sequence: bytes | None, hash_: bytes | None) -> Head:
    """The head, from its two fields."""
    if sequence is None or hash_ is None:
        raise LedgerCorrupt(f"A part of the head of {stream!r} is gone")
    return Head(number(stream, sequence), _text(stream, hash_))


def checked(stream: str, sequence: bytes | None, hash_: bytes | None, mark: bytes | None) -> Head:
    """The head, checked against its mark."""
    return checked_head(stream, 0, head(stream, sequence, hash_), _mark(stream, mark))


def examined(
    stream: str, sequence: bytes | None, hash_: bytes | None, mark: bytes | None
) -> tuple[Head, str]:
    """The head, and its fault ("" for none)."""
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
        raise LedgerCorrupt(f"stream {stream!r}: expected a number")
    return int(text)


def _text(stream: str, text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise LedgerCorrupt(f"A hash in the stream {stream!r} is damaged (not UTF-8)") from None


def note(name: str, value: bytes) -> Note:
    """A note, from its JSON."""
    try:
        salt, text = json.loads(value)
        return Note(str(salt), str(text))
    except (ValueError, TypeError):
        raise LedgerCorrupt(f"The note {name!r} is damaged") from None


def loaded(stream: str, names: Sequence[str], answer: Sequence[Any]) -> tuple[Head, dict[str, bytes]]:
    """The head and the blobs in a reply of `load.lua`."""
    sequence, hash_, mark, *found = answer
    head = checked(stream, sequence, hash_, mark)
    return head, unsealed_blobs(stream, names, found[::2], found[1::2], marked=head.marked)


def unsealed_blobs(
    stream: str, names: Sequence[str], stored: Sequence[Any], marks: Sequence[Any], *, marked: bool
) -> dict[str, bytes]:
    """The blobs that exist, each checked against its mark."""
    blobs = {}
    for name, value, mark in zip(names, stored, marks, strict=True):
        given = unsealed(stream, name, value, mark, marked=marked)
        if given is not None:
            blobs[name] = given
    return blobs


def rows(stream: str, first: int, limit: int, answer: Sequence[Any]) -> list[Row]:
    """The rows in a reply of `entries.lua`. LedgerCorrupt unless they are all entries that are due."""
    sequence, found = answer
    parsed = [row(stream, entry) for entry in found]
    end = number(stream, sequence)
    if [one.sequence for one in parsed] != list(range(first, min(end, first - 1 + limit) + 1)):
        raise LedgerCorrupt(
            f"The stream {stream!r} has {end} entries, but not all from {first} on are there, or too many"
        )
    return parsed
