"""Suggests the number for a share that was given in percent.

Light: the command line reads it at its start.
"""

import re
from decimal import Decimal
from typing import Final

_PERCENT: Final = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})\s*%\s*")


def as_share(text: str) -> str:
    """`: write 75 % as 0.75` for `75%`, to end a sentence with; empty for text that is not a percentage."""
    found = _PERCENT.fullmatch(text)
    return f": write {found[1]} % as {(Decimal(found[1]) / 100).normalize():f}" if found else ""
