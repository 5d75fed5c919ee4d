"""Writes a ledger, or some of its datasets, to a file."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from odometer_accountant.errors import LedgerCorrupt, UnknownDataset
from odometer_accountant.ledger.blobs import CONFIG_BLOB
from odometer_accountant.ledger.entries import entry_hash
from odometer_accountant.scopes import holds_losses, shard_parent
from odometer_accountant.stores import EMPTY_HEAD, Head, Row, Store
from odometer_accountant.transfer.format import KEYS, NAME, PAGE, VERSION, LineWriter, MovingRefused, Progress
from odometer_accountant.verify.walk import all_streams


@dataclass(frozen=True)
class Exported:
    """A summary of an export file."""

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
    out = LineWriter(file)
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
