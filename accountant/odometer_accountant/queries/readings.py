"""Readings: what the totals of a dataset say, each with when it holds (SOUNDNESS section 6)."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from odometer_accountant.budgets.approximate import ApproximateFilter, if_stopped_now, too_much_delta
from odometer_accountant.budgets.coordinate import mu_shown
from odometer_accountant.ledger.state import State
from odometer_accountant.numerics import conversions
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.numerics.mixture import Mixture
from odometer_accountant.numerics.rounding import decimal, round_down
from odometer_accountant.queries.advice import finite
from odometer_accountant.queries.guarantees import guarantees
from odometer_accountant.queries.reading import Reading
from odometer_accountant.scopes import DATASET_SCOPE

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
    return [*running, *guarantees(state, scope), *plan_readings(spent, delta)]


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
    """The delta that approximate charges leave, rounded down; at most 0 when nothing is left."""
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
