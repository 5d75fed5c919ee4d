"""The kinds of budget: what a person asks for, what is fixed when it is set, and the rule it enforces.

A budget document (`Budget`) is fixed into integers and decimal strings once (`fix`), stored in the
ledger, and read back as a `Filter` (SOUNDNESS section 4).
"""

from abc import abstractmethod
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, TypeAdapter, model_validator

from odometer_accountant.budgets.filters import ApproximateFilter, CoordinateFilter, Filter, GdpFilter
from odometer_accountant.mechanisms import Model, Number
from odometer_accountant.mechanisms.charge import ITEMS_MAX, Charge
from odometer_accountant.numerics.grid import GRIDS, Grid
from odometer_accountant.numerics.loss import Loss, total
from odometer_accountant.numerics.mixture import Mixture
from odometer_accountant.numerics.prior import default_prior, workload_prior
from odometer_accountant.numerics.rounding import decimal, floor_units, round_down
from odometer_accountant.scopes import DATASET_SCOPE, SCOPE
from odometer_accountant.windows import Window

Slug = Annotated[str, Field(strict=True, pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
"""1 to 64 characters: small letters, digits, - and _, not starting with - or _."""
LEAST_DELTA: Final = 1e-290
"""Far below any use; smaller ones have no exact split, and logarithms that overflow."""
Delta = Annotated[Number, Field(ge=LEAST_DELTA, lt=1)]
RESERVED_MAX: Final = 64
Share = Annotated[Number, Field(gt=0, le=1)]


Workload = Annotated[tuple[Charge, ...], Field(min_length=1, max_length=ITEMS_MAX)]


def split_delta(delta: float, delta_add: float | None) -> tuple[Fraction, float]:
    """(delta_add, delta_mix): delta_add exactly, delta_mix rounded down, together at most delta.

    Either may be 0. The default is a tenth for approximate charges (SOUNDNESS section 3).
    """
    add = decimal(delta) / 10 if delta_add is None else decimal(delta_add)
    return add, round_down(decimal(delta) - add)


def workload_loss(workload: Workload, grid: Grid) -> Loss:
    """All of a workload. May take seconds: kept, so that it is computed before the writer asks for it."""
    return _workload_loss(workload, grid.version)


@lru_cache(maxsize=64)
def _workload_loss(workload: Workload, grid_version: int) -> Loss:
    grid = GRIDS[grid_version]
    return total(grid, (item.loss(grid) for item in workload))


class Budget(Model):
    """What a person asks for. A subclass per kind; `kind` tells them apart."""

    name: Slug
    """Its name within the dataset."""
    scope: Annotated[str, Field(strict=True, pattern=SCOPE)] = DATASET_SCOPE
    """What it limits: `dataset`, or one or each (`*`) of a kind: `principal/p_1`, `team/*`, `partition/eu`,
    `group/*`, `unit/*`."""
    window: Window | None = None
    """Starts anew each hour, day, week or month (UTC, by the calendar); left out: for life."""
    reserved: Annotated[dict[Slug, Share], Field(min_length=1, max_length=RESERVED_MAX)] | None = None
    """Shares of the limit kept for teams, by name: nobody else can use them. Together at most 1."""

    parameter: ClassVar[str]
    """The name of the limit."""
    promise: ClassVar[str]
    """What holds for everything admitted."""
    source: ClassVar[str]

    def fixed(self, grid: Grid, kept: dict[str, Any] | None = None) -> dict[str, Any]:
        """What is settled now and never recomputed, without floats; `kept` from an earlier version."""
        del grid, kept
        return {}

    @abstractmethod
    def rule(self, grid: Grid, fixed: dict[str, Any]) -> "Filter":
        """The rule that this budget enforces on the totals."""

    @model_validator(mode="after")
    def _shares_of_one_whole(self) -> Self:
        if self.reserved is None:
            return self
        if self.scope != DATASET_SCOPE or self.window is not None:
            raise ValueError("reserved: shares are kept of a budget of the whole dataset, for life")
        if sum(map(decimal, self.reserved.values())) > 1:
            raise ValueError("reserved: the shares are more than 1 together")
        return self

    def limit(self) -> float:
        return float(getattr(self, self.parameter))

    def same_weights(self, other: "Budget") -> bool:
        """Whether changing to `other` changes the limit alone."""
        changed = {self.parameter, "name", "reserved"}
        return type(self) is type(other) and self.model_dump(exclude=changed) == other.model_dump(
            exclude=changed
        )

    def document(self) -> dict[str, Any]:
        document = self.model_dump(mode="json", exclude_none=True)
        if document["scope"] == DATASET_SCOPE:
            del document["scope"]  # as it was before there were others
        return document


_TAKERS = "if it is noisy at all, a budget of kind"


class PureBudget(Budget):
    """Everything admitted is ε-DP."""

    kind: Literal["pure"] = "pure"
    epsilon: Annotated[Number, Field(ge=0, le=1e6)]
    """Limit on the sum of pure ε, in nats."""

    parameter: ClassVar[str] = "epsilon"
    promise: ClassVar[str] = "ε-DP"
    source: ClassVar[str] = "Rogers, Roth, Ullman, Vadhan 2016; Haney et al. 2023"

    def rule(self, grid: Grid, fixed: dict[str, Any]) -> Filter:
        del fixed
        units = floor_units(decimal(self.epsilon), grid.units[grid.pure])
        takers = f"{_TAKERS} approximate, zcdp, renyi or gdp"
        return CoordinateFilter(
            self.name, self.kind, self.epsilon, grid, grid.pure, units, "pure epsilon", takers
        )


class ZcdpBudget(Budget):
    """Everything admitted is ρ-zCDP."""

    kind: Literal["zcdp"] = "zcdp"
    rho: Annotated[Number, Field(ge=0, le=1e6)]
    """Limit on the sum of ρ."""

    parameter: ClassVar[str] = "rho"
    promise: ClassVar[str] = "ρ-zCDP"
    source: ClassVar[str] = "Feldman, Zrnic 2021; Whitehouse et al. 2023"

    def rule(self, grid: Grid, fixed: dict[str, Any]) -> Filter:
        del fixed
        units = floor_units(decimal(self.rho), grid.units[grid.rho])
        takers = f"{_TAKERS} approximate or renyi"
        return CoordinateFilter(self.name, self.kind, self.rho, grid, grid.rho, units, "rho", takers)


class RenyiBudget(Budget):
    """Everything admitted is (α, ε)-RDP at one order; an order off the grid is held at the next above."""

    kind: Literal["renyi"] = "renyi"
    order: Annotated[Number, Field(gt=1, le=8192)]
    """Order α, above 1 and at most 8192."""
    epsilon: Annotated[Number, Field(ge=0, le=1e6)]
    """Limit on the Rényi divergence of that order, in nats."""

    parameter: ClassVar[str] = "epsilon"
    promise: ClassVar[str] = "(α, ε)-RDP"
    source: ClassVar[str] = "Feldman, Zrnic 2021"

    def rule(self, grid: Grid, fixed: dict[str, Any]) -> Filter:
        del fixed
        index = grid.order_at_or_above(decimal(self.order))
        if index is None:
            raise ValueError(f"order {self.order} is above the grid's last, {grid.exact_orders[-1]}")
        units = floor_units(decimal(self.epsilon), grid.units[index])
        order = float(grid.exact_orders[index])
        quantity = f"Rényi divergence of order {order:g}"
        takers = f"{_TAKERS} pure"
        return CoordinateFilter(
            self.name, self.kind, self.epsilon, grid, index, units, quantity, takers, order
        )


class GdpBudget(Budget):
    """Everything admitted is μ-GDP."""

    kind: Literal["gdp"] = "gdp"
    mu: Annotated[Number, Field(ge=0, le=1e3)]
    """Limit μ: the sum of squares stays at most μ²."""

    parameter: ClassVar[str] = "mu"
    promise: ClassVar[str] = "μ-GDP"
    source: ClassVar[str] = "Smith, Thakurta 2022; SOUNDNESS section 4"

    def rule(self, grid: Grid, fixed: dict[str, Any]) -> Filter:
        del fixed
        units = floor_units(decimal(self.mu) ** 2, grid.units[grid.mu_squared])
        takers = "a subsampled or discrete Gaussian has none; a budget of kind approximate or renyi"
        return GdpFilter(self.name, self.kind, self.mu, grid, grid.mu_squared, units, "mu", takers)


class ApproximateBudget(Budget):
    """Everything admitted is (ε, δ)-DP under full adaptivity, by the filter of SOUNDNESS section 3."""

    kind: Literal["approximate"] = "approximate"
    epsilon: Annotated[Number, Field(gt=0, le=1e4)]
    """Limit ε, in nats."""
    delta: Delta
    """δ of the promise, 0 < δ < 1."""
    delta_add: Annotated[Number, Field(ge=0, lt=1)] | None = None
    """The part of δ kept for approximate charges, fixed in advance: a tenth unless said, 0 allowed. All of δ:
    then the ε and δ of charges simply add up (basic composition), and what has no pure ε is refused."""
    workload: Workload | None = None
    """What the budget is for: the mixture is then focused on it, which admits more of exactly that."""

    parameter: ClassVar[str] = "epsilon"
    promise: ClassVar[str] = "(ε, δ)-DP"
    source: ClassVar[str] = "SOUNDNESS section 3; one order: Canonne, Kamath, Steinke 2020"

    @model_validator(mode="after")
    def _splits(self) -> Self:
        if self.delta_add is not None and not self.delta_add <= self.delta:
            raise ValueError("delta_add must be at most delta, of which it is a part")
        return self

    def fixed(self, grid: Grid, kept: dict[str, Any] | None = None) -> dict[str, Any]:
        if kept is not None:
            return kept
        add, mix = split_delta(self.delta, self.delta_add)
        if self.workload is None:
            weights = default_prior(grid, self.epsilon, mix)
        else:
            weights = workload_prior(grid, workload_loss(self.workload, grid), mix)
        return {
            "delta_add": str(floor_units(add, grid.units[grid.delta])),
            "delta_mix": repr(mix),
            "weights": list(weights),
        }

    def rule(self, grid: Grid, fixed: dict[str, Any]) -> Filter:
        mixture = Mixture(grid, tuple(fixed["weights"]), float(fixed["delta_mix"]))
        return ApproximateFilter(
            self.name,
            self.kind,
            self.epsilon,
            grid,
            mixture=mixture,
            delta_add=int(fixed["delta_add"]),
            pure_units=floor_units(decimal(self.epsilon), grid.units[grid.pure]),
        )


AnyBudget = Annotated[
    PureBudget | ZcdpBudget | RenyiBudget | GdpBudget | ApproximateBudget, Field(discriminator="kind")
]
ANY_BUDGET: TypeAdapter[Budget] = TypeAdapter(AnyBudget)
