"""The possible decisions on a command, and the registry of the functions that decide. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from odometer_accountant.errors import OdometerError
from odometer_accountant.ledger.active_budgets import BudgetRefusal
from odometer_accountant.ledger.commands import Command
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
    """The same command was admitted before under the same key: its entry."""

    row: Row
    state: State


@dataclass(frozen=True)
class Refused:
    """Nothing changes. `state` is the state that was judged, None when there is no dataset."""

    error: OdometerError
    state: State | None
    at: str = ""
    """The time of the judgement: the later of the ledger's time and the clock's."""
    budgets: tuple[BudgetRefusal, ...] = ()
    """The budgets that refuse a charge, each with one of its counts: advice does not evaluate them again."""


Decision = Admitted | Replayed | Refused


class DecisionInput(NamedTuple):
    """Everything that a decision depends on, beside the state and the command."""

    time: str
    """The ledger's time: `now`, or that of the last entry if this is later."""
    now: str
    """The clock's time, a UTC timestamp."""
    known: Row | None = None
    """The entry that already stands under the command's key."""
    named: Row | None = None
    """The entry that the command names: a hold, a session's opening, a parent."""
    settled: Row | None = None
    """The settlement of the hold that `known` made."""


Decide = Callable[[Any, Any, DecisionInput], Decision]
"""(state, command, input) -> decision. Raises the OdometerError of a command that is refused."""


@dataclass(frozen=True)
class Decider:
    """The function that decides on one type of command."""

    decide: Decide
    without_dataset: bool = False
    """Whether the command is decided where no dataset exists: the state is then None."""
    when_frozen: bool = False
    """Whether the command is decided while the dataset is frozen."""


DECIDERS: Final[dict[type[Command], Decider]] = {}
"""By type of command. Filled by `decides`."""


def decides(
    command: type[Command], *, without_dataset: bool = False, when_frozen: bool = False
) -> Callable[[Decide], Decide]:
    """Register the decorated function as what decides on commands of this type."""

    def register(decide: Decide) -> Decide:
        DECIDERS[command] = Decider(decide, without_dataset, when_frozen)
        return decide

    return register


def admit(
    state: State | None, document: Mapping[str, Any], key: str | None = None, version: int = FORMAT
) -> Admitted:
    """Seal the entry in the given format and fold it: the stored bytes are the ones that are applied."""
    entry, _ = seal(state.head if state else EMPTY_HEAD, dict(document), key, version)
    return Admitted(entry, apply(state, entry.hash, entry.body))
