"""A store that forgets: the same promises as the others, except to outlive its process. For tests."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from threading import Lock

from odometer_accountant.errors import StoreUnavailable
from odometer_accountant.stores.base import EMPTY_HEAD, Examined, Head, Note, Row, View, Write


@dataclass(slots=True)
class _Stream:
    rows: list[Row] = field(default_factory=list)
    sequences: dict[str, int] = field(default_factory=dict)  # by key
    blobs: dict[str, bytes] = field(default_factory=dict)

    def head(self) -> Head:
        return Head(self.rows[-1].sequence, self.rows[-1].hash) if self.rows else EMPTY_HEAD


class MemoryStore:
    """Streams in dictionaries under one lock."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._streams: dict[str, _Stream] = {}
        self._notes: dict[str, Note] = {}
        self._closed = False

    @contextmanager
    def _open(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise StoreUnavailable("The store was closed. Open it again.")
            yield

    def load(self, stream: str, names: Sequence[str]) -> tuple[Head, dict[str, bytes]]:
        with self._open():
            found = self._streams.get(stream, _Stream())
            return found.head(), {name: found.blobs[name] for name in names if name in found.blobs}

    def append(self, writes: Sequence[Write]) -> list[bool]:
        with self._open():
            if len({write.stream for write in writes}) < len(writes):
                raise ValueError("A stream stands in two writes of one append: make them one write")
            fresh = [self._is_fresh(write) for write in writes]
            for write, current in zip(writes, fresh, strict=True):
                if current:
                    self._apply(write)
            return fresh

    def _is_fresh(self, write: Write) -> bool:
        stream = self._streams.get(write.stream, _Stream())
        if stream.head() != write.expected:
            return False
        keys = [entry.key for entry in write.entries if entry.key is not None]
        if len(set(keys)) < len(keys) or any(key in stream.sequences for key in keys):
            raise ValueError(f"A key is already in the stream {write.stream!r}: nothing was appended")
        return True

    def _apply(self, write: Write) -> None:
        stream = self._streams.setdefault(write.stream, _Stream())
        for sequence, entry in zip(count(write.expected.sequence + 1), write.entries, strict=False):
            stream.rows.append(Row(sequence, entry.hash, entry.body))
            if entry.key is not None:
                stream.sequences[entry.key] = sequence
        stream.blobs.update(write.blobs)

    def entries(self, stream: str, after: int, limit: int) -> list[Row]:
        with self._open():
            rows = self._streams.get(stream, _Stream()).rows
            return rows[max(after, 0) :][: max(limit, 0)]

    def find(self, stream: str, keys: Sequence[str]) -> dict[str, Row]:
        with self._open():
            found = self._streams.get(stream, _Stream())
            return {key: found.rows[found.sequences[key] - 1] for key in keys if key in found.sequences}

    def view(self, stream: str, names: Sequence[str], after: int, limit: int, keys: Sequence[str]) -> View:
        head, blobs = self.load(stream, names)
        return View(head, blobs, self.entries(stream, after, limit), self.find(stream, keys))

    def blobs(self, stream: str, prefix: str, after: str, limit: int) -> list[tuple[str, bytes]]:
        with self._open():
            items = sorted(self._streams.get(stream, _Stream()).blobs.items())
            matching = [item for item in items if item[0].startswith(prefix) and item[0] > after]
            return matching[: max(limit, 0)]

    def examine(self, stream: str, names: Sequence[str]) -> Examined:
        return Examined(*self.load(stream, names), {})

    def names(self, stream: str, prefix: str, after: str, limit: int) -> list[str]:
        return [name for name, _ in self.blobs(stream, prefix, after, limit)]

    def streams(self, after: str, limit: int) -> list[str]:
        with self._open():
            return sorted(name for name in self._streams if name > after)[: max(limit, 0)]

    def put_note(self, name: str, note: Note) -> None:
        with self._open():
            self._notes[name] = note

    def notes(self, names: Sequence[str]) -> dict[str, Note]:
        with self._open():
            return {name: self._notes[name] for name in names if name in self._notes}

    def erase_note(self, name: str) -> None:
        with self._open():
            self._notes.pop(name, None)

    def check(self) -> list[str]:
        return []

    def ping(self) -> None:
        with self._open():
            pass

    def close(self) -> None:
        with self._lock:
            self._closed = True


def open_url(url: str) -> MemoryStore:
    """A new, empty store for `memory://`. Raises ValueError when anything follows."""
    if url != "memory://":
        raise ValueError("A memory store has no name and no options: write memory://")
    return MemoryStore()
