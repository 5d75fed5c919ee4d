"""Exact numbers and directed rounding: spent rounds up, limits round down."""

import math
from decimal import Decimal
from fractions import Fraction

_LIBM = 4 * 2.0**-52
"""Relative error that a libm function of a float with one rounding may have, with room to spare."""


def decimal(number: float) -> Fraction:
    """The exact value of a number on the wire: its shortest decimal."""
    return Fraction(*Decimal(repr(float(number))).as_integer_ratio())  # quicker than from the text


def round_up(exact: Fraction) -> float:
    """The least float >= `exact`; infinity above the largest."""
    return ratio_up(exact.numerator, exact.denominator)


def round_down(exact: Fraction) -> float:
    """The greatest float <= `exact`. Raises OverflowError above the largest."""
    return ratio_down(exact.numerator, exact.denominator)


def ratio_up(numerator: int, denominator: int) -> float:
    """The least float >= numerator/denominator, for a positive denominator; infinity above the largest."""
    try:
        value = numerator / denominator  # correctly rounded: at most one float away
    except OverflowError:
        return math.inf
    top, bottom = value.as_integer_ratio()
    return value if top * denominator >= numerator * bottom else math.nextafter(value, math.inf)


def ratio_down(numerator: int, denominator: int) -> float:
    """The greatest float <= numerator/denominator. Raises OverflowError above the largest."""
    value = numerator / denominator
    top, bottom = value.as_integer_ratio()
    return value if top * denominator <= numerator * bottom else math.nextafter(value, -math.inf)


def shown_up(numerator: int, denominator: int) -> float:
    """A float as near as can be whose shortest decimal is not below numerator/denominator.

    That decimal is what people see, and what a number on the wire means: exactly 3/10 is 0.3. Infinity above
    the largest.
    """
    try:
        value = numerator / denominator
    except OverflowError:
        return math.inf
    top, bottom = Decimal(repr(value)).as_integer_ratio()
    return value if top * denominator >= numerator * bottom else math.nextafter(value, math.inf)


def shown_down(numerator: int, denominator: int) -> float:
    """As `shown_up`, for what is left: its shortest decimal is not above. Raises OverflowError."""
    value = numerator / denominator
    top, bottom = Decimal(repr(value)).as_integer_ratio()
    return value if top * denominator <= numerator * bottom else math.nextafter(value, -math.inf)


def root_shown(squared: Fraction) -> float:
    """A float as near the root as can be whose shortest decimal is not below it: of 1/100 it is 0.1."""
    if squared == 0:
        return 0.0
    found = math.nextafter(math.sqrt(squared), 0.0)
    while decimal(found) ** 2 < squared:
        found = next_up(found)
    return found


def floor_units(amount: Fraction, unit: Fraction) -> int:
    """A limit in whole units, rounded down."""
    return math.floor(amount / unit)


def next_up(value: float) -> float:
    """The float after `value`."""
    return math.nextafter(value, math.inf)


def half_up(value: float) -> float:
    """Half of it; of the least floats, which have none, the next above."""
    half = value / 2
    return half if half * 2 >= value else next_up(half)


def log_up(ratio: Fraction) -> float:
    """Logarithm of an exact ratio >= 1, rounded up; accurate near 1, where it matters most."""
    logarithm = math.log1p(float(ratio - 1)) if ratio < 2 else math.log(float(ratio))
    return logarithm * (1 + _LIBM)
