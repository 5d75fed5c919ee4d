"""The facts that a dataset's first entry fixes, and the versions of its budgets."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from odometer_accountant.budgets import ANY_BUDGET
from odometer_accountant.budgets.approximate import ApproximateBudget, Workload, split_delta, workload_loss
from odometer_accountant.budgets.base import Budget
from odometer_accountant.ledger.entries import FORMAT
from odometer_accountant.mechanisms import Adjacency, Model
from odometer_accountant.model import STORED, floats_to_text, text_to_floats
from odometer_accountant.numerics.grid import GRID_V1, GRIDS, Grid
from odometer_accountant.numerics.mixture import Mixture
from odometer_accountant.numerics.prior import reading_prior, workload_prior
from odometer_accountant.numerics.rounding import floor_units
from odometer_accountant.scopes import DATASET_SCOPE, Composition

_FORMAT_OF_GRID_2: Final = 4
_FORMAT_OF_NO_MIX: Final = 4


def entry_format(entries: Iterable["BudgetVersion"]) -> int:
    """The lowest format of an entry with these budgets: an earlier version has no logarithm of 0."""
    alone = any(entry.fixed.get("delta_mix") == repr(0.0) for entry in entries)
    return _FORMAT_OF_NO_MIX if alone else FORMAT


@dataclass(frozen=True)
class BudgetVersion:
    """A version of a budget: its document, and the values that were fixed with its weights."""

    budget: Budget
    version: int
    fixed: Mapping[str, Any]
    since: int
    """Sequence number of the entry that fixed its weights: the promise covers the entries after it."""
    largest: float | None = field(default=None, compare=False)
    """The largest limit in force since the first entry that it covers. None where an earlier version changed
    it and the entries were not counted again since."""
    told: bool = field(default=True, compare=False)
    """Whether the entries state it: those up to format 3 did not."""

    def document(self) -> dict[str, Any]:
        """As an entry has it."""
        return {
            "budget": floats_to_text(self.budget.document()),
            "version": self.version,
            "fixed": dict(self.fixed),
            "since": self.since,
        }

    def kept(self) -> dict[str, Any]:
        """As it is stored beside the entries."""
        known = self.version > 1 and self.told and self.largest is not None
        return {**self.document(), **({"largest": repr(self.largest)} if known else {})}

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """The inverse of `kept`, and of `document`, which leaves the largest limit out."""
        budget = ANY_BUDGET.validate_python(text_to_floats(document["budget"]), context=STORED)
        version, said = document["version"], document.get("largest")
        largest = budget.limit() if version == 1 else None if said is None else float(said)
        return cls(budget, version, document["fixed"], document["since"], largest, largest is not None)

    def after(self, before: "BudgetVersion | None", *, covered: bool, told: bool = True) -> Self:
        """This version after `before`; `covered` says whether `before` may cover an entry by now."""
        limit = self.budget.limit()
        if before is None or before.since != self.since or not covered:
            return replace(self, largest=limit, told=told)
        largest = None if before.largest is None else max(before.largest, limit)
        return replace(self, largest=largest, told=told and before.told)


def parse_budgets(documents: Mapping[str, Any]) -> dict[str, BudgetVersion]:
    """Budgets by name, from their documents in an entry."""
    return {name: BudgetVersion.parse(item) for name, item in documents.items()}


class Dataset(Model):
    """The facts of a dataset, as its first entry fixes them."""

    name: str
    unit: str
    adjacency: Adjacency
    grid_version: int
    delta: str
    """δ of the running readings, a decimal string, with its fixed split."""
    delta_add: str
    delta_mix: str
    weights: tuple[int, ...]
    odometer_only: bool
    created: str
    composition: Composition = "sequential"
    shards: int = 0
    """Over how many streams unit odometers are spread; 0 unless it composes by unit."""

    @property
    def grid(self) -> Grid:
        return GRIDS[self.grid_version]

    @property
    def entry_format(self) -> int:
        """The lowest format of its first entry: a version that knows only grid 1 refuses that of grid 2."""
        return FORMAT if self.grid is GRID_V1 else _FORMAT_OF_GRID_2

    @property
    def mixture(self) -> Mixture:
        """The mixture of the running readings."""
        return Mixture(self.grid, self.weights, float(self.delta_mix))


def bind_dataset(request: Any, grid: Grid, created: str, entries: Sequence[BudgetVersion] = ()) -> Dataset:
    """The facts that a dataset's first entry fixes, from a request to create it and its first budgets.

    Any weights that are fixed in advance are sound for the readings: those of its one (epsilon, delta) budget
    make both show one number.
    """
    add, mix = split_delta(request.delta, request.delta_add)
    delta_add, delta_mix = str(floor_units(add, grid.units[grid.delta])), repr(mix)
    workload: Workload | None = request.workload
    budget = None if workload is not None else _whose_readings(request, entries)
    if workload is not None:
        weights = workload_prior(grid, workload_loss(workload, grid), mix)
    elif budget is not None:
        weights = tuple(budget.fixed["weights"])
        delta_add, delta_mix = budget.fixed["delta_add"], budget.fixed["delta_mix"]
    else:
        weights = reading_prior(grid)
    return Dataset(
        name=request.name,
        unit=request.unit,
        adjacency=request.adjacency,
        grid_version=grid.version,
        delta=repr(request.delta),
        delta_add=delta_add,
        delta_mix=delta_mix,
        weights=weights,
        odometer_only=request.odometer_only,
        created=created,
        composition=request.composition,
        shards=request.shards if request.composition == "by_unit" else 0,
    )


def _whose_readings(request: Any, entries: Sequence[BudgetVersion]) -> BudgetVersion | None:
    """The one (epsilon, delta) budget of the whole dataset for life, if it is at the dataset's own delta.

    None where there are several, or where the dataset states another split of its delta than the budget has.
    """
    found = [
        (entry, entry.budget)
        for entry in entries
        if isinstance(entry.budget, ApproximateBudget)
        and entry.budget.scope == DATASET_SCOPE
        and entry.budget.window is None
    ]
    if len(found) != 1 or found[0][1].delta != request.delta:
        return None
    entry, budget = found[0]
    own = split_delta(request.delta, request.delta_add)
    same = request.delta_add is None or own == split_delta(budget.delta, budget.delta_add)
    return entry if same else None
