"""What is open when windows begin to count it: by a budget that is new, or after an upgrade.

A hold or session counts in every window that it reaches. Where a window's count does not say what of it is
open, an entry `carried` says it, once, before anything more is decided.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from odometer_accountant.ledger.charge_totals import counted_in
from odometer_accountant.ledger.decisions import Admitted, admit
from odometer_accountant.ledger.entries import WINDOWS_REACHED, content
from odometer_accountant.ledger.entry_parts import affected_by
from odometer_accountant.ledger.holds import held_part, open_entry
from odometer_accountant.ledger.session_state import SessionState
from odometer_accountant.ledger.sessions import opened_part
from odometer_accountant.ledger.state import State
from odometer_accountant.mechanisms.sessions import ANY_SESSION, Session
from odometer_accountant.model import text_to_floats
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss, total
from odometer_accountant.stores import Row

PRINCIPAL: Final = "service"
"""Who says it."""
Rows = Callable[[int], Row | None]
"""An entry of the stream by its number, None when there is none."""


def parts(state: State, row: Rows) -> dict[str, Any]:
    """The open holds and sessions, as the entry `carried` has them. Raises LedgerCorrupt."""
    name = state.dataset.name
    holds = {
        str(number): held_part(open_entry(row(number), number, name), lasting=True) for number in state.holds
    }
    sessions = {str(number): _session(state, number, row(number)) for number in state.sessions}
    return {"holds": holds, "sessions": sessions}


def scopes(state: State, found: Mapping[str, Any]) -> Iterator[str]:
    """Every scope that is concerned."""
    for part in (*found["holds"].values(), *found["sessions"].values()):
        yield from affected_by(part).scopes(state.composition)


def carried(state: State, found: Mapping[str, Any], now: str) -> Admitted:
    """The entry that says what is open. Needs the windows of every scope that is concerned."""
    document = {"type": "carried", "time": max(now, state.time), "principal": PRINCIPAL, **found}
    return admit(state, document, version=WINDOWS_REACHED)


def _session(state: State, number: int, row: Row | None) -> dict[str, Any]:
    session = state.sessions[number]
    part = opened_part(row, state.dataset.name, number, session.mark)
    opened = "" if row is None else str(content(row, state.dataset.name)["time"])
    loss = paid(state.dataset.grid, session)
    return {**part, "losses": [loss.encode()], "windows": _counted(state, number, part, opened)}


def _counted(state: State, number: int, part: Mapping[str, Any], opened: str) -> dict[str, str]:
    """The windows that have all of a session if they last: those it was opened in, of budgets of before."""
    older = {name: entry for name, entry in state.budgets.items() if entry.since < number}
    return counted_in(replace(state, budgets=older), affected_by(part), opened)


def paid(grid: Grid, session: SessionState) -> Loss:
    """What an open session has paid: at its opening, and with each answer that was charged."""
    kind: Session = ANY_SESSION.validate_python(text_to_floats(session.session))
    answers = session.run - 1
    steps = (
        (1, kind.opening()),
        (session.above, kind.above(last=False)),
        (answers - session.above, kind.below()),
    )
    return total(
        grid,
        (charge.loss(grid).scaled(times) for times, charges in steps for charge in charges if times),
    )
