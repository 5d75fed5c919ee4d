"""Warnings for settings that are valid but unusual."""

import math
from typing import Final

from odometer_accountant.budgets.base import Budget
from odometer_accountant.ledger.dataset import BudgetVersion
from odometer_accountant.ledger.state import State
from odometer_accountant.mechanisms import Adjacency, Mechanism
from odometer_accountant.queries.guarantees import standing_count
from odometer_accountant.requests.bodies import CreateDataset

_LARGE_DELTA: Final = 1e-3
"""One over a thousand units: few datasets that anybody counts losses of are smaller."""
LOCAL: Final = tuple(kind for kind, one in sorted(Mechanism.registry.items()) if one.local)
"""The local randomisers."""
_LARGE_EPSILON: Final = 20.0
"""e^20 is half a thousand million: what one unit does may be as much likelier as this."""


def notes(request: CreateDataset) -> list[str]:
    """Warnings for a new dataset; mostly none. These settings cannot be changed later."""
    found = []
    if request.delta >= _LARGE_DELTA:
        found.append(
            f"δ is {request.delta:g}: nothing is promised with that probability. It should be well below one "
            f"over the number of units, so this is for far fewer than {1 / request.delta:.0f} of them"
        )
    for budget in request.budgets:
        found += _said(budget, request.delta)
    if request.composition == "by_unit" and request.adjacency is not Adjacency.replace_one:
        found.append(
            f"every local randomiser will be refused here: {', '.join(LOCAL)} are analysed under "
            f"replace_one, and this dataset has adjacency {request.adjacency.value}"
        )
    return found


def changed(before: Budget, entry: BudgetVersion, spent: float | None) -> str | None:
    """A warning for a budget whose limit has changed; None if it has not.

    `spent` is the amount that counts against it, if there is one number for it.
    """
    budget = entry.budget
    was, now = before.limit(), budget.limit()
    if type(budget) is not type(before) or was == now:
        return None
    if now > was:
        return (
            f"the limit was raised from {was:g} to {now:g}: what people were promised before no longer "
            "holds, the higher limit does"
        )
    said = f"the limit was lowered from {was:g} to {now:g}"
    if spent is not None and spent > now:
        said += f", below the {spent:g} that are spent: nothing more is admitted"
    largest = entry.largest
    if largest is None or largest <= now:
        return said + ("" if "below" in said else ": less is admitted from here on")
    if budget.limit_may_follow_results:
        return f"{said}. What was admitted under the higher limit stays out: nothing that is out is undone"
    return (
        f"{said}. The guarantee stays the largest limit that was in force, {largest:g}: one that is lowered "
        f"after looking is no promise of kind {budget.kind}"
    )


def about_budget(state: State, budget: Budget, change: str | None = None) -> list[str]:
    """Warnings for a budget that was added or changed, in addition to `change`."""
    already = None if change and "that are spent" in change else spent_already(state, budget.name)
    return [*_said(budget, float(state.dataset.delta)), *([already] if already else [])]


def _said(budget: Budget, delta: float) -> list[str]:
    about = (above_dataset(budget, delta), large_epsilon(budget, delta))
    return [said for said in about if said is not None]


def large_epsilon(budget: Budget, delta: float) -> str | None:
    """A warning for a budget whose ε at the dataset's δ hardly protects; None for others."""
    epsilon, read_at = budget.epsilon_at(delta)
    if not epsilon > _LARGE_EPSILON:
        return None
    at = "" if read_at is None else f" at δ = {read_at:g}"
    each = "" if budget.window is None else f" within one {budget.window}"
    return (
        f"budget {budget.name} allows an ε of {epsilon:.4g}{at}{each}: one unit's data may make an outcome "
        f"10^{epsilon / math.log(10):.0f} times as likely, which hardly protects anybody: most stay below 10"
    )


def spent_already(state: State, budget_name: str) -> str | None:
    """A warning for a budget whose limit is below the spent amount.

    None for any other, and for a budget on many scopes, whose counts are not loaded here.
    """
    limit = next(one for one in state.limits if one.filter.name == budget_name)
    spent = standing_count(state, limit)
    if spent is None or limit.filter.allows(spent):
        return None
    lost = limit.filter.spent(spent)
    said = "what is spent has no bound in it" if math.isinf(lost) else f"{lost:.6g} is spent already"
    return (
        f"budget {budget_name}: the limit is {limit.filter.limit:g} and {said}. Nothing more is admitted "
        "while this limit stands, and what went out stays out"
    )


def above_dataset(budget: Budget, delta: float) -> str | None:
    """A warning for a budget whose δ is above the dataset's; None for any other."""
    promised = budget.promised_delta
    if promised is None or promised <= delta:
        return None
    return (
        f"budget {budget.name} promises its ε at δ = {promised:g}, which is above the dataset's "
        f"{delta:g}, the δ of the readings: the two are not comparable"
    )
