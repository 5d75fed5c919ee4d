"""Explains why a charge is refused and what would fit. Computed on a snapshot; never a decision."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from odometer_accountant.ledger.active_budgets import (
    BudgetRefusal,
    ChargeContext,
    find_refusals,
    surely_allowed,
)
from odometer_accountant.ledger.entries import timestamp
from odometer_accountant.ledger.prepared import PreparedCharge
from odometer_accountant.ledger.state import State
from odometer_accountant.mechanisms import Mechanism
from odometer_accountant.mechanisms.charge import COUNT_MAX
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.once import once
from odometer_accountant.requests.effort import effort
from odometer_accountant.scopes import AffectedScopes

M = TypeVar("M", bound=BaseModel)

_NOISE_FACTOR_MAX = 1e6
_DELTA_FACTOR_MAX = 1e18
"""Below 1e-18 every δ counts as that much."""
_NOISE_STEPS = 30
SCOPES_SHOWN: Final = 5
"""Refused scopes of one budget that are shown: those that have spent most."""
ADVICE_S: Final = 0.2
"""Processor time, in seconds, that one piece of advice may take."""
PARTS: Final = ("largest_count", "least_noise", "leading_items")
"""What advice says of what would fit."""
_SEARCHED_MAX: Final = 100.0
"""A curve that takes more effort than this is not computed again with other parameters."""
UNFINISHED: Final = (
    "what would fit was not searched to the end: that takes more processor time than one request may ask for"
)
POSTPONED: Final = (
    "what would fit was not computed, since the service is busy: a check of the same charge says it later"
)


class OutOfTimeError(Exception):
    """A search has used up its processor time."""


def finite(value: float) -> float | None:
    """`value` for JSON: None for no bound."""
    return None if math.isinf(value) else value


@dataclass(frozen=True)
class WhatIf:
    """A state, the affected scopes and a time: what a decision on a loss depends on."""

    state: State
    affected: AffectedScopes
    time: str
    until_s: float = math.inf
    """Processor time of the asking thread at which searches end, as `time.thread_time` has it."""

    refused: Loss | None = None
    """A loss that is known to be refused: searches do not evaluate it again."""

    def within(self, seconds: float, refused: Loss | None = None) -> "WhatIf":
        """The same, for searches of the calling thread that may take so much processor time from now on."""
        question = replace(self, until_s=time.thread_time() + seconds, refused=refused)
        question.__dict__["situation"] = self.situation  # its counts are computed once
        return question

    @once
    def situation(self) -> ChargeContext:
        """The counts that the charge moves, computed once."""
        state = self.state
        return ChargeContext(state.composition, state.partitions, state.totals, self.affected)

    def find_refusals(self, loss: Loss, most: int) -> list[BudgetRefusal]:
        """Every budget that would not allow `loss`, with at most so many of the counts that it refuses."""
        return find_refusals(self.state.limits, self.situation, loss, self.time, most)

    def shown(self, loss: Loss, decided: Sequence[BudgetRefusal]) -> list[BudgetRefusal]:
        """The refusals to show, from those of a decision, which has one count of each budget.

        Only a budget on several counts is evaluated again, to find the others that it refuses.
        """
        found: list[BudgetRefusal] = []
        for one in decided:
            if len(self.situation.moved(one.limit, self.time).each) == 1:
                found.append(one)
            else:
                found += find_refusals([one.limit], self.situation, loss, self.time, SCOPES_SHOWN)
        return found

    def surely_fits(self, loss: Loss) -> bool:
        """Whether every budget would allow it. Quick for any number of units; never True in error.

        Raises OutOfTimeError.
        """
        if time.thread_time() > self.until_s:
            raise OutOfTimeError
        if loss == self.refused:
            return False
        return surely_allowed(self.state.limits, self.situation, loss, self.time)


def refusals(question: WhatIf, loss: Loss, found: Iterable[BudgetRefusal]) -> list[dict[str, Any]]:
    """The refusals `found`, with numbers in the parameter of each budget, rounded up."""
    documents = []
    known: dict[tuple[str, Loss], dict[str, Any]] = {}
    for one in found:
        same = (one.limit.filter.name, one.before)
        if same not in known:  # units of which nothing is known yet differ by their names alone
            known[same] = _refusal(one, loss, question.time)
        documents.append({**known[same], "scope": one.scope})
    return documents


def _refusal(one: BudgetRefusal, asked: Loss, time: str) -> dict[str, Any]:
    rule = one.limit.filter
    now, then = rule.spent(one.before), rule.spent(one.after)
    ends = one.limit.renews(time)
    reason = rule.why_not(asked, one.after)
    if one.reserved:
        reason = "what is left is reserved for other teams"
    return {
        "budget": rule.name,
        "scope": one.scope,
        "window": one.limit.window,
        "renews": None if ends is None else timestamp(ends),
        "kind": rule.kind,
        "limit": rule.limit,
        "spent": finite(now),
        "asked": finite(max(0.0, then - now)) if math.isfinite(now) else None,
        "after": finite(then),
        "short_by": finite(max(0.0, then - rule.limit)),
        "order": rule.left(one.before).order,
        "reason": reason,
    }


def would_fit(question: WhatIf, prepared: PreparedCharge, note: list[str]) -> dict[str, Any]:
    """The largest count, the least noise (one mechanism), the leading items (a list) that would fit.

    Each None where it is not asked, and where its search ran out of time: then `UNFINISHED` is `note`d.
    """
    found: dict[str, Any] = dict.fromkeys(PARTS)
    charge, runs = prepared.charges[0], prepared.group.runs if prepared.group else 1
    if len(prepared.charges) == 1 and effort(prepared.documents) > _SEARCHED_MAX:
        note.append(UNFINISHED)
        return found
    try:
        if len(prepared.charges) > 1:
            found["leading_items"] = _leading(question, prepared)
        else:
            found["largest_count"] = largest_count(question, charge.mechanism) // runs  # that of one run
            found["least_noise"] = least_noise(question, charge.mechanism, charge.count)
    except OutOfTimeError:
        note.append(UNFINISHED)
    return found


def largest_count(question: WhatIf, mechanism: Mechanism) -> int:
    """The largest count of `mechanism` that every budget allows now, 0 to 1,000,000,000."""
    curve, fits = mechanism.curve(question.state.dataset.grid), question.surely_fits
    if not fits(curve.times(1)):
        return 0
    low, high = 1, 2
    while high <= COUNT_MAX and fits(curve.times(high)):
        low, high = high, 2 * high
    high = min(high, COUNT_MAX + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(curve.times(middle)) else (low, middle)
    return low


def least_noise(question: WhatIf, mechanism: Mechanism, count: int) -> dict[str, Any] | None:
    """The mechanism with about the least noise at which `count` releases fit, None when none does.

    Never less noise than fits; at most 0.1 % more than needed. Where its δ does not fit it is lowered first,
    and nothing else is if that is enough.
    """
    grid = question.state.dataset.grid

    def enough(candidate: Mechanism | None) -> bool:
        return candidate is not None and question.surely_fits(candidate.curve(grid).times(count))

    lowered = _with_delta_that_fits(question, mechanism, count)
    if lowered is not mechanism and enough(lowered):
        return lowered.document()
    factor = _least_factor(lambda value: enough(lowered.noisier(value)))
    exact = None if factor is None else lowered.noisier(factor)
    return None if exact is None else _tidied(lowered, exact, enough).document()


def _with_delta_that_fits(question: WhatIf, mechanism: Mechanism, count: int) -> Mechanism:
    """With about the largest δ that fits, whatever else it loses; itself where δ is not what is too much."""
    grid = question.state.dataset.grid

    def fits(candidate: Mechanism | None) -> bool:
        if candidate is None:
            return False
        loss = candidate.curve(grid).times(count)
        return question.surely_fits(_at_delta_alone(loss))

    if mechanism.less_delta(1.0) is None or fits(mechanism):
        return mechanism
    factor = _least_factor(lambda value: fits(mechanism.less_delta(value)), _DELTA_FACTOR_MAX, 1 + 1e-6)
    exact = None if factor is None else mechanism.less_delta(factor)
    return mechanism if exact is None else _tidied(mechanism, exact, fits)


def _at_delta_alone(loss: Loss) -> Loss:
    """The part of a loss that uses δ only, not ε."""
    place = loss.grid.delta
    values, unbounded = (
        tuple(number if index == place else 0 for index, number in enumerate(numbers))
        for numbers in (loss.values, loss.unbounded)
    )
    return Loss(loss.grid, values, unbounded)


def _tidied(before: Mechanism, exact: Mechanism, enough: Callable[[Mechanism], bool]) -> Mechanism:
    """With four digits where that is enough.

    The nearest first: a budget of exactly 0.5 takes 0.5, not the 0.4999 of the search.
    """
    found = (tidy(before, exact, nearest) for nearest in (True, False))
    return next((shown for shown in found if enough(shown)), exact)


def _least_factor(
    enough: Callable[[float], bool], most: float = _NOISE_FACTOR_MAX, near: float = 1.0002
) -> float | None:
    """The least factor up to `most` that is enough, by bisection of its logarithm; None when none is.

    At most `near` times the least, as far as so many steps reach.
    """
    if not enough(most):
        return None
    low, high = 1 / most, 1.0
    if not enough(1.0):
        low, high = 1.0, most
    for _ in range(_NOISE_STEPS):
        if high / low < near:
            break
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def tidy(before: M, after: M, nearest: bool) -> M:
    """`after` with the numbers that moved rounded to four digits: the nearest, or on in their direction."""
    changes: dict[str, Any] = {}
    for name in type(after).model_fields:
        old, new = getattr(before, name), getattr(after, name)
        if isinstance(new, BaseModel):
            changes[name] = tidy(old, new, nearest)
        elif isinstance(new, tuple) and all(isinstance(item, BaseModel) for item in new):
            changes[name] = tuple(tidy(was, item, nearest) for was, item in zip(old, new, strict=True))
        elif isinstance(new, float) and new != old and new > 0:
            unit = 10.0 ** (math.floor(math.log10(new)) - 3)
            onwards = math.ceil if new > old else math.floor
            steps = (round if nearest else onwards)(new / unit)
            changes[name] = float(f"{steps * unit:.4g}")
    return after.model_copy(update=changes)


def _leading(question: WhatIf, prepared: PreparedCharge) -> int:
    loss, fitting = Loss.zero(question.state.dataset.grid), 0
    for item in prepared.losses:
        loss = loss.plus(item)
        if not question.surely_fits(loss):
            break
        fitting += 1
    return fitting
