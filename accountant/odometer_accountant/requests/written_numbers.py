"""Numbers of a JSON text that a 64-bit float cannot hold: found, and reported with the nearest floats."""

import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from odometer_accountant.errors import InvalidRequest

DIGITS_MAX: Final = 1000
"""Most digits of a whole number."""
ERRORS_SHOWN: Final = 20
"""Most errors of one request that are listed."""
TEXT_SHOWN: Final = 80
"""Most characters of a caller's text that an error repeats."""


class Misread(float):
    """A float that stands for a written number which no float has. `text` is the number as written."""

    text: str


def number_of(text: str) -> float:
    """The float of a decimal number; a `Misread` where another number was written.

    A number means its shortest decimal (SOUNDNESS section 7): what lies between two floats, or between 0 and
    the least one, would be taken for something else than was asked. Raises ValueError for what is no number.
    """
    value = float(text)
    if repr(value) == text or not math.isfinite(value):
        return value
    try:
        same = Decimal(text) == Decimal(repr(value))
    except InvalidOperation:  # an exponent of twenty digits
        same = value == 0 and not re.search("[1-9]", re.split("[eE]", text)[0])
    if same:
        return value
    wrong = Misread(value)
    wrong.text = text
    return wrong


def as_written(text: Any) -> Any:
    """The text unchanged, for pydantic to read as a number. Raises ValueError if no float has its value."""
    try:
        number = number_of(text) if isinstance(text, str) else text
    except ValueError:
        return text  # pydantic says so
    if type(number) is Misread:
        raise ValueError(why_misread(number))
    return text


def whole_number_of(text: str) -> int | float:
    """As `number_of`, of a number without a point: up to 2^53 each is a float of its own."""
    if len(text) > DIGITS_MAX:
        raise ValueError(f"a number has {len(text)} digits; at most {DIGITS_MAX} are read")
    number = int(text)
    if abs(number) <= 2**53:
        return number
    as_float = number_of(text)
    return as_float if isinstance(as_float, Misread) else number


def why_misread(number: Misread) -> str:
    """The error message: the number as it would be taken, and the nearest numbers that work."""
    near = float(number)
    below = near if Decimal(repr(near)) < _written(number) else math.nextafter(near, -math.inf)
    above = math.nextafter(below, math.inf)
    text = number.text if len(number.text) <= TEXT_SHOWN else f"{number.text[:TEXT_SHOWN]}…"
    return (
        f"a 64-bit float cannot hold {text}, which would be taken for {near!r}: "
        f"write {below!r} or {above!r}, the nearest that it can"
    )


def _written(number: Misread) -> Decimal:
    """The number as written; when its exponent is too long for Decimal, a tiny one of the same sign."""
    try:
        return Decimal(number.text)
    except InvalidOperation:  # not zero, and nearer to it than any float
        return Decimal("-1e-400" if number.text.startswith("-") else "1e-400")


def misread(document: Any) -> InvalidRequest | None:
    """The InvalidRequest for numbers that no float has, None when there are none."""
    found = list(_misread(document, ()))[:ERRORS_SHOWN]
    if not found:
        return None
    errors = [
        {"field": ".".join(map(str, place)) or "body", "message": why_misread(number)}
        for place, number in found
    ]
    return InvalidRequest(f"{errors[0]['field']}: {errors[0]['message']}", errors=errors)


def _misread(document: Any, place: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Misread]]:
    if isinstance(document, Misread):
        yield place, document
    elif isinstance(document, Mapping):
        for name, item in document.items():
            yield from _misread(item, (*place, name))
    elif isinstance(document, list | tuple):
        for index, item in enumerate(document):
            yield from _misread(item, (*place, index))
