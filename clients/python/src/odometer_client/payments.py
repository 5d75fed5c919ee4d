"""Pays for steps of one dataset through a client."""

from dataclasses import dataclass
from typing import Final

from odometer_client.client import Client
from odometer_client.documents import Receipt
from odometer_client.holds import Hold
from odometer_client.mechanism import Mechanism

HOLD_EXPIRES_IN_S: Final = 7 * 86_400
"""Seconds that a block can be settled for, unless told: longer than most blocks take to run."""


@dataclass
class DatasetPayments:
    """Holds and charges of one dataset. Without a client (on a rank that does not pay) it raises."""

    client: Client | None
    dataset: str
    adjacency: str | None = None
    hold_expires_in_s: int = HOLD_EXPIRES_IN_S

    def hold(self, mechanism: Mechanism, count: int, key: str) -> Hold:
        """Hold so many steps."""
        return self._client().hold(
            self.dataset,
            mechanism,
            count,
            key=key,
            adjacency=self.adjacency,
            expires_in_s=self.hold_expires_in_s,
        )

    def charge(self, mechanism: Mechanism, count: int, key: str) -> Receipt:
        """Charge so many steps for good."""
        return self._client().charge(self.dataset, mechanism, count, key=key, adjacency=self.adjacency)

    def _client(self) -> Client:
        if self.client is None:
            raise ValueError("rank 0 charges: give it a client")
        return self.client
