"""Counts one stream's entries again, independently of the totals stored beside them. For `verify`.

The losses are computed anew from the parameters of the charges. A table lists the checks of each entry type.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from odometer_accountant.errors import OdometerError
from odometer_accountant.ledger.entries import FORMATS, entry_hash
from odometer_accountant.ledger.entry_types import is_release
from odometer_accountant.ledger.findings import Finding
from odometer_accountant.ledger.fold import apply
from odometer_accountant.ledger.state import State
from odometer_accountant.scopes import holds_losses
from odometer_accountant.stores import Head, Row
from odometer_accountant.verify.charges import check_charge, counted_charge
from odometer_accountant.verify.derived import check_derived
from odometer_accountant.verify.memory import Memory
from odometer_accountant.verify.sessions import check_carried, check_end
from odometer_accountant.verify.settlements import check_settlement

Check = Callable[[Memory, int, Mapping[str, Any], State], None]
"""(memory, entry number, entry, state before it): reports the faults of an entry before it is applied."""

CHECKS: Final[Mapping[str, Check]] = {
    "charged": check_charge,
    "held": check_charge,
    "settled": check_settlement,
    "session_closed": check_end,
    "carried": check_carried,
    "derived": check_derived,
}
"""By entry type, the checks that the fold does not make. The fold alone checks the other types."""
CHARGES: Final = ("charged", "held")


class Recount:
    """A fold of a stream's entries that reports a fault and goes on.

    `lost` says why the sums no longer mean anything, "" while they do. A stream whose name starts with "~"
    holds no losses: only its chain is checked.
    """

    def __init__(self, stream: str, report: Callable[[Finding], None]) -> None:
        self.sequence = 0
        self.hash = ""
        self.state: State | None = None
        self.lost = ""
        self._stream = stream
        self._time = ""
        self._unlinked = False
        self._memory = Memory(stream, report)

    def take(self, row: Row) -> None:
        """Count the next entry, or a later one when those between are missing."""
        if row.sequence <= self.sequence:
            self._memory.fault(f"is a duplicate, or out of order: after entry {self.sequence}", row.sequence)
            return
        if row.sequence > self.sequence + 1:
            self.skip(row.sequence - 1)
        if entry_hash(row.body) != row.hash:
            self._memory.fault("its bytes do not have the hash that is stored with them", row.sequence)
        entry = self._read(row)
        if entry is not None:
            self._link(row, entry)
            self._time = max(self._time, str(entry.get("time")))
            if holds_losses(self._stream):
                self._fold(row, entry)
        self.sequence, self.hash, self._unlinked = row.sequence, row.hash, False

    def skip(self, last: int) -> None:
        """Report the entries up to `last` as missing."""
        first = self.sequence + 1
        which = f"entry {first} is" if first == last else f"entries {first} to {last} are"
        self._memory.fault(f"{which} missing from the store, or damaged there", first)
        self._lose(f"{which} missing")
        self.sequence, self.hash, self._unlinked = last, "", True

    def take_keys(self) -> dict[str, int]:
        """The idempotency keys since the last call, as the store must know them, with their entry numbers."""
        keys, self._memory.keys = self._memory.keys, {}
        return keys

    def _lose(self, why: str) -> None:
        self.lost = self.lost or why

    def _read(self, row: Row) -> dict[str, Any] | None:
        try:
            entry = json.loads(row.body)
            if isinstance(entry, dict):
                return entry
            why = "it is no JSON object"
        except (ValueError, RecursionError) as error:
            why = str(error)
        self._memory.fault(f"cannot be read: {why}", row.sequence)
        self._lose(f"entry {row.sequence} cannot be read")
        return None

    def _link(self, row: Row, entry: Mapping[str, Any]) -> None:
        """Report an entry that does not follow the one before it."""
        at = row.sequence
        if entry.get("v") not in FORMATS:
            known = f"{', '.join(map(str, FORMATS[:-1]))} and {FORMATS[-1]}"
            self._memory.fault(
                f"has format {entry.get('v')!r}; this version reads {known}: a later one is needed", at
            )
        if entry.get("seq") != at:
            self._memory.fault(f"stands here, but says that it is entry {entry.get('seq')!r}", at)
        if entry.get("prev") != self.hash and not self._unlinked:
            named, real = str(entry.get("prev"))[:16], self.hash[:16]
            self._memory.fault(
                f"does not follow the entry before it: names {named}…, that one has {real}…", at
            )
        if not isinstance(entry.get("time"), str):
            self._memory.fault("has no time", at)
        elif entry["time"] < self._time:
            self._memory.fault("its time lies before that of an earlier entry", at)

    def _fold(self, row: Row, entry: dict[str, Any]) -> None:
        at, kind = row.sequence, str(entry.get("type"))
        try:
            if self.state is not None and kind in CHECKS:
                CHECKS[kind](self._memory, at, entry, self.state)
            if self.state is not None and kind in CHARGES:
                after = counted_charge(self._memory, Head(at, row.hash), entry, self.state)
                self.state = after if after.time == self._time else replace_time(after, self._time)
            else:
                self._apply(row, entry)
            if is_release(entry):
                self._memory.note_release(at, 0)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, OdometerError) as error:
            self._memory.fault(f"cannot be applied: {error}", at)
            self._lose(f"entry {at} cannot be applied")

    def _apply(self, row: Row, entry: Mapping[str, Any]) -> None:
        # `_link` reported wrong links; here the entry is taken at its word.
        before = self.state
        if before is not None:
            before = replace(before, head=Head(entry["seq"] - 1, entry["prev"]), time="")
        self.state = apply(before, entry_hash(row.body), row.body)
        if before is None and self.state.stream != self._memory.stream:
            self._memory.fault(f"opens a dataset called {self.state.stream!r}", row.sequence)


def replace_time(state: State, time: str) -> State:
    """The same state at another time: the latest of the entries so far, whatever the last one states."""
    return state.moved(state.head, time, state.totals)
