"""Folds entries into the state of a stream: the one place where an entry changes a state. Pure."""

import json
from collections.abc import Iterable
from dataclasses import replace

from odometer_accountant.errors import LedgerCorrupt
from odometer_accountant.ledger.entries import FORMATS, check_format, entry_hash
from odometer_accountant.ledger.entry_parts import Entry
from odometer_accountant.ledger.entry_types import ENTRY_TYPES
from odometer_accountant.ledger.state import State
from odometer_accountant.stores import EMPTY_HEAD, Head


def fold(rows: Iterable[tuple[str, bytes]]) -> State | None:
    """The state after all entries, from their (hash, bytes) in order; None without any.

    Raises LedgerCorrupt where the chain or an entry does not hold.
    """
    state: State | None = None
    for digest, body in rows:
        state = apply(state, digest, body)
    return state


def apply(state: State | None, digest: str, body: bytes) -> State:
    """The state after one more entry. Raises LedgerCorrupt when the entry does not follow."""
    head = state.head if state else EMPTY_HEAD
    at = head.sequence + 1
    if entry_hash(body) != digest:
        raise LedgerCorrupt(
            f"entry {at}: its bytes do not have the hash that is stored with them", sequence=at
        )
    try:
        entry = json.loads(body)
        check_format(f"entry {at}: the ledger", entry["v"])
        if entry["v"] not in FORMATS or entry["seq"] != at or entry["prev"] != head.hash:
            raise LedgerCorrupt(f"entry {at}: it does not follow the entry before it", sequence=at)
        if state is not None and entry["time"] < state.time:
            raise LedgerCorrupt(f"entry {at}: its time lies before the entry before it", sequence=at)
        after = apply_entry(state, Head(at, digest), entry)
        return replace(after, version=entry["v"]) if entry["v"] > after.version else after
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise LedgerCorrupt(f"entry {at} cannot be read: {error!r}", sequence=at) from error


def apply_entry(state: State | None, head: Head, entry: Entry) -> State:
    """The state after an entry that ends at `head`, by the function that its type registered.

    Raises KeyError, TypeError or ValueError for an entry that contradicts the state.
    """
    kind = entry["type"]
    known = ENTRY_TYPES.get(kind)
    if (known is not None and known.first) != (state is None):
        raise ValueError(f"a ledger starts with `opened`, and only starts with it, got {kind!r}")
    if known is None:
        raise ValueError(f"unknown type of entry {kind!r}")
    return known.apply(state, head, entry)
