"""Readings: what the totals of a dataset say, each with when it holds (SOUNDNESS section 6)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from odometer_accountant.budgets.approximate import ApproximateFilter, if_stopped_now, too_much_delta
from odometer_accountant.budgets.coordinate import mu_shown
from odometer_accountant.ledger.active_budgets import ActiveBudget
from odometer_accountant.ledger.dataset import BudgetVersion
from odometer_accountant.ledger.entries import timestamp
from odometer_accountant.ledger.state import State
from odometer_accountant.numerics import conversions
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.numerics.mixture import Mixture
from odometer_accountant.numerics.rounding import decimal, round_down
from odometer_accountant.queries.advice import finite
from odometer_accountant.scopes import DATASET_SCOPE, EACH, split

HOLDS: Final = {
    "if_stopped_now": (
        "Always, for whatever rule made you stop here: charges may depend on earlier answers. "
        "Not at many moments at once: that is the odometer."
    ),
    "odometer": "Always, and at all moments at once: for every charge so far, even chosen after looking.",
    "fixed_plan": (
        "Only if every charge and the moment of stopping were fixed in advance. What other accountants print."
    ),
    "zcdp": (
        "A total, not a promise: the sum of rho. For charges chosen along the way the promise is a limit "
        "fixed in advance, such as a zcdp budget's. No bound where a charge has no rho."
    ),
    "gdp": (
        "A total, not a promise: the root of the sum of mu squared. For charges chosen along the way the "
        "promise is a limit fixed in advance, such as a gdp budget's. No bound where a charge has no mu."
    ),
    "basic": "For comparison only: the pure epsilons added up.",
    "advanced": (
        "For comparison only: rho + 2 sqrt(rho log 1/delta), the closed form of advanced composition in zCDP."
    ),
}
WHAT_IF: Final = "What if: delta was chosen after looking, so nothing is promised at this delta."


@dataclass(frozen=True)
class Reading:
    """One number and when it holds. `value` None: no bound."""

    name: str
    quantity: str
    value: float | None
    delta: float | None
    holds: str
    order: float | None = None
    what_if: bool = False
    warnings: tuple[str, ...] = ()
    budget: str | None = None

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "quantity": self.quantity,
            "value": self.value,
            "delta": self.delta,
            "order": self.order,
            "holds": f"{WHAT_IF} {self.holds}" if self.what_if else self.holds,
            "what_if": self.what_if,
            "warnings": list(self.warnings),
            "budget": self.budget,
        }


def readings(
    state: State, spent: Loss, delta: float | None = None, scope: str = DATASET_SCOPE
) -> list[Reading]:
    """Every reading of what a scope has spent, at the dataset's own delta or, as what-if, at another."""
    own = float(state.dataset.delta)
    what_if = delta is not None and delta != own
    delta = own if delta is None else delta
    mixture, add = _mixture(state, delta)
    running = [
        Reading(name, "epsilon", finite(value), delta, HOLDS[name], what_if=what_if)
        for name, value in (
            ("if_stopped_now", stopped_now(state, spent, mixture, add)),
            ("odometer", at_all_moments(spent, mixture, add)),
        )
    ]
    return [*running, *_guarantees(state, scope), *plan_readings(spent, delta)]


def stopped_now(state: State, spent: Loss, mixture: Mixture | None = None, add: int | None = None) -> float:
    """`if_stopped_now` of what a scope has spent, by the dataset's own mixture and delta_add unless given.

    A budget of the same mixture that allows these totals has proved them to keep its limit, where the search
    for the least epsilon may end a hair above it: both then say one number.
    """
    mixture = state.dataset.mixture if mixture is None else mixture
    add = int(state.dataset.delta_add) if add is None else add
    found = if_stopped_now(spent, mixture, add)
    for rule in (limit.filter for limit in state.limits):
        same = isinstance(rule, ApproximateFilter) and (rule.mixture, rule.delta_add) == (mixture, add)
        if same and found > rule.limit and rule.allows(spent):
            found = rule.limit
    return found


def whole(state: State) -> Loss:
    """What anybody may have lost: of a partitioned dataset the worst of its partitions, per coordinate.

    Of a dataset by unit there is no such number: zero, for the units have odometers of their own.
    """
    if state.composition == "by_unit":
        return Loss.zero(state.dataset.grid)
    spent = state.spent
    if not state.partitions:
        return spent
    worst, *others = (state.totals.of(f"partition/{name}") for name in state.partitions)
    for other in others:
        worst = worst.at_least(other)
    return spent.plus(worst)


def _mixture(state: State, delta: float) -> tuple[Mixture, int]:
    """The running readings' mixture and delta_add in units, at `delta`: split as the dataset's own is."""
    dataset = state.dataset
    mixture, add = dataset.mixture, int(dataset.delta_add)
    if delta == float(dataset.delta):
        return mixture, add
    unit = dataset.grid.units[dataset.grid.delta]
    share = add * unit / decimal(float(dataset.delta))
    scaled = decimal(delta) * share
    return (
        replace(mixture, delta=round_down(decimal(delta) - scaled)),
        math.floor(scaled / unit),
    )


def at_all_moments(totals: Loss, mixture: Mixture, delta_add: int) -> float:
    """Epsilon true at all moments at once, never above the pure part."""
    if too_much_delta(totals, delta_add):
        return math.inf
    return min(mixture.odometer(totals.renyi()), totals.shown(totals.grid.pure))


def plan_readings(totals: Loss, delta: float) -> Iterator[Reading]:
    """The readings of a plan fixed in advance, and the totals in other notions; no state needed."""
    grid = totals.grid
    yield fixed_plan(totals, delta)
    rho = totals.amount(grid.rho)
    approximate = totals.units(grid.delta) != 0
    mu = math.inf if approximate else mu_shown(totals)
    yield Reading("zcdp", "rho", None if approximate else finite(totals.shown(grid.rho)), None, HOLDS["zcdp"])
    yield Reading("gdp", "mu", finite(mu), None, HOLDS["gdp"])
    sum_delta = totals.shown(grid.delta)
    basic_delta = min(1.0, sum_delta)
    yield Reading("basic", "epsilon", finite(totals.shown(grid.pure)), basic_delta, HOLDS["basic"])
    rest = _rest(totals, delta)
    advanced = math.inf if rest <= 0 else conversions.advanced_epsilon(rho, rest)
    yield Reading("advanced", "epsilon", finite(advanced), delta, HOLDS["advanced"])


def _rest(totals: Loss, delta: float) -> float:
    """What approximate charges leave of delta, rounded down; at most 0 when nothing."""
    units = totals.units(totals.grid.delta)
    return (
        -1.0 if units is None else round_down(decimal(delta) - units * totals.grid.units[totals.grid.delta])
    )


def fixed_plan(totals: Loss, delta: float) -> Reading:
    """Epsilon of a plan fixed in advance, by Rényi orders, with a warning at the edge of the grid."""
    grid, rest = totals.grid, _rest(totals, delta)
    value, order = math.inf, None
    warnings: tuple[str, ...] = ()
    pure = totals.shown(grid.pure)
    if rest >= 0:
        losses = totals.renyi()
        value, best = conversions.rdp_epsilon(losses, grid.orders, rest)
        if math.isfinite(value) and losses.any():
            order = float(grid.orders[best])
            warnings = _edge_warning(grid, best) if value > 0 and value < pure else ()
        value = min(value, pure)
    return Reading(
        "fixed_plan", "epsilon", finite(value), delta, HOLDS["fixed_plan"], order, warnings=warnings
    )


def _edge_warning(grid: Grid, best: int) -> tuple[str, ...]:
    if best not in (0, grid.n_orders - 1):
        return ()
    edge = "first" if best == 0 else "last"
    return (
        f"the best order is the {edge} of the grid, {grid.orders[best]:g}: the true epsilon may be lower",
    )


def _guarantees(state: State, scope: str) -> Iterator[Reading]:
    for limit in (_own(limit, scope) for limit in state.limits):
        budget = limit.entry.budget
        value, said = _promised(state, limit, scope)
        yield Reading(
            "guarantee",
            budget.parameter,
            None if value is None else finite(value),
            getattr(budget, "delta", None),
            f"{budget.promise} for {_whose(limit)}, under full adaptivity{said}",
            order=getattr(budget, "order", None),
            budget=budget.name,
        )


def _promised(state: State, limit: ActiveBudget, scope: str) -> tuple[float | None, str]:
    """What a budget promises as a number, and what is to be said of it."""
    entry, stands = limit.entry, ", while the limit stands."
    now, largest = entry.budget.limit(), entry.largest
    if entry.version == 1:
        return now, stands
    if largest is None:
        return None, f"{stands} No number here: the limit was changed, to {now:g}, and not by this ledger."
    if largest <= now:
        return now, stands
    before = f": the largest limit that was in force, {largest:g}"
    if not entry.budget.limit_may_follow_results:
        why = f"A limit that is changed along the way is no promise of kind {limit.filter.kind}"
        return largest, f"{before}. {why}."
    lost = _lost(state, limit, scope)
    if lost is None:  # it promises nothing about what was admitted before it was lowered
        return largest, f"{before}, since {_untold(limit)}."
    if overspent(limit, lost):
        return limit.filter.spent(lost), f": what is spent, above the limit as it was lowered{stands}"
    return now, stands


def _own(limit: ActiveBudget, scope: str) -> ActiveBudget:
    """Of a budget that many scopes have, the one of this scope."""
    kind, name = split(scope)
    return replace(limit, name=name) if limit.name == EACH and limit.kind == kind else limit


def _lost(state: State, limit: ActiveBudget, scope: str) -> Loss | None:
    """No less than what anybody whom a promise is about may have lost; None when it is not known here.

    It is not for a window, since an earlier one may have lost more than this one; nor for each of many scopes
    whose counts are not at hand.
    """
    if limit.window is not None:
        return None
    if limit.kind == "partition" and limit.name == EACH:
        return whole(state)
    if limit.kind == "unit":
        return state.totals.of(scope) if scope == f"unit/{limit.name}" else None
    return standing_count(state, limit)


def _untold(limit: ActiveBudget) -> str:
    """Why a lowered limit is not the promise itself."""
    lowered = f"before it was lowered to {limit.entry.budget.limit():g}"
    if limit.window is not None:
        return f"in a {limit.window} {lowered} so much may have been spent"
    return f"some may have spent so much {lowered}; the odometer of one says more: scope={limit.kind}/…"


def _whose(limit: ActiveBudget) -> str:
    """Which charges a promise is about, in words."""
    charges = covers(limit.entry)
    if limit.kind == "principal":
        charges += f" of {_named(limit)}: what that principal learns of anybody"
    elif limit.kind in ("team", "group"):
        charges += f" of {_named(limit)}"
    elif limit.kind in ("partition", "unit"):
        charges += f" about {_named(limit)}"
    return charges if limit.window is None else f"{charges}, within one {limit.window}"


def _named(limit: ActiveBudget) -> str:
    return f"each {limit.kind}" if limit.name == "*" else f"{limit.kind} {limit.name}"


def standing_count(state: State, limit: ActiveBudget) -> Loss | None:
    """What counts against a budget as a whole now; None for one that each of many scopes has."""
    if limit.name == "*" or (limit.kind == "dataset" and state.partitions and limit.window is not None):
        return None
    if limit.kind == "dataset":
        return whole(state) if limit.window is None else limit.count(state.totals, ("dataset",), state.time)
    scopes: tuple[str, ...] = (f"{limit.kind}/{limit.name}",)
    if limit.kind == "unit":
        return None
    if limit.kind == "partition":
        scopes = ("dataset", *scopes)
    return limit.count(state.totals, scopes, state.time)


def overspent(limit: ActiveBudget, totals: Loss) -> bool:
    """Whether a change of the budget left less than is spent already. Nothing more is admitted then."""
    return limit.entry.version > 1 and not limit.filter.allows(totals)


def covers(entry: BudgetVersion) -> str:
    """Which entries a budget's promise is about."""
    return "all entries" if entry.since == 0 else f"entries after {entry.since}"


def budget_state(state: State, limit: ActiveBudget, etag: str) -> dict[str, Any]:
    """A budget with what is spent and left, in its own parameter: spent rounded up, left down.

    Of a budget that each of many scopes has, nothing is spent as a whole: those are null.
    """
    spent = standing_count(state, limit)
    shown = None if spent is None else limit.filter.left_of_limit(spent)
    ends = limit.renews(state.time)
    return {
        **limit.entry.budget.document(),
        "scope": limit.entry.budget.scope,
        "window": limit.window,
        "renews": None if ends is None else timestamp(ends),
        "version": limit.entry.version,
        "etag": etag,
        "covers": covers(limit.entry),
        "limit": limit.filter.limit,
        "spent": None if shown is None else finite(shown.spent),
        "left": None if shown is None else shown.left,
        "used": None if shown is None else shown.used,
    }


def loss_document(loss: Loss) -> dict[str, float | None]:
    """The notions that a loss has a number in, rounded up; None for no bound."""
    grid = loss.grid
    return {
        "pure": finite(loss.shown(grid.pure)),
        "rho": finite(loss.shown(grid.rho)),
        "mu": finite(mu_shown(loss)),
        "delta": finite(loss.shown(grid.delta)),
    }
