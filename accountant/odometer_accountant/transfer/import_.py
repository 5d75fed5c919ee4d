"""An exported file into an empty store: all of it is counted again first, then it is written.

An import that stops halfway leaves a store in which nothing can be charged:

1. The whole file is verified, as `odometer verify` does a store. Any finding, and nothing is written.
2. Every dataset and shard gets its first entry, so that nobody can open one under that name.
3. All further entries, totals, notes; the API keys after them, in one append.
4. Only then each gets its configuration. A stream with entries and without one is damaged for every reader
   (`LedgerCorrupt`), so what was imported in part answers 503, and `odometer verify` finds it.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final, Self

from odometer_accountant.ledger.blobs import CONFIG_BLOB
from odometer_accountant.ledger.findings import Finding
from odometer_accountant.ledger.principals import KEY_ENTRIES, Register
from odometer_accountant.scopes import holds_losses, shard_parent
from odometer_accountant.stores import EMPTY_HEAD, Head, NewEntry, Note, Row, Store, Write
from odometer_accountant.transfer.export import KEYS, PAGE, MovingRefused, Progress, Reader
from odometer_accountant.verify.recount import Recount
from odometer_accountant.verify.walk import FINDINGS_MAX, all_streams

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
_NEW_STREAM: Final = "INSERT INTO streams(name, sequence, hash) VALUES (?, ?, ?)"
_ENDED: Final = "UPDATE streams SET first_hash=?, first_body=?, config=? WHERE id=?"
_FIRSTS: Final = (
    "SELECT name, first_hash, first_body FROM streams WHERE name!=? ORDER BY name LIKE '~%', name"
)
"""Datasets before their shards."""
_CONFIGS: Final = "SELECT name, sequence, hash, config FROM streams WHERE name!=? ORDER BY name DESC"
_KEYS_BETWEEN: Final = "SELECT sequence, key FROM keys WHERE stream=? AND sequence BETWEEN ? AND ?"


@dataclass(frozen=True)
class Imported:
    """What an import wrote."""

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

    What is found out on the way lies in a temporary file: memory grows with the scopes of one stream and
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
        reader, checker = Reader(self._file, progress), _Checker(self._db)
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


class _Checker:
    """Counts every stream again, and remembers what writing needs: keys, blobs, first entries."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.findings: list[Finding] = []
        self._db = db
        self._id = 0
        self._head = EMPTY_HEAD
        self._first: Row | None = None
        self._recount: Recount | None = None
        self._stream = ""
        self._in_notes = False
        self._parents: set[str] = set()
        self._datasets: set[str] = set()
        self._register = Register()

    def take(self, document: dict[str, Any]) -> None:
        if "stream" in document:
            self._end_stream()
            self._begin(document)
        elif "entry" in document:
            self._entry(document)
        else:
            self._note(document)

    def end(self) -> None:
        """After the last document."""
        self._end_stream()
        for name in sorted(self._parents - self._datasets):
            self._report(Finding(name, "its shards are in the file, and the dataset is not"))

    def _report(self, finding: Finding) -> None:
        self.findings.append(finding)
        if len(self.findings) >= FINDINGS_MAX:
            raise MovingRefused(f"there are {FINDINGS_MAX} findings, and the rest was not read")

    def _begin(self, document: dict[str, Any]) -> None:
        name = self._stream = document["stream"]
        if self._in_notes:
            raise MovingRefused(f"the stream {name[:80]!r} comes after the notes")
        if name != KEYS and not holds_losses(name):
            raise MovingRefused(f"this version does not know what the stream {name[:80]!r} is for")
        parent = shard_parent(name)
        if parent is not None:
            self._parents.add(parent)
        elif name != KEYS:
            self._datasets.add(name)
        self._head, self._first = Head(document["sequence"], document["hash"]), None
        try:
            cursor = self._db.execute(_NEW_STREAM, (name, self._head.sequence, self._head.hash))
        except sqlite3.IntegrityError:
            raise MovingRefused(f"the stream {name[:80]!r} stands twice in the file") from None
        self._id = cursor.lastrowid or 0
        self._recount = Recount(name, self._report)

    def _entry(self, document: dict[str, Any]) -> None:
        recount = self._recount
        if recount is None:
            raise MovingRefused("there is an entry outside of any stream")
        row = Row(document["entry"], document["hash"], document["body"].encode("ascii"))
        if self._first is None:
            self._first = row
        recount.take(row)
        if self._stream == KEYS:
            self._key_entry(row)
        if row.sequence % PAGE == 0:
            self._keep_keys(recount)

    def _keep_keys(self, recount: Recount) -> None:
        for key, sequence in recount.take_keys().items():
            try:
                self._db.execute("INSERT INTO keys VALUES (?, ?, ?)", (self._id, key, sequence))
            except sqlite3.IntegrityError:
                what = "has the idempotency key of an earlier entry"
                self._report(Finding(self._stream, what, sequence))

    def _key_entry(self, row: Row) -> None:
        """An entry of the API keys: what the service cannot read would keep it from starting."""
        try:
            entry = json.loads(row.body)
            if entry["type"] not in KEY_ENTRIES:
                self._report(Finding(KEYS, f"has the unknown type {entry['type']!r}", row.sequence))
            else:
                self._register.apply(entry)
            for name, digest in (("principal", "name_hash"), ("names_key", "names_key_hash")):
                if digest in entry:  # of what is in a note: a name, a secret that names were hashed with
                    person = (str(entry[name]), str(entry[digest]))
                    self._db.execute("INSERT OR REPLACE INTO people VALUES (?, ?)", person)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            self._report(Finding(KEYS, f"cannot be read: {error!r}", row.sequence))

    def _end_stream(self) -> None:
        recount, first = self._recount, self._first
        if recount is None:
            return
        self._recount = None
        self._keep_keys(recount)
        if Head(recount.sequence, recount.hash) != self._head:
            what = f"should end with entry {self._head.sequence}, and ends with {recount.sequence}"
            if recount.sequence == self._head.sequence:
                what = "its last entry has another hash than was said before the first"
            self._report(Finding(self._stream, what))
        config, blobs = b"", {}
        if holds_losses(self._stream):
            if recount.state is None or recount.lost:
                self._report(
                    Finding(self._stream, f"cannot be counted: {recount.lost or 'it is not opened'}")
                )
            else:
                blobs = recount.state.blobs()
                config = blobs.pop(CONFIG_BLOB)
        kept = (first.hash, first.body) if first else ("", b"")
        self._db.execute(_ENDED, (*kept, config, self._id))
        rows = [(self._id, name, value) for name, value in blobs.items()]
        self._db.executemany("INSERT INTO blobs VALUES (?, ?, ?)", rows)

    def _note(self, document: dict[str, Any]) -> None:
        self._end_stream()
        self._in_notes = True
        name, found = document["note"], None
        if self._has_keys():
            found = self._db.execute("SELECT name_hash FROM people WHERE principal=?", (name,)).fetchone()
            if found is None or found[0] != _name_hash(document):
                self._report(Finding(KEYS, f"the name of {name[:80]!r} is not the one its key was made for"))

    def _has_keys(self) -> bool:
        return self._db.execute("SELECT 1 FROM streams WHERE name=?", (KEYS,)).fetchone() is not None


def _name_hash(document: dict[str, Any]) -> str:
    """As the ledger keeps it of a name; see odometer_accountant.service.api_keys."""
    return hashlib.sha256((document["salt"] + document["text"]).encode()).hexdigest()


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
        """What is left of the current stream, and its blobs."""
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
