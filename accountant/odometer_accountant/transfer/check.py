"""Verifies an exported file: recounts every stream, and keeps what writing it needs."""

import hashlib
import json
import sqlite3
from typing import Any, Final

from odometer_accountant.ledger.blobs import CONFIG_BLOB
from odometer_accountant.ledger.findings import Finding
from odometer_accountant.ledger.principals import KEY_ENTRIES, Register
from odometer_accountant.scopes import holds_losses, shard_parent
from odometer_accountant.stores import EMPTY_HEAD, Head, Row
from odometer_accountant.transfer.format import KEYS, PAGE, MovingRefused
from odometer_accountant.verify.recount import Recount
from odometer_accountant.verify.walk import FINDINGS_MAX

_NEW_STREAM: Final = "INSERT INTO streams(name, sequence, hash) VALUES (?, ?, ?)"
_ENDED: Final = "UPDATE streams SET first_hash=?, first_body=?, config=? WHERE id=?"


class FileChecker:
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
            raise MovingRefused(f"duplicate stream {name[:80]!r} in the file") from None
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
