"""One thread: take what waits, decide in order against cached state, append once, answer all.

Group commit: everything that queued while the last append was written shares the next one.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Any, Final

from accountant.book import Book, Job, Outcome, Plan, Sink
from accountant.commands import Command, LookCommand
from accountant.counts import Counts
from accountant.entries import timestamp
from accountant.errors import LedgerCorrupt, OdometerError, Overloaded, StoreUnavailable
from accountant.reading import Seen
from accountant.stores import Store

log = logging.getLogger("odometer.teller")

BATCH_MAX: Final = 256
WAITING_MAX: Final = 10_000
STALE_RETRIES: Final = 8


def utc_now() -> str:
    """The wall clock as a ledger timestamp."""
    return timestamp(datetime.now(UTC))


class Teller:
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
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self.counts = Counts()
        self._book = Book(store, self.counts)
        self._busy_since: float | None = None
        self._dead = False
        self._thread = threading.Thread(target=self._run, name="teller", daemon=True)
        self._thread.start()

    def submit(self, stream: str, command: Command, sink: Sink, token: Any) -> None:
        """Queue a command; its outcome is delivered to `sink` with `token`, exactly once.

        Raises Overloaded when too many wait, StoreUnavailable when the teller is gone.
        """
        if self._queue.qsize() >= WAITING_MAX:
            raise Overloaded(f"{WAITING_MAX} commands are waiting already: ask again with the same key")
        self._queue.put(Job(stream, command, sink, token))
        if self._dead:
            self._fail_waiting()

    @property
    def alive(self) -> bool:
        return not self._dead and self._thread.is_alive()

    def seen(self, stream: str) -> Seen | None:
        """The end of a stream as this process last saw it. What is read later must contain it."""
        return self._book.seen(stream)

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
        """How many commands are queued and not yet taken."""
        return self._queue.qsize()

    def close(self, timeout_s: float = 10.0) -> None:
        """Answer what is queued, then end the thread."""
        self._queue.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        batch: list[Job] = []
        try:
            while True:
                batch, last = self._take()
                if batch:
                    self._busy_since = time.monotonic()
                    self.counts.batch(len(batch))
                    self._answer(batch)
                    self._busy_since = None
                    batch = []
                if last:
                    break
        except BaseException as fault:
            log.critical("the teller died", exc_info=True)
            self._dead = True
            gone = StoreUnavailable(
                "the service has lost its ledger thread and is ending: ask again with the same key"
            )
            _deliver([(job, gone) for job in batch])
            self._fail_waiting()
            if self._on_death:
                self._on_death(fault)
            return
        self._dead = True
        self._fail_waiting()

    def _take(self) -> tuple[list[Job], bool]:
        job = self._queue.get()
        batch: list[Job] = []
        while job is not None:
            batch.append(job)
            if len(batch) >= BATCH_MAX or self._queue.empty():
                return batch, False
            job = self._queue.get()
        return batch, True

    def _fail_waiting(self) -> None:
        closed = StoreUnavailable("the service is ending: ask again with the same key")
        waiting = []
        with contextlib.suppress(Empty):  # not `empty()` and then `get()`: several threads may be here
            while True:
                job = self._queue.get_nowait()
                if job is not None:
                    waiting.append((job, closed))
        _deliver(waiting)

    def _answer(self, batch: Sequence[Job]) -> None:
        streams: dict[str, list[Job]] = {}
        for job in batch:
            streams.setdefault(job.stream, []).append(job)
        for attempt in range(STALE_RETRIES):
            streams = self._round(streams)
            if not streams:
                return
            self.counts.stale_heads += len(streams)
            log.info("stale heads", extra={"attempt": attempt, "streams": sorted(streams)})
        busy = StoreUnavailable("other writers were faster each time: ask again with the same key")
        _deliver([(job, busy) for jobs in streams.values() for job in jobs])

    def _round(self, streams: dict[str, list[Job]]) -> dict[str, list[Job]]:
        """Decide and append once for each stream; returns those whose head had moved on."""
        now = self._clock()
        answers: list[tuple[Job, Outcome]] = []
        plans: list[Plan] = []
        again: dict[str, list[Job]] = {}
        for stream, jobs in streams.items():
            try:
                plan = self._book.plan(stream, jobs, now)
            except OdometerError as error:
                answers += [(job, error) for job in jobs]
                continue
            if plan is None:
                again[stream] = jobs
            elif plan.write is None:
                answers += plan.decisions
            else:
                plans.append(plan)
        if plans:
            answers += self._append(plans, again)
        _deliver(answers)
        return again

    def _append(self, plans: Sequence["Plan"], again: dict[str, list[Job]]) -> list[tuple[Job, Outcome]]:
        answers: list[tuple[Job, Outcome]] = []
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
                self._book.forget(plan.stream)
                again[plan.stream] = [job for job, _ in plan.decisions]
        return answers


class _Nobody:
    """A sink for answers that nobody waits for."""

    def deliver(self, answers: Sequence[tuple[Any, Outcome]]) -> None:
        """Nothing is done with them."""


_NOBODY: Final = _Nobody()


def _deliver(answers: Sequence[tuple[Job, Outcome]]) -> None:
    by_sink: dict[int, tuple[Sink, list[tuple[Any, Outcome]]]] = {}
    for job, outcome in answers:
        by_sink.setdefault(id(job.sink), (job.sink, []))[1].append((job.token, outcome))
    for sink, pairs in by_sink.values():
        sink.deliver(pairs)
