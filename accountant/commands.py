"""What can be asked of a ledger: documents from outside, and the commands they become."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from accountant.budgets import COUNT_MAX, ITEMS_MAX, AnyBudget, Budget, Charge, Delta, Slug, Workload
from accountant.documents import invalid
from accountant.grid import CURRENT_GRID, Grid
from accountant.ledger import DATASET_SCOPE, canonical
from accountant.loss import Loss, total
from accountant.mechanisms import Adjacency, AnyMechanism, Document, Number, Whole
from accountant.mechanisms.base import EVERY_ADJACENCY, ONE_LINE, frozen

Text = Annotated[str, Field(strict=True, min_length=1, max_length=64, pattern=ONE_LINE)]
"""One line of 1 to 64 characters without control characters."""


class CreateDataset(Document):
    """Opens a dataset. Its unit, adjacency, δ and weights are fixed for good."""

    name: Slug
    """A slug; never changed, never used again."""
    unit: Text
    """What is protected: person, record, device, …"""
    adjacency: Adjacency
    """When two datasets are neighbours. Never defaulted: noise multipliers are relative to it."""
    delta: Delta
    """δ of the running readings, 0 < δ < 1, well below one over the number of units."""
    delta_add: Annotated[Number, Field(ge=0, lt=1)] | None = None
    """The part of δ kept for approximate charges; a tenth unless said."""
    workload: Workload | None = None
    """What the dataset is mostly for: focuses the running readings on it."""
    budgets: Annotated[tuple[AnyBudget, ...], Field(max_length=32)] = ()
    """Budgets from the first entry on; all must hold."""
    odometer_only: Annotated[bool, Field(strict=True)] = False
    """Count without limit. Needed when there is no budget: a dataset is never unlimited by oversight."""

    @model_validator(mode="after")
    def _limited_or_said_so(self) -> Self:
        if not self.budgets and not self.odometer_only:
            raise ValueError('give at least one budget, or "odometer_only": true to count without a limit')
        if self.budgets and self.odometer_only:
            raise ValueError("odometer_only means no budget: leave one of the two out")
        names = [budget.name for budget in self.budgets]
        if len(set(names)) != len(names):
            raise ValueError(f"two budgets have the same name: {', '.join(sorted(names))}")
        if self.delta_add is not None and not self.delta_add < self.delta:
            raise ValueError("delta_add must be below delta")
        return self


class OneCharge(Document):
    """A charge of one mechanism."""

    mechanism: AnyMechanism
    """What is about to run."""
    count: Annotated[Whole, Field(ge=1, le=COUNT_MAX)]
    """How many times, 1 to 1,000,000,000. Never defaulted."""
    adjacency: Adjacency | None = None
    """The adjacency that the parameters were computed for; when given, it must be the dataset's."""

    @property
    def charges(self) -> tuple[Charge, ...]:
        return (Charge(mechanism=self.mechanism, count=self.count),)


class ManyCharges(Document):
    """All or nothing: every charge of the list, or none."""

    charges: Annotated[tuple[Charge, ...], Field(min_length=1, max_length=ITEMS_MAX)]
    """1 to 256 charges."""
    adjacency: Adjacency | None = None
    """The adjacency that the parameters were computed for; when given, it must be the dataset's."""


_ONE: TypeAdapter[OneCharge] = TypeAdapter(OneCharge)
_MANY: TypeAdapter[ManyCharges] = TypeAdapter(ManyCharges)


def prepare(body: bytes, decoded: Any) -> "Prepared":
    """A charge request from its JSON bytes, which are also given decoded.

    Raises InvalidRequest whose fields are those of the form that was meant (one, or a list).
    """
    many = isinstance(decoded, Mapping) and "charges" in decoded
    try:
        request = (_MANY if many else _ONE).validate_json(body)
    except ValidationError as error:
        invalid(error)
    return Prepared(request.charges, request.adjacency)


@dataclass(frozen=True)
class Prepared:
    """A charge request, parsed, with everything about it that does not depend on the dataset's state."""

    charges: tuple[Charge, ...]
    adjacency: Adjacency | None
    grid: Grid = CURRENT_GRID

    @cached_property
    def losses(self) -> tuple[Loss, ...]:
        """One per charge."""
        return tuple(charge.loss(self.grid) for charge in self.charges)

    @cached_property
    def loss(self) -> Loss:
        """All of it."""
        return self.losses[0] if len(self.losses) == 1 else total(self.grid, self.losses)

    @cached_property
    def kinds(self) -> list[str]:
        return [charge.mechanism.kind for charge in self.charges]

    @cached_property
    def documents(self) -> list[dict[str, Any]]:
        """The charges as they came, without what was not given."""
        return [{"mechanism": charge.mechanism.document(), "count": charge.count} for charge in self.charges]

    @cached_property
    def command(self) -> str:
        """The command as the ledger holds it: canonical JSON."""
        return canonical({"charges": frozen(self.documents)}).decode()

    @cached_property
    def losses_json(self) -> str:
        return json.dumps([loss.encode() for loss in self.losses], separators=(",", ":"))

    @cached_property
    def adjacencies(self) -> frozenset[Adjacency]:
        """Under which every mechanism of the charge is valid."""
        return EVERY_ADJACENCY.intersection(*(charge.mechanism.adjacencies for charge in self.charges))

    @cached_property
    def _kind_scopes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(f"mechanism/{kind}" for kind in self.kinds))

    def scopes(self, principal: str) -> tuple[str, ...]:
        """Every scope whose odometer the charge moves."""
        return (DATASET_SCOPE, f"principal/{principal}", *self._kind_scopes)

    def warm(self) -> Self:
        """Compute what a decision needs, so that the teller never does."""
        _ = self.loss, self.kinds, self.command, self.losses_json, self.adjacencies
        return self


@dataclass(frozen=True)
class ChargeCommand:
    """Charge a dataset, once per (principal, key)."""

    prepared: Prepared
    principal: str
    key: str

    @property
    def ledger_key(self) -> str:
        return f"{self.principal}/{self.key}"


@dataclass(frozen=True)
class OpenCommand:
    """Open a dataset."""

    request: CreateDataset
    principal: str


@dataclass(frozen=True)
class SetBudgetCommand:
    """Add a budget (no `if_match`) or change one (its etag)."""

    budget: Budget
    principal: str
    if_match: str | None = None


@dataclass(frozen=True)
class CloseCommand:
    """Take no more charges."""

    principal: str


Command = ChargeCommand | OpenCommand | SetBudgetCommand | CloseCommand
