"""The decisions on sessions beside their charges: may a step be taken, and the end at no cost. Pure."""

from collections.abc import Mapping
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
from odometer_accountant.ledger.decisions import Decision, Replayed, admit
from odometer_accountant.ledger.entries import WINDOWS_REACHED, content, entry_id
from odometer_accountant.ledger.session_state import (
    SESSIONS_MAX,
    SESSIONS_OF_ONE_MAX,
    Answer,
    Opening,
    SessionState,
)
from odometer_accountant.ledger.state import State
from odometer_accountant.stores import Row


def check_step(state: State, step: Opening | Answer | None, by: str) -> None:
    """Raise unless `by` may open a session, or it may be charged for this answer, now."""
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
    """Raise TooManySessions when the dataset or the opener has as many open sessions as may be."""
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

    Raises SessionClosed (that there was one is the caller's to know), UnknownSession, Forbidden.
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

    Answers of it may be among them: the ledger then has it in a run that is over, or open after its last
    above answer, and what follows would go out on what was paid for something else.
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


def end(state: State, command: EndCommand, known: Row | None, time: str, opened: Row | None) -> Decision:
    """Once. A session of a closed dataset can end too: nothing is charged.

    `opened` is the entry that opened it.
    """
    number = command.session
    if known is not None:
        return _again(state, command, known)
    found = session_of(state, number, command.mark, command.principal, admin=command.admin)
    document: dict[str, Any] = {
        "type": "session_closed",
        "time": time,
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
    document["opened"] = opened_part(opened, state.dataset.name, number, command.mark)
    return admit(state, document, command.ledger_key, WINDOWS_REACHED)


def opened_part(row: Row | None, name: str, number: int, mark: str) -> dict[str, Any]:
    """Whose odometers a session moves, from the entry that opened it. Raises LedgerCorrupt."""
    if row is None or not row.hash.startswith(mark):
        raise LedgerCorrupt(
            f"entry {number} of dataset {name}, which opened a session, is not there: run odometer verify",
            sequence=number,
        )
    return part_of(content(row, name))


def part_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What the entry that opens a session says of whose odometers it moves."""
    command = {part: entry["command"][part] for part in ("group", "partitions") if part in entry["command"]}
    return {"command": command, **{part: entry[part] for part in ("principal", "team") if part in entry}}


def _again(state: State, command: EndCommand, known: Row) -> Decision:
    entry, called = content(known, state.stream), entry_id(command.session, command.mark)
    if entry.get("session") != command.session:
        raise LedgerCorrupt(
            f"the end of session {called} is not where it should be: run odometer verify",
            sequence=known.sequence,
        )
    same = command.run, command.key, command.principal  # keys are each caller's own
    if command.run is None or (entry.get("run"), entry.get("key"), entry["principal"]) == same:
        return Replayed(known, state)
    raise SessionClosed(
        f"session {called} of dataset {state.dataset.name} is closed (entry {known.sequence}): open another "
        "one to ask more",
        sequence=known.sequence,
    )
