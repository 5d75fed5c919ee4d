"""What the teller remembers: states decided on, heads seen; and how a state is read from the store."""

import json
import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from accountant.commands import ChargeCommand, Command
from accountant.decide import Admitted, Decision, Refused, decide
from accountant.errors import InternalError, LedgerCorrupt, LedgerRolledBack, OdometerError
from accountant.ledger import (
    CHECKPOINT_EVERY,
    CONFIG_BLOB,
    DATASET_SCOPE,
    State,
    entry_hash,
    entry_losses,
    scope_blob,
)
from accountant.loss import Loss, total
from accountant.stores import EMPTY_HEAD, Head, Row, Store, Write

log = logging.getLogger("odometer.teller")

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
        if state is not None and stream not in self._seen:
            recount_recent(self._store, state)
        self._check_history(stream, state.head if state else EMPTY_HEAD)
        return state

    def _check_history(self, stream: str, head: Head) -> None:
        check_history(self._store, stream, self._seen.get(stream), head)
        if head != EMPTY_HEAD:  # a name that nobody opened is not worth remembering
            self._seen[stream] = head


def recount_recent(store: Store, state: State) -> None:
    """Raise LedgerCorrupt unless the dataset's stored total is what the entries since a checkpoint come to.

    Done when a process first meets a dataset: a bounded number of entries, and a total that was lost or
    lowered beside them is found before anything is admitted on it. `odometer verify` counts all of them.
    """
    name, head, grid = state.dataset.name, state.head, state.dataset.grid
    checkpoint = head.sequence // CHECKPOINT_EVERY * CHECKPOINT_EVERY
    after = max(0, checkpoint - 1)
    try:
        entries = [json.loads(row.body) for row in store.entries(name, after, head.sequence - after)]
        if checkpoint and "totals" not in entries[0]:
            return  # that number fell to an entry that is no charge
        spent = Loss.decode(grid, entries[0]["totals"]) if checkpoint else Loss.zero(grid)
        for entry in entries[1:]:  # the first is the checkpoint, or the opening
            if entry["type"] == "charged":
                spent = spent.plus(total(grid, entry_losses(grid, entry)))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise LedgerCorrupt(f"the last entries of {name} cannot be read: run odometer verify") from error
    if spent != state.spent:
        raise LedgerCorrupt(
            f"the stored total of {name} is not what its entries come to: nothing is admitted until a person "
            "has looked; run odometer verify"
        )


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
