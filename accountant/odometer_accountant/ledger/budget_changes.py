"""Adding and changing budgets: the decision, and the fold of its entry `budget_set`. Pure."""

from dataclasses import replace

from odometer_accountant.budgets.base import Budget
from odometer_accountant.errors import (
    BudgetExists,
    DatasetClosed,
    EditConflict,
    InvalidRequest,
    UnknownBudget,
)
from odometer_accountant.ledger.active_budgets import ActiveBudget
from odometer_accountant.ledger.commands import SetBudgetCommand
from odometer_accountant.ledger.dataset import BudgetVersion, entry_format
from odometer_accountant.ledger.decisions import Admitted, DecisionInput, admit, decides
from odometer_accountant.ledger.entries import LARGEST_SAID
from odometer_accountant.ledger.entry_parts import Entry
from odometer_accountant.ledger.entry_types import entry_type
from odometer_accountant.ledger.state import State
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.requests.bodies import check_scope
from odometer_accountant.scopes import DATASET_SCOPE
from odometer_accountant.stores import Head


@decides(SetBudgetCommand)
def set_budget(state: State, command: SetBudgetCommand, given: DecisionInput) -> Admitted:
    """Add a budget or change one.

    Raises DatasetClosed, BudgetExists, UnknownBudget, EditConflict or InvalidRequest.
    """
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
        "time": given.time,
        "principal": command.principal,
        "name": wanted.name,
        "entry": entry.document(),
    }
    version = entry_format([entry])
    if before is None:
        return admit(state, document, version=version)
    largest = entry.after(before, covered=covers_any(state, before, state.head.sequence)).largest
    if largest is None:  # an earlier version changed it, and the ledger was not counted again since
        return admit(state, document, version=version)
    return admit(state, {**document, "largest": repr(largest)}, version=max(version, LARGEST_SAID))


@entry_type("budget_set")
def _budget_set(state: State, head: Head, entry: Entry) -> State:
    before = state.budgets.get(entry["name"])
    covered = before is not None and covers_any(state, before, state.head.sequence)
    told = "largest" in entry or before is None
    budget = BudgetVersion.parse(entry["entry"]).after(before, covered=covered, told=told)
    if "largest" in entry and entry["largest"] != repr(budget.largest):
        raise ValueError(f"the largest limit in force was {budget.largest!r}, it says {entry['largest']}")
    changed = {**state.budgets, entry["name"]: budget}
    # In the order of every stored form.
    return replace(state, head=head, time=entry["time"], budgets=dict(sorted(changed.items())))


def covers_any(state: State, budget: BudgetVersion, last: int) -> bool:
    """Whether a budget may cover a charge among the entries up to number `last`."""
    return last > budget.since if budget.since else something_charged(state)


def something_charged(state: State) -> bool:
    """Whether the ledger may hold a charge; for a dataset by unit, whether a shard was opened."""
    if state.composition == "by_unit":
        return bool(state.opened)
    scopes = [DATASET_SCOPE, *(f"partition/{name}" for name in state.partitions)]
    return not all(state.totals.of(scope).is_zero for scope in scopes)


def _fresh(state: State, budget: Budget, version: int) -> BudgetVersion:
    """Weights fixed now: the promise covers later entries, or all of them when nothing was charged yet."""
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
    """Whether the ledger holds no charge. False for a dataset by unit: its charges lie in its shards."""
    return state.composition != "by_unit" and not something_charged(state)


def _check_budget(state: State, entry: BudgetVersion) -> None:
    try:
        check_scope(entry.budget, state.composition, state.partitions)
    except ValueError as error:
        raise InvalidRequest.of("scope", str(error).removeprefix("scope: ")) from error
    check_shares(entry, state.dataset.grid)


def check_shares(entry: BudgetVersion, grid: Grid) -> None:
    """Raise InvalidRequest when a budget reserves shares for teams and is too small to be divided."""
    if entry.budget.reserved is not None and not ActiveBudget.of(entry, grid).filter.capacities():
        raise InvalidRequest.of(
            "reserved", "this budget is too small at every Rényi order to be divided into shares"
        )


def etag(entry: BudgetVersion) -> str:
    """The value that If-Match must carry to change this budget."""
    return f'"v{entry.version}"'
