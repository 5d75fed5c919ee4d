"""An exported file into an empty store: all of it is counted again first, then it is written.

An import that stops halfway leaves a store in which nothing can be charged:

1. The whole file is verified, as `odometer verify` does a store. Any finding, and nothing is written.
2. Every dataset and shard gets its first entry, so that nobody can open one under that name.
3. All further entries, totals, notes; the API keys after them, in one append.
4. Only then each gets its configuration. A stream with entries and without one is damaged for every reader
   (`LedgerCorrupt`), so what was imported in part answers 503, and `odometer verify` finds it.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final, Self

from odometer_accountant.ledger.blobs import CONFIG_BLOB
from odometer_accountant.scopes import holds_losses
from odometer_accountant.stores import EMPTY_HEAD, Head, NewEntry, Note, Store, Write
from odometer_accountant.transfer.check import FileChecker
from odometer_accountant.transfer.format import KEYS, MovingRefused, Progress, Reader
from odometer_accountant.verify.walk import all_streams

BATCH: Final = 1000
"""Entries or blobs of one append at most."""
BATCH_BYTES: Final = 4 << 20
STREAMS_AT_ONCE: Final = 256

_TABLES: Final = """
PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;
CREATE TABLE streams(id INTEGER PRIMARY KEY, name TEXT UNIQUE, sequence INTEGER, hash TEXT,
    first_hash TEXT, first_body BLOB, config BLOB);
CREATE TABLE keys(stream INTEGER, key TEXT, sequence INTEGER, PRIMARY KEY (stream, key)) WITHOUT ROWID;
CREATE INDEX keys_of ON keys(stream, sequence);
CREATE TABLE blobs(stream INTEGER, name TEXT, value BLOB, PRIMARY KEY (stream, name)) WITHOUT ROWID;
CREATE TABLE people(principal TEXT PRIMARY KEY, name_hash TEXT) WITHOUT ROWID;
"""
_FIRSTS: Final = (
    "SELECT name, first_hash, first_body FROM streams WHERE name!=? ORDER BY name LIKE '~%', name"
)
"""Datasets before their shards."""
_CONFIGS: Final = "SELECT name, sequence, hash, config FROM streams WHERE name!=? ORDER BY name DESC"
_KEYS_BETWEEN: Final = "SELECT sequence, key FROM keys WHERE stream=? AND sequence BETWEEN ? AND ?"


@dataclass(frozen=True)
class Imported:
    """A summary of an import."""

    streams: int
    entries: int
    notes: int
    sha256: str


def require_empty(store: Store) -> None:
    """Raise MovingRefused when a store holds any stream."""
    names = store.streams("", 2)
    if not names:
        return
    if names == [KEYS]:
        raise MovingRefused(
            "the target holds API keys and no dataset: a service was started on it. Stop that, and import "
            "into an empty store"
        )
    if any(unfinished(store, name) for name in all_streams(store)):
        raise MovingRefused(
            "the target holds a part of an import that did not end. Remove it all, and import again"
        )
    raise MovingRefused(
        f"the target is not empty (it holds {names[0]!r}): an import goes into an empty store only"
    )


def unfinished(store: Store, stream: str) -> bool:
    """Whether a stream is of an import that did not end: it has entries and no configuration."""
    return holds_losses(stream) and CONFIG_BLOB not in store.load(stream, [CONFIG_BLOB])[1]


class Import:
    """One file's way into a store: `check`, then `write`. To be closed.

    Intermediate results are kept in a temporary file: memory grows with the scopes of one stream and
    with the API keys, not with the entries.
    """

    def __init__(self, file: BinaryIO) -> None:
        """`file` must be able to seek to its start."""
        self._file = file
        self._db = sqlite3.connect("", isolation_level=None)  # "": a temporary file without a name
        self._db.executescript(_TABLES)
        self.began = False
        """Whether the target may hold something of it."""
        self.ended = False
        """Whether the target holds all of it, and can be used."""
        self._sha256 = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def check(self, progress: Progress | None = None) -> None:
        """Verify all of the file. Raises MovingRefused, with the findings if that is why."""
        self._file.seek(0)
        reader, checker = Reader(self._file, progress), FileChecker(self._db)
        self._db.execute("BEGIN")
        try:
            for document in reader:
                checker.take(document)
            checker.end()
        except MovingRefused as refused:
            raise MovingRefused(refused.detail, checker.findings) from None
        self._db.execute("COMMIT")
        if checker.findings:
            raise MovingRefused("the entries of this file contradict themselves", checker.findings)
        self._sha256 = reader.sha256

    def write(self, store: Store, progress: Progress | None = None) -> Imported:
        """Write what was checked into an empty store.

        Raises MovingRefused, StoreUnavailable, LedgerCorrupt; if it `began` and has not `ended`, the
        target has to be removed.
        """
        if not self._sha256:
            raise RuntimeError("check the file first")
        require_empty(store)
        self.began = True
        self._claim(store)
        self._file.seek(0)
        reader, writer = Reader(self._file, progress), _Writer(store, self._db)
        for document in reader:
            writer.take(document)
        writer.end()
        if reader.sha256 != self._sha256:
            raise MovingRefused("the file was changed while it was imported")
        writer.append_keys()
        self._release(store)
        self.ended = True
        return Imported(**reader.counts, sha256=self._sha256)

    def _claim(self, store: Store) -> None:
        """The first entries: after this nobody can open a dataset of one of the names."""
        rows = self._db.execute(_FIRSTS, (KEYS,))
        while some := rows.fetchmany(STREAMS_AT_ONCE):
            append(store, [Write(name, EMPTY_HEAD, [NewEntry(hash_, body)]) for name, hash_, body in some])

    def _release(self, store: Store) -> None:
        """The configurations: with them the streams can be used."""
        rows = self._db.execute(_CONFIGS, (KEYS,))
        while some := rows.fetchmany(STREAMS_AT_ONCE):
            append(
                store,
                [
                    Write(name, Head(sequence, hash_), [], {CONFIG_BLOB: config})
                    for name, sequence, hash_, config in some
                ],
            )


def append(store: Store, writes: Sequence[Write]) -> None:
    """Append all of it. Raises MovingRefused when somebody else writes there too."""
    try:
        done = store.append(writes)
    except ValueError as error:
        raise MovingRefused(f"the target does not take it: {error}") from error
    if not all(done):
        names = ", ".join(write.stream for write, kept in zip(writes, done, strict=True) if not kept)
        raise MovingRefused(f"somebody else wrote into the target meanwhile ({names[:200]})")


@dataclass
class _Writer:
    """Appends what is read, in batches; the configurations and the API keys are left for the end."""

    store: Store
    db: sqlite3.Connection
    _id: int = 0
    _stream: str = ""
    _head: Head = EMPTY_HEAD
    _rows: list[tuple[int, str, bytes]] = field(default_factory=list)
    _bytes: int = 0
    _keys: list[NewEntry] = field(default_factory=list)

    def take(self, document: dict[str, Any]) -> None:
        if "stream" in document:
            self.end()
            self._stream = document["stream"]
            found = self.db.execute(
                "SELECT id, first_hash FROM streams WHERE name=?", (self._stream,)
            ).fetchone()
            if found is None:
                raise MovingRefused("the file was changed while it was imported")
            self._id, self._head = found[0], Head(1, found[1])
        elif "entry" in document:
            self._entry(document)
        else:
            self.store.put_note(document["note"], Note(document["salt"], document["text"]))

    def end(self) -> None:
        """The rest of the current stream, and its blobs."""
        if not self._stream or self._stream == KEYS:
            return
        self._flush()
        for blobs in self._blobs():
            append(self.store, [Write(self._stream, self._head, [], blobs)])
        self._stream = ""

    def append_keys(self) -> None:
        """All at once: of a part, keys could work that were revoked later."""
        if self._keys:
            append(self.store, [Write(KEYS, EMPTY_HEAD, self._keys)])

    def _entry(self, document: dict[str, Any]) -> None:
        body = document["body"].encode("ascii")
        if self._stream == KEYS:
            self._keys.append(NewEntry(document["hash"], body))
        elif document["entry"] > 1:  # the first stands there already
            self._rows.append((document["entry"], document["hash"], body))
            self._bytes += len(body)
            if len(self._rows) >= BATCH or self._bytes >= BATCH_BYTES:
                self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        first, last = self._rows[0][0], self._rows[-1][0]
        wanted = (self._id, first, last)
        keys: dict[int, str] = dict(self.db.execute(_KEYS_BETWEEN, wanted).fetchall())
        entries = [NewEntry(hash_, body, keys.get(sequence)) for sequence, hash_, body in self._rows]
        append(self.store, [Write(self._stream, self._head, entries)])
        self._head = Head(last, self._rows[-1][1])
        self._rows, self._bytes = [], 0

    def _blobs(self) -> Iterator[dict[str, bytes]]:
        rows = self.db.execute("SELECT name, value FROM blobs WHERE stream=? ORDER BY name", (self._id,))
        while some := rows.fetchmany(BATCH):
            yield dict(some)
