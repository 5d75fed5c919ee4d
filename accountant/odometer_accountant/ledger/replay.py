"""The rule for a command whose key was used before: the first decision again, or an error. Pure."""

from collections.abc import Callable
from typing import Any

from odometer_accountant.errors import LedgerCorrupt
from odometer_accountant.ledger.commands import KeyedCommand
from odometer_accountant.ledger.decisions import Replayed
from odometer_accountant.ledger.entries import content
from odometer_accountant.ledger.entry_parts import Entry
from odometer_accountant.ledger.entry_types import stated_key
from odometer_accountant.ledger.state import State
from odometer_accountant.stores import Row


def replay(state: State, command: KeyedCommand, known: Row, check_same: Callable[[Entry], None]) -> Replayed:
    """The entry that stands under the command's key, as the reply to the same command.

    `check_same` raises the error for an entry that another command made. Raises LedgerCorrupt when the entry
    was changed, or is not the key's own: nothing may be released on it.
    """
    check_same(own_entry(known, state.stream, command.ledger_key))
    return Replayed(known, state)


def own_entry(row: Row, stream: str, key: str) -> dict[str, Any]:
    """The entry that the store found under `key`. Raises LedgerCorrupt unless the entry states that key."""
    entry = content(row, stream)
    if stated_key(entry) != key:
        raise LedgerCorrupt(
            f"key {key!r} leads to entry {row.sequence}, which is not its own: nothing was charged; "
            "run odometer verify",
            sequence=row.sequence,
        )
    return entry
