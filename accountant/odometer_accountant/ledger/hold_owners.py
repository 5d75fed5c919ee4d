"""Limits the open holds of one principal, so that it leaves room for the others."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from odometer_accountant.errors import TooManyHolds
from odometer_accountant.ledger.charge_totals import open_holds
from odometer_accountant.ledger.commands import ChargeCommand
from odometer_accountant.ledger.entries import content
from odometer_accountant.ledger.state import State
from odometer_accountant.stores import Row

HOLDS_OF_ONE_MAX: Final = 250
"""Most open holds of a stream that one principal can have; all together have `charges.HOLDS_MAX`."""
_STREAMS_KEPT: Final = 64
Rows = Callable[[int], Row | None]
"""An entry of the stream by its number, None when there is none."""


class Holders:
    """The owners of the open holds of streams. Each is read once from its entry, which never changes.

    Nothing is read for a stream with fewer open holds than one principal may have.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, dict[int, str]] = OrderedDict()

    def check(self, state: State, command: ChargeCommand, now: str, stored: int, row: Rows) -> None:
        """Raise TooManyHolds unless the sender of a hold may have one more beside the open holds of `state`.

        `stored` is the number of the last entry that the store has; `row` finds the later ones too.
        """
        if command.prepared.expires_in_s is None:
            return
        numbers = open_holds(state.holds, max(state.time, now))
        if len(numbers) < HOLDS_OF_ONE_MAX:
            return
        who = command.by or command.principal
        if sum(one == who for one in self._of(state.stream, numbers, stored, row)) >= HOLDS_OF_ONE_MAX:
            raise TooManyHolds(
                f"{who} has {HOLDS_OF_ONE_MAX} open holds of dataset {state.dataset.name}, the most one can "
                "have: settle some of them, or charge instead of holding"
            )

    def _of(self, stream: str, numbers: Iterable[int], stored: int, row: Rows) -> list[str]:
        known = self._known.pop(stream, {})
        found = {
            number: known[number] if number in known else _holder(row(number), stream) for number in numbers
        }
        # An entry that is not stored yet may never be: another one could then have its number.
        self._known[stream] = {number: who for number, who in found.items() if number <= stored}
        while len(self._known) > _STREAMS_KEPT:
            self._known.popitem(last=False)
        return list(found.values())


def _holder(row: Row | None, stream: str) -> str:
    if row is None:
        return ""  # a missing entry is reported elsewhere; here it has no owner
    entry = content(row, stream)
    return str(entry.get("by", entry.get("principal", "")))
