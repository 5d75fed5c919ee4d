"""A second place for what a stream's blobs and its end are, so that one of them that was lost is found.

Beside each blob a store keeps its mark: a digest of stream, name and value, in another table or key, written
by the same append. One fault (a row, a page, a field; gone, older, torn, or another's) never hits both: the
two then differ, and the blob is damage, neither old nor zero. The end of a stream has a mark too. Streams
that an earlier version wrote have no marks, until all that they hold was counted again from their entries.
"""

import hashlib
from typing import Final

from odometer_accountant.errors import LedgerCorrupt
from odometer_accountant.stores.base import EMPTY_HEAD, Head

ADVICE: Final = frozenset({"turn"})
"""Blobs without a mark: what is lost with them costs time and nothing else."""
HEAD: Final = ""
"""Where among the marks of a stream that of its end stands: no blob has this name."""
_BYTES: Final = 8
_SEAL: Final = {"config": b"\x02"}
"""What a marked blob of that name starts with: who knows no marks cannot read it, and so writes nothing."""


def mark_of(stream: str, name: str, value: bytes) -> bytes:
    """The mark of a blob. It finds all faults but one in 2^64; it does not keep out somebody who writes."""
    text = f"{len(stream)} {stream} {len(name)} {name} ".encode()
    return hashlib.blake2b(text + value, digest_size=_BYTES).digest()


def key_mark(stream: str, key: str, sequence: int) -> bytes:
    """The mark of a key, which leads to an entry. A key without one is of an earlier version."""
    return mark_of(stream, key_name(key), str(sequence).encode())


def key_name(key: str) -> str:
    """The name that a key has among marks of blobs: no blob's name has a space."""
    return f"key {key}"


def check_key(stream: str, key: str, sequence: int | None, mark: bytes | None) -> None:
    """LedgerCorrupt unless a key leads where its mark says; `sequence` is None where there is no such key."""
    if mark is None:
        return
    if sequence is None:
        raise LedgerCorrupt(f"A key of the stream {stream!r} is gone: run odometer verify")
    if mark != key_mark(stream, key, sequence):
        raise LedgerCorrupt(
            f"A key of the stream {stream!r} leads to entry {sequence}, not its own: run odometer verify"
        )


def sealed(name: str, value: bytes) -> bytes:
    """A blob as it is stored."""
    return _SEAL.get(name, b"") + value


def unsealed(
    stream: str, name: str, stored: bytes | None, mark: bytes | None, *, marked: bool
) -> bytes | None:
    """A blob as it was given, None where there is none. LedgerCorrupt unless its mark says the same."""
    value, fault = examined(stream, name, stored, mark, marked=marked)
    if fault:
        raise LedgerCorrupt(f"{name!r} of the stream {stream!r} {fault}: run odometer verify")
    return value


def examined(
    stream: str, name: str, stored: bytes | None, mark: bytes | None, *, marked: bool
) -> tuple[bytes | None, str]:
    """A blob as it was given, or as it can be read, and what is wrong with it, "" when nothing is."""
    if stored is None:
        gone = mark is not None and marked and name not in ADVICE
        return None, "is gone: that is not zero, it is unknown" if gone else ""
    if name in ADVICE:
        return stored, ""
    seal = _SEAL.get(name, b"")
    value = stored.removeprefix(seal)
    if not marked:
        return value, "has a mark, and the end of its stream has none" if value != stored else ""
    if mark is None:
        return value, "has no mark: that was lost, or this is not of here"
    if stored != seal + value or mark != mark_of(stream, name, value):
        return value, "is not what its entries left there: it is older, damaged, or that of another"
    return value, ""


def head_mark(number: int, head: Head) -> str:
    """The mark of a stream's end; `number` is how the store calls the stream, 0 where it does not."""
    return f"{number} {head.sequence} {head.hash}"


def checked_head(stream: str, number: int, head: Head, mark: str | None) -> Head:
    """The head, and whether it has a mark. Raises LedgerCorrupt when that says something else."""
    found, fault = examined_head(number, head, mark)
    if fault:
        raise LedgerCorrupt(f"The stream {stream!r} {fault}: run odometer verify")
    return found


def examined_head(number: int, head: Head, mark: str | None) -> tuple[Head, str]:
    """The head, whether it has a mark, and what is wrong with it, "" when nothing is.

    It may be further than its mark: a version without marks has written since. What it wrote over is then
    found by the marks of the blobs.
    """
    if mark is None:
        return (head if head == EMPTY_HEAD else Head(head.sequence, head.hash, marked=False)), ""
    try:
        at, sequence, digest = mark.split(" ", 2)
        known, last = int(at), Head(int(sequence), digest)
    except ValueError:
        return head, "has a mark of its end that cannot be read"
    if known != number and number:
        return head, "has a ledger that is that of another"
    if head.sequence < last.sequence:
        return head, f"had {last.sequence} entries, and its head says {head.sequence}"
    if head.sequence == last.sequence and head != last:
        return head, f"has a head of another hash ({head.hash[:16]}…) than its mark ({last.hash[:16]}…)"
    return head, ""
