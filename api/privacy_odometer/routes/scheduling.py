"""Work that computes goes to the lane of its size: the quick one first, unless it is seen to be long."""

from collections.abc import Callable
from typing import Final, TypeVar

from odometer_accountant.requests.effort import QUICK_MAX, TakesLongError, at_most
from privacy_odometer.lanes import Lanes

R = TypeVar("R")
QUICK_BYTES: Final = 16 * 1024
"""A body above this is read in the long lane: reading it takes long by itself."""


async def computed(lanes: Lanes, who: str, limit_s: float, size: int, work: Callable[[], R]) -> R:
    """What `work` returns, from the quick lane or, where it is large or asks for much, from the long one."""

    def quickly() -> R:
        with at_most(QUICK_MAX):
            return work()

    if size <= QUICK_BYTES:
        try:
            return await lanes.quick.run(who, limit_s, quickly)
        except TakesLongError:
            pass  # nothing of it was done
    return await lanes.long.run(who, limit_s, work)
