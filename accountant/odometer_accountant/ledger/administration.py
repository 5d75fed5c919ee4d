"""The decisions on everything but charges: opening, budgets, partitions, closing, freezing. Pure."""

from typing import Any

from odometer_accountant.budgets.base import Budget
from odometer_accountant.errors import (
    BudgetExists,
    DatasetClosed,
    DatasetExists,
    EditConflict,
    InvalidRequest,
    NotFrozen,
    PartitionExists,
    UnknownBudget,
)
from odometer_accountant.ledger.active_budgets import ActiveBudget
from odometer_accountant.ledger.commands import (
    AddPartitionsCommand,
    CloseCommand,
    Command,
    FreezeCommand,
    OpenCommand,
    SetBudgetCommand,
    UnfreezeCommand,
)
from odometer_accountant.ledger.dataset import BudgetVersion, bind_dataset, entry_format
from odometer_accountant.ledger.decisions import Admitted, admit
from odometer_accountant.ledger.entries import LARGEST_SAID
from odometer_accountant.ledger.fold import covers_any, something_charged
from odometer_accountant.ledger.state import State
from odometer_accountant.numerics.grid import CURRENT_GRID, Grid
from odometer_accountant.requests.bodies import PARTITIONS_MAX, check_scope


def administer(state: State | None, command: Command, time: str) -> Admitted:
    """Raises the error of what cannot be done."""
    if isinstance(command, OpenCommand):
        return _open(state, command, time)
    if state is None:
        raise TypeError("there is no state to administer")
    if isinstance(command, SetBudgetCommand):
        return _set_budget(state, command, time)
    if isinstance(command, AddPartitionsCommand):
        return _add_partitions(state, command, time)
    if isinstance(command, CloseCommand):
        return _close(state, command, time)
    if isinstance(command, FreezeCommand):
        return _freeze(state, command, time)
    if isinstance(command, UnfreezeCommand):
        return _unfreeze(state, command, time)
    raise TypeError(f"not a command of administration: {command!r}")


def _open(state: State | None, command: OpenCommand, time: str) -> Admitted:
    request = command.request
    if state is not None:
        raise DatasetExists(f"there is a dataset {request.name} already, and names are never used twice")
    entries = {
        budget.name: BudgetVersion(budget, 1, budget.fixed(CURRENT_GRID), 0) for budget in request.budgets
    }
    dataset = bind_dataset(request, CURRENT_GRID, time, tuple(entries.values()))
    for entry in entries.values():
        _check_shares(entry, dataset.grid)
    budgets = {name: entry.document() for name, entry in entries.items()}
    partitions = request.partitions or ()
    _check_names(partitions)
    document: dict[str, Any] = {
        "type": "opened",
        "time": time,
        "principal": command.principal,
        "dataset": dataset.model_dump(mode="json"),
        "budgets": budgets,
        **({"partitions": list(partitions)} if partitions else {}),
    }
    return admit(None, document, version=dataset.entry_format)


def _set_budget(state: State, command: SetBudgetCommand, time: str) -> Admitted:
    wanted, before = command.budget, state.budgets.get(command.budget.name)
    if state.closed:
        raise DatasetClosed(f"dataset {state.dataset.name} is closed: its budgets no longer change")
    if command.if_match is None:
        if before is not None:
            raise BudgetExists(f"dataset {state.dataset.name} has a budget {wanted.name}: change that one")
        entry = _fresh(state, wanted, 1)
    else:
        if before is None:
            raise UnknownBudget(f"dataset {state.dataset.name} has no budget {wanted.name}")
        if command.if_match != etag(before):
            raise EditConflict(
                f"budget {wanted.name} is at version {before.version} now: read it again, then change it",
                etag=etag(before),
            )
        entry = _edited(state, before, wanted)
    _check_budget(state, entry)
    document = {
        "type": "budget_set",
        "time": time,
        "principal": command.principal,
        "name": wanted.name,
        "entry": entry.document(),
    }
    version = entry_format([entry])
    if before is None:
        return admit(state, document, version=version)
    largest = entry.after(before, covered=covers_any(state, before, state.head.sequence)).largest
    if largest is None:  # of a ledger that was not counted again since an earlier version changed it
        return admit(state, document, version=version)
    return admit(state, {**document, "largest": repr(largest)}, version=max(version, LARGEST_SAID))


def _fresh(state: State, budget: Budget, version: int) -> BudgetVersion:
    """Weights fixed now: the promise covers what comes after, or everything if nothing was charged yet."""
    since = 0 if _nothing_charged(state) else state.head.sequence + 1
    return BudgetVersion(budget, version, budget.fixed(state.dataset.grid), since)


def _edited(state: State, before: BudgetVersion, wanted: Budget) -> BudgetVersion:
    """A new limit keeps its weights; any other change is a new version with weights fixed now."""
    for field in ("scope", "window"):
        if getattr(before.budget, field) != getattr(wanted, field):
            raise InvalidRequest.of(field, f"a budget keeps its {field}: add another budget instead")
    if before.budget.same_weights(wanted):
        kept = wanted.fixed(state.dataset.grid, dict(before.fixed))
        return BudgetVersion(wanted, before.version + 1, kept, before.since)
    return _fresh(state, wanted, before.version + 1)


def _nothing_charged(state: State) -> bool:
    """Whether no charge is on the ledger; units' odometers lie elsewhere, so of them it is not known."""
    return state.composition != "by_unit" and not something_charged(state)


def _check_budget(state: State, entry: BudgetVersion) -> None:
    try:
        check_scope(entry.budget, state.composition, state.partitions)
    except ValueError as error:
        raise InvalidRequest.of("scope", str(error).removeprefix("scope: ")) from error
    _check_shares(entry, state.dataset.grid)


def _check_shares(entry: BudgetVersion, grid: Grid) -> None:
    if entry.budget.reserved is not None and not ActiveBudget.of(entry, grid).filter.capacities():
        raise InvalidRequest.of(
            "reserved", "this budget is too small at every Rényi order to be cut into shares"
        )


def etag(entry: BudgetVersion) -> str:
    """What If-Match must carry to change this budget."""
    return f'"v{entry.version}"'


def _close(state: State, command: CloseCommand, time: str) -> Admitted:
    if state.closed:
        raise DatasetClosed(f"dataset {state.dataset.name} is closed already")
    return admit(state, {"type": "closed", "time": time, "principal": command.principal})


def _add_partitions(state: State, command: AddPartitionsCommand, time: str) -> Admitted:
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
            "time": time,
            "principal": command.principal,
            "partitions": list(names),
        },
    )


def _check_names(names: tuple[str, ...]) -> None:
    if len(set(names)) < len(names) or "all" in names:
        raise InvalidRequest.of(
            "partitions", "each name once, and none of them `all`, which means every partition"
        )


def _freeze(state: State, command: FreezeCommand, time: str) -> Admitted:
    seen = [command.seen.sequence, command.seen.hash]
    return admit(state, {"type": "frozen", "time": time, "principal": command.principal, "seen": seen})


def _unfreeze(state: State, command: UnfreezeCommand, time: str) -> Admitted:
    if state.frozen is None:
        raise NotFrozen(f"dataset {state.dataset.name} is not frozen")
    return admit(
        state,
        {
            "type": "unfrozen",
            "time": time,
            "principal": command.principal,
            "reason": command.reason,
            "seen": [state.frozen.sequence, state.frozen.hash],
        },
    )
