"""The rate at which a sampler in single precision really draws."""

import math
import random
from decimal import Decimal
from fractions import Fraction

import pytest

from odometer_client.mechanisms import Gaussian, PoissonSubsampled
from odometer_client.rates import dp_sgd_step, drawn_rate


@pytest.mark.parametrize(
    ("rate", "multiple"),
    [
        (0.01, 167_773),  # .0100000500679…
        (1e-7, 2),  # 1.19e-7, a fifth more
        (1e-30, 1),
        (2**-24, 1),
        (math.nextafter(2**-24, 1), 2),
        (0.25, 2**22),
        (math.nextafter(1.0, 0), 2**24),
        (1.0, 2**24),
        (1, 2**24),
    ],
)
def test_the_rate_goes_up_to_a_multiple_of_the_random_numbers(rate: float, multiple: int) -> None:
    assert Fraction(drawn_rate(rate)) >= Fraction(multiple, 2**24)
    assert drawn_rate(rate) == pytest.approx(multiple / 2**24, rel=1e-15)


def test_the_decimal_that_goes_out_is_not_below_the_probability() -> None:
    chance = random.Random(7)
    for _ in range(2000):
        rate = chance.choice([chance.random(), 10 ** -chance.uniform(0, 9), 1 / chance.randint(1, 10**6)])
        multiple = Fraction(math.ceil(Fraction(rate) * 2**24), 2**24)
        told = Fraction(Decimal(repr(drawn_rate(rate))))
        assert Fraction(rate) <= multiple <= told <= multiple * (1 + Fraction(1, 10**15))


def test_a_rate_that_is_drawn_is_drawn_as_itself() -> None:
    for multiple in (1, 3, 167_773, 2**23 + 1, 2**24 - 1):
        assert drawn_rate(multiple / 2**24) == pytest.approx(multiple / 2**24, rel=1e-15)


def test_beyond_adds_multiples_and_stays_a_probability() -> None:
    assert drawn_rate(0.25, beyond=1) == pytest.approx(0.25 + 2**-24, rel=1e-15)
    assert drawn_rate(1.0, beyond=1) == 1.0


@pytest.mark.parametrize("rate", [0, -0.1, 1.0000001, math.nan, math.inf])
def test_what_is_no_rate_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="above 0, at most 1"):
        drawn_rate(rate)


def test_a_step_is_a_gaussian_on_a_sample_at_that_rate() -> None:
    step = dp_sgd_step(1.1, 0.01)
    assert step == PoissonSubsampled(base=Gaussian(noise_multiplier=1.1), sampling_rate=drawn_rate(0.01))
