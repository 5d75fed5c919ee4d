"""RAPPOR and unary encoding name p and q the other way round: either refuses the two swapped."""

import pytest
from pydantic import ValidationError

from odometer_accountant.ledger.dataset import BudgetVersion
from odometer_accountant.mechanisms import ANY_MECHANISM
from odometer_accountant.mechanisms.charge import Charge
from odometer_accountant.model import floats_to_text
from odometer_accountant.numerics.grid import GRID_V1

SWAPPED = {"kind": "rappor", "h": 2, "f": 0.5, "p": 0.75, "q": 0.5, "permanent_bits": "fresh"}


def test_swapped_probabilities_are_refused_with_what_they_are() -> None:
    with pytest.raises(ValidationError, match=r"q, for a bit that is 1, is at least p, .*swapped"):
        ANY_MECHANISM.validate_python(SWAPPED)
    with pytest.raises(ValidationError, match="at least q"):
        ANY_MECHANISM.validate_python({"kind": "unary_encoding", "p": 0.25, "q": 0.5})


def test_what_a_ledger_took_swapped_is_read_and_lost_as_much() -> None:
    taken = Charge.of_ledger(floats_to_text({"mechanism": SWAPPED, "count": 3}))
    right = ANY_MECHANISM.validate_python(SWAPPED | {"p": 0.5, "q": 0.75})
    assert taken.loss(GRID_V1) == right.curve(GRID_V1).times(3)


def test_a_budget_made_for_what_a_ledger_took_stays_readable() -> None:
    workload = [{"mechanism": SWAPPED, "count": 3}]
    budget = {"name": "life", "kind": "approximate", "epsilon": 1.0, "delta": 1e-6, "workload": workload}
    entry = BudgetVersion.parse({"budget": floats_to_text(budget), "version": 1, "fixed": {}, "since": 1})
    assert entry.budget.document()["workload"][0]["mechanism"]["p"] == 0.75
