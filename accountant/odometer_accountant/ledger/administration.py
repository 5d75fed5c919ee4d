"""Administration of a dataset: opening, partitions, closing, freezing. Each with its entry's fold. Pure."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from odometer_accountant.errors import (
    DatasetClosed,
    DatasetExists,
    InvalidRequest,
    NotFrozen,
    PartitionExists,
)
from odometer_accountant.ledger.budget_changes import check_shares
from odometer_accountant.ledger.commands import (
    AddPartitionsCommand,
    CloseCommand,
    FreezeCommand,
    OpenCommand,
    UnfreezeCommand,
)
from odometer_accountant.ledger.dataset import BudgetVersion, Dataset, bind_dataset, parse_budgets
from odometer_accountant.ledger.decisions import Admitted, DecisionInput, admit, decides
from odometer_accountant.ledger.entry_parts import Entry
from odometer_accountant.ledger.entry_types import entry_type
from odometer_accountant.ledger.state import State, parse_accepted_loss, parse_head
from odometer_accountant.ledger.totals import Totals
from odometer_accountant.numerics.grid import CURRENT_GRID
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.requests.bodies import PARTITIONS_MAX
from odometer_accountant.scopes import DATASET_SCOPE
from odometer_accountant.stores import Head


@decides(OpenCommand, without_dataset=True)
def open_dataset(state: State | None, command: OpenCommand, given: DecisionInput) -> Admitted:
    """Open a dataset. Raises DatasetExists, or InvalidRequest for a budget or partition that cannot be."""
    request = command.request
    if state is not None:
        raise DatasetExists(f"there is a dataset {request.name} already, and names are never used twice")
    entries = {
        budget.name: BudgetVersion(budget, 1, budget.fixed(CURRENT_GRID), 0) for budget in request.budgets
    }
    dataset = bind_dataset(request, CURRENT_GRID, given.time, tuple(entries.values()))
    for entry in entries.values():
        check_shares(entry, dataset.grid)
    budgets = {name: entry.document() for name, entry in entries.items()}
    partitions = request.partitions or ()
    _check_names(partitions)
    document: dict[str, Any] = {
        "type": "opened",
        "time": given.time,
        "principal": command.principal,
        "dataset": dataset.model_dump(mode="json"),
        "budgets": budgets,
        **({"partitions": list(partitions)} if partitions else {}),
    }
    return admit(None, document, version=dataset.entry_format)


@entry_type("opened", first=True)
def _opened(_: None, head: Head, entry: Entry) -> State:
    dataset = Dataset.model_validate_json(json.dumps(entry["dataset"]))
    # Totals from the start: that they are missing can then never mean that nothing was spent.
    totals = Totals(dataset.grid, {DATASET_SCOPE: Loss.zero(dataset.grid)}, {}, complete=True)
    budgets = parse_budgets(entry["budgets"])
    state = State(head, entry["time"], dataset, budgets, totals, shard=entry.get("shard"))
    return _with_partitions(state, entry.get("partitions", ()))


@decides(CloseCommand)
def close(state: State, command: CloseCommand, given: DecisionInput) -> Admitted:
    """Close a dataset for good. Raises DatasetClosed when it is closed already."""
    if state.closed:
        raise DatasetClosed(f"dataset {state.dataset.name} is closed already")
    return admit(state, {"type": "closed", "time": given.time, "principal": command.principal})


@entry_type("closed")
def _closed(state: State, head: Head, entry: Entry) -> State:
    return replace(state, head=head, time=entry["time"], closed=True)


@decides(AddPartitionsCommand)
def add_partitions(state: State, command: AddPartitionsCommand, given: DecisionInput) -> Admitted:
    """Add partitions. Raises DatasetClosed, PartitionExists or InvalidRequest."""
    name, names = state.dataset.name, command.partitions
    if state.closed:
        raise DatasetClosed(f"dataset {name} is closed: it gets no more partitions")
    if state.composition != "by_partition":
        raise InvalidRequest.of(
            "partitions", f"dataset {name} composes {state.composition}: it has no partitions"
        )
    _check_names(names)
    known = [one for one in names if one in state.partitions]
    if known:
        raise PartitionExists(f"dataset {name} has a partition {known[0]} already")
    if len(state.partitions) + len(names) > PARTITIONS_MAX:
        raise InvalidRequest.of("partitions", f"a dataset has at most {PARTITIONS_MAX} partitions")
    return admit(
        state,
        {
            "type": "partitions_added",
            "time": given.time,
            "principal": command.principal,
            "partitions": list(names),
        },
    )


@entry_type("partitions_added")
def _partitions_added(state: State, head: Head, entry: Entry) -> State:
    return _with_partitions(replace(state, head=head, time=entry["time"]), entry["partitions"])


def _with_partitions(state: State, names: Iterable[str]) -> State:
    zero = Loss.zero(state.dataset.grid)
    new = [name for name in names if name not in state.partitions]
    life = {**state.totals.life, **{f"partition/{name}": zero for name in new}}
    return replace(state, partitions=(*state.partitions, *new), totals=replace(state.totals, life=life))


def _check_names(names: tuple[str, ...]) -> None:
    if len(set(names)) < len(names) or "all" in names:
        raise InvalidRequest.of(
            "partitions", "each name once, and none of them `all`, which means every partition"
        )


@decides(FreezeCommand, when_frozen=True)
def freeze(state: State, command: FreezeCommand, given: DecisionInput) -> Admitted:
    """Freeze a dataset whose last entry that was seen is gone.

    A frozen dataset is frozen again by a process that saw more of the lost entries than the first one.
    """
    seen = [command.seen.sequence, command.seen.hash]
    return admit(state, {"type": "frozen", "time": given.time, "principal": command.principal, "seen": seen})


@entry_type("frozen")
def _frozen(state: State, head: Head, entry: Entry) -> State:
    return replace(state, head=head, time=entry["time"], frozen=parse_head(entry["seen"]))


@decides(UnfreezeCommand, when_frozen=True)
def unfreeze(state: State, command: UnfreezeCommand, given: DecisionInput) -> Admitted:
    """Go on without the lost entries. Raises NotFrozen."""
    if state.frozen is None:
        raise NotFrozen(f"dataset {state.dataset.name} is not frozen")
    return admit(
        state,
        {
            "type": "unfrozen",
            "time": given.time,
            "principal": command.principal,
            "reason": command.reason,
            "seen": [state.frozen.sequence, state.frozen.hash],
        },
    )


@entry_type("unfrozen")
def _unfrozen(state: State, head: Head, entry: Entry) -> State:
    accepted = parse_accepted_loss([*entry["seen"], entry["time"]])
    return replace(state, head=head, time=entry["time"], frozen=None, accepted_loss=accepted)
