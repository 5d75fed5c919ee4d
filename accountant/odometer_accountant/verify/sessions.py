"""Checks of sessions: each step is the one that was owed, and later entries repeat it truly. For `verify`."""

from typing import Any

from odometer_accountant.ledger.entries import WINDOWS_REACHED, entry_id
from odometer_accountant.ledger.entry_parts import Entry, end_key, entry_loss, entry_losses
from odometer_accountant.ledger.sessions import part_of
from odometer_accountant.ledger.state import State
from odometer_accountant.mechanisms.sessions import ANY_SESSION
from odometer_accountant.model import STORED, floats_to_text, text_to_floats
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.verify.memory import Memory


def check_step(memory: Memory, at: int, entry: Entry, state: State) -> None:
    """Report a step that charges another thing than its session owes, or is wrongly said to be the last."""
    step = entry["command"].get("session")
    if step is None:
        return
    found = None if "open" in step else state.sessions.get(step["id"])
    if found is None and "open" not in step:
        return  # reported when the entry is applied
    kind = ANY_SESSION.validate_python(
        text_to_floats(found.session if found else step["open"]), context=STORED
    )
    owed = [{"mechanism": one.mechanism.document(), "count": one.count} for one in kind.owed(step)]
    if entry["command"]["charges"] != floats_to_text(owed):
        memory.fault(f"charges other things than a session of kind {kind.kind} owes", at)
    if found and step["last"] != (step["above"] and found.above + 1 == kind.most_above):
        called = entry_id(step["id"], found.mark)
        memory.fault(f"is not the last answer of session {called} where it says so", at)


def check_open_counted(memory: Memory, at: int, entry: Entry, state: State) -> None:
    """Report a hold or step that windows do not count as open; remember the loss of a step."""
    step = entry["command"].get("session")
    if step is None and entry["type"] != "held":
        return
    if state.windows and entry["v"] >= WINDOWS_REACHED and state.must_carry:
        memory.fault("goes on while windows do not count what was open before it", at)
    if state.windows and entry["v"] < WINDOWS_REACHED and state.reached:
        memory.fault("is not counted in every window that it reaches", at)
    if step is None:
        return
    if "open" in step:
        memory.sessions_opened[at] = part_of(entry)
    number = at if "open" in step else step["id"]
    grid = state.dataset.grid
    paid = memory.sessions_paid.get(number, Loss.zero(grid))
    memory.sessions_paid[number] = paid.plus(entry_loss(grid, entry))
    if step.get("last"):
        memory.end_session(number)


def check_end(memory: Memory, at: int, entry: Entry, state: State) -> None:
    """Report a free end of a session that was in another run, or had another number of above answers."""
    number = entry["session"]
    memory.check_key(end_key(number), at)
    found = state.sessions.get(number)
    if found is not None:  # otherwise reported when the entry is applied
        kind = ANY_SESSION.validate_python(text_to_floats(found.session), context=STORED)
        above, called = found.above, entry_id(number, found.mark)
        if "run" in entry:
            above += 1
            if entry["run"] != found.run or above != kind.most_above or kind.above(last=True):
                memory.fault(f"is not the last answer of session {called}, or not at no cost", at)
        if entry["above"] != above:
            memory.fault(f"says {entry['above']} above answers of session {called}; there were {above}", at)
    opened = memory.end_session(number)
    if "opened" in entry and entry["opened"] != opened:
        memory.fault(f"says other things of session {number} than its entry", at)


def check_carried(memory: Memory, at: int, entry: Entry, state: State) -> None:
    """Report an entry `carried` unless it lists every open hold and session as its own entry states it."""
    holds, sessions = entry["holds"], entry["sessions"]
    due: tuple[tuple[str, Any, Any], ...] = (
        ("holds", holds, state.holds),
        ("sessions", sessions, state.sessions),
    )
    for what, said, opened in due:
        if {int(number) for number in said} != set(opened):
            memory.fault(f"does not name the {what} that are open", at)
    for number, part in holds.items():
        if part != memory.held.get(int(number)):
            memory.fault(f"says other things of hold {number} than its entry", at)
    for number, part in sessions.items():
        _check_carried_session(memory, at, int(number), part, state)


def _check_carried_session(memory: Memory, at: int, number: int, part: Entry, state: State) -> None:
    same = {name: value for name, value in part.items() if name not in ("losses", "windows")}
    if same != memory.sessions_opened.get(number):
        memory.fault(f"says other things of session {number} than its entry", at)
    (said,), paid = entry_losses(state.dataset.grid, part), memory.sessions_paid.get(number)
    if paid is not None and said.at_least(paid) != said:
        memory.fault(f"says less of session {number} than was paid for it", at)
