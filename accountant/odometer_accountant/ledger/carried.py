"""The entry `carried`: it lists the open holds and sessions when windows begin to count them. Pure.

A hold or session counts in every window that it reaches. A window that a new budget or an upgrade adds has
not counted those that were open before: an entry `carried` lists them, once, before the next decision.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from odometer_accountant.ledger.charge_totals import window_names
from odometer_accountant.ledger.decisions import Admitted, admit
from odometer_accountant.ledger.entries import WINDOWS_REACHED, content
from odometer_accountant.ledger.entry_parts import Entry, affected_by, entry_loss
from odometer_accountant.ledger.entry_types import entry_type
from odometer_accountant.ledger.holds import held_part, open_entry
from odometer_accountant.ledger.session_state import SessionState
from odometer_accountant.ledger.sessions import opened_part
from odometer_accountant.ledger.state import State
from odometer_accountant.ledger.totals import Lasting, Totals, counted_windows
from odometer_accountant.mechanisms.sessions import ANY_SESSION, Session
from odometer_accountant.model import text_to_floats
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss, total
from odometer_accountant.scopes import in_window, split
from odometer_accountant.stores import Head, Row

PRINCIPAL: Final = "service"
"""The principal of the entry."""
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
    """Every scope that an open hold or session charges."""
    for part in (*found["holds"].values(), *found["sessions"].values()):
        yield from affected_by(part).scopes(state.composition)


def carried(state: State, found: Mapping[str, Any], now: str) -> Admitted:
    """The entry `carried`. The state must hold the windows of every scope in `scopes`."""
    document = {"type": "carried", "time": max(now, state.time), "principal": PRINCIPAL, **found}
    return admit(state, document, version=WINDOWS_REACHED)


def _session(state: State, number: int, row: Row | None) -> dict[str, Any]:
    session = state.sessions[number]
    part = opened_part(row, state.dataset.name, number, session.mark)
    opened = "" if row is None else str(content(row, state.dataset.name)["time"])
    loss = paid(state.dataset.grid, session)
    return {**part, "losses": [loss.encode()], "windows": _counted(state, number, part, opened)}


def _counted(state: State, number: int, part: Mapping[str, Any], opened: str) -> dict[str, str]:
    """The windows that still count all of a session: those it was opened in, of budgets older than it."""
    older = {name: entry for name, entry in state.budgets.items() if entry.since < number}
    return window_names(replace(state, budgets=older), affected_by(part), opened)


def paid(grid: Grid, session: SessionState) -> Loss:
    """The loss that an open session was charged: at its opening, and with each answer that costs."""
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


@entry_type("carried")
def _carried(state: State, head: Head, entry: Entry) -> State:
    """From here on, open holds and sessions count in every window that they reach."""
    totals, time = state.totals, entry["time"]
    for held in entry["holds"].values():
        totals = _open_in(state, totals, held, Lasting(held["expires"]), time)
    for number, session in entry["sessions"].items():
        totals = _open_in(state, totals, session, Lasting(session=int(number)), time)
    return replace(state, head=head, time=time, totals=totals, reached=state.windows)


def _open_in(state: State, totals: Totals, about: Entry, lasting: Lasting, time: str) -> Totals:
    """The totals with an open hold or session counted in the windows that did not count it as open."""
    grid, affected = state.dataset.grid, affected_by(about)
    scopes = affected.scopes(state.composition)
    gained = dict.fromkeys(scopes, entry_loss(grid, about))
    counted, over = about.get("windows", {}), lasting.expires is not None and lasting.expires < time
    new = [
        (scope, window)
        for scope, window in counted_windows(scopes, state.windows)
        if window not in state.reached.get(split(scope)[0], ())
        # An expired hold stays counted in the windows that it was made under, and enters no newer ones.
        and not (over and in_window(scope, window) not in counted)
    ]
    return totals.carried(gained, new, time, lasting, counted)
