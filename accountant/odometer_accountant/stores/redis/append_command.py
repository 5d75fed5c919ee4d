"""Builds the arguments of the script APPEND, and finds the writes whose keys must be checked before it."""

from collections.abc import Sequence
from itertools import count

from odometer_accountant.stores.base import Head, Write
from odometer_accountant.stores.marks import (
    ADVICE,
    head_mark,
    key_mark,
    mark_of,
    sealed,
)
from odometer_accountant.stores.redis.connection import Argument


def needs_key_check(writes: Sequence[Write]) -> bool:
    """Whether keys must be checked before the scripts run.

    A taken key in one write must stop all of them; a script does not see a duplicate among its own keys.
    """
    if len(writes) == 1:
        return has_duplicate_key(writes[0])
    return any(entry.key is not None for write in writes for entry in write.entries)


def has_duplicate_key(write: Write) -> bool:
    """Whether two entries of the write have the same key."""
    keys = [entry.key for entry in write.entries if entry.key is not None]
    return len(set(keys)) < len(keys)


def refuse_keys(stream: str) -> None:
    """Raise the ValueError for a key that is taken."""
    raise ValueError(f"A key is already in the stream {stream!r}: nothing was appended")


def append_arguments(write: Write) -> list[Argument]:
    """The ARGV of `append.lua`."""
    expected, entries = write.expected, write.entries
    last = Head(expected.sequence + len(entries), entries[-1].hash) if entries else expected
    numbered = list(zip(count(expected.sequence + 1), entries, strict=False))
    rows: list[Argument] = []
    for sequence, entry in numbered:
        rows += (f"{sequence}-0", entry.hash.encode(), entry.body)
    keys: list[Argument] = []
    for sequence, entry in numbered:
        if entry.key is not None:
            keys += (entry.key.encode(), sequence, key_mark(write.stream, entry.key, sequence))
    blobs: list[Argument] = []
    for name, value in write.blobs.items():
        mark = b"" if name in ADVICE else mark_of(write.stream, name, value)
        blobs += (name.encode(), sealed(name, value), mark)
    start = 9 + len(rows)  # eight arguments come before the rows; Lua counts from 1
    heads: list[Argument] = [expected.sequence, expected.hash.encode(), last.sequence, last.hash.encode()]
    marks: list[Argument] = [head_mark(0, last), int(write.adopts)]
    return [*heads, start, start + len(keys), *marks, *rows, *keys, *blobs]
