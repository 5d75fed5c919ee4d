"""Rows of vectors.json about variants of sparse vector, in the numbering of Lyu, Su, Li 2017, with c = 1."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from odometer_accountant.mechanisms import ANY_MECHANISM
from odometer_accountant.numerics.grid import GRID_V1

Row = dict[str, Any]


def pure(epsilon_threshold: float, epsilon_answers: float) -> float:
    """Pure loss of one run."""
    document = {
        "kind": "above_threshold",
        "epsilon_threshold": epsilon_threshold,
        "epsilon_answers": epsilon_answers,
    }
    amount = ANY_MECHANISM.validate_python(document).curve(GRID_V1).amounts[GRID_V1.pure]
    assert amount is not None
    return float(amount)


def as_it_should_be(row: Row) -> None:
    """Variant 1: threshold noise 2Δ/ε, query noise 4Δ/ε, which is ε/2 for each here."""
    nominal = row["params"]["nominal_epsilon"]
    assert pure(nominal / 2, nominal / 2) == pytest.approx(row["expected"], rel=row["tolerance"]["rel"])


def too_little_query_noise(row: Row) -> None:
    """Variant 4: threshold noise 4Δ/ε, query noise 4Δ/(3ε): as it is drawn that is ε/4 and 6ε/4 here.

    (1 + 6)/4 times the nominal ε, as Lyu, Su, Li 2017 say; the row is an estimate to two digits.
    """
    nominal = row["params"]["nominal_epsilon"]
    found = pure(nominal / 4, 2 * 3 * nominal / 4)
    assert found == pytest.approx(0.175)
    assert math.ceil(round(found * 1000) / 10) / 100 == row["expected"]


def not_private_at_all(row: Row) -> None:
    """Variants 3, 5, 6: nothing here is called just `svt`, and what has no bound is said to have none."""
    with pytest.raises(ValidationError):
        ANY_MECHANISM.validate_python({"kind": "svt", "epsilon": row["params"]["nominal_epsilon"]})
    curve = ANY_MECHANISM.validate_python({"kind": "non_private", "what": "SVT, variant 3"}).curve(GRID_V1)
    assert (curve.amounts[GRID_V1.pure], row["expected"]) == (None, "inf")


BY_ID: dict[str, Callable[[Row], None]] = {
    "svt-svt1": as_it_should_be,
    "svt-svt4": too_little_query_noise,
    "svt-svt3": not_private_at_all,
}
BY_KIND: dict[tuple[str, str], Callable[[Row], None]] = {}
