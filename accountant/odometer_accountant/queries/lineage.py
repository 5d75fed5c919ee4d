"""Reads the ancestors and the descendants of an entry."""

from typing import Any, Final

from odometer_accountant.errors import LedgerCorrupt
from odometer_accountant.ledger.derived import DEPTH_MAX, depth_of
from odometer_accountant.ledger.entries import content, entry_hash, follows, row_at
from odometer_accountant.ledger.state import State
from odometer_accountant.model import text_to_floats
from odometer_accountant.stores import Row, Store

SCAN_MAX: Final = 10_000
"""Entries that one question looks through."""
DESCENDANTS_MAX: Final = 1000
_PAGE: Final = 128
_DERIVED: Final = b'"type":"derived"'
"""What the bytes of such an entry contain, and no text within an entry can: its quotes are escaped."""


def lineage(store: Store, state: State, number: int, after: int) -> dict[str, Any]:
    """The sources of an entry, nearest first, and the artefacts derived from it, oldest first.

    Descendants are looked for among the entries after `after`; `next` says where to go on.
    """
    family, name = _Family(store, state), state.dataset.name
    row = family.row(number)
    depth_of(state, number, row, "entry")
    chain = family.ancestors(number)
    found, following = family.descendants(number, max(after, number))
    return {
        "dataset": name,
        "entry": shown(row, name),
        "ancestors": [shown(family.row(one), name) for one in chain],
        "descendants": [shown(one, name) for one in found],
        "next": following,
    }


def shown(row: Row | None, name: str) -> dict[str, Any]:
    """The fields of an entry that a reader needs: its number, who made it and when, of what, and what it is.

    The whole of it is on the ledger's pages.
    """
    row, entry = _read(row, name)
    command, made = entry["command"], entry["type"] == "derived"
    return {
        "sequence": row.sequence,
        "hash": row.hash,
        "type": entry["type"],
        "time": entry["time"],
        "principal": entry["principal"],
        "by": entry.get("by"),
        "parent": command["parent"] if made else None,
        "description": command["description"] if made else None,
        "charges": None if made else [text_to_floats(item) for item in command["charges"]],
    }


def _read(row: Row | None, name: str) -> tuple[Row, dict[str, Any]]:
    if row is None:
        raise LedgerCorrupt("an entry that another one names is missing: run odometer verify")
    return row, content(row, name)


class _Family:
    """The entries of one question, each read once."""

    def __init__(self, store: Store, state: State) -> None:
        self._store = store
        self._state = state
        self._name = state.dataset.name
        self._rows: dict[int, Row | None] = {}

    def row(self, number: int) -> Row | None:
        if number not in self._rows:
            self._rows[number] = row_at(self._store, self._name, self._state.head, number)
        return self._rows[number]

    def ancestors(self, number: int) -> list[int]:
        """From its parent to the charge at the start. Raises LedgerCorrupt where the line breaks."""
        chain: list[int] = []
        _, entry = _read(self.row(number), self._name)
        while entry["type"] == "derived":
            parent = int(entry["command"]["parent"])
            if len(chain) >= DEPTH_MAX or parent >= (chain[-1] if chain else number):
                raise LedgerCorrupt(f"the ancestors of entry {number} have no end: run odometer verify")
            chain.append(parent)
            _, entry = _read(self.row(parent), self._name)
        return chain

    def descendants(self, number: int, after: int) -> tuple[list[Row], int | None]:
        last = self._state.head.sequence
        found: list[Row] = []
        end, before = min(last, after + SCAN_MAX), self.row(after)
        while after < end:
            rows = self._store.entries(self._state.dataset.name, after, min(_PAGE, end - after))
            if not rows:
                raise LedgerCorrupt(f"entries after {after} are missing: run odometer verify")
            for row in rows:
                if row.sequence != after + 1 or not follows(row, before):
                    raise LedgerCorrupt(
                        f"entry {after + 1} of {self._name} is not there, or does not follow the one before "
                        "it: run odometer verify",
                        sequence=after + 1,
                    )
                after, before = row.sequence, row
                if entry_hash(row.body) != row.hash:
                    content(row, self._name)  # which says so
                if _DERIVED in row.body:
                    self._rows[row.sequence] = row
                    if number in self.ancestors(row.sequence):
                        found.append(row)
                if len(found) >= DESCENDANTS_MAX:
                    return found, after if after < last else None
        return found, after if after < last else None
