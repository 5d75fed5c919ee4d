"""A sweep: up to so many runs that are held at once, and settled for those that started."""

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NoReturn, Self

from odometer_client.base import OdometerError, ReplayedCharge, UsedUp
from odometer_client.errors import HoldExpired
from odometer_client.holds import Hold

log: Final = logging.getLogger("odometer_client")


class Sweep:
    """Runs that one hold pays for. `Client.sweep` makes it; use it in a `with` block.

    A run counts as soon as it is marked as started, whether or not it ends well.
    """

    def __init__(
        self, hold: Hold, counts: list[int], runs: int, mechanisms: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """`counts`, `mechanisms`: releases of one run and what they are, one for each charge of the hold."""
        if hold.replayed and not hold.retried:
            raise ReplayedCharge(
                f"The sweep's key led to an old hold, {hold.id}: runs of it may have started already."
            )
        self.hold = hold
        self.runs = runs
        self.started = 0
        """Runs that were marked as started."""
        self._counts = counts
        self._mechanisms = [dict(one) for one in mechanisms]
        self._open = True
        self._process = os.getpid()
        self._lock = threading.Lock()

    def run(self) -> int:
        """Mark one more run as started, before it starts, and say its number, from 1.

        Raises: UsedUp when all that were held have started, or the block has ended: do not run.
        """
        if os.getpid() != self._process:
            raise RuntimeError("mark runs in the process that holds the sweep, before their workers start")
        with self._lock:
            if not self._open or self.started >= self.runs:
                what = (
                    f"all {self.runs} runs of the sweep have started" if self._open else "the sweep is over"
                )
                raise UsedUp(f"{what}: this run is not paid for")
            self.started += 1
            return self.started

    def count_of(self, mechanism: Mapping[str, Any]) -> int:
        """How many releases of exactly this mechanism are held for one run."""
        pairs = zip(self._mechanisms, self._counts, strict=False)
        return sum(count for held, count in pairs if held == mechanism)

    @property
    def used(self) -> list[int]:
        """What the sweep's hold is settled for: the releases of all runs that started."""
        return [count * self.started for count in self._counts]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Settle. Where the block raised, or the hold has expired, trouble is logged and not raised."""
        if os.getpid() != self._process:
            return  # a forked worker: the runs are not its to count
        with self._lock:
            self._open = False
        try:
            self.hold.settle(self.used)
        except HoldExpired:
            log.warning(
                "hold %s of dataset %s expired before its sweep ended: all %d runs stay spent",
                self.hold.id,
                self.hold.dataset,
                self.runs,
            )
        except OdometerError as trouble:
            if error is None:
                raise
            log.warning("hold %s is not settled, and stays spent until it is: %s", self.hold.id, trouble)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # a copied configuration marks runs of the same hold

    def __reduce__(self) -> NoReturn:
        raise TypeError("A sweep is not pickled: mark runs in the process that holds it.")
