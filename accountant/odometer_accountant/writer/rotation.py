"""Chooses the next writer of a stream that several processes write. Advice that saves work, never a lock.

Correctness rests on the stored head alone (`Store.append`): no charge is lost or admitted twice without this.
But a process that loses the append race has decided its batch in vain. So the processes take turns: each
append stores a list of the writers beside the entries, the next one first. A process that is not next looks
again later, and collects more commands meanwhile. A process that has nothing to write, or is gone, is skipped
after a moment. A lost, old or wrong list costs time and nothing else.
"""

import random
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from secrets import token_hex
from typing import Final

TURN_BLOB: Final = "turn"
"""The blob that holds the list: names of processes, separated by spaces."""
STREAMS_MAX: Final = 1024
"""Streams whose rotation is remembered."""
WRITERS_MAX: Final = 64
BYTES_MAX: Final = 1024
STEP_LEAST_S: Final = 0.0005
STEP_MOST_S: Final = 0.025
GRACE_STEPS: Final = 4
"""The next writer is waited for this many steps, and at least `GRACE_LEAST_S`."""
GRACE_LEAST_S: Final = 0.01
ASLEEP_S: Final = 0.1
"""Nobody is waited for when the last entry is older than this: the stream is only written now and then."""
COLLECT_STEPS, COLLECT_MOST_S = 2, 0.01
"""How long to wait for the usual number of commands: one write costs the same, however many it has."""
BACK_OFF_MAX_S: Final = 0.025


@dataclass
class WriterRotation:
    """One process's record of the writers of one stream. Times are seconds of one monotonic clock."""

    me: str
    writers: tuple[str, ...] = ()
    """The next one first; the one that wrote last at the end."""
    moved_at: float = 0.0
    """When the stream last had new entries."""
    step_s: float = 0.002
    """The average time from one writer's append to the next one's."""
    losses: int = 0
    """Append races lost since this process last wrote."""
    usual: float = 1.0
    """How many commands one write has when the load is high."""
    _ready_at: float | None = None
    """Since when this process could look whether it is next."""
    _after: tuple[str, ...] = ()
    """The list to store with the next append."""
    _waiting: tuple[float, int] | None = None
    """Since when this process waits, and how many were ahead of it then."""

    def saw(self, blob: bytes | None, moved_at: float) -> None:
        """Take over the stored list after the stream had new entries."""
        names = (blob or b"")[-BYTES_MAX:].decode("ascii", "ignore").split()
        self.writers = tuple(dict.fromkeys(names))[-WRITERS_MAX:]
        self.moved_at = moved_at

    @property
    def ahead(self) -> int:
        """How many processes go first. One that is not on the list yet writes at once, and joins it so."""
        return self.writers.index(self.me) if self.me in self.writers else 0

    def rest_s(self, now: float, commands: int = 1) -> float:
        """How long not to look at all: those ahead cannot have written yet, or few `commands` wait."""
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
        """After a look: how long to wait for the next one. 0 when this process is next or writes alone.

        `quiet_s` is the age of the last entry by the clocks of the writers, which may be wrong.
        """
        ahead, passed = self.ahead, 0
        if ahead and quiet_s > ASLEEP_S:
            passed = 1  # skip them one by one: they may only be slow
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
        """The list to store with the append."""
        return " ".join(self._after[-WRITERS_MAX:]).encode("ascii")

    def went(self, now: float, commands: int = 1) -> bool:
        """This process has written. False when no other process writes any more: the rotation can go."""
        self.writers, self.moved_at, self.losses, self._ready_at = self._after, now, 0, None
        self.usual = max(commands, 0.9 * self.usual)
        return self.writers != (self.me,)

    def lost(self) -> float:
        """A lost append race. Returns how long to wait, in seconds: 0 first, then random and growing."""
        self.losses += 1
        if self.losses == 1:
            return 0.0
        return random.uniform(0, min(self.step_s * 2 ** (self.losses - 1), BACK_OFF_MAX_S))  # noqa: S311


class StreamRotations:
    """The rotations of this process, for streams that other processes write too."""

    def __init__(self) -> None:
        self._me = token_hex(4)
        self._rotations: OrderedDict[str, WriterRotation] = OrderedDict()

    def get(self, stream: str) -> WriterRotation | None:
        """The rotation of a stream, None when only this process writes it."""
        return self._rotations.get(stream)

    def lost(self, stream: str) -> float:
        """As `WriterRotation.lost`; the first lost race starts the stream's rotation."""
        rotation = self._rotations.setdefault(stream, WriterRotation(self._me))
        self._rotations.move_to_end(stream)
        if len(self._rotations) > STREAMS_MAX:
            self._rotations.popitem(last=False)
        return rotation.lost()

    def losses(self, stream: str) -> int:
        """Append races lost on a stream since this process last wrote it."""
        rotation = self._rotations.get(stream)
        return rotation.losses if rotation else 0

    def went(self, stream: str, now: float, commands: int) -> None:
        """This process has written the stream."""
        rotation = self._rotations.get(stream)
        if rotation is not None and not rotation.went(now, commands):
            del self._rotations[stream]


def age_s(time: str, now: str) -> float:
    """How long before `now` the ledger timestamp `time` was, in seconds; negative when a clock is wrong."""
    return (datetime.fromisoformat(now) - datetime.fromisoformat(time)).total_seconds()
