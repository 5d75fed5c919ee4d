"""Which budgets a charge concerns, and whether they allow it. Pure; the rules themselves are in `rules`."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Self

from accountant.datasets import BudgetEntry
from accountant.grid import Grid
from accountant.loss import Loss
from accountant.rounding import decimal
from accountant.rules import Rule
from accountant.scopes import DATASET_SCOPE, EACH, Touched, split
from accountant.totals import Totals
from accountant.windows import Window, window_end

Scopes = tuple[str, ...]
"""Scopes whose totals add up to one count: of a partition, its own and that of the whole dataset."""


@dataclass(frozen=True)
class Limit:
    """A budget with its rule, and whom it limits."""

    entry: BudgetEntry
    rule: Rule
    kind: str
    """Kind of the scope: dataset, principal, team, group, partition, unit."""
    name: str
    """Name within the kind; `*` for each; empty for the dataset."""
    window: Window | None

    @classmethod
    def of(cls, entry: BudgetEntry, grid: Grid) -> Self:
        budget = entry.budget
        return cls(entry, budget.rule(grid, dict(entry.fixed)), *split(budget.scope), budget.window)

    @cached_property
    def shares(self) -> Mapping[str, tuple[tuple[int, int], ...]]:
        """For each team with a reserved share (by scope): (coordinate, units) pairs, rounded down."""
        reserved = self.entry.budget.reserved or {}
        capacities = self.rule.capacities()
        return {
            f"team/{team}": tuple((index, math.floor(decimal(share) * units)) for index, units in capacities)
            for team, share in reserved.items()
        }

    def concerned(self, composition: str, partitions: Sequence[str], touched: Touched) -> Iterator[Scopes]:
        """The counts of this budget that a charge moves."""
        if composition == "by_partition" and self.kind in ("dataset", "partition"):
            yield from self._partitions(partitions, touched)
        elif self.kind == "dataset":
            yield (DATASET_SCOPE,)
        elif self.kind == "unit":
            yield from ((f"unit/{unit}",) for unit in touched.units if self.name in (EACH, unit))
        else:
            name = getattr(touched, self.kind)
            if name is not None and self.name in (EACH, name):
                yield (f"{self.kind}/{name}",)

    def _partitions(self, partitions: Sequence[str], touched: Touched) -> Iterator[Scopes]:
        """A unit has lost what its partition has lost and what the whole dataset has: never one alone."""
        for name in touched.partitions or partitions:
            if self.kind == "dataset" or self.name in (EACH, name):
                yield DATASET_SCOPE, f"partition/{name}"
        if not partitions and (self.kind == "dataset" or self.name == EACH):
            # Those that are added later will have lost this from their first day.
            yield (DATASET_SCOPE,)

    def count(self, totals: Totals, scopes: Scopes, time: str) -> Loss:
        """What these scopes have spent together, for life or in the window that `time` lies in."""
        window = self.window
        first, *others = (totals.of(s) if window is None else totals.within(s, window, time) for s in scopes)
        for other in others:
            first = first.plus(other)
        return first

    def renews(self, time: str) -> datetime | None:
        """When the window that `time` lies in is over; None for a budget for life."""
        return None if self.window is None else window_end(self.window, time)


@dataclass(frozen=True)
class Refusing:
    """A budget that does not allow a charge, with the count that it would move."""

    limit: Limit
    scopes: Scopes
    before: Loss
    after: Loss
    reserved: bool = False
    """The limit would hold, but what is left is kept for other teams."""

    @property
    def scope(self) -> str:
        """Whose count it is."""
        return self.scopes[-1]


def refusing(
    limits: Sequence[Limit],
    situation: "Situation",
    loss: Loss,
    time: str,
) -> list[Refusing]:
    """Every budget that does not allow `loss`, at a moment of the ledger."""
    found = []
    for limit in limits:
        for scopes in limit.concerned(situation.composition, situation.partitions, situation.touched):
            before = limit.count(situation.totals, scopes, time)
            after = before.plus(loss)
            if not limit.rule.allows(after):
                found.append(Refusing(limit, scopes, before, after))
            elif limit.shares and not _keeps_shares(limit, situation, after, loss):
                found.append(Refusing(limit, scopes, before, after, reserved=True))
    return found


@dataclass(frozen=True)
class Situation:
    """What a charge is judged against."""

    composition: str
    partitions: Sequence[str]
    totals: Totals
    touched: Touched


def _keeps_shares(limit: Limit, situation: Situation, after: Loss, loss: Loss) -> bool:
    """Whether every team could still spend what is left of its share.

    At each coordinate c that shares are cut from, after(c) + sum over teams of max(0, share(c) - spent(c))
    stays within the capacity. A charge within its own team's share leaves that sum as it was, so that no
    other team can be in its way.
    """
    mine = None if situation.touched.team is None else f"team/{situation.touched.team}"
    for place, (index, capacity) in enumerate(limit.rule.capacities()):
        units = after.units(index)
        if units is None:
            return False
        for scope, shares in limit.shares.items():
            spent = situation.totals.of(scope)
            if scope == mine:
                spent = spent.plus(loss)
            # Without a bound nothing of a share is left to keep.
            known = spent.units(index)
            units += 0 if known is None else max(0, shares[place][1] - known)
        if units > capacity:
            return False
    return True
