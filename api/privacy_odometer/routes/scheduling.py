"""Chooses the lane of a request that computes: quick first, long when it is large or takes long."""

from collections.abc import Callable
from typing import Final, TypeVar

from odometer_accountant.requests.effort import QUICK_MAX, TakesLongError, at_most
from privacy_odometer.lanes import Lanes

R = TypeVar("R")
QUICK_BYTES: Final = 16 * 1024
"""Largest body for the quick lane, in bytes. Parsing a larger one takes long by itself."""


async def computed(lanes: Lanes, who: str, limit_s: float, size: int, work: Callable[[], R]) -> R:
    """Run `work` in the quick lane, or in the long lane if the body is large or the estimate is high."""

    def quickly() -> R:
        with at_most(QUICK_MAX):
            return work()

    if size <= QUICK_BYTES:
        try:
            return await lanes.quick.run(who, limit_s, quickly)
        except TakesLongError:
            pass  # nothing of it was done
    return await lanes.long.run(who, limit_s, work)
