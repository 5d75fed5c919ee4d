"""Commands that wait for the writer, by stream, and the delivery of their outcomes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from odometer_accountant.writer.batch import Outcome, ReplySink, Submission

PATIENCE_S: Final = 4.0
"""How long commands wait for other processes, in seconds; well below the time-out of a caller."""


@dataclass(slots=True)
class PendingQueue:
    """The commands that wait for one stream, the oldest first. Times are seconds of one monotonic clock."""

    submissions: list[Submission] = field(default_factory=list)
    due: float = 0.0
    """When to try next."""
    delayed_since: float | None = None
    """When they first had to wait for other processes; None when they did not."""

    def is_patient(self, now: float) -> bool:
        """Whether they may wait longer. The first call starts the time."""
        if self.delayed_since is None:
            self.delayed_since = now
        return now - self.delayed_since < PATIENCE_S


class _NoReply:
    """A sink for answers that nobody waits for."""

    def deliver(self, answers: Sequence[tuple[Any, Outcome]]) -> None:
        """Drop them."""


NO_REPLY: Final = _NoReply()


def deliver(answers: Sequence[tuple[Submission, Outcome]]) -> None:
    """Give each sink all its answers in one call."""
    by_sink: dict[int, tuple[ReplySink, list[tuple[Any, Outcome]]]] = {}
    for submission, outcome in answers:
        pairs = by_sink.setdefault(id(submission.sink), (submission.sink, []))[1]
        pairs.append((submission.token, outcome))
    for sink, pairs in by_sink.values():
        sink.deliver(pairs)
