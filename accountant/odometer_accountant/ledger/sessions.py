"""Sessions: whether a step may be taken, the free end of one, and its entry `session_closed`. Pure."""

from dataclasses import replace
from typing import Any

from odometer_accountant.errors import (
    Forbidden,
    InvalidRequest,
    LedgerCorrupt,
    SessionClosed,
    SessionMovedOn,
    TooManySessions,
    UnknownSession,
)
from odometer_accountant.ledger.commands import EndCommand
from odometer_accountant.ledger.decisions import Decision, DecisionInput, admit, decides
from odometer_accountant.ledger.entries import WINDOWS_REACHED, content, entry_id
from odometer_accountant.ledger.entry_parts import Entry, affected_by, end_key
from odometer_accountant.ledger.entry_types import entry_type
from odometer_accountant.ledger.replay import replay
from odometer_accountant.ledger.session_state import (
    SESSIONS_MAX,
    SESSIONS_OF_ONE_MAX,
    Answer,
    Opening,
    SessionState,
    ended,
)
from odometer_accountant.ledger.state import State
from odometer_accountant.ledger.totals import counted_windows
from odometer_accountant.stores import Head, Row


def check_step(state: State, step: Opening | Answer | None, by: str) -> None:
    """Raise unless `by` may open a session, or this answer may be charged, now."""
    if isinstance(step, Answer):
        found = session_of(state, step.number, step.mark, step.principal, admin=step.admin)
        check_kept(state, entry_id(step.number, step.mark), step.opened)
        check_run(state, entry_id(step.number, step.mark), found, step.run)
    elif step is not None:
        if state.composition == "by_unit":
            raise InvalidRequest.of(
                "session",
                f"dataset {state.dataset.name} composes by_unit and has no sessions: their answers are about "
                "many units at once; charge each release of a unit on its own",
            )
        _check_room(state, by)


def _check_room(state: State, opener: str) -> None:
    """Raise TooManySessions when the dataset or the opener has the most open sessions that it may have."""
    name = state.dataset.name
    how = f"`odometer sessions {name}` lists them, `odometer close-session {name} SESSION` closes one"
    if len(state.sessions) >= SESSIONS_MAX:
        raise TooManySessions(
            f"dataset {name} has {SESSIONS_MAX} open sessions, the most it can have. Each is closed by its "
            f"opener or an admin: {how}"
        )
    if sum(one.opener == opener for one in state.sessions.values()) >= SESSIONS_OF_ONE_MAX:
        raise TooManySessions(
            f"{opener} has {SESSIONS_OF_ONE_MAX} open sessions of dataset {name}, the most one can have. "
            f"Close those whose runner is gone: {how}"
        )


def session_of(state: State, number: int, mark: str, principal: str, *, admin: bool) -> SessionState:
    """An open session that `principal` may answer and close.

    Raises SessionClosed (the caller must know that there was one), UnknownSession, Forbidden.
    """
    name, called = state.dataset.name, entry_id(number, mark)
    found = state.sessions.get(number)
    if found is None:
        raise SessionClosed(f"session {called} of dataset {name} is closed: open another one to ask more")
    if found.mark != mark:
        raise UnknownSession(f"dataset {name} has no session {called}")
    check_owner(f"session {called} of dataset {name}", found.opener, principal, admin=admin)
    return found


def check_owner(session: str, opener: str, principal: str, *, admin: bool) -> None:
    """Raise Forbidden unless `principal` may answer and close the session, which the text calls `session`."""
    if not admin and principal != opener:
        raise Forbidden(f"{session} is somebody else's: its opener or an admin answers and closes it")


def check_kept(state: State, session: str, opened: str) -> None:
    """Raise SessionClosed for answers of a session that was opened before entries were lost.

    Its answers may be among the lost entries. The ledger may then hold it in a run that is over, or as open
    after its last above answer, and the next answer would go out without being paid for.
    """
    if state.accepted_loss is not None and opened <= state.accepted_loss.time:
        raise SessionClosed(
            f"session {session} of dataset {state.dataset.name} was opened before entries of the ledger were "
            "lost, so that what was paid of it is not known: close it, and open another one to ask more"
        )


def check_run(state: State, session: str, found: SessionState, run: int) -> None:
    """Raise SessionMovedOn unless `run` is the one that the session, of that id, is in."""
    if run != found.run:
        raise SessionMovedOn(
            f"the answer ends run {run} of session {session} of dataset {state.dataset.name}, which is in "
            f"run {found.run}: nothing was charged. Only one runner may answer a session: this one releases "
            "nothing, closes it, and opens another one",
            run=found.run,
        )


@decides(EndCommand)
def end(state: State, command: EndCommand, given: DecisionInput) -> Decision:
    """End a session once. A session of a closed dataset can end too: nothing is charged."""
    number = command.session
    if given.known is not None:
        row = given.known
        return replay(state, command, row, lambda entry: _check_same(state, command, row, entry))
    found = session_of(state, number, command.mark, command.principal, admin=command.admin)
    document: dict[str, Any] = {
        "type": "session_closed",
        "time": given.time,
        "principal": command.principal,
        "session": number,
        "above": found.above,
    }
    if command.run is not None:
        check_kept(state, entry_id(number, command.mark), command.opened)
        check_run(state, entry_id(number, command.mark), found, command.run)
        document |= {"above": found.above + 1, "run": command.run, "key": command.key}
    if not state.windows:
        return admit(state, document, command.ledger_key)
    document["opened"] = opened_part(given.named, state.dataset.name, number, command.mark)
    return admit(state, document, command.ledger_key, WINDOWS_REACHED)


def _check_same(state: State, command: EndCommand, known: Row, entry: Entry) -> None:
    """Raise SessionClosed unless the entry `known` is the same end: any end, or the same last answer."""
    same = command.run, command.key, command.principal  # keys are each caller's own
    if command.run is None or (entry.get("run"), entry.get("key"), entry["principal"]) == same:
        return
    raise SessionClosed(
        f"session {entry_id(command.session, command.mark)} of dataset {state.dataset.name} is closed (entry "
        f"{known.sequence}): open another one to ask more",
        sequence=known.sequence,
    )


@entry_type("session_closed", key=lambda entry: end_key(entry["session"]))
def _session_closed(state: State, head: Head, entry: Entry) -> State:
    sessions = ended(state.sessions, entry["session"])
    after = replace(state, head=head, time=entry["time"], sessions=sessions)
    if "opened" not in entry:
        return after
    windows = counted_windows(affected_by(entry["opened"]).scopes(state.composition), state.windows)
    return replace(after, totals=state.totals.ended(entry["session"], windows, entry["time"]))


def opened_part(row: Row | None, name: str, number: int, mark: str) -> dict[str, Any]:
    """The scopes that a session charges, from the entry that opened it. Raises LedgerCorrupt."""
    if row is None or not row.hash.startswith(mark):
        raise LedgerCorrupt(
            f"entry {number} of dataset {name}, which opened a session, is not there: run odometer verify",
            sequence=number,
        )
    return part_of(content(row, name))


def part_of(entry: Entry) -> dict[str, Any]:
    """The part of a session's first entry that names the scopes it charges."""
    command = {part: entry["command"][part] for part in ("group", "partitions") if part in entry["command"]}
    return {"command": command, **{part: entry[part] for part in ("principal", "team") if part in entry}}
