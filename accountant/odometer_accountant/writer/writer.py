"""The writer's thread: take the waiting commands, decide them in order, append once, answer all.

This is group commit: all commands that queue up during one append share the next one. When several processes
write one stream, its commands may have to wait for the other processes. Other streams do not wait.
"""

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
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
from odometer_accountant.writer.batch import Outcome, Plan, ReplySink, Submission
from odometer_accountant.writer.cache import StateCache
from odometer_accountant.writer.pending import NO_REPLY, PendingQueue, deliver
from odometer_accountant.writer.planner import BatchPlanner
from odometer_accountant.writer.stats import WriterStats

log = logging.getLogger("odometer.writer")

BATCH_MAX: Final = 256
WAITING_MAX: Final = 10_000
LOSSES_MAX: Final = 24
"""Lost append races before waiting callers get 503."""
_PLAN_FAILED: Final = (
    "the ledger of this dataset could not be read; nothing was charged: retry with the same idempotency key"
)


def utc_now() -> str:
    """The wall clock as a ledger timestamp."""
    return timestamp(datetime.now(UTC))


class LedgerWriter:
    """Owns the one thread that writes. `submit` may be called from any thread or event loop.

    `on_death` is called once if the thread ends by a fault. By then every waiting command has been answered
    with an error, and nothing is charged any more.
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
        self.stats = WriterStats()
        self._cache = StateCache(store, self.stats)
        self._planner = BatchPlanner(self._cache)
        self._pending: dict[str, PendingQueue] = {}
        self._delayed = 0
        self._ending = False
        self._busy_since: float | None = None
        self._dead = False
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def submit(self, stream: str, command: Command, sink: ReplySink, token: Any) -> None:
        """Queue a command; its outcome is delivered to `sink` with `token`, exactly once.

        Raises Overloaded when too many commands wait, StoreUnavailable when the writer has ended.
        """
        if self.waiting >= WAITING_MAX:
            raise Overloaded(f"{WAITING_MAX} commands are waiting: retry with the same idempotency key")
        self._queue.put(Submission(stream, command, sink, token))
        if self._dead:
            self._fail_waiting()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return not self._dead and self._thread.is_alive()

    def known(self, stream: str) -> KnownHead | None:
        """The last head of the stream that this process knows. Every later read must contain it."""
        return self._cache.known(stream)

    def trust(self, stream: str, head: KnownHead) -> None:
        """Take a head that a witness saw as known, before the first command, and check the stream for it."""
        self._cache.trust(stream, head)
        self.check(stream)

    def streams(self) -> list[str]:
        """Every stream that this process has read or written."""
        return self._cache.streams()

    def check(self, stream: str) -> None:
        """Queue a check of the stream's history, which freezes the stream if known entries are gone."""
        with contextlib.suppress(Overloaded):
            self.submit(stream, LookCommand(), NO_REPLY, None)

    @property
    def stuck_s(self) -> float:
        """How long the batch in flight has taken so far, in seconds; 0 when idle."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def waiting(self) -> int:
        """How many commands are queued, or delayed until other processes have written."""
        return self._queue.qsize() + self._delayed

    def close(self, timeout_s: float = 10.0) -> None:
        """Answer what is queued, then end the thread."""
        self._queue.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while not self._ending or self._pending:
                self._take()
                self._busy_since = time.monotonic()
                self._round()
                self._busy_since = None
        except BaseException as fault:
            log.critical("the writer died", exc_info=True)
            self._dead = True
            gone = StoreUnavailable(
                "the service's writer thread has died and the service is ending: "
                "retry with the same idempotency key"
            )
            deliver([(each, gone) for pending in self._pending.values() for each in pending.submissions])
            self._fail_waiting()
            if self._on_death:
                self._on_death(fault)
            return
        self._dead = True
        self._fail_waiting()

    def _take(self) -> None:
        """Sort queued commands by stream. Waits for a command, or until delayed ones are due."""
        taken = 0
        wait_s = None
        if self._pending:
            wait_s = max(0.0, min(pending.due for pending in self._pending.values()) - time.monotonic())
        if self._ending:
            time.sleep(wait_s or 0.0)
            return
        with contextlib.suppress(Empty):
            while taken < BATCH_MAX:
                submission = self._queue.get(timeout=wait_s) if wait_s != 0 else self._queue.get_nowait()
                wait_s = 0
                if submission is None:
                    self._ending = True
                    break
                taken += 1
                self._pending.setdefault(submission.stream, PendingQueue()).submissions.append(submission)
        if taken:
            self.stats.batch(taken)

    def _fail_waiting(self) -> None:
        closed = StoreUnavailable("the service is ending: retry with the same idempotency key")
        waiting = []
        with contextlib.suppress(Empty):  # not `empty()` and then `get()`: several threads may be here
            while True:
                submission = self._queue.get_nowait()
                if submission is not None:
                    waiting.append((submission, closed))
        deliver(waiting)

    def _round(self) -> None:
        """Plan each stream that is due, append all plans at once, and answer."""
        now, started = self._clock(), time.monotonic()
        answers: list[tuple[Submission, Outcome]] = []
        plans: list[Plan] = []
        for stream, pending in [(name, each) for name, each in self._pending.items() if each.due <= started]:
            # After a lost race, fewer commands at once: that takes less time, so it is likelier to win.
            waiting = pending.submissions
            size = max(1, min(BATCH_MAX, len(waiting) >> self._planner.losses(stream)))
            submissions = waiting[:size]
            try:
                if self._must_wait(stream, pending, submissions, now, started):
                    continue
                plan = self._planner.plan(stream, submissions, now)
            except OdometerError as error:
                answers += [(each, error) for each in submissions]
                continue
            except Exception:
                # Nothing was appended. A dataset that cannot be read does not stop the others.
                log.exception("a plan failed; nothing was charged", extra={"stream": stream})
                self._cache.forget(stream)
                answers += [(each, InternalError(_PLAN_FAILED)) for each in submissions]
                continue
            if plan is None:
                answers += self._lost(stream, started)
            elif plan.write is None:
                answers += plan.decisions
            else:
                plans.append(plan)
        if plans:
            answers += self._append(plans, started)
        self._remove_answered(answers)
        self._delayed = sum(len(pending.submissions) for pending in self._pending.values())
        deliver(answers)

    def _must_wait(
        self, stream: str, pending: PendingQueue, submissions: Sequence[Submission], now: str, started: float
    ) -> bool:
        """Whether another process should write the stream first. Then sets when to look again."""
        wait_s = self._planner.wait_s(stream, submissions, now)
        if wait_s <= 0:
            return False
        pending.due = time.monotonic() + wait_s
        return pending.is_patient(started)

    def _lost(self, stream: str, started: float) -> list[tuple[Submission, Outcome]]:
        """A lost append race: the commands are tried again soon, or answered when that took too long."""
        pending = self._pending[stream]
        self.stats.stale_heads += 1
        wait_s, losses = self._planner.lost(stream), self._planner.losses(stream)
        log.info("stale head", extra={"losses": losses, "stream": stream})
        if losses < LOSSES_MAX and pending.is_patient(started):
            pending.due = time.monotonic() + wait_s
            return []
        busy = StoreUnavailable("too many concurrent writers: retry with the same idempotency key")
        return [(each, busy) for each in pending.submissions]

    def _append(self, plans: Sequence[Plan], started: float) -> list[tuple[Submission, Outcome]]:
        answers: list[tuple[Submission, Outcome]] = []
        try:
            done = self._store.append([plan.write for plan in plans if plan.write is not None])
        except (StoreUnavailable, LedgerCorrupt, ValueError) as error:
            self.stats.appends_failed += 1
            unsure = (
                error if isinstance(error, OdometerError) else StoreUnavailable(f"the append failed: {error}")
            )
            for plan in plans:
                self._cache.forget(plan.stream)
                answers += [(each, unsure) for each, _ in plan.decisions]
            return answers
        for plan, appended in zip(plans, done, strict=True):
            if appended:
                self._planner.keep(plan)
                answers += plan.decisions
            else:
                answers += self._lost(plan.stream, started)
        return answers

    def _remove_answered(self, answers: Sequence[tuple[Submission, Outcome]]) -> None:
        """Remove answered commands, which are the first of their stream."""
        for stream, count in Counter(each.stream for each, _ in answers).items():
            waiting = self._pending[stream].submissions
            if count == len(waiting):
                del self._pending[stream]
            else:
                self._pending[stream] = PendingQueue(waiting[count:])
