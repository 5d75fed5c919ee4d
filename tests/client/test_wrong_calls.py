"""What a caller writes wrongly is refused with what would work, before anything is sent."""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from odometer_client import Client
from odometer_client.mechanisms import Gaussian, Grouped, Laplace, RenyiCurve
from odometer_client.plain import plain

Opened = Callable[..., str]
G = Gaussian(noise_multiplier=20)


@pytest.mark.parametrize(
    ("mechanism", "said"),
    [
        ("gaussian", r"'gaussian', a name: .*Gaussian\(noise_multiplier=…\)"),
        ("mine", r"'mine', a name: .*Gaussian\(noise_multiplier=…\)"),
        (Gaussian, r"the class Gaussian: make one of it, Gaussian\(noise_multiplier=…\)"),
        (Laplace, r"the class Laplace: make one of it, Laplace\(scale_over_sensitivity=…\)"),
        (5, r"of type int: a class of odometer_client.mechanisms"),
        ([G, G], r"charges.0 is Gaussian\(noise_multiplier=20\): write \(mechanism, count\)"),
        ([(G, 1), ("laplace", 1)], r"charges.1: the mechanism is 'laplace', a name"),
    ],
)
def test_what_is_no_mechanism_is_told(both: Client, opened: Opened, mechanism: Any, said: str) -> None:
    dataset = opened()
    for call in (both.charge, both.check):
        with pytest.raises(TypeError, match=said):
            call(dataset, mechanism)
    assert both.dataset(dataset)["sequence"] == 1


def test_a_keyword_that_does_not_exist_is_told(both: Client, opened: Opened) -> None:
    wrong: dict[str, Any] = {"unit": "ann"}
    with pytest.raises(TypeError, match=r"no keyword 'unit' here: did you mean units\?"):
        both.charge(opened(), G, **wrong)
    wrong = {"team": "ads"}
    with pytest.raises(TypeError, match="no keyword 'team' here: there are adjacency, partitions"):
        both.check(opened(), G, **wrong)


@pytest.mark.parametrize(
    ("budgets", "said"),
    [
        (
            {"name": "life", "kind": "pure", "epsilon": 1},
            r"budgets is one budget: give a list of them, \[\{…\}\]",
        ),
        ({"life": {"kind": "pure", "epsilon": 1}}, "budgets is a mapping: give a list of them"),
        ("life:pure:epsilon=1", "give a list of documents"),
        (["life:pure:epsilon=1"], "give a list of documents"),
    ],
)
def test_budgets_are_a_list_of_documents(both: Client, budgets: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        both.create_dataset("never", unit="person", adjacency="add_remove", delta=1e-6, budgets=budgets)


def test_numbers_of_numpy_are_numbers(both: Client, opened: Opened) -> None:
    life = {"name": "life", "kind": "zcdp", "rho": np.float32(1.5)}
    dataset = opened(life, odometer_only=np.bool_(False))
    assert both.dataset(dataset).budgets[0]["limit"] == 1.5
    receipt = both.charge(dataset, Gaussian(noise_multiplier=np.int64(20)), int(np.int32(2)))  # type: ignore[arg-type]
    assert receipt["charges"] == [{"mechanism": {"kind": "gaussian", "noise_multiplier": 20.0}, "count": 2}]
    curve = RenyiCurve(orders=np.array([2.0, 4.0]), epsilons=np.array([0.01, 0.02]))  # type: ignore[arg-type]
    both.check(dataset, [(curve, np.int64(3)), (Grouped(base=G, group_size=np.uint8(4)), 1)])  # type: ignore[list-item, arg-type]


@pytest.mark.parametrize(
    "value",
    [
        *(Fraction(1, 3), Fraction(0.1), Fraction(1, 10**400), Fraction(10**400), np.longdouble(1) / 3),
        *(Decimal("0.1000000000000000000001"), Decimal("1e-400"), Decimal("1e400"), Decimal("nan")),
        *(np.longdouble("1e-400"), float, {1.0}, object()),
    ],
)
def test_what_is_no_number_of_json_is_not_rounded_to_one(value: Any) -> None:
    with pytest.raises(ValueError, match=r"mechanism\.x is "):
        plain({"mechanism": {"x": value}})
    assert plain({"x": Fraction(1, 4)}) == {"x": 0.25}
    assert plain([Fraction(1, 10), Decimal("0.1"), np.longdouble(0.5)]) == [0.1, 0.1, 0.5]
