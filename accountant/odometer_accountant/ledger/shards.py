"""Entries about the shards of a dataset by unit, as the service writes them, and their folds. Pure."""

from dataclasses import replace
from typing import Final

from odometer_accountant.ledger.dataset import entry_format, parse_budgets
from odometer_accountant.ledger.decisions import Admitted, admit
from odometer_accountant.ledger.entry_parts import Entry
from odometer_accountant.ledger.entry_types import entry_type
from odometer_accountant.ledger.state import State
from odometer_accountant.stores import Head

PRINCIPAL: Final = "service"
"""The principal of these entries."""


def first_entry(dataset: State, shard: int, now: str) -> Admitted:
    """The entry `opened` of a shard: it repeats its dataset's facts and budgets."""
    document = {
        "type": "opened",
        "time": max(now, dataset.time),
        "principal": PRINCIPAL,
        "budgets": {name: entry.document() for name, entry in dataset.budgets.items()},
        "dataset": dataset.dataset.model_dump(mode="json"),
        "shard": shard,
    }
    version = max(dataset.dataset.entry_format, entry_format(dataset.budgets.values()))
    return admit(None, document, version=version)


def list_entry(dataset: State, shard: int, now: str) -> Admitted:
    """The entry by which the dataset lists a shard: a listed shard that the store does not have was lost."""
    time = max(now, dataset.time)
    return admit(dataset, {"type": "shard_opened", "time": time, "principal": PRINCIPAL, "shard": shard})


@entry_type("shard_opened")
def _shard_opened(state: State, head: Head, entry: Entry) -> State:
    return replace(state, head=head, time=entry["time"], opened=(*state.opened, int(entry["shard"])))


def sync_entry(shard: State, dataset: State, now: str) -> Admitted:
    """The entry by which a shard takes over its dataset's budgets, and whether that is closed."""
    document = {
        "type": "synced",
        "time": max(now, shard.time),
        "principal": PRINCIPAL,
        "budgets": {name: entry.document() for name, entry in dataset.budgets.items()},
        "closed": dataset.closed,
    }
    return admit(shard, document, version=entry_format(dataset.budgets.values()))


@entry_type("synced")
def _synced(state: State, head: Head, entry: Entry) -> State:
    budgets = parse_budgets(entry["budgets"])
    return replace(state, head=head, time=entry["time"], budgets=budgets, closed=entry["closed"])
