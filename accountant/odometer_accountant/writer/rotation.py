"""Whose turn it is on a stream that several processes write: advice that saves work. Never a lock.

That nothing is lost or admitted twice rests on the stored head alone (`Store.append`). But who decides a
batch and then finds that others were faster has worked in vain. So those that write one stream go round: each
append leaves a list of the writers beside the entries, the next one first. Who is not next looks again later,
and collects more commands meanwhile. One that has nothing to write, or is gone, is passed over after a
moment. A list that is lost, old or wrong costs time and nothing else.
"""

import random
from dataclasses import dataclass
from datetime import datetime
from typing import Final

TURN_BLOB: Final = "turn"
"""Name of the blob that has the list: names of processes, by a space."""
WRITERS_MAX: Final = 64
BYTES_MAX: Final = 1024
STEP_LEAST_S: Final = 0.0005
STEP_MOST_S: Final = 0.025
GRACE_STEPS: Final = 4
"""For how many steps the next writer is waited for, and at least for so long:"""
GRACE_LEAST_S: Final = 0.01
ASLEEP_S: Final = 0.1
"""Nobody is waited for when the last entry is older than this: the stream is written now and then only."""
COLLECT_STEPS, COLLECT_MOST_S = 2, 0.01
"""How long the commands that a turn usually has are waited for: each turn costs the same, however many."""
BACK_OFF_MAX_S: Final = 0.025


@dataclass
class WriterRotation:
    """What one process knows of the writers of one stream. Times are in seconds of one monotonic clock."""

    me: str
    writers: tuple[str, ...] = ()
    """The next one first; the one that wrote last at the end."""
    moved_at: float = 0.0
    """When the stream was last seen to have moved."""
    step_s: float = 0.002
    """How long it takes, on average, from one writer's append to the next one's."""
    losses: int = 0
    """How often others were faster since this process last wrote."""
    usual: float = 1.0
    """How many commands a turn has, when many ask."""
    _ready_at: float | None = None
    """Since when this process could look whether it is its turn."""
    _after: tuple[str, ...] = ()
    """The list to leave beside the next append."""
    _waiting: tuple[float, int] | None = None
    """Since when this process waits, and how many were ahead of it then."""

    def saw(self, blob: bytes | None, moved_at: float) -> None:
        """The stream has moved, and has this list beside it now."""
        names = (blob or b"")[-BYTES_MAX:].decode("ascii", "ignore").split()
        self.writers = tuple(dict.fromkeys(names))[-WRITERS_MAX:]
        self.moved_at = moved_at

    @property
    def ahead(self) -> int:
        """How many go before this process. Who is not on the list yet goes at once, and is on it then."""
        return self.writers.index(self.me) if self.me in self.writers else 0

    def rest_s(self, now: float, commands: int = 1) -> float:
        """How long it makes no sense to look: those ahead cannot have written yet, or few `commands` wait."""
        ahead = self.ahead
        if ahead and self._waiting is None:
            self._waiting = (now, ahead)
        rest_s = self.moved_at + (ahead - 0.5) * self.step_s - now if ahead else 0.0
        if rest_s > 0:
            return rest_s
        if self._ready_at is None:
            self._ready_at = now
        if commands >= 0.75 * self.usual:
            return 0.0
        collect_s = min(COLLECT_STEPS * self.step_s, COLLECT_MOST_S)
        return min(self._ready_at + collect_s - now, collect_s / 4)

    def wait_s(self, now: float, quiet_s: float) -> float:
        """After a look, how long to wait for the next; 0 when it is this process's turn, or nobody else goes.

        `quiet_s` is the age of the last entry by the clocks of those who wrote it, which may be wrong.
        """
        ahead, passed = self.ahead, 0
        if ahead and quiet_s > ASLEEP_S:
            passed = 1  # forget them one by one: they may only be slow
        elif ahead:
            left = self.moved_at + ahead * max(GRACE_STEPS * self.step_s, GRACE_LEAST_S) - now
            if left > 0:
                return min(max(ahead - 0.5, 0.3) * self.step_s, left)
            passed = ahead
        elif self._waiting is not None:
            since, before = self._waiting
            step_s = 0.8 * self.step_s + 0.2 * (now - since) / before
            self.step_s = min(max(step_s, STEP_LEAST_S), STEP_MOST_S)
        self._waiting = None
        self._after = (*(name for name in self.writers[passed:] if name != self.me), self.me)
        return 0.0

    def blob(self) -> bytes:
        """The list to leave beside the append."""
        return " ".join(self._after[-WRITERS_MAX:]).encode("ascii")

    def went(self, now: float, commands: int = 1) -> bool:
        """This process has written. False: nobody else does any more, and there is no turn to keep."""
        self.writers, self.moved_at, self.losses, self._ready_at = self._after, now, 0, None
        self.usual = max(commands, 0.9 * self.usual)
        return self.writers != (self.me,)

    def lost(self) -> float:
        """Others were faster. How long to stay away: at random, and longer each time; first not at all."""
        self.losses += 1
        if self.losses == 1:
            return 0.0
        return random.uniform(0, min(self.step_s * 2 ** (self.losses - 1), BACK_OFF_MAX_S))  # noqa: S311


def age_s(time: str, now: str) -> float:
    """How long before `now` the ledger timestamp `time` was; negative when a clock is wrong."""
    return (datetime.fromisoformat(now) - datetime.fromisoformat(time)).total_seconds()
