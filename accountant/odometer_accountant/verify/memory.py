"""The facts of earlier entries that the recount compares later ones with. For `verify`."""

from collections.abc import Callable
from typing import Any

from odometer_accountant.ledger.entry_parts import Entry
from odometer_accountant.ledger.findings import Finding
from odometer_accountant.numerics.loss import Loss


class Memory:
    """Facts of the entries so far, from the entries alone. `fault` reports a finding."""

    def __init__(self, stream: str, report: Callable[[Finding], None]) -> None:
        self.stream = stream
        self.keys: dict[str, int] = {}
        """The idempotency keys that were stated since they were last taken, with their entry numbers."""
        self.over: set[tuple[str, int, str]] = set()
        """(budget, its version, scope) of exceeded budgets that were reported."""
        self.held: dict[int, dict[str, Any]] = {}
        """By entry number, the part of each unsettled hold that its settlement repeats."""
        self.sessions_opened: dict[int, dict[str, Any]] = {}
        """By entry number, the part of each open session that names the scopes it charges."""
        self.sessions_paid: dict[int, Loss] = {}
        """By entry number, the loss that was charged for each open session."""
        self._report = report
        self._depths = bytearray()
        """A byte an entry: one more than its distance from a charge, 0 where nothing was released."""

    def fault(self, what: str, at: int, scope: str | None = None, coordinate: str | None = None) -> None:
        """Report a fault of entry `at`."""
        self._report(Finding(self.stream, what, at, scope, coordinate))

    def check_key(self, key: str, at: int) -> None:
        """Report a key that an earlier entry states too."""
        if key in self.keys:
            self.fault(f"has the idempotency key of entry {self.keys[key]}", at)
        self.keys[key] = at

    def check_caller_key(self, entry: Entry, at: int) -> None:
        """`check_key` for an entry that a caller made."""
        self.check_key(f"{entry.get('by', entry['principal'])}/{entry['key']}", at)

    def end_session(self, number: int) -> dict[str, Any] | None:
        """Forget an open session; the part of it that names the scopes it charged, if it was open."""
        self.sessions_paid.pop(number, None)
        return self.sessions_opened.pop(number, None)

    def steps_to_charge(self, number: int) -> int | None:
        """One more than the number of steps from an entry to a charge; None when it released nothing."""
        found = self._depths[number] if 0 < number < len(self._depths) else 0
        return found or None

    def note_release(self, at: int, depth: int) -> None:
        """Entry `at` is `depth` steps away from a charge."""
        self._depths.extend(bytes(at + 1 - len(self._depths)))
        self._depths[at] = min(depth + 1, 255)
