"""A ledger as a file, one JSON document a line: its form, how a store is written out, how a file is read.

    {"format": "privacy-odometer-ledger", "version": 1, "created": "…", "keys": true, "notes": true,
        "datasets": null}                               (null: all; in the file it is one line)
    {"stream": "adult", "sequence": 2, "hash": "…"}     the stream's end, then each of its entries:
    {"entry": 1, "hash": "…", "body": "…"}              the bytes that were hashed; they are ASCII
    {"entry": 2, "hash": "…", "body": "…"}
    {"note": "p_…", "salt": "…", "text": "…"}           after all streams
    {"end": true, "streams": 1, "entries": 2, "notes": 1, "sha256": "…"}    of all bytes before this line

What a store keeps beside the entries (configuration, totals) is not in it: an import counts it again. The
hash shows that a file is whole; somebody who can rewrite the file can rewrite it too.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from odometer_accountant.errors import LedgerCorrupt, UnknownDataset
from odometer_accountant.ledger.blobs import CONFIG_BLOB
from odometer_accountant.ledger.entries import entry_hash
from odometer_accountant.ledger.findings import Finding
from odometer_accountant.scopes import holds_losses, shard_parent
from odometer_accountant.stores import EMPTY_HEAD, Head, Row, Store
from odometer_accountant.verify.walk import all_streams

NAME: Final = "privacy-odometer-ledger"
VERSION: Final = 1
KEYS: Final = "~keys"
"""The stream of the API keys."""
PAGE: Final = 128
"""Entries read at once: one may have some hundred kB."""
LINE_MAX: Final = 16 << 20
"""Bytes of a line at most."""
_HASH_LENGTH: Final = 64

Progress = Callable[[int], None]
"""Told how much more is done: entries when writing a file, bytes when reading one."""


class MovingRefused(Exception):
    """A store that cannot be exported or imported into, or a file that is not whole and sound.

    `findings` are the places where the entries contradict themselves.
    """

    def __init__(self, detail: str, findings: Iterable[Finding] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.findings = tuple(findings)


@dataclass(frozen=True)
class Exported:
    """What went into a file."""

    streams: int
    entries: int
    notes: int
    sha256: str
    moved: tuple[str, ...]
    """Streams that were appended to, or began, while the file was written: it lacks those entries."""


def export(
    store: Store,
    file: BinaryIO,
    created: str,
    *,
    datasets: Iterable[str] | None = None,
    keys: bool = True,
    notes: bool = True,
    progress: Progress | None = None,
) -> Exported:
    """Write a ledger, or some of its datasets with their shards, to `file`. Reads only, page by page.

    Each stream is cut at the end that it has when its turn comes. `keys`: with the API keys. `notes`: with
    the names of people. Memory grows with the number of streams, not with their entries.
    Raises UnknownDataset, StoreUnavailable, LedgerCorrupt, and MovingRefused for a store whose own import
    did not end.
    """
    chosen = None if datasets is None else frozenset(datasets)
    for name in sorted(chosen or ()):
        if shard_parent(name) or name == KEYS or store.load(name, [])[0] == EMPTY_HEAD:
            raise UnknownDataset(f"there is no dataset {name[:80]!r} in this store")
    out = _Out(file)
    listed = None if chosen is None else sorted(chosen)
    out.write(
        {
            "format": NAME,
            "version": VERSION,
            "created": created,
            "keys": keys,
            "notes": notes,
            "datasets": listed,
        }
    )
    heads: dict[str, Head] = {}
    entries = written = 0
    for name in _names(store, chosen, keys):
        head = heads[name] = _begin(store, name)
        out.write({"stream": name, "sequence": head.sequence, "hash": head.hash})
        for rows in _pages(store, name, head):
            for row in rows:
                out.write({"entry": row.sequence, "hash": row.hash, "body": _text(name, row)})
            entries += len(rows)
            if progress is not None:
                progress(len(rows))
    if notes:
        for name, note in _notes(store, keys=keys):
            out.write({"note": name, "salt": note[0], "text": note[1]})
            written += 1
    sha256 = out.end(len(heads), entries, written)
    moved = tuple(name for name in _names(store, chosen, keys) if store.load(name, [])[0] != heads.get(name))
    return Exported(len(heads), entries, written, sha256, moved)


def _names(store: Store, chosen: frozenset[str] | None, keys: bool) -> Iterator[str]:
    """The streams to export. One of a kind that is not known here may count losses: better no file."""
    for name in all_streams(store):
        if name == KEYS:
            if keys:
                yield name
        elif not holds_losses(name):
            raise MovingRefused(f"this version does not know what the stream {name[:80]!r} is for")
        elif chosen is None or name in chosen or shard_parent(name) in chosen:
            yield name


def _begin(store: Store, name: str) -> Head:
    head, blobs = store.load(name, [CONFIG_BLOB])
    if holds_losses(name) and CONFIG_BLOB not in blobs:
        raise MovingRefused(f"{name} has no configuration: this store is of an import that did not end")
    return head


def _pages(store: Store, name: str, head: Head) -> Iterator[list[Row]]:
    """The entries up to `head`. Raises LedgerCorrupt when some are gone or not what was hashed."""
    after = 0
    last = EMPTY_HEAD
    while after < head.sequence:
        rows = store.entries(name, after, min(PAGE, head.sequence - after))
        if [row.sequence for row in rows] != list(range(after + 1, after + 1 + len(rows))) or not rows:
            raise LedgerCorrupt(f"entries of {name} after {after} are missing: run odometer verify")
        for row in rows:
            if entry_hash(row.body) != row.hash:
                raise LedgerCorrupt(f"entry {row.sequence} of {name} was changed: run odometer verify")
        yield rows
        after, last = rows[-1].sequence, Head(rows[-1].sequence, rows[-1].hash)
    if last != head:
        raise LedgerCorrupt(f"the last entry of {name} is not the one its head names: run odometer verify")


def _text(name: str, row: Row) -> str:
    try:
        return row.body.decode("ascii")
    except UnicodeDecodeError:
        raise LedgerCorrupt(
            f"entry {row.sequence} of {name} is not ASCII, as every entry is: run odometer verify"
        ) from None


def _notes(store: Store, *, keys: bool) -> Iterator[tuple[str, tuple[str, str]]]:
    """The notes there are, each once: names of principals; with the keys, the secret of their hashes."""
    fields = ("principal", "names_key") if keys else ("principal",)
    seen: set[str] = set()
    for rows in _pages(store, KEYS, store.load(KEYS, [])[0]):
        entries = [json.loads(row.body) for row in rows]
        named = {str(entry[field]) for entry in entries for field in fields if field in entry}
        found = store.notes(sorted(named - seen))
        seen |= named
        yield from ((name, (note.salt, note.text)) for name, note in found.items())


class _Out:
    """Lines, and the hash over them."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def write(self, document: dict[str, Any]) -> None:
        line = _line(document)
        self._hash.update(line)
        self._file.write(line)

    def end(self, streams: int, entries: int, notes: int) -> str:
        """The last line. Returns the hash of those before it."""
        sha256 = self._hash.hexdigest()
        counts = {"streams": streams, "entries": entries, "notes": notes}
        self._file.write(_line({"end": True, **counts, "sha256": sha256}))
        self._file.flush()
        return sha256


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"


class Reader:
    """The documents of a file between its first and its last line. MovingRefused where it is not whole.

    What a document holds has the right types. Whether it is true is for others to find out.
    """

    def __init__(self, file: BinaryIO, progress: Progress | None = None) -> None:
        self.header: dict[str, Any] = {}
        self.sha256 = ""
        """Of the file, once it was read to its end."""
        self.counts = {"streams": 0, "entries": 0, "notes": 0}
        self._file = file
        self._progress = progress or (lambda _: None)
        self._hash = hashlib.sha256()
        self._number = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self._header()
        while True:
            line, document = self._next()
            if document.get("end") is True:
                self._end(document)
                return
            self._hash.update(line)
            yield self._known(document)

    def _header(self) -> None:
        line, document = self._next()
        if document.get("format") != NAME:
            raise self._wrong("this is no file that `odometer export` wrote")
        if document.get("version") != VERSION or isinstance(document["version"], bool):
            raise self._wrong(
                f"the file has version {document.get('version')!r}, and this odometer reads {VERSION}: "
                "take the one that wrote it, or a newer one"
            )
        self._hash.update(line)
        self.header = document

    def _next(self) -> tuple[bytes, dict[str, Any]]:
        line = self._file.readline(LINE_MAX + 1)
        self._number += 1
        self._progress(len(line))
        if not line.endswith(b"\n"):
            if len(line) > LINE_MAX:
                raise self._wrong(f"it is longer than {LINE_MAX:,} bytes")
            raise self._wrong("the file ends here, without its last line: it was cut off")
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise self._wrong("it is no JSON object")
        return line, document

    def _known(self, document: dict[str, Any]) -> dict[str, Any]:
        kind = next(iter(document), None)
        fields, texts, count = _KINDS.get(str(kind), (None, (), ""))
        if fields is None or tuple(document) != fields:
            raise self._wrong("it is nothing that an export writes")
        for field, value in document.items():
            if field in texts:
                if not (isinstance(value, str) and (field == "text" or value.isascii()) and _utf8(value)):
                    raise self._wrong(f"{field} is no text that can be kept")
            elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise self._wrong(f"{field} is no whole number from 1 on")
        self.counts[count] += 1
        return document

    def _end(self, document: dict[str, Any]) -> None:
        if self._file.read(1):
            raise self._wrong("the file goes on after its last line")
        if {name: document.get(name) for name in self.counts} != self.counts:
            found = ", ".join(f"{count} {name}" for name, count in self.counts.items())
            raise self._wrong(f"the file holds {found}; its last line says otherwise")
        if document.get("sha256") != self._hash.hexdigest():
            raise self._wrong("the SHA-256 of the file is another one: it was changed, or is damaged")
        self.sha256 = self._hash.hexdigest()

    def _wrong(self, what: str) -> MovingRefused:
        return MovingRefused(f"line {self._number}: {what}")


def _utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# First field → (all fields in order, those that are texts, what they count as).
_KINDS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...], str]]] = {
    "stream": (("stream", "sequence", "hash"), ("stream", "hash"), "streams"),
    "entry": (("entry", "hash", "body"), ("hash", "body"), "entries"),
    "note": (("note", "salt", "text"), ("note", "salt", "text"), "notes"),
}
