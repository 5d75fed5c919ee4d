"""Settlement of a hold of PATE queries at a sanitised figure: its conditions, and its losses. Pure."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from odometer_accountant.errors import InvalidRequest
from odometer_accountant.mechanisms import Mechanism
from odometer_accountant.mechanisms.stated import RenyiCurve
from odometer_accountant.model import STORED, text_to_floats
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss

Document = Mapping[str, Any]


def check_sanitised(held: Document, used: Sequence[int], sanitised: Document) -> None:
    """Raise InvalidRequest unless the figure is of such charges and all that it costs is paid by the hold.

    `sanitised` as a ledger has it. What it costs: its failure probability, held as an `approximate` charge of
    ε 0, and its own release, which is another charge; all of them used.
    """
    items = held["command"]["charges"]
    curves = sanitised["curves"]
    if len(curves) != len(items):
        raise InvalidRequest.of(
            "sanitised.curves", f"the hold has {len(items)} charges: give a curve or null for each"
        )
    kinds = [item["mechanism"]["kind"] for item in items]
    for place, (kind, curve) in enumerate(zip(kinds, curves, strict=True)):
        if curve is not None and not _sanitisable(kind):
            raise InvalidRequest.of(
                f"sanitised.curves.{place}",
                f"a charge of {kind} is not settled at a figure, only those of "
                f"{' and '.join(_every_sanitisable())}: give null",
            )
    covered = sum(
        (Fraction(item["mechanism"]["delta"]) * count for item, count in zip(items, used, strict=True)
         if _covers(item) and count == item["count"]),
        Fraction(0),
    )  # fmt: skip
    if covered < Fraction(sanitised["failure_probability"]):
        raise InvalidRequest.of(
            "sanitised.failure_probability",
            f"the figure fails with probability {sanitised['failure_probability']}, and the hold has "
            f"{float(covered):g} for it: hold an approximate charge of epsilon 0 and that delta with the "
            "queries, and settle it as used in full",
        )
    if not any(
        count and not _sanitisable(item["mechanism"]["kind"]) and not _covers(item)
        for item, count in zip(items, used, strict=True)
    ):
        raise InvalidRequest.of(
            "sanitised",
            "telling the figure is a release of its own: hold a charge for it with the queries "
            "(odometer_client.queries.pate_votes.Plan.charge says which), and settle it "
            "as used",
        )


def check_told(grid: Grid, held: Document, used: Sequence[int]) -> None:
    """Raise InvalidRequest unless a charge for telling a figure is used that costs something.

    Of what comes in: a ledger may hold a settlement that an earlier version took on a charge of nothing.
    """
    for item, line, count in zip(held["command"]["charges"], held["losses"], used, strict=True):
        loss = Loss.decode(grid, line)
        orders = slice(0, grid.n_orders)
        costs = any(loss.values[orders]) or any(loss.unbounded[orders])
        if count and costs and not _sanitisable(item["mechanism"]["kind"]) and not _covers(item):
            return
    raise InvalidRequest.of(
        "sanitised",
        "telling the figure is a release of its own, and a charge of nothing pays for nothing: hold one that "
        "costs something with the queries (`queries.pate_votes.Plan.charge` says which), and settle it "
        "as used",
    )


def at_figure(grid: Grid, losses: Sequence[Loss], sanitised: Document) -> tuple[Loss, ...]:
    """`losses`, each lowered to its sanitised curve at the orders that this reaches; never raised.

    Pure part, ρ and μ² stay: a Rényi curve bounds none of them.
    """
    return tuple(
        loss if curve is None else _stored(curve).curve(grid).times(1).at_most(loss)
        for loss, curve in zip(losses, sanitised["curves"], strict=True)
    )


def _stored(curve: Document) -> RenyiCurve:
    """A figure as a ledger holds it: what is taken today was looked at where it came in."""
    return RenyiCurve.model_validate(text_to_floats(curve), context=STORED)


def _covers(item: Document) -> bool:
    """Whether a charge is a probability of failure and nothing else."""
    mechanism = item["mechanism"]
    return mechanism["kind"] == "approximate" and Fraction(mechanism["epsilon"]) == 0


def _sanitisable(kind: str) -> bool:
    """Whether a theorem covers the data-dependent loss of a kind of mechanism."""
    return Mechanism.registry.get(kind, Mechanism).sanitisable


def _every_sanitisable() -> list[str]:
    return [kind for kind, one in Mechanism.registry.items() if one.sanitisable]
