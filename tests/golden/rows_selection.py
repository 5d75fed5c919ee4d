"""Rows of vectors.json about private selection."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from odometer_accountant.mechanisms import ANY_MECHANISM
from odometer_accountant.numerics.grid import Grid

Row = dict[str, Any]


def one(order: Fraction, **document: Any) -> float:
    """D_alpha of one release."""
    amount = ANY_MECHANISM.validate_python(document).curve(Grid(99, (order,))).amounts[0]
    assert amount is not None
    return float(amount)


def bounded_range(row: Row) -> None:
    """Order 1 is the limit, taken a millionth above it."""
    params = row["params"]
    order = max(Fraction(params["order"]), Fraction("1.000001"))
    value = one(order, kind="exponential", epsilon=float(params["epsilon"]))
    assert value == pytest.approx(row["expected"], abs=row["tolerance"]["abs"])
    assert value <= float(order) * params["epsilon"] ** 2 / 8


def permute_and_flip(row: Row) -> None:
    """The row charges Laplace's curve, which two candidates stay below; ours is above that and the reject."""
    params = row["params"]
    value = one(Fraction(params["order"]), kind="permute_and_flip", epsilon=float(params["epsilon"]))
    assert row["reject"] < row["expected"] <= value <= params["order"] * params["epsilon"] ** 2 / 2


BY_ID: dict[str, Callable[[Row], None]] = {
    "expmech-a1": bounded_range,
    "expmech-ainf": bounded_range,
    "permflip": permute_and_flip,
}
BY_KIND: dict[tuple[str, str], Callable[[Row], None]] = {}
