"""Pays for steps of one dataset, through a client or out of a sweep's hold."""

import threading
from dataclasses import dataclass, field
from typing import Final, NoReturn

from odometer_client.base import UnsupportedPlan, UsedUp
from odometer_client.bodies import About
from odometer_client.client import Client
from odometer_client.documents import Receipt
from odometer_client.holds import Hold
from odometer_client.mechanism import Mechanism
from odometer_client.sweeps import Sweep

HOLD_EXPIRES_IN_S: Final = 7 * 86_400
"""Seconds that a block can be settled for, unless told: longer than most blocks take to run."""


@dataclass
class DatasetPayments:
    """Holds and charges of one dataset. Without a client (on a rank that does not pay) it raises."""

    client: Client | None
    dataset: str
    adjacency: str | None = None
    hold_expires_in_s: int = HOLD_EXPIRES_IN_S
    group: str | None = None
    """Runs that this one belongs to."""

    def hold(self, mechanism: Mechanism, count: int, key: str) -> Hold:
        """Hold so many steps."""
        return self._client().hold(
            self.dataset,
            mechanism,
            count,
            key=key,
            adjacency=self.adjacency,
            group=self._group,
            expires_in_s=self.hold_expires_in_s,
        )

    def charge(self, mechanism: Mechanism, count: int, key: str) -> Receipt:
        """Charge so many steps for good."""
        about: About = {"adjacency": self.adjacency, "group": self._group}
        return self._client().charge(self.dataset, mechanism, count, key=key, **about)

    @property
    def _group(self) -> tuple[str, int] | None:
        return None if self.group is None else (self.group, 1)

    def _client(self) -> Client:
        if self.client is None:
            raise ValueError("rank 0 charges: give it a client")
        return self.client


@dataclass
class SweepPayments:
    """Steps of one run, out of the hold of its sweep: nothing else is charged for them."""

    sweep: Sweep
    dataset: str
    run: int | None = None
    """The run's number in the sweep, once its first step was asked for."""
    _taken: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if self.sweep.hold.dataset != self.dataset:
            raise UnsupportedPlan(
                f"the sweep holds steps on {self.sweep.hold.dataset!r}, this run is on {self.dataset!r}"
            )

    def charge(self, mechanism: Mechanism, count: int, key: str) -> Receipt:  # noqa: ARG002
        """Take so many steps of what the sweep holds for one run; its first marks the run as started.

        Raises: UsedUp when the run's steps or the sweep's runs are used up; UnsupportedPlan for other steps
        than those held.
        """
        document = mechanism.document()
        with self._lock:
            most = self.sweep.count_of(document)
            if not most:
                raise UnsupportedPlan(
                    f"the sweep does not hold this step, {document}. Hold dp_sgd_step(noise_multiplier, "
                    "sample_rate) of odometer_client.rates: the guard charges that"
                )
            taken = self._taken.get(repr(document), 0) + count
            if taken > most:
                raise UsedUp(f"all {most} steps that the sweep holds for a run were taken")
            if self.run is None:
                self.run = self.sweep.run()
            self._taken[repr(document)] = taken
        return Receipt(self.sweep.hold)

    def hold(self, mechanism: Mechanism, count: int, key: str) -> NoReturn:
        """A run's steps are taken one by one."""
        raise NotImplementedError
