"""How often a test repeats itself: a few times in `make test`, many times where `TEST_AMOUNT` is `full`."""

import os
from typing import Any, Final

from hypothesis import settings

FULL: Final = os.environ.get("TEST_AMOUNT", "few") == "full"


def amount(full: int, few: int | None = None) -> int:
    """`full` where all is asked for, else `few`: by default a quarter, but 4 where that is less."""
    if FULL:
        return full
    return few if few is not None else min(full, max(4, full // 4))


def examples(full: int, **more: Any) -> settings:
    """Hypothesis settings with `amount(full)` examples and no deadline (two processes may share a core)."""
    return settings(max_examples=amount(full), deadline=None, **more)
