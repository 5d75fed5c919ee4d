"""Checks of records of derived artefacts: a released parent, and the right distance. For `verify`."""

from odometer_accountant.ledger.entry_parts import Entry
from odometer_accountant.ledger.state import State
from odometer_accountant.verify.memory import Memory


def check_derived(memory: Memory, at: int, entry: Entry, _: State) -> None:
    """Report a record whose parent released nothing, or that states another distance from its charge."""
    parent, depth = int(entry["command"]["parent"]), int(entry["depth"])
    steps = memory.steps_to_charge(parent)
    if steps is None:
        memory.fault(f"comes of entry {parent}, with which nothing went out", at)
    elif depth != steps:
        memory.fault(f"says that it is {depth} steps away from a charge; it is {steps}", at)
    memory.check_caller_key(entry, at)
    memory.note_release(at, depth)
