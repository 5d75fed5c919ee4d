"""One thread: take what waits, decide in order against cached state, append once, answer all.

Group commit: everything that queued while the last append was written shares the next one.
"""

import contextlib
import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol

from accountant.commands import ChargeCommand, Command
from accountant.decide import Admitted, Decision, Refused, decide
from accountant.errors import (
    InternalError,
    LedgerCorrupt,
    LedgerRolledBack,
    OdometerError,
    Overloaded,
    StoreUnavailable,
)
from accountant.ledger import CONFIG_BLOB, DATASET_SCOPE, State, entry_hash, scope_blob, timestamp
from accountant.loss import Loss
from accountant.stores import EMPTY_HEAD, Head, Row, Store, Write

log = logging.getLogger("odometer.teller")

BATCH_MAX: Final = 256
WAITING_MAX: Final = 10_000
STALE_RETRIES: Final = 8
STREAMS_CACHED: Final = 1024
SCOPES_CACHED: Final = 512

Outcome = Decision | OdometerError


class Sink(Protocol):
    """Where answers go: called once per batch, from the teller's thread, and must not raise or wait."""

    def deliver(self, answers: Sequence[tuple[Any, Outcome]]) -> None: ...


@dataclass(frozen=True, slots=True)
class Job:
    """A command for a stream, and where its outcome goes."""

    stream: str
    command: Command
    sink: Sink
    token: Any


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
        self._book = Book(store)
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

    def seen(self, stream: str) -> Head | None:
        """The last head of a stream that this process decided on. What is read later must contain it."""
        return self._book.seen(stream)

    @property
    def stuck_s(self) -> float:
        """How long the batch in flight has taken so far, in seconds; 0 when idle."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

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


@dataclass(frozen=True)
class Plan:
    """What one stream's commands come to; `write` is None when there is nothing to append."""

    stream: str
    decisions: list[tuple[Job, Outcome]]
    write: Write | None
    state: State | None


class Book:
    """The teller's memory: the states it has decided on, and the last head it saw of every stream."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._states: OrderedDict[str, State] = OrderedDict()
        self._seen: dict[str, Head] = {}

    def plan(self, stream: str, jobs: Sequence[Job], now: str) -> Plan | None:
        """Decide all commands of a stream in order. None: the head moved on, ask again.

        Raises OdometerError when the stream cannot be read for certain.
        """
        charges = [job.command for job in jobs if isinstance(job.command, ChargeCommand)]
        scopes = dict.fromkeys(
            scope for charge in charges for scope in charge.prepared.scopes(charge.principal)
        )
        before = self._state(stream, list(scopes) or [DATASET_SCOPE])
        known = self._store.find(stream, [charge.ledger_key for charge in charges]) if charges else {}
        state, entries, decisions = before, [], []
        for job in jobs:
            outcome = _judge(state, job.command, known, now)
            if isinstance(outcome, Admitted):
                state = outcome.state
                entries.append(outcome.entry)
                if isinstance(job.command, ChargeCommand):
                    row = Row(state.head.sequence, outcome.entry.hash, outcome.entry.body)
                    known[job.command.ledger_key] = row
            decisions.append((job, outcome))
        if not entries:
            return self._without_append(stream, before, decisions)
        expected = before.head if before else EMPTY_HEAD
        return Plan(stream, decisions, Write(stream, expected, entries, _blobs(before, state)), state)

    def _without_append(
        self, stream: str, before: State | None, decisions: list[tuple[Job, Outcome]]
    ) -> Plan | None:
        """Nothing to write: make sure that the refusals were not judged on a state that others moved on."""
        head, _ = self._store.load(stream, [])
        if head != (before.head if before else EMPTY_HEAD):
            self.forget(stream)
            return None
        return Plan(stream, decisions, None, before)

    def keep(self, plan: Plan) -> None:
        """Remember the state after an append."""
        if plan.state is None:
            return
        self._seen[plan.stream] = plan.state.head
        self._states[plan.stream] = plan.state
        self._states.move_to_end(plan.stream)
        if len(self._states) > STREAMS_CACHED:
            self._states.popitem(last=False)
        if len(plan.state.totals) > SCOPES_CACHED:
            self.forget(plan.stream)

    def seen(self, stream: str) -> Head | None:
        """The last head that was seen, if any. For any thread."""
        return self._seen.get(stream)

    def forget(self, stream: str) -> None:
        """Drop what is cached, never what was seen."""
        self._states.pop(stream, None)

    def _state(self, stream: str, scopes: Sequence[str]) -> State | None:
        state = self._states.get(stream)
        if state is not None:
            missing = [scope for scope in scopes if scope not in state.totals]
            if not missing:
                return state
            head, blobs = self._store.load(stream, [scope_blob(scope) for scope in missing])
            if head == state.head:
                loaded = _totals(state, missing, blobs)
                return replace(state, totals={**state.totals, **loaded})
            self.forget(stream)
        state = load_state(self._store, stream, scopes)
        self._check_history(stream, state.head if state else EMPTY_HEAD)
        return state

    def _check_history(self, stream: str, head: Head) -> None:
        check_history(self._store, stream, self._seen.get(stream), head)
        if head != EMPTY_HEAD:  # a name that nobody opened is not worth remembering
            self._seen[stream] = head


def check_history(store: Store, stream: str, seen: Head | None, head: Head) -> None:
    """Raise LedgerRolledBack unless `seen`, an earlier head of the stream, still is part of it."""
    if seen is None or head == seen:
        return
    rows = store.entries(stream, seen.sequence - 1, 1) if head.sequence >= seen.sequence else []
    if not rows or rows[0].hash != seen.hash:
        raise LedgerRolledBack(
            f"entry {seen.sequence} of this ledger was there and is gone or differs: nothing is admitted "
            "until a person has looked (restore the store, then restart the service)",
            sequence=seen.sequence,
        )


def load_state(store: Store, stream: str, scopes: Sequence[str]) -> State | None:
    """A dataset's state from the store, None when there is no such stream.

    Raises StoreUnavailable when unsure, LedgerCorrupt when head, entry and totals contradict.
    """
    names = [CONFIG_BLOB, *(scope_blob(scope) for scope in scopes)]
    head, blobs = store.load(stream, names)
    if head == EMPTY_HEAD:
        return None
    rows = store.entries(stream, head.sequence - 1, 1)
    if not rows or rows[0].hash != head.hash or entry_hash(rows[0].body) != head.hash:
        raise LedgerCorrupt(
            f"the last entry of {stream} ({head.sequence}) is missing or changed: run odometer verify"
        )
    if CONFIG_BLOB not in blobs:
        raise LedgerCorrupt(f"the configuration of {stream} is missing: run odometer verify")
    state = State.restore(head, _time_of(stream, rows[0]), blobs[CONFIG_BLOB], {})
    if state.dataset.name != stream:
        raise LedgerCorrupt(f"the ledger of {stream} is that of {state.dataset.name}: run odometer verify")
    return replace(state, totals=_totals(state, scopes, blobs))


def _time_of(stream: str, row: Row) -> str:
    try:
        return str(json.loads(row.body)["time"])
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerCorrupt(
            f"entry {row.sequence} of {stream} cannot be read: run odometer verify"
        ) from error


def _totals(state: State, scopes: Sequence[str], blobs: dict[str, bytes]) -> dict[str, Loss]:
    grid = state.dataset.grid
    totals = {}
    for scope in scopes:
        blob = blobs.get(scope_blob(scope))
        if blob is None and scope == DATASET_SCOPE:  # there from the first entry on
            raise LedgerCorrupt(
                f"the totals of {state.dataset.name} are missing: they are not zero, they are unknown; "
                "run odometer verify"
            )
        try:
            totals[scope] = Loss.zero(grid) if blob is None else Loss.decode(grid, blob.decode("ascii"))
        except ValueError as error:
            raise LedgerCorrupt(f"the totals of {scope} cannot be read: {error}") from error
    return totals


def _judge(state: State | None, command: Command, known: dict[str, Row], now: str) -> Outcome:
    row = known.get(command.ledger_key) if isinstance(command, ChargeCommand) else None
    try:
        return decide(state, command, row, now)
    except Exception:
        log.exception("a decision failed; nothing was charged")
        return Refused(InternalError("the service could not decide: nothing was charged"), state)


def _blobs(before: State | None, after: State | None) -> dict[str, bytes]:
    """What of `after` differs from `before`: the totals that moved, the configuration if it changed."""
    if after is None:
        return {}
    old = before.totals if before else {}
    moved = {
        scope_blob(scope): loss.encode().encode("ascii")
        for scope, loss in after.totals.items()
        if old.get(scope) is not loss
    }
    if before is None or before.budgets is not after.budgets or before.closed != after.closed:
        moved[CONFIG_BLOB] = after.config()
    return moved


def _deliver(answers: Sequence[tuple[Job, Outcome]]) -> None:
    by_sink: dict[int, tuple[Sink, list[tuple[Any, Outcome]]]] = {}
    for job, outcome in answers:
        by_sink.setdefault(id(job.sink), (job.sink, []))[1].append((job.token, outcome))
    for sink, pairs in by_sink.values():
        sink.deliver(pairs)
