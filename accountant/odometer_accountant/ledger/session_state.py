"""The open sessions of a stream, as its entries fold: whose, which run, how many above answers. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from odometer_accountant.ledger.entries import entry_id

SESSIONS_MAX: Final = 100
"""Open sessions of a stream: they are written anew whenever one of them changes."""
SESSIONS_OF_ONE_MAX: Final = 20
"""Of them those of one opener: crashed runners leave theirs open, and must not take everybody's places."""


@dataclass(frozen=True)
class SessionState:
    """A session that takes answers."""

    session: Mapping[str, Any]
    """Its kind and parameters, as the ledger holds them."""
    opener: str
    """Who opened it: with an admin the only one that may answer."""
    mark: str
    """The start of the hash of the entry that opened it."""
    above: int = 0
    """Above answers so far."""
    run: int = 1
    """Which paid step it is in: one more with each answer that was charged."""

    def dump(self) -> list[Any]:
        return [dict(self.session), self.opener, self.mark, self.above, self.run]

    @classmethod
    def load(cls, parts: Any) -> "SessionState":
        session, opener, mark, above, run = parts
        return cls(dict(session), str(opener), str(mark), int(above), int(run))


Sessions = Mapping[int, SessionState]


@dataclass(frozen=True)
class Opening:
    """That a charge opens a session."""

    session: Mapping[str, Any]
    """As the ledger holds it."""

    @property
    def document(self) -> dict[str, Any]:
        """What the entry says of it."""
        return {"open": dict(self.session)}


@dataclass(frozen=True)
class Answer:
    """That a charge is that of an answer of a session."""

    number: int
    """Of the entry that opened it."""
    mark: str
    above: bool
    run: int
    """The paid step that it ends."""
    last: bool
    """Whether no query follows."""
    principal: str = ""
    """Who says so."""
    admin: bool = False
    opened: str = ""
    """When the session was opened; left out, before all else."""

    @property
    def document(self) -> dict[str, Any]:
        """What the entry says of it."""
        return {"id": self.number, "above": self.above, "run": self.run, "last": self.last}


def moved(sessions: Sessions, number: int, mark: str, opener: str, step: Mapping[str, Any]) -> Sessions:
    """The sessions after entry `number`, whose command says `step` of a session. Raises ValueError."""
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
    """Without one of them. Raises ValueError when it is not open."""
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
