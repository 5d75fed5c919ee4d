"""decide(state, command) -> entry or refusal. Pure: no clock, no I/O; the time is given."""

from odometer_accountant.errors import LedgerRolledBack, OdometerError, UnknownDataset
from odometer_accountant.ledger.commands import Command
from odometer_accountant.ledger.decisions import DECIDERS, Decision, DecisionInput, Refused
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
    """The entry to append for `command`, or the error.

    `known` is the entry that already stands under the command's key. `held` is the entry that the command
    names: a hold, a session, a parent. `settled` is the settlement of the hold that `known` made. `now` is a
    UTC timestamp.
    A ledger's time never goes back: it is `now`, or that of its last entry if this is later.
    """
    time = now if state is None else max(state.time, now)
    decider = DECIDERS.get(type(command))
    if decider is None:
        raise TypeError(f"no function is registered that decides on {type(command).__name__}")
    try:
        if state is None:
            if not decider.without_dataset:
                raise UnknownDataset(
                    "there is no dataset of that name: create it first, it is never created on the fly"
                )
        elif state.frozen is not None and not decider.when_frozen:
            raise frozen_error(state)
        return decider.decide(state, command, DecisionInput(time, now, known, held, settled))
    except OdometerError as error:
        return Refused(error, state, time)


def frozen_error(state: State) -> LedgerRolledBack:
    """The error for a command on a frozen stream."""
    lost = state.frozen
    number = lost.sequence if lost else 0
    return LedgerRolledBack(
        f"dataset {state.dataset.name} is frozen: entry {number} of its ledger was there and is gone or "
        "differs. Nothing is admitted until a person has looked: restore the store, or decide with "
        "`odometer unfreeze` to go on without what was lost",
        sequence=number,
    )


def lost_shard(dataset: State, shard: int) -> LedgerRolledBack:
    """The error for a shard that the dataset lists and the store does not have."""
    return LedgerRolledBack(
        f"shard {shard} of dataset {dataset.dataset.name} was there and is gone: nothing is admitted on it "
        "until a person has looked; restore the store"
    )
