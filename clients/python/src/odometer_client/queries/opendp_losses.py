"""The loss of an OpenDP measurement or context, as mechanisms of the service. Looks at no data."""

import math
from collections import Counter
from fractions import Fraction
from typing import Any, Final, Literal

from opendp.context import Context
from opendp.mod import Measurement

from odometer_client.base import UnsupportedPlan
from odometer_client.mechanism import Mechanism
from odometer_client.mechanisms import Approximate, Pure, Zcdp

ITEMS_MAX: Final = 256
"""Most items of one charge."""
Charges = list[tuple[Mechanism, int]]
Adjacency = Literal["add_remove", "replace_one", "zero_out"]
_ADJACENCY_OF: Final[dict[str, Adjacency]] = {
    "SymmetricDistance": "add_remove",
    "InsertDeleteDistance": "add_remove",
    "SymmetricIdDistance": "add_remove",
    "ChangeOneDistance": "replace_one",
    "HammingDistance": "replace_one",
    "ChangeOneIdDistance": "replace_one",
}
Share = tuple[Mechanism, ...]
"""The loss of one query of a context, or of all of them together."""


def context_shares(context: Context) -> tuple[dict[Share, int], Charges, bool] | None:
    """(what queries of a context may take, what to hold for it, whether that is one loss for all).

    None where the context has no bound.
    """
    if context.d_mids is None:
        whole = context.d_out
        if whole is None or not all(map(math.isfinite, whole if isinstance(whole, tuple) else (whole,))):
            return None
        one = stated_share(context.accountant, whole)
        return {one: 1}, [(part, 1) for part in one], True
    each = Counter(stated_share(context.accountant, loss) for loss in context.d_mids)
    charges = [(part, count) for share, count in each.items() for part in share]
    if not each or context.d_mids_consumed:
        return (dict(each), charges, False) if each else None
    # Shares are floats, cut so that their sum as floats is at most the whole: as decimals it may be above.
    one = stated_share(context.accountant, context.accountant.map(context.d_in))
    most = _sums([(part, 1) for part in one])
    if len(charges) > ITEMS_MAX or any(
        sum_ > most_ for sum_, most_ in zip(_sums(charges), most, strict=True)
    ):
        return dict(each), [(part, 1) for part in one], True
    return dict(each), charges, False


def _sums(charges: Charges) -> tuple[Fraction, Fraction]:
    """(sum of the losses, sum of the deltas), as decimals."""
    losses = deltas = Fraction(0)
    for part, count in charges:
        document = part.document()
        losses += count * _decimal(document.get("epsilon", document.get("rho", 0.0)))
        deltas += count * _decimal(document.get("delta", 0.0))
    return losses, deltas


def _decimal(number: float) -> Fraction:
    """The shortest decimal of a float, exactly: its value in JSON."""
    return Fraction(repr(number))


def mechanism_of(measurement: Measurement, d_in: Any) -> Mechanism:
    """The loss of one release, if that is a single charge; see `mechanisms_of`."""
    found = mechanisms_of(measurement, d_in)
    if len(found) != 1:
        raise UnsupportedPlan(f"One release is {len(found)} charges here: take all of mechanisms_of")
    return found[0]


def mechanisms_of(measurement: Measurement, d_in: Any) -> list[Mechanism]:
    """The loss of one release, by the measurement's own privacy map: all parts together. Looks at no data.

    The map's number is a binary float; what is charged is a decimal that is not below it.
    Raises `UnsupportedPlan` for a measure that the service has no mechanism for.
    """
    _measure(measurement)
    loss = measurement.map(d_in)
    return list(_charges_of(measurement, tuple(map(not_below, finite_pair(loss)))))


def not_below(number: float) -> float:
    """The least float whose decimal is not below `number`, which is exact as a float."""
    return number if _decimal(number) >= Fraction(number) else math.nextafter(number, math.inf)


_PURE: Final = "MaxDivergence"
_ZCDP: Final = "ZeroConcentratedDivergence"
_MEASURES: Final = (_PURE, _ZCDP, f"Approximate<{_PURE}>", f"Approximate<{_ZCDP}>")


def _measure(measurement: Measurement) -> str:
    measure = _name(measurement.output_measure)
    if measure not in _MEASURES:
        raise UnsupportedPlan(
            f"The measurement states its loss as {measurement.output_measure}, which cannot be charged. Use "
            "pure DP (MaxDivergence), zCDP (ZeroConcentratedDivergence), or either with a delta "
            "(Approximate(…), by dp.c.make_approximate or dp.c.make_fix_delta)."
        )
    return measure


def stated_share(accountant: Measurement, loss: Any) -> Share:
    """The mechanisms of a loss that a person stated; each number means its shortest decimal."""
    _measure(accountant)
    return _charges_of(accountant, finite_pair(loss))


def finite_pair(loss: Any) -> tuple[float, ...]:
    """A loss, or a loss and a δ, as finite floats."""
    return tuple(map(_bounded, loss)) if isinstance(loss, tuple) else (_bounded(loss),)


def _charges_of(measurement: Measurement, loss: tuple[float, ...]) -> Share:
    """The mechanisms that one loss is charged as."""
    measure, delta = _measure(measurement), loss[1] if len(loss) > 1 else 0.0
    if measure.endswith(f"{_ZCDP}>") or measure == _ZCDP:
        rest = (Approximate(epsilon=0.0, delta=delta),) if delta else ()
        return (Zcdp(rho=loss[0]), *rest)
    return (Approximate(epsilon=loss[0], delta=delta) if delta else Pure(epsilon=loss[0]),)


def adjacency_of(measurement: Measurement) -> Adjacency:
    """The adjacency that the measurement's input metric speaks of."""
    metric = _name(measurement.input_metric)
    if metric not in _ADJACENCY_OF:
        raise UnsupportedPlan(
            f"The input metric {measurement.input_metric} does not say when two datasets are neighbours: "
            'pass adjacency="add_remove", "replace_one" or "zero_out", as d_in was worked out for.'
        )
    return _ADJACENCY_OF[metric]


def _bounded(loss: Any) -> float:
    number = float(loss)
    if not math.isfinite(number):
        raise UnsupportedPlan(f"The measurement's loss at this d_in is {number}: it has no bound to charge.")
    return number


def _name(kind: Any) -> str:
    """OpenDP's name of a metric or measure, without spaces."""
    return str(kind.type).replace(" ", "")
