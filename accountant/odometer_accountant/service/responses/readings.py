"""Readings of a dataset, of one scope, or of a plan."""

from odometer_accountant.service.responses.base import Reply
from odometer_accountant.service.responses.charges import LeftReply, LossReply
from odometer_accountant.service.responses.datasets import BudgetState


class ReadingReply(Reply):
    """One number, and when it holds."""

    name: str
    quantity: str
    value: float | None
    delta: float | None
    order: float | None
    holds: str
    what_if: bool
    warnings: list[str]
    budget: str | None


class OdometerReply(Reply):
    """Every reading of a dataset, or of one scope of it."""

    dataset: str
    scope: str
    known: bool
    """Whether the scope was ever charged, or is a partition, or is named by a budget. Else what reads zero
    may be a name with a fault in it."""
    notes: list[str] | None = None
    """For an unknown scope: which one may be meant; left out when there is nothing to say."""
    sequence: int
    time: str
    delta: float
    readings: list[ReadingReply]
    totals: LossReply
    held: LossReply
    """What open holds come to: it is part of the totals, and may be settled for less."""
    budgets: list[BudgetState]
    left: list[LeftReply]
    """For a scope: what is left of each budget that it has."""


class ScopeReply(Reply):
    """The loss of one scope."""

    scope: str
    if_stopped_now: float | None
    delta: float
    totals: LossReply
    tightest: LeftReply | None
    """The budget that it has used most of; null when none limits it."""
    budgets: int
    """How many budgets limit it."""


class ScopesReply(Reply):
    """A page of scopes, by name."""

    items: list[ScopeReply]
    next: str | None


class ConvertReply(Reply):
    """The readings of charges as a plan."""

    readings: list[ReadingReply]
    totals: LossReply
    notes: list[str] | None = None
    """What the caller should know of how this is charged; left out when there is nothing."""
