"""Datasets and their budgets."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from odometer_accountant.service.responses.base import Reply


class BudgetState(BaseModel):
    """A budget as it was set, and how much of it is spent, in its own parameter."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    name: str
    kind: str
    version: int
    """Grows with each change."""
    etag: str
    """Send it as If-Match to change the budget."""
    covers: str
    """Which entries the promise is about."""
    scope: str
    """What it limits: the dataset, or one or each of a kind of scope."""
    window: str | None
    renews: str | None
    """When the window is over, and it starts anew."""
    limit: float
    spent: float | None
    """Null also for a budget that many scopes have: each of them has its own."""
    left: float | None
    used: float | None
    """0 to 1."""
    held: float | None = None
    """With an odometer: how much of `spent` would come back if no open hold were used."""
    warning: str | None = None


class DatasetReply(Reply):
    """A dataset: what it protects, and its budgets."""

    name: str
    unit: str
    adjacency: Literal["add_remove", "replace_one", "zero_out"]
    delta: float
    delta_add: float
    grid_version: int
    created: str
    sequence: int
    """Number of the last entry."""
    closed: bool
    odometer_only: bool
    composition: Literal["sequential", "by_partition", "by_unit"]
    partitions: list[str]
    shards: int
    """Over how many streams the odometers of units are spread; 0 without any."""
    frozen: bool
    """Its ledger history was rolled back: nothing is admitted until a person has decided."""
    frozen_shards: list[int]
    """Shards whose ledger history was rolled back: only their units are refused.

    Those that this process has come upon since it started, not all that are frozen.
    """
    open_holds: int | None
    """Null by unit: they are counted where they are listed."""
    budgets: list[BudgetState]
    notes: list[str] | None = None
    """What whoever opened it should know of it, when it is opened; left out when there is nothing."""


class DatasetProblem(Reply):
    """Why a dataset cannot be read, as asking for it alone would say."""

    type: str
    title: str
    detail: str


class UnreadableDataset(Reply):
    """A dataset that is there, but whose ledger history was rolled back or contradicts itself."""

    name: str
    problem: DatasetProblem


class DatasetsReply(Reply):
    """A page of datasets, by name."""

    items: list[DatasetReply | UnreadableDataset]
    next: str | None


class BudgetsReply(Reply):
    """All budgets of a dataset."""

    items: list[BudgetState]
    next: None
