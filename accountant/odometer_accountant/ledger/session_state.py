"""The open sessions of a stream: their openers, runs and numbers of above answers. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from odometer_accountant.ledger.entries import entry_id

SESSIONS_MAX: Final = 100
"""Most open sessions of a stream: all are written again whenever one of them changes."""
SESSIONS_OF_ONE_MAX: Final = 20
"""Most open sessions of one opener: crashed runners leave theirs open, and must leave room for others."""


@dataclass(frozen=True)
class SessionState:
    """A session that takes answers."""

    session: Mapping[str, Any]
    """Its kind and parameters, as the ledger holds them."""
    opener: str
    """The principal or caller that opened it: only it and admins may answer."""
    mark: str
    """The start of the hash of the entry that opened it."""
    above: int = 0
    """Above answers so far."""
    run: int = 1
    """The number of its current paid step: one more with each answer that was charged."""

    def dump(self) -> list[Any]:
        return [dict(self.session), self.opener, self.mark, self.above, self.run]

    @classmethod
    def load(cls, parts: Any) -> "SessionState":
        session, opener, mark, above, run = parts
        return cls(dict(session), str(opener), str(mark), int(above), int(run))


Sessions = Mapping[int, SessionState]


@dataclass(frozen=True)
class Opening:
    """The step of a charge that opens a session."""

    session: Mapping[str, Any]
    """As the ledger holds it."""

    @property
    def document(self) -> dict[str, Any]:
        """The step as the entry states it."""
        return {"open": dict(self.session)}


@dataclass(frozen=True)
class Answer:
    """The step of a charge that pays for an answer of a session."""

    number: int
    """The number of the entry that opened it."""
    mark: str
    above: bool
    run: int
    """The paid step that it ends."""
    last: bool
    """Whether no query follows."""
    principal: str = ""
    """The caller that sends the answer."""
    admin: bool = False
    opened: str = ""
    """When the session was opened. "" is earlier than any time."""

    @property
    def document(self) -> dict[str, Any]:
        """The step as the entry states it."""
        return {"id": self.number, "above": self.above, "run": self.run, "last": self.last}


def moved(sessions: Sessions, number: int, mark: str, opener: str, step: Mapping[str, Any]) -> Sessions:
    """The sessions after entry `number`, whose command has the session step `step`. Raises ValueError."""
    if "open" in step:
        return {**sessions, number: SessionState(dict(step["open"]), opener, mark)}
    found = sessions.get(step["id"])
    if found is None:
        raise ValueError(f"it is of session {step['id']}, which is not open")
    if step["run"] != found.run:
        called = entry_id(step["id"], found.mark)
        raise ValueError(f"it ends run {step['run']} of session {called}, which is in run {found.run}")
    if step["last"]:
        return ended(sessions, step["id"])
    after = replace(found, above=found.above + bool(step["above"]), run=found.run + 1)
    return {**sessions, step["id"]: after}


def ended(sessions: Sessions, number: int) -> Sessions:
    """The sessions without one that ended. Raises ValueError when it is not open."""
    if number not in sessions:
        raise ValueError(f"it ends session {number}, which is not open")
    return {one: session for one, session in sessions.items() if one != number}


def dump(sessions: Sessions) -> dict[str, Any]:
    """As they are stored beside the entries."""
    return {str(number): session.dump() for number, session in sessions.items()}


def load(blob: bytes | None) -> dict[int, SessionState]:
    """The inverse of `dump`. Raises ValueError, TypeError or AttributeError."""
    if blob is None:
        return {}
    return {int(number): SessionState.load(parts) for number, parts in json.loads(blob).items()}
