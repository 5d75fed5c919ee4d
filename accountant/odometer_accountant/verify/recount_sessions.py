"""What a ledger's entries repeat of open holds and sessions, held against what these said. For `verify`."""

from collections.abc import Callable, Mapping
from typing import Any

from odometer_accountant.ledger.entries import WINDOWS_REACHED
from odometer_accountant.ledger.entry_parts import entry_losses
from odometer_accountant.ledger.sessions import part_of
from odometer_accountant.ledger.state import State
from odometer_accountant.numerics.loss import Loss, total

Fault = Callable[[str, int], None]
"""Told what is wrong, and with which entry."""
Entry = Mapping[str, Any]


class OpenSessions:
    """Of the open sessions of one stream: whose odometers they move, and what they have paid."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self._opened: dict[int, dict[str, Any]] = {}
        self._paid: dict[int, Loss] = {}

    def charge(self, at: int, entry: Entry, state: State) -> None:
        """A charge or a hold, before it is applied to `state`."""
        step = entry["command"].get("session")
        if step is None and entry["type"] != "held":
            return
        if state.windows and entry["v"] >= WINDOWS_REACHED and state.must_carry:
            self._fault("goes on while windows do not count what was open before it", at)
        if state.windows and entry["v"] < WINDOWS_REACHED and state.reached:
            self._fault("is not counted in every window that it reaches", at)
        if step is None:
            return
        if "open" in step:
            self._opened[at] = part_of(entry)
        number = at if "open" in step else step["id"]
        grid = state.dataset.grid
        paid = total(grid, entry_losses(grid, entry))
        self._paid[number] = self._paid.get(number, Loss.zero(grid)).plus(paid)
        if step.get("last"):
            self._end(number)

    def ended(self, at: int, entry: Entry) -> None:
        """An end at no cost."""
        opened, _ = self._end(entry["session"])
        if "opened" in entry and entry["opened"] != opened:
            self._fault(f"says other things of session {entry['session']} than its entry", at)

    def _end(self, number: int) -> tuple[dict[str, Any] | None, Loss | None]:
        return self._opened.pop(number, None), self._paid.pop(number, None)

    def carried(self, at: int, entry: Entry, state: State, held: Mapping[int, Entry]) -> None:
        """An entry that says what is open: all of it, as it is. `held`: holds that are not settled."""
        holds, sessions = entry["holds"], entry["sessions"]
        for what, said, due in (("holds", holds, state.holds), ("sessions", sessions, state.sessions)):
            if {int(number) for number in said} != set(due):
                self._fault(f"does not name the {what} that are open", at)
        for number, part in holds.items():
            if part != held.get(int(number)):
                self._fault(f"says other things of hold {number} than its entry", at)
        for number, part in sessions.items():
            self._session(at, int(number), part, state)

    def _session(self, at: int, number: int, part: Entry, state: State) -> None:
        same = {name: value for name, value in part.items() if name not in ("losses", "windows")}
        if same != self._opened.get(number):
            self._fault(f"says other things of session {number} than its entry", at)
        (said,), paid = entry_losses(state.dataset.grid, part), self._paid.get(number)
        if paid is not None and said.at_least(paid) != said:
            self._fault(f"says less of session {number} than was paid for it", at)
