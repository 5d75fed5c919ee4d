"""What a decision can be, and how an entry is sealed onto a state."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from odometer_accountant.errors import OdometerError
from odometer_accountant.ledger.active_budgets import BudgetRefusal
from odometer_accountant.ledger.entries import FORMAT, seal
from odometer_accountant.ledger.fold import apply
from odometer_accountant.ledger.state import State
from odometer_accountant.stores import EMPTY_HEAD, NewEntry, Row


@dataclass(frozen=True)
class Admitted:
    """The entry to append, and the state after it."""

    entry: NewEntry
    state: State


@dataclass(frozen=True)
class Replayed:
    """This very command was admitted before, under the same key: its entry."""

    row: Row
    state: State


@dataclass(frozen=True)
class Refused:
    """Nothing changes. `state` is what the refusal was judged against, None when there is no dataset."""

    error: OdometerError
    state: State | None
    at: str = ""
    """When it was judged: the later of the ledger's time and the clock's."""
    budgets: tuple[BudgetRefusal, ...] = ()
    """The budgets that refuse a charge, each with one of its counts: advice does not evaluate them again."""


Decision = Admitted | Replayed | Refused


def admit(
    state: State | None, document: Mapping[str, Any], key: str | None = None, version: int = FORMAT
) -> Admitted:
    """Seal the entry in the given format and fold it: what is stored is what is applied."""
    entry, _ = seal(state.head if state else EMPTY_HEAD, dict(document), key, version)
    return Admitted(entry, apply(state, entry.hash, entry.body))
