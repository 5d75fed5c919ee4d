"""Which budgets a charge concerns, and whether they allow it. Pure; the rules themselves are in `rules`."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Final, Self

from odometer_accountant.budgets.base import Filter
from odometer_accountant.ledger.dataset import BudgetVersion
from odometer_accountant.ledger.totals import Totals
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.numerics.rounding import decimal
from odometer_accountant.once import once
from odometer_accountant.scopes import DATASET_SCOPE, EACH, AffectedScopes, split
from odometer_accountant.windows import Window, window_end

Scopes = tuple[str, ...]
"""Scopes whose totals add up to one count: of a partition, its own and that of the whole dataset."""
_FEW: Final = 16
"""Up to so many different counts of a budget are each looked at, however often it is asked what would fit."""


@dataclass(frozen=True)
class ActiveBudget:
    """A budget with its rule, and whom it limits."""

    entry: BudgetVersion
    filter: Filter
    kind: str
    """Kind of the scope: dataset, principal, team, group, partition, unit."""
    name: str
    """Name within the kind; `*` for each; empty for the dataset."""
    window: Window | None

    @classmethod
    def of(cls, entry: BudgetVersion, grid: Grid) -> Self:
        budget = entry.budget
        return cls(entry, budget.filter(grid, dict(entry.fixed)), *split(budget.scope), budget.window)

    @once
    def shares(self) -> Mapping[str, tuple[tuple[int, int], ...]]:
        """For each team with a reserved share (by scope): (coordinate, units) pairs, rounded down."""
        reserved = self.entry.budget.reserved or {}
        capacities = self.filter.capacities()
        return {
            f"team/{team}": tuple((index, math.floor(decimal(share) * units)) for index, units in capacities)
            for team, share in reserved.items()
        }

    def concerned(
        self, composition: str, partitions: Sequence[str], touched: AffectedScopes
    ) -> Iterator[Scopes]:
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

    def _partitions(self, partitions: Sequence[str], touched: AffectedScopes) -> Iterator[Scopes]:
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
class BudgetRefusal:
    """A budget that does not allow a charge, with the count that it would move."""

    limit: ActiveBudget
    scopes: Scopes
    before: Loss
    after: Loss
    reserved: bool = False
    """The limit would hold, but what is left is kept for other teams."""

    @property
    def scope(self) -> str:
        """Whose count it is."""
        return self.scopes[-1]


class MovedCounts:
    """The counts of a budget that a charge moves, those that have spent most first, before it does."""

    def __init__(self, each: Sequence[tuple[Scopes, Loss]]) -> None:
        # Who has spent most is refused first: where one refusal is enough, few others are looked at.
        self.each = each if len(each) < 2 else sorted(each, key=lambda one: _size(one[1]), reverse=True)

    @once
    def different(self) -> int:
        """How many of the counts differ."""
        return len({(before.values, before.unbounded) for _, before in self.each})

    @once
    def worst(self) -> Loss:
        """The largest in each coordinate: a budget that allows a charge on top of it allows it on each."""
        distinct = {(before.values, before.unbounded): before for _, before in self.each}
        first, *others = distinct.values()
        for other in others:
            first = first.at_least(other)
        return first


def _size(loss: Loss) -> tuple[int, ...]:
    n_orders = loss.grid.n_orders  # which are in the same units
    return sum(loss.unbounded), sum(loss.values[:n_orders]), *loss.values[n_orders:]


@dataclass(frozen=True)
class ChargeContext:
    """What a charge is judged against."""

    composition: str
    partitions: Sequence[str]
    totals: Totals
    touched: AffectedScopes
    _moved: dict[tuple[str, str, Window | None, str], MovedCounts] = field(
        default_factory=dict, compare=False, repr=False
    )

    def moved(self, limit: ActiveBudget, time: str) -> MovedCounts:
        """The counts of `limit` that the charge moves; found once for all budgets on the same ones."""
        key = (limit.kind, limit.name, limit.window, time)
        found = self._moved.get(key)
        if found is None:
            concerned = limit.concerned(self.composition, self.partitions, self.touched)
            found = MovedCounts([(scopes, limit.count(self.totals, scopes, time)) for scopes in concerned])
            self._moved[key] = found
        return found


def refusing(
    limits: Sequence[ActiveBudget],
    situation: ChargeContext,
    loss: Loss,
    time: str,
    most: int | None = None,
) -> list[BudgetRefusal]:
    """Every budget that does not allow `loss`, at a moment of the ledger.

    Of each budget every count that it refuses, or `most` of them.
    """
    found: list[BudgetRefusal] = []
    for limit in limits:
        found += islice(_refused(limit, situation, loss, time), most)
    return found


def surely_allowed(limits: Sequence[ActiveBudget], situation: ChargeContext, loss: Loss, time: str) -> bool:
    """Whether every budget allows `loss`, in a time that does not grow with the counts.

    Of more than `_FEW` different counts a bound on all is judged: False may then be said of what would fit.
    """
    for limit in limits:
        moved = situation.moved(limit, time)
        if len(moved.each) > 1 and moved.different > _FEW:
            if not limit.filter.allows(moved.worst.plus(loss)):
                return False
        elif next(_refused(limit, situation, loss, time), None) is not None:
            return False
    return True


def breadth(
    limits: Iterable[ActiveBudget], composition: str, partitions: Sequence[str], touched: AffectedScopes
) -> int:
    """How many counts are judged for a charge on many partitions or units, over all budgets, at most."""
    if composition == "by_unit":
        kinds, each = {"unit"}, len(touched.units)
    elif composition == "by_partition":
        kinds, each = {"dataset", "partition"}, len(touched.partitions or partitions)
    else:
        return 0
    return sum(each if limit.kind in kinds and limit.name in ("", EACH) else 1 for limit in limits)


def _refused(limit: ActiveBudget, situation: ChargeContext, loss: Loss, time: str) -> Iterator[BudgetRefusal]:
    """The counts for which a budget does not allow `loss`."""
    moved = situation.moved(limit, time)
    if len(moved.each) > 1 and not limit.shares and limit.filter.allows(moved.worst.plus(loss)):
        return
    judged: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[Loss, bool]] = {}
    for scopes, before in moved.each:
        key = (before.values, before.unbounded)
        if key not in judged:  # many units have the same total, and a rule may take a millisecond
            after = before.plus(loss)
            judged[key] = after, limit.filter.allows(after)
        after, allowed = judged[key]
        if not allowed:
            yield BudgetRefusal(limit, scopes, before, after)
        elif limit.shares and not _keeps_shares(limit, situation, before, loss):
            yield BudgetRefusal(limit, scopes, before, after, reserved=True)


def _keeps_shares(limit: ActiveBudget, situation: ChargeContext, before: Loss, loss: Loss) -> bool:
    """Whether every team could still spend what is left of its share.

    At each coordinate c that shares are cut from, spent(c) + sum over teams of max(0, share(c) - spent(c))
    stays within the capacity, or where an edit of the budget has left it above, grows no further. A charge
    within its own team's share leaves that sum as it was, so that no other team can be in its way.
    """
    mine = None if situation.touched.team is None else f"team/{situation.touched.team}"
    after = before.plus(loss)
    for place, (index, capacity) in enumerate(limit.filter.capacities()):
        now, then = before.units(index), after.units(index)
        if now is None or then is None:
            return False
        for scope, shares in limit.shares.items():
            spent = situation.totals.of(scope)
            now += _kept(shares[place][1], spent, index)
            then += _kept(shares[place][1], spent.plus(loss) if scope == mine else spent, index)
        if then > max(capacity, now):
            return False
    return True


def _kept(share: int, spent: Loss, index: int) -> int:
    """What is left of a team's share; without a bound on what it spent, nothing."""
    known = spent.units(index)
    return 0 if known is None else max(0, share - known)
