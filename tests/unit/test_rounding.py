"""Directed rounding: floats against exact ratios."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from odometer_accountant.numerics.rounding import decimal, ratio_down, ratio_up, shown_down, shown_up

NUMERATORS = st.integers(min_value=0, max_value=10**40)
DENOMINATORS = st.integers(min_value=1, max_value=10**20)


@given(NUMERATORS, DENOMINATORS)
def test_a_float_rounded_up_is_the_least_that_is_not_below(numerator: int, denominator: int) -> None:
    exact = Fraction(numerator, denominator)
    assert Fraction(ratio_down(numerator, denominator)) <= exact <= Fraction(ratio_up(numerator, denominator))


@given(NUMERATORS, DENOMINATORS)
def test_what_is_shown_is_read_as_its_shortest_decimal(numerator: int, denominator: int) -> None:
    exact = Fraction(numerator, denominator)
    assert decimal(shown_down(numerator, denominator)) <= exact <= decimal(shown_up(numerator, denominator))


@given(st.floats(min_value=1e-12, max_value=1e9))
def test_a_decimal_is_shown_as_it_was_written(number: float) -> None:
    exact = decimal(number)
    assert shown_up(exact.numerator, exact.denominator) == number
    assert shown_down(exact.numerator, exact.denominator) == number


def test_three_tenths_is_shown_as_it_is() -> None:
    assert shown_up(3, 10) == 0.3
    assert ratio_up(3, 10) == 0.30000000000000004
