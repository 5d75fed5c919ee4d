"""Values as JSON has them: numbers and arrays of other libraries become Python's, exactly or not at all."""

import operator
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from numbers import Rational
from typing import Any


def plain(value: Any, where: str = "") -> Any:
    """`value` with nothing in it that JSON does not know. Raises ValueError, which says where and what works.

    A number is kept exactly: one that a float would round (a Fraction, a long double) is refused.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {name: plain(item, f"{where}.{name}" if where else str(name)) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}.{place}" if where else str(place)) for place, item in enumerate(value)]
    return _number(value, where)


def _number(value: Any, where: str) -> Any:
    """A number, or an array of them, that is not of Python's own types."""
    try:
        return operator.index(value)
    except TypeError:
        pass
    listed = value.tolist() if hasattr(value, "tolist") and not isinstance(value, type) else value
    if type(listed) is not type(value):
        return plain(listed, where)
    if hasattr(value, "__float__") and not isinstance(value, type):
        near = _near(value)
        if near is not None:
            return near
        raise ValueError(
            f"{where} is {value!r}, which is no float exactly: round it, to the safe side; nothing was sent"
        )
    kind = f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"
    raise ValueError(
        f"{where} is {kind}: a number, text, a list or a mapping of them works; nothing was sent"
    )


def _near(value: Any) -> float | None:
    """The float that is this number, None where it would be rounded.

    On the wire a number is its shortest decimal: Decimal("0.1") and Fraction(1, 10) are 0.1. Fraction(0.1) is
    a little more, and is not.
    """
    try:
        near = float(value)
    except OverflowError:
        return None
    if isinstance(value, Decimal | Rational) and isfinite(near):
        return near if Fraction(repr(near)) == Fraction(value) else None
    return near if bool(near == value) else None
