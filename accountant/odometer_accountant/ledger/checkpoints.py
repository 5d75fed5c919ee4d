"""Checkpoints: every 128th entry also states the dataset's total, so that history needs no full fold."""

from collections.abc import Mapping
from typing import Any, Final

from odometer_accountant.ledger.totals import Totals
from odometer_accountant.scopes import DATASET_SCOPE

CHECKPOINT_EVERY: Final = 128
"""In entries of a stream. An entry of that number that moves no total states none."""


def is_checkpoint(sequence: int) -> bool:
    """Whether the entry of this number states the total, if it moves totals."""
    return sequence % CHECKPOINT_EVERY == 0


def last_checkpoint(sequence: int) -> int:
    """The number of the last checkpoint up to entry `sequence`; 0 when there is none."""
    return sequence // CHECKPOINT_EVERY * CHECKPOINT_EVERY


def checkpoint(totals: Totals) -> str:
    """The dataset's total as a checkpoint states it."""
    return totals.of(DATASET_SCOPE).encode()


def check_checkpoint(sequence: int, entry: Mapping[str, Any], totals: Totals) -> None:
    """Raise ValueError unless entry `sequence` states `totals` where it must."""
    if is_checkpoint(sequence) and entry.get("totals") != checkpoint(totals):
        raise ValueError("its checkpoint differs from the sum of the entries before it")
