"""Rows of vectors.json about shuffling."""

from collections.abc import Callable
from typing import Any

import pytest

from odometer_accountant.mechanisms.shuffled import Shuffled

Row = dict[str, Any]


def shuffled(params: dict[str, Any], epsilon0: float | None = None) -> Shuffled:
    local = params["eps0"] if epsilon0 is None else epsilon0
    return Shuffled(epsilon0=float(local), population=params["n"], delta=params["delta"])


def closed_form(row: Row) -> None:
    assert shuffled(row["params"]).amplified() == pytest.approx(row["expected"], rel=row["tolerance"]["rel"])


def numerical(row: Row) -> None:
    """The numerical bounds are tighter than the closed form, which is what is charged: never below them."""
    epsilon = shuffled(row["params"]).amplified()
    assert epsilon is not None
    assert epsilon >= max(row["expected"])


def regime(row: Row) -> None:
    """A little inside it helps; a little outside it does not, and the reply says the range."""
    largest = row["expected"]
    inside = shuffled(row["params"], largest * (1 - row["tolerance"]["rel"]))
    outside = shuffled(row["params"], largest * (1 + row["tolerance"]["rel"]))
    assert inside.amplified() is not None
    assert outside.amplified() is None
    assert f"{largest:.6g}" in (outside.note() or "")


BY_ID: dict[str, Callable[[Row], None]] = {
    "shuffle-num": numerical,
    "shuffle-closed": closed_form,
    "shuffle-regime": regime,
}
BY_KIND: dict[tuple[str, str], Callable[[Row], None]] = {}
