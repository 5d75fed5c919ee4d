"""Stores totals in a few bytes: most units are charged the same loss repeatedly.

A dataset by unit has a total for each of perhaps ten million units, and each has some fifty coordinates.
A shard keeps the first losses of its charges. A total that is exactly a multiple of one of them is stored as
that multiple.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss

LOSSES_MAX: Final = 32


@dataclass(frozen=True)
class LossDictionary:
    """The losses that totals may be multiples of, in the order of their first charge."""

    losses: tuple[Loss, ...] = ()

    def learned(self, loss: Loss) -> "LossDictionary":
        """With one more loss, if it is new and there is room."""
        if loss in self.losses or len(self.losses) >= LOSSES_MAX or loss.is_zero:
            return self
        return LossDictionary((*self.losses, loss))

    def encode(self, total: Loss) -> str:
        """`times*number`, or the whole loss."""
        for number, loss in enumerate(self.losses):
            times = total.multiple_of(loss)
            if times is not None:
                return f"{times}*{number}"
        return total.encode()

    def decode(self, grid: Grid, line: str) -> Loss:
        """The inverse of `encode`. Raises ValueError for anything else."""
        times, star, number = line.partition("*")
        if not star:
            return Loss.decode(grid, line)
        if not (times.isascii() and times.isdigit() and number.isascii() and number.isdigit()):
            raise ValueError(f"not a total: {line[:80]!r}")
        if int(number) >= len(self.losses):
            raise ValueError(f"not a total: loss {number} of {len(self.losses)}")
        return self.losses[int(number)].scaled(int(times))

    def dump(self) -> list[str]:
        """For storing."""
        return [loss.encode() for loss in self.losses]

    @classmethod
    def load(cls, grid: Grid, lines: Iterable[str]) -> Self:
        """The inverse of `dump`. Raises ValueError."""
        return cls(tuple(Loss.decode(grid, line) for line in lines))
