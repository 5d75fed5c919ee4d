"""The interface of a store: streams of numbered entries, and blobs. It knows nothing about privacy."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a stream: its last sequence number (0 when empty) and that entry's hash ("" when empty)."""

    sequence: int
    hash: str
    marked: bool = field(default=True, compare=False)
    """Whether its blobs have marks. Where an earlier version wrote them they have none, and may be old."""


EMPTY_HEAD = Head(0, "")


@dataclass(frozen=True, slots=True)
class Row:
    """One stored entry: the exact bytes that were hashed, and the hash."""

    sequence: int
    hash: str
    body: bytes


@dataclass(frozen=True, slots=True)
class NewEntry:
    """An entry to append. `key`, unique per stream or None, is the caller's key with its principal."""

    hash: str
    body: bytes
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """One stream's append: all of it or nothing, and only if the stream still ends at `expected`.

    `blobs` replace the stored blobs of the same name (running totals per scope, folded configuration).
    `adopts`: the stream has no marks yet, and these are all its blobs, counted again.
    """

    stream: str
    expected: Head
    entries: Sequence[NewEntry]
    blobs: dict[str, bytes] = field(default_factory=dict)
    adopts: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """An erasable text, and the salt of the hash that the ledger keeps of it."""

    salt: str
    text: str


@dataclass(frozen=True, slots=True)
class View:
    """The results of `load`, `entries` and `find`, read in this order: later parts may be newer."""

    head: Head
    blobs: dict[str, bytes]
    rows: list[Row]
    found: dict[str, Row]


@dataclass(frozen=True, slots=True)
class Examined:
    """Stored values, whether or not their marks agree. `faults`: by name; "" is the head."""

    head: Head
    blobs: dict[str, bytes]
    faults: dict[str, str]


class Store(Protocol):
    """The verbs. Every method raises `StoreUnavailable` when the answer is not certain.

    `load`, `view`, `blobs` and `append` raise `LedgerCorrupt` for a head or blob that is gone, older than its
    last append, torn or another's (stores.marks), unless the head is not `marked`. Safe to call
    from several threads.
    """

    def load(self, stream: str, names: Sequence[str]) -> tuple[Head, dict[str, bytes]]:
        """The stream's head and those of the named blobs that exist, read at one moment."""
        ...

    def append(self, writes: Sequence[Write]) -> list[bool]:
        """Append each write, durably, before returning. True: done. False: stale head, nothing of it written.

        A stream stands in at most one write. Raises StoreUnavailable when unsure (then each write may or
        may not have happened), and ValueError when a key is already in its stream.
        """
        ...

    def entries(self, stream: str, after: int, limit: int) -> list[Row]:
        """Up to `limit` entries with sequence > `after`, in order."""
        ...

    def find(self, stream: str, keys: Sequence[str]) -> dict[str, Row]:
        """The entries that were appended under these keys."""
        ...

    def view(self, stream: str, names: Sequence[str], after: int, limit: int, keys: Sequence[str]) -> View:
        """`load`, `entries` and `find` in one exchange with the store, where it is away from here."""
        ...

    def blobs(self, stream: str, prefix: str, after: str, limit: int) -> list[tuple[str, bytes]]:
        """Blobs whose name starts with `prefix` and is > `after`, ordered by name."""
        ...

    def examine(self, stream: str, names: Sequence[str]) -> Examined:
        """As `load`, with what contradicts its mark and what is wrong with it. For who looks for faults."""
        ...

    def names(self, stream: str, prefix: str, after: str, limit: int) -> list[str]:
        """As `blobs`, the names alone, of those too whose blob is gone or no longer what it was."""
        ...

    def streams(self, after: str, limit: int) -> list[str]:
        """Names of existing streams > `after`, in order; also of those that lost their head."""
        ...

    def put_note(self, name: str, note: Note) -> None: ...

    def notes(self, names: Sequence[str]) -> dict[str, Note]: ...

    def erase_note(self, name: str) -> None: ...

    def check(self) -> list[str]:
        """Faults of the store itself, as texts. Reads all of it."""
        ...

    def ping(self) -> None:
        """Raise StoreUnavailable unless the store can be read now."""
        ...

    def close(self) -> None: ...
