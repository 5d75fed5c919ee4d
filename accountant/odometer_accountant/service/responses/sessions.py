"""Sessions of interactive mechanisms."""

from typing import Any, Literal

from odometer_accountant.service.responses.base import Reply
from odometer_accountant.service.responses.charges import Receipt


class SessionReply(Reply):
    """An interactive mechanism, open or closed."""

    id: str
    dataset: str
    session: dict[str, Any]
    """Its kind and parameters."""
    principal: str
    by: str | None
    """Who opened it on the principal's behalf."""
    team: str | None
    group: dict[str, Any] | None
    partitions: list[str] | Literal["all"] | None
    time: str
    """When it was opened."""
    open: bool
    """Whether it takes answers."""
    above: int
    """Above answers so far, of a closed one in all; of Confident-GNMax, answered queries."""
    run: int | None
    """Which paid step it is in, from 1; null when it is closed: it is in none."""
    above_left: int
    """How many more above answers it takes; 0 when it is closed."""


class AnswerReply(Reply):
    """A session after an answer, or its opening: what the next step costs is durable."""

    session: SessionReply
    receipt: Receipt | None
    """Of what was charged; null when it was free."""
    replayed: bool
    """This key was used before, for the same: nothing was charged again."""


class SessionsReply(Reply):
    """The open sessions, oldest first."""

    items: list[SessionReply]
    next: None
