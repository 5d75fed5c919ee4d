"""The guarantee of each budget, and how much of the budget is spent."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from odometer_accountant.ledger.active_budgets import ActiveBudget
from odometer_accountant.ledger.dataset import BudgetVersion
from odometer_accountant.ledger.entries import timestamp
from odometer_accountant.ledger.state import State
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.queries.advice import finite
from odometer_accountant.queries.reading import Reading, whole
from odometer_accountant.scopes import EACH, split


def guarantees(state: State, scope: str) -> Iterator[Reading]:
    """The guarantee of each budget, as a reading of `scope`."""
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
    """The numeric guarantee of a budget, with its caveats."""
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
    """The guarantee for this scope, of a budget that many scopes have."""
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
    """Describes in words the charges that a guarantee covers."""
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
    """The total that counts against a budget now; None for a budget that each of many scopes has."""
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
    """Selects the entries that a budget's guarantee covers."""
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
