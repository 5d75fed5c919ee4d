"""The budgets in force of a dataset, the counts that a charge adds to, and the budgets that refuse it.

Pure.
"""

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
"""Scopes whose totals add up to one count: a partition's own and the whole dataset's, for example."""
_FEW: Final = 16
"""Most different counts of a budget that a search for what fits evaluates one by one."""


@dataclass(frozen=True)
class ActiveBudget:
    """A budget in force: its filter, and the scope that it limits."""

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
        """The share of each team that has one, by scope, as (coordinate, units) pairs, rounded down."""
        reserved = self.entry.budget.reserved or {}
        capacities = self.filter.capacities()
        return {
            f"team/{team}": tuple((index, math.floor(decimal(share) * units)) for index, units in capacities)
            for team, share in reserved.items()
        }

    def concerned(
        self, composition: str, partitions: Sequence[str], touched: AffectedScopes
    ) -> Iterator[Scopes]:
        """The counts of this budget that a charge adds to."""
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
        """The loss of a unit is that of its partition plus that of the whole dataset, never one of them
        alone.
        """
        for name in touched.partitions or partitions:
            if self.kind == "dataset" or self.name in (EACH, name):
                yield DATASET_SCOPE, f"partition/{name}"
        if not partitions and (self.kind == "dataset" or self.name == EACH):
            # Partitions that are added later start with this loss.
            yield (DATASET_SCOPE,)

    def count(self, totals: Totals, scopes: Scopes, time: str) -> Loss:
        """The sum of what these scopes have spent, for life or in the window that contains `time`."""
        window = self.window
        first, *others = (totals.of(s) if window is None else totals.within(s, window, time) for s in scopes)
        for other in others:
            first = first.plus(other)
        return first

    def renews(self, time: str) -> datetime | None:
        """The end of the window that contains `time`; None for a budget for life."""
        return None if self.window is None else window_end(self.window, time)


@dataclass(frozen=True)
class BudgetRefusal:
    """A budget that does not allow a charge, with one count that would be too large."""

    limit: ActiveBudget
    scopes: Scopes
    before: Loss
    after: Loss
    reserved: bool = False
    """The limit would hold, but the rest is reserved for other teams."""

    @property
    def scope(self) -> str:
        """The scope whose count it is."""
        return self.scopes[-1]


class MovedCounts:
    """The counts of a budget that a charge adds to, as they were before it, the largest first."""

    def __init__(self, each: Sequence[tuple[Scopes, Loss]]) -> None:
        # The largest count is refused first: where one refusal is enough, few others are evaluated.
        self.each = each if len(each) < 2 else sorted(each, key=lambda one: _size(one[1]), reverse=True)

    @once
    def different(self) -> int:
        """The number of different counts."""
        return len({(before.values, before.unbounded) for _, before in self.each})

    @once
    def worst(self) -> Loss:
        """The largest of each coordinate: a budget that allows a charge on top of it allows it on every
        count.
        """
        distinct = {(before.values, before.unbounded): before for _, before in self.each}
        first, *others = distinct.values()
        for other in others:
            first = first.at_least(other)
        return first


def _size(loss: Loss) -> tuple[int, ...]:
    n_orders = loss.grid.n_orders  # the orders have the same unit
    return sum(loss.unbounded), sum(loss.values[:n_orders]), *loss.values[n_orders:]


@dataclass(frozen=True)
class ChargeContext:
    """The state that a charge is checked against."""

    composition: str
    partitions: Sequence[str]
    totals: Totals
    touched: AffectedScopes
    _moved: dict[tuple[str, str, Window | None, str], MovedCounts] = field(
        default_factory=dict, compare=False, repr=False
    )

    def moved(self, limit: ActiveBudget, time: str) -> MovedCounts:
        """The counts of `limit` that the charge adds to; budgets on the same scopes share them."""
        key = (limit.kind, limit.name, limit.window, time)
        found = self._moved.get(key)
        if found is None:
            concerned = limit.concerned(self.composition, self.partitions, self.touched)
            found = MovedCounts([(scopes, limit.count(self.totals, scopes, time)) for scopes in concerned])
            self._moved[key] = found
        return found


def find_refusals(
    limits: Sequence[ActiveBudget],
    context: ChargeContext,
    loss: Loss,
    time: str,
    most: int | None = None,
) -> list[BudgetRefusal]:
    """Every budget that does not allow `loss` at `time`: once per count that it refuses, at most `most`
    times.
    """
    found: list[BudgetRefusal] = []
    for limit in limits:
        found += islice(_refused(limit, context, loss, time), most)
    return found


def surely_allowed(limits: Sequence[ActiveBudget], context: ChargeContext, loss: Loss, time: str) -> bool:
    """Whether every budget allows `loss`, in a time that does not grow with the number of counts.

    Above `_FEW` different counts only a bound on all of them is checked: then False may be said of a loss
    that fits, never True of one that does not.
    """
    for limit in limits:
        moved = context.moved(limit, time)
        if len(moved.each) > 1 and moved.different > _FEW:
            if not limit.filter.allows(moved.worst.plus(loss)):
                return False
        elif next(_refused(limit, context, loss, time), None) is not None:
            return False
    return True


def most_counts(
    limits: Iterable[ActiveBudget], composition: str, partitions: Sequence[str], touched: AffectedScopes
) -> int:
    """The most counts that a charge on many partitions or units is checked against, over all budgets."""
    if composition == "by_unit":
        kinds, each = {"unit"}, len(touched.units)
    elif composition == "by_partition":
        kinds, each = {"dataset", "partition"}, len(touched.partitions or partitions)
    else:
        return 0
    return sum(each if limit.kind in kinds and limit.name in ("", EACH) else 1 for limit in limits)


def _refused(limit: ActiveBudget, context: ChargeContext, loss: Loss, time: str) -> Iterator[BudgetRefusal]:
    """The refusals of one budget, one for each count."""
    moved = context.moved(limit, time)
    if len(moved.each) > 1 and not limit.shares and limit.filter.allows(moved.worst.plus(loss)):
        return
    judged: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[Loss, bool]] = {}
    for scopes, before in moved.each:
        key = (before.values, before.unbounded)
        if key not in judged:  # many units have the same total, and a filter may take a millisecond
            after = before.plus(loss)
            judged[key] = after, limit.filter.allows(after)
        after, allowed = judged[key]
        if not allowed:
            yield BudgetRefusal(limit, scopes, before, after)
        elif limit.shares and not _keeps_shares(limit, context, before, loss):
            yield BudgetRefusal(limit, scopes, before, after, reserved=True)


def _keeps_shares(limit: ActiveBudget, context: ChargeContext, before: Loss, loss: Loss) -> bool:
    """Whether every team could still spend the rest of its share.

    At each coordinate c that has shares, spent(c) + sum over teams of max(0, share(c) - spent(c)) must stay
    within the capacity. If an edit of the budget left the sum above it, the sum must not grow. A charge
    within the share of its own team does not change the sum, so other teams cannot block it.
    """
    mine = None if context.touched.team is None else f"team/{context.touched.team}"
    after = before.plus(loss)
    for place, (index, capacity) in enumerate(limit.filter.capacities()):
        now, then = before.units(index), after.units(index)
        if now is None or then is None:
            return False
        for scope, shares in limit.shares.items():
            spent = context.totals.of(scope)
            now += _kept(shares[place][1], spent, index)
            then += _kept(shares[place][1], spent.plus(loss) if scope == mine else spent, index)
        if then > max(capacity, now):
            return False
    return True


def _kept(share: int, spent: Loss, index: int) -> int:
    """The rest of a team's share; 0 where what it spent has no bound."""
    known = spent.units(index)
    return 0 if known is None else max(0, share - known)
