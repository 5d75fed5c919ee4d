"""A second place for what a stream's blobs and its end are, so that one of them that was lost is not believed.

Beside each blob a store keeps its mark: a digest of stream, name and value, in another table or key, written
by the same append. One fault (a row, a page, a field; gone, older, torn, or another's) never hits both: the two
then differ, and the blob is damage, neither old nor zero. The end of a stream has a mark too. Streams that an
earlier version wrote have no marks, until all that they hold was counted again from their entries.
"""

import hashlib
from typing import Final

from accountant.errors import LedgerCorrupt
from accountant.stores.base import EMPTY_HEAD, Head

ADVICE: Final = frozenset({"turn"})
"""Blobs without a mark: what is lost with them costs time and nothing else."""
HEAD: Final = ""
"""Where among the marks of a stream that of its end stands: no blob has this name."""
_BYTES: Final = 8
_SEALED: Final = b"\x02"
"""What a marked blob starts with. A version that knows no marks cannot read it, and so writes none beside it."""


def mark_of(stream: str, name: str, value: bytes) -> bytes:
    """The mark of a blob. It finds faults, one in 2^64 excepted; it is no defence against somebody who writes."""
    text = f"{len(stream)} {stream} {len(name)} {name} ".encode()
    return hashlib.blake2b(text + value, digest_size=_BYTES).digest()


def sealed(name: str, value: bytes) -> bytes:
    """A blob as it is stored."""
    return value if name in ADVICE else _SEALED + value


def unsealed(stream: str, name: str, stored: bytes | None, mark: bytes | None, *, marked: bool) -> bytes | None:
    """A blob as it was given, None where there is none. Raises LedgerCorrupt unless its mark says the same."""
    if name in ADVICE:
        return stored
    if not marked:
        if stored is not None and stored.startswith(_SEALED):
            raise LedgerCorrupt(f"The mark of the end of {stream!r} is gone: run odometer verify")
        return stored
    if stored is None and mark is None:
        return None
    if stored is None:
        raise LedgerCorrupt(
            f"{name!r} of the stream {stream!r} is gone: it is not zero, it is unknown; run odometer verify"
        )
    if not stored.startswith(_SEALED) or mark is None or mark != mark_of(stream, name, value := stored[1:]):
        raise LedgerCorrupt(
            f"{name!r} of the stream {stream!r} is not what was last written there: it is older, damaged, "
            "or that of another; run odometer verify"
        )
    return value


def head_mark(number: int, head: Head) -> str:
    """The mark of a stream's end; `number` is how the store calls the stream, 0 where it does not."""
    return f"{number} {head.sequence} {head.hash}"


def checked_head(stream: str, number: int, head: Head, mark: str | None) -> Head:
    """The head, and whether it has a mark. Raises LedgerCorrupt when the stream was further than it is.

    It may be further than its mark: a version that knows none has written since. What it wrote over is then
    found by the marks of the blobs.
    """
    if mark is None:
        return head if head == EMPTY_HEAD else Head(head.sequence, head.hash, marked=False)
    try:
        at, sequence, digest = mark.split(" ", 2)
        known, last = int(at), Head(int(sequence), digest)
    except ValueError:
        raise LedgerCorrupt(f"The mark of the end of {stream!r} cannot be read") from None
    if known != number and number:
        raise LedgerCorrupt(f"The ledger of {stream!r} is that of another stream: run odometer verify")
    if head.sequence < last.sequence or (head.sequence == last.sequence and head != last):
        raise LedgerCorrupt(
            f"The stream {stream!r} had {last.sequence} entries, and its head says {head.sequence}, or others: "
            "run odometer verify"
        )
    return head
