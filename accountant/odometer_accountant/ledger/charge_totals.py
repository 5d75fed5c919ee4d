"""The totals, open holds and open sessions after a charge, a hold, or the settlement of a hold. Pure.

Both the decision on a charge and the fold of its entry use these functions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from odometer_accountant.ledger.entries import MARK, WINDOWS_REACHED
from odometer_accountant.ledger.entry_parts import Entry, affected_by, entry_losses, kinds_of
from odometer_accountant.ledger.session_state import Sessions, moved
from odometer_accountant.ledger.state import State
from odometer_accountant.ledger.totals import Lasting, Totals, added, counted_windows
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss, total
from odometer_accountant.scopes import AffectedScopes, in_window
from odometer_accountant.stores import Head
from odometer_accountant.windows import window_name


def charge_totals(
    state: State,
    affected: AffectedScopes,
    kinds: Sequence[str],
    losses: Sequence[Loss],
    time: str,
    lasting: Lasting | None = None,
    last_of: int | None = None,
) -> Totals:
    """The totals after a charge at `time`.

    `lasting`: until when it goes on releasing. `last_of`: the session that it ends.
    """
    gained = added(state.dataset.grid, state.composition, affected, kinds, losses)
    windows = counted_windows(gained, state.windows)
    totals = state.totals.plus(gained, windows, time, lasting)
    return totals if last_of is None else totals.ended(last_of, windows, time)


def charge_changes(state: State, losses: Sequence[Loss]) -> dict[str, Any]:
    """The attributes of a state that a charge changes, beside its totals."""
    changes: dict[str, Any] = {"charges": state.charges + 1}
    if state.shard is not None:
        changes["loss_dictionary"] = state.loss_dictionary.learned(total(state.dataset.grid, losses))
    return changes


def with_reached_windows(state: State, version: int = WINDOWS_REACHED) -> State:
    """The state after an entry of that format: its windows state the part of their counts that is open."""
    if state.reached == state.windows and state.version >= version:
        return state
    return replace(state, reached=state.windows, version=max(state.version, version))


def step_lasting(step: Mapping[str, Any], number: int) -> tuple[Lasting | None, int | None]:
    """(how long a step of a session goes on releasing, the session that it is the last one of).

    `number` is that of the step's own entry.
    """
    if "open" in step:
        return Lasting(session=number), None
    return (None, step["id"]) if step["last"] else (Lasting(session=step["id"]), None)


def sessions_after(state: State, head: Head, by: str, step: Mapping[str, Any]) -> Sessions:
    """The open sessions after an entry that opens one, or charges an answer of one. Raises ValueError."""
    return moved(state.sessions, head.sequence, head.hash[:MARK], by, step)


def window_names(state: State, affected: AffectedScopes, time: str) -> dict[str, str]:
    """By scope@window, the windows that count a charge at `time`; the settlement of a hold needs them."""
    scopes = affected.scopes(state.composition)
    return {
        in_window(scope, window): window_name(window, time)
        for scope, window in counted_windows(scopes, state.windows)
    }


def open_holds(holds: Mapping[int, str], time: str) -> dict[int, str]:
    """The holds that can still be settled at `time`."""
    return {number: expires for number, expires in holds.items() if expires >= time}


def refund(grid: Grid, held: Entry, used: Sequence[Loss], composition: str) -> dict[str, Loss]:
    """The unused loss of a hold, by scope. Raises ValueError when more was used than was held."""
    losses = entry_losses(grid, held)
    back = [loss.minus(part) for loss, part in zip(losses, used, strict=True)]
    return added(grid, composition, affected_by(held), kinds_of(held), back)


def settle_totals(state: State, held: Entry, used: Sequence[Loss], time: str) -> Totals:
    """The totals at `time` after a hold is settled for the losses `used`. Raises as `refund` does."""
    grid, composition = state.dataset.grid, state.composition
    back = refund(grid, held, used, composition)
    if "expires" not in held:
        return state.totals.minus(back, held["windows"])
    whole = added(grid, composition, affected_by(held), kinds_of(held), entry_losses(grid, held))
    return state.totals.settled(whole, back, counted_windows(whole, state.windows), time, held["expires"])
