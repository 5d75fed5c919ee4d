"""A charge: how many releases of which mechanism."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field

from odometer_accountant.mechanisms import AnyMechanism, Model, Whole
from odometer_accountant.model import STORED, text_to_floats
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss

COUNT_MAX = 1_000_000_000


ITEMS_MAX = 256


class Charge(Model):
    """`count` releases of one mechanism."""

    mechanism: AnyMechanism
    """What is about to run."""
    count: Annotated[Whole, Field(ge=1, le=COUNT_MAX)]
    """How many times, 1 to 1,000,000,000. Never defaulted."""

    @classmethod
    def of_ledger(cls, document: Mapping[str, Any]) -> Self:
        """As a ledger holds it: taken by this version or an earlier, laxer one. Raises ValueError."""
        return cls.model_validate(text_to_floats(document), context=STORED)

    def loss(self, grid: Grid) -> Loss:
        return self.mechanism.curve(grid).times(self.count)
