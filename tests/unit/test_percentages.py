"""A share that is given in percent is refused with how to write it."""

from typing import Any

import pytest

from odometer_accountant.errors import InvalidRequest
from odometer_accountant.requests.bodies import CreateDataset, OneCharge, OneHold
from odometer_accountant.requests.json_input import validated

GAUSSIAN = {"kind": "gaussian", "noise_multiplier": 1.0}


def message(kind: Any, document: dict[str, Any]) -> str:
    with pytest.raises(InvalidRequest) as caught:
        validated(kind, document)
    (error,) = caught.value.fields["errors"]
    return str(error["message"])


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (75, "must be at most 1: write 75 % as 0.75"),
        (1.5, "must be at most 1: write 1.5 % as 0.015"),
        ("1%", "must be a number: write 1 % as 0.01"),
        (" 0.25 %", "must be a number: write 0.25 % as 0.0025"),
        ("many", "must be a number"),
        (1000, "must be at most 1"),
    ],
)
def test_a_rate_in_percent_is_told_as_a_number(rate: Any, said: str) -> None:
    charge = {
        "mechanism": {"kind": "poisson_subsampled", "base": GAUSSIAN, "sampling_rate": rate},
        "count": 1,
    }
    assert message(OneCharge, charge) == said


def test_a_probability_in_percent_is_told_as_a_number() -> None:
    charge = {"mechanism": {"kind": "randomized_response", "k": 2, "probability_of_truth": 75}, "count": 1}
    assert "write 75 % as 0.75" in message(OneCharge, charge)


def test_nobody_means_a_delta_in_percent() -> None:
    opened = {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 5, "odometer_only": True}
    assert message(CreateDataset, opened) == "must be below 1"


@pytest.mark.parametrize(
    ("epochs", "said"),
    [
        (6e4, "a whole number: write 60000"),
        (1.2, "a whole number"),
        ("3", "a whole number"),
        (True, "a whole number"),
    ],
)
def test_a_whole_number_with_a_point_is_told_without_it(epochs: Any, said: str) -> None:
    charge = {"mechanism": {"kind": "shuffled_epochs", "base": GAUSSIAN, "epochs": epochs}, "count": 1}
    assert message(OneCharge, charge) == f"must be {said}"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (400 * 86_400, "must be at most 31622400 seconds (366 days)"),
        (0, "must be at least 1 second"),
    ],
)
def test_a_bound_is_told_with_all_its_digits(seconds: int, said: str) -> None:
    """One that was rounded up would be refused itself."""
    hold = {"mechanism": {"kind": "pure", "epsilon": 1}, "count": 1, "expires_in_s": seconds}
    assert message(OneHold, hold) == said
