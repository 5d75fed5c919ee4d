"""A share that was given in percent, and how to write it as the number that it is."""

import re
from decimal import Decimal
from typing import Final

_PERCENT: Final = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})\s*%\s*")


def as_share(text: str) -> str:
    """`: write 75 % as 0.75` for `75%`, to end a sentence with; nothing for what is no percentage."""
    found = _PERCENT.fullmatch(text)
    return f": write {found[1]} % as {(Decimal(found[1]) / 100).normalize():f}" if found else ""
