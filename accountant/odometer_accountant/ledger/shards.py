"""The fold of the entries that concern the shards of a dataset by unit: `shard_opened` and `synced`. Pure."""

from dataclasses import replace

from odometer_accountant.ledger.dataset import parse_budgets
from odometer_accountant.ledger.entry_parts import Entry
from odometer_accountant.ledger.entry_types import entry_type
from odometer_accountant.ledger.state import State
from odometer_accountant.stores import Head


@entry_type("shard_opened")
def _shard_opened(state: State, head: Head, entry: Entry) -> State:
    """The dataset lists a shard: one that it lists and the store does not have was lost."""
    return replace(state, head=head, time=entry["time"], opened=(*state.opened, int(entry["shard"])))


@entry_type("synced")
def _synced(state: State, head: Head, entry: Entry) -> State:
    """A shard takes over its dataset's budgets, and whether that is closed."""
    budgets = parse_budgets(entry["budgets"])
    return replace(state, head=head, time=entry["time"], budgets=budgets, closed=entry["closed"])
