"""What a dataset's first entry binds, and its budgets as they are in force."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from accountant.budgets import ANY_BUDGET, Budget, Workload, split_delta, workload_loss
from accountant.entries import FORMAT
from accountant.grid import GRID_V1, GRIDS, Grid
from accountant.mechanisms import Adjacency, Document
from accountant.mechanisms.base import STORED, frozen, thawed
from accountant.mixture import Mixture
from accountant.rounding import floor_units
from accountant.scopes import Composition
from accountant.weights import reading_prior, workload_prior

_FORMAT_OF_GRID_2: Final = 4


@dataclass(frozen=True)
class BudgetEntry:
    """A budget in force: its document, its version, and what was fixed when its weights were."""

    budget: Budget
    version: int
    fixed: Mapping[str, Any]
    since: int
    """Sequence number of the entry that fixed its weights: the promise covers the entries after it."""

    def document(self) -> dict[str, Any]:
        return {
            "budget": frozen(self.budget.document()),
            "version": self.version,
            "fixed": dict(self.fixed),
            "since": self.since,
        }

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        budget = ANY_BUDGET.validate_python(thawed(document["budget"]), context=STORED)
        return cls(budget, document["version"], document["fixed"], document["since"])


class Dataset(Document):
    """What is protected, as bound by its first entry."""

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
        """The lowest format of its first entry: that of grid 2 is refused by who knows grid 1 alone."""
        return FORMAT if self.grid is GRID_V1 else _FORMAT_OF_GRID_2

    @property
    def mixture(self) -> Mixture:
        """The mixture of the running readings."""
        return Mixture(self.grid, self.weights, float(self.delta_mix))


def bind_dataset(request: Any, grid: Grid, created: str) -> Dataset:
    """The facts that a dataset's first entry fixes, from a request to create it."""
    add, mix = split_delta(request.delta, request.delta_add)
    workload: Workload | None = request.workload
    if workload is None:
        weights = reading_prior(grid)
    else:
        weights = workload_prior(grid, workload_loss(workload, grid), mix)
    return Dataset(
        name=request.name,
        unit=request.unit,
        adjacency=request.adjacency,
        grid_version=grid.version,
        delta=repr(request.delta),
        delta_add=str(floor_units(add, grid.units[grid.delta])),
        delta_mix=repr(mix),
        weights=weights,
        odometer_only=request.odometer_only,
        created=created,
        composition=request.composition,
        shards=request.shards if request.composition == "by_unit" else 0,
    )
