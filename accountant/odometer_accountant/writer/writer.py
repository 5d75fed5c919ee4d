"""One thread: take what waits, decide in order against cached state, append once, answer all.

Group commit: everything that queued while the last append was written shares the next one. Where several
processes write one stream, its commands may have to wait for those of the others; no other stream's do.
"""

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Any, Final

from odometer_accountant.errors import (
    InternalError,
    LedgerCorrupt,
    OdometerError,
    Overloaded,
    StoreUnavailable,
)
from odometer_accountant.ledger.commands import Command, LookCommand
from odometer_accountant.ledger.entries import timestamp
from odometer_accountant.ledger.snapshot import KnownHead
from odometer_accountant.stores import Store
from odometer_accountant.writer.planner import Book, Outcome, Plan, ReplySink, Submission
from odometer_accountant.writer.stats import WriterStats

log = logging.getLogger("odometer.writer")

BATCH_MAX: Final = 256
WAITING_MAX: Final = 10_000
LOSSES_MAX: Final = 24
"""How often others may be faster before those who wait are told."""
PATIENCE_S: Final = 4.0
"""How long commands wait for other processes, in seconds; well below what a caller is told to be slow."""
_NO_PLAN: Final = (
    "the service failed at this dataset's ledger: nothing was charged; ask again with the same key"
)


def utc_now() -> str:
    """The wall clock as a ledger timestamp."""
    return timestamp(datetime.now(UTC))


class LedgerWriter:
    """Owns the one thread that writes. `submit` may be called from any thread or event loop.

    `on_death` is called, once, when the thread ends by a fault: every waiter has had its error by
    then, and nothing may be charged any more.
    """

    def __init__(
        self,
        store: Store,
        clock: Callable[[], str] = utc_now,
        on_death: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._on_death = on_death
        self._queue: SimpleQueue[Submission | None] = SimpleQueue()
        self.counts = WriterStats()
        self._book = Book(store, self.counts)
        self._lines: dict[str, PendingQueue] = {}
        self._aside = 0
        self._ending = False
        self._busy_since: float | None = None
        self._dead = False
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def submit(self, stream: str, command: Command, sink: ReplySink, token: Any) -> None:
        """Queue a command; its outcome is delivered to `sink` with `token`, exactly once.

        Raises Overloaded when too many wait, StoreUnavailable when the writer is gone.
        """
        if self.waiting >= WAITING_MAX:
            raise Overloaded(f"{WAITING_MAX} commands are waiting already: ask again with the same key")
        self._queue.put(Submission(stream, command, sink, token))
        if self._dead:
            self._fail_waiting()

    @property
    def alive(self) -> bool:
        return not self._dead and self._thread.is_alive()

    def seen(self, stream: str) -> KnownHead | None:
        """The end of a stream as this process last saw it. What is read later must contain it."""
        return self._book.seen(stream)

    def testify(self, stream: str, seen: KnownHead) -> None:
        """Take another's word for the end of a stream, before the first command; and look for it."""
        self._book.testify(stream, seen)
        self.look(stream)

    def streams(self) -> list[str]:
        """Every stream that this process has seen."""
        return self._book.streams()

    def look(self, stream: str) -> None:
        """Have a stream's history looked at; when what was seen is gone, it is frozen. Waits for nothing."""
        with contextlib.suppress(Overloaded):
            self.submit(stream, LookCommand(), _NOBODY, None)

    @property
    def stuck_s(self) -> float:
        """How long the batch in flight has taken so far, in seconds; 0 when idle."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def waiting(self) -> int:
        """How many commands are queued and not yet taken, or were put aside until others have written."""
        return self._queue.qsize() + self._aside

    def close(self, timeout_s: float = 10.0) -> None:
        """Answer what is queued, then end the thread."""
        self._queue.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while not self._ending or self._lines:
                self._take()
                self._busy_since = time.monotonic()
                self._round()
                self._busy_since = None
        except BaseException as fault:
            log.critical("the writer died", exc_info=True)
            self._dead = True
            gone = StoreUnavailable(
                "the service has lost its ledger thread and is ending: ask again with the same key"
            )
            _deliver([(job, gone) for line in self._lines.values() for job in line.jobs])
            self._fail_waiting()
            if self._on_death:
                self._on_death(fault)
            return
        self._dead = True
        self._fail_waiting()

    def _take(self) -> None:
        """Put what is queued into its lines. Waits for a command, or until a line is due."""
        taken = 0
        wait_s = None
        if self._lines:
            wait_s = max(0.0, min(line.due for line in self._lines.values()) - time.monotonic())
        if self._ending:
            time.sleep(wait_s or 0.0)
            return
        with contextlib.suppress(Empty):
            while taken < BATCH_MAX:
                job = self._queue.get(timeout=wait_s) if wait_s != 0 else self._queue.get_nowait()
                wait_s = 0
                if job is None:
                    self._ending = True
                    break
                taken += 1
                self._lines.setdefault(job.stream, PendingQueue()).jobs.append(job)
        if taken:
            self.counts.batch(taken)

    def _fail_waiting(self) -> None:
        closed = StoreUnavailable("the service is ending: ask again with the same key")
        waiting = []
        with contextlib.suppress(Empty):  # not `empty()` and then `get()`: several threads may be here
            while True:
                job = self._queue.get_nowait()
                if job is not None:
                    waiting.append((job, closed))
        _deliver(waiting)

    def _round(self) -> None:
        """Decide for each line that is due, append once for all, and answer."""
        now, started = self._clock(), time.monotonic()
        answers: list[tuple[Submission, Outcome]] = []
        plans: list[Plan] = []
        for stream, line in [(name, line) for name, line in self._lines.items() if line.due <= started]:
            # Who lost tries with fewer: that takes less time, so it is more likely to be first once.
            jobs = line.jobs[: max(1, min(BATCH_MAX, len(line.jobs) >> self._book.losses(stream)))]
            try:
                if self._waits(stream, line, jobs, now, started):
                    continue
                plan = self._book.plan(stream, jobs, now)
            except OdometerError as error:
                answers += [(job, error) for job in jobs]
                continue
            except Exception:
                # Nothing was appended. One dataset that cannot be read stops no other.
                log.exception("a plan failed; nothing was charged", extra={"stream": stream})
                self._book.forget(stream)
                answers += [(job, InternalError(_NO_PLAN)) for job in jobs]
                continue
            if plan is None:
                answers += self._lost(stream, started)
            elif plan.write is None:
                answers += plan.decisions
            else:
                plans.append(plan)
        if plans:
            answers += self._append(plans, started)
        self._leave(answers)
        self._aside = sum(len(line.jobs) for line in self._lines.values())
        _deliver(answers)

    def _waits(
        self, stream: str, line: "PendingQueue", jobs: Sequence[Submission], now: str, started: float
    ) -> bool:
        """Whether it is another process's turn; then the line is due again later."""
        wait_s = self._book.wait_s(stream, jobs, now)
        if wait_s <= 0:
            return False
        line.due = time.monotonic() + wait_s
        return line.is_patient(started)

    def _lost(self, stream: str, started: float) -> list[tuple[Submission, Outcome]]:
        """Others were faster: the line tries again in a moment, unless that went on for too long."""
        line = self._lines[stream]
        self.counts.stale_heads += 1
        wait_s, losses = self._book.lost(stream), self._book.losses(stream)
        log.info("stale head", extra={"losses": losses, "stream": stream})
        if losses < LOSSES_MAX and line.is_patient(started):
            line.due = time.monotonic() + wait_s
            return []
        busy = StoreUnavailable("other writers were faster each time: ask again with the same key")
        return [(job, busy) for job in line.jobs]

    def _append(self, plans: Sequence["Plan"], started: float) -> list[tuple[Submission, Outcome]]:
        answers: list[tuple[Submission, Outcome]] = []
        try:
            done = self._store.append([plan.write for plan in plans if plan.write is not None])
        except (StoreUnavailable, LedgerCorrupt, ValueError) as error:
            self.counts.appends_failed += 1
            unsure = (
                error if isinstance(error, OdometerError) else StoreUnavailable(f"the append failed: {error}")
            )
            for plan in plans:
                self._book.forget(plan.stream)
                answers += [(job, unsure) for job, _ in plan.decisions]
            return answers
        for plan, appended in zip(plans, done, strict=True):
            if appended:
                self._book.keep(plan)
                answers += plan.decisions
            else:
                answers += self._lost(plan.stream, started)
        return answers

    def _leave(self, answers: Sequence[tuple[Submission, Outcome]]) -> None:
        """Take those who are answered out of their lines, of which they are the first ones."""
        for stream, count in Counter(job.stream for job, _ in answers).items():
            line = self._lines[stream]
            if count == len(line.jobs):
                del self._lines[stream]
            else:
                self._lines[stream] = PendingQueue(line.jobs[count:])


@dataclass(slots=True)
class PendingQueue:
    """The commands that wait for one stream, the oldest first."""

    jobs: list[Submission] = field(default_factory=list)
    due: float = 0.0
    """When to try next."""
    unlucky_since: float | None = None
    """When they first had to wait for others; None when they did not."""

    def is_patient(self, now: float) -> bool:
        """Whether they may go on waiting. The first call starts the time."""
        if self.unlucky_since is None:
            self.unlucky_since = now
        return now - self.unlucky_since < PATIENCE_S


class _Nobody:
    """A sink for answers that nobody waits for."""

    def deliver(self, answers: Sequence[tuple[Any, Outcome]]) -> None:
        """Nothing is done with them."""


_NOBODY: Final = _Nobody()


def _deliver(answers: Sequence[tuple[Submission, Outcome]]) -> None:
    by_sink: dict[int, tuple[ReplySink, list[tuple[Any, Outcome]]]] = {}
    for job, outcome in answers:
        by_sink.setdefault(id(job.sink), (job.sink, []))[1].append((job.token, outcome))
    for sink, pairs in by_sink.values():
        sink.deliver(pairs)
