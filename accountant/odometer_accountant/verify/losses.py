"""Recomputes recorded losses from the parameters of their charges. For `verify`."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from odometer_accountant.ledger.findings import first_difference
from odometer_accountant.ledger.sanitised import at_figure
from odometer_accountant.mechanisms.charge import Charge
from odometer_accountant.numerics.grid import GRIDS, Grid
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.verify.memory import Memory

TOLERANCE: Final = 10**9
"""A recorded loss is too low when it is below the recomputed one by more than a unit and a part in this many.

Another processor or library may round the last digits of a curve up elsewhere; both are upper bounds.
"""
_CURVES_KEPT: Final = 4096


def check_loss(
    memory: Memory,
    at: int,
    grid: Grid,
    number: int,
    item: Mapping[str, Any],
    loss: Loss,
    figure: Mapping[str, Any] | None = None,
) -> None:
    """Report charge `number` of entry `at` when its recorded loss is below what its parameters cost.

    `figure` is the sanitised curve that it is settled at, if there is one.
    """
    which = f"charge {number} ({item['mechanism']['kind']})"
    try:
        true = _recomputed(grid.version, json.dumps(item, sort_keys=True))
    except ValueError as error:
        memory.fault(f"{which} cannot be recomputed by this version: {error}", at)
        return
    if figure is not None:
        (true,) = at_figure(grid, [true], {"curves": [figure]})
    if loss != true and (differs := first_difference(loss, true, _below)):
        recorded, cost = differs.theirs, f"{differs.ours}{differs.also}"
        what = f"{which} has a loss of {recorded} recorded, its parameters cost {cost}"
        memory.fault(what, at, coordinate=differs.where)


def _below(recorded: Loss, true: Loss, index: int) -> bool:
    if recorded.unbounded[index] < true.unbounded[index]:
        return True
    bounded = not recorded.unbounded[index]
    value = true.values[index]
    return bounded and value - recorded.values[index] > 1 + value // TOLERANCE


@lru_cache(maxsize=_CURVES_KEPT)
def _recomputed(grid_version: int, item: str) -> Loss:
    """The loss of one charge as this version computes it, from its ledger document. Raises ValueError."""
    charge = Charge.of_ledger(json.loads(item))
    return charge.loss(GRIDS[grid_version])
