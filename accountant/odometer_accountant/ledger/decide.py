"""decide(state, command) -> entry or refusal. Pure: no clock, no I/O; the time is given."""

from odometer_accountant.errors import LedgerRolledBack, OdometerError, UnknownDataset
from odometer_accountant.ledger.administration import administer
from odometer_accountant.ledger.charges import charge
from odometer_accountant.ledger.commands import (
    ChargeCommand,
    Command,
    DeriveCommand,
    EndCommand,
    FreezeCommand,
    OpenCommand,
    SettleCommand,
    UnfreezeCommand,
)
from odometer_accountant.ledger.decisions import Decision, Refused
from odometer_accountant.ledger.derived import derive
from odometer_accountant.ledger.holds import settle
from odometer_accountant.ledger.sessions import end
from odometer_accountant.ledger.state import State
from odometer_accountant.stores import Row


def decide(
    state: State | None,
    command: Command,
    known: Row | None,
    now: str,
    held: Row | None = None,
    settled: Row | None = None,
) -> Decision:
    """What to append for `command`, or why not.

    `known` is the entry that the command's key already has, `held` the one that a settlement, a descendant or
    the end of a session names, `settled` the settlement of the hold that `known` made, `now` a UTC timestamp.
    A ledger's time never goes back: it is `now`, or that of its last entry if this is later.
    """
    time = now if state is None else max(state.time, now)
    try:
        # It is frozen again by a process that saw more of what is gone than the one that froze it first.
        goes_on = isinstance(command, UnfreezeCommand | FreezeCommand)
        if state is not None and state.frozen is not None and not goes_on:
            raise frozen_error(state)
        if isinstance(command, OpenCommand):
            return administer(state, command, time)
        if state is None:
            raise UnknownDataset(
                "there is no dataset of that name: create it first, it is never created on the fly"
            )
        if isinstance(command, ChargeCommand):
            return charge(state, command, known, time, now, settled)
        if isinstance(command, SettleCommand):
            return settle(state, command, known, held, time)
        if isinstance(command, EndCommand):
            return end(state, command, known, time, held)
        if isinstance(command, DeriveCommand):
            return derive(state, command, known, held, time)
        return administer(state, command, time)
    except OdometerError as error:
        return Refused(error, state, time)


def frozen_error(state: State) -> LedgerRolledBack:
    """Why nothing is admitted on a frozen stream."""
    lost = state.frozen
    number = lost.sequence if lost else 0
    return LedgerRolledBack(
        f"dataset {state.dataset.name} is frozen: entry {number} of its ledger was there and is gone or "
        "differs. Nothing is admitted until a person has looked: restore the store, or decide with "
        "`odometer unfreeze` to go on without what was lost",
        sequence=number,
    )


def lost_shard(dataset: State, shard: int) -> LedgerRolledBack:
    """Why nothing is admitted on a shard that the dataset lists and the store does not have."""
    return LedgerRolledBack(
        f"shard {shard} of dataset {dataset.dataset.name} was there and is gone: nothing is admitted on it "
        "until a person has looked; restore the store"
    )
