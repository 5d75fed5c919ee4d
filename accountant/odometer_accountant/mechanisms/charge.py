"""A charge: how many releases of which mechanism."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field

from odometer_accountant.mechanisms import AnyMechanism, Model, Whole
from odometer_accountant.model import STORED, text_to_floats
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss

COUNT_MAX = 1_000_000_000
"""Most releases of one charge."""
ITEMS_MAX = 256
"""Most charges of one request."""


class Charge(Model):
    """`count` releases of one mechanism."""

    mechanism: AnyMechanism
    """What is about to run."""
    count: Annotated[Whole, Field(ge=1, le=COUNT_MAX)]
    """How many times, 1 to 1,000,000,000. Never defaulted."""

    @classmethod
    def of_ledger(cls, document: Mapping[str, Any]) -> Self:
        """From the document in a ledger, also where an earlier version had weaker checks.

        Raises ValueError.
        """
        return cls.model_validate(text_to_floats(document), context=STORED)

    def loss(self, grid: Grid) -> Loss:
        """The loss of all releases together."""
        return self.mechanism.curve(grid).times(self.count)
