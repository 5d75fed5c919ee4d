"""What the writer remembers: the states it has decided on, and the last head it saw of every stream."""

import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex
from time import monotonic
from typing import Any, Final, Protocol

from odometer_accountant.errors import (
    DatasetClosed,
    InternalError,
    LedgerCorrupt,
    LedgerRolledBack,
    NotFound,
    OdometerError,
    StoreUnavailable,
    TooManyHolds,
    UnknownDataset,
)
from odometer_accountant.ledger import carried
from odometer_accountant.ledger.commands import (
    ChargeCommand,
    Command,
    EndCommand,
    FreezeCommand,
    KeyedCommand,
    LookCommand,
    SettleCommand,
)
from odometer_accountant.ledger.dataset import entry_format
from odometer_accountant.ledger.decide import decide, frozen_error, lost_shard
from odometer_accountant.ledger.decisions import Admitted, Decision, Refused, admit
from odometer_accountant.ledger.entries import content, row_at
from odometer_accountant.ledger.entry_parts import affected_by, kinds_of, settlement_key
from odometer_accountant.ledger.hold_owners import Holders
from odometer_accountant.ledger.snapshot import (
    KnownHead,
    catch_up,
    check_history,
    in_view,
    load_state,
    recount_recent,
    with_blobs,
)
from odometer_accountant.ledger.state import State
from odometer_accountant.ledger.totals import Totals
from odometer_accountant.scopes import shard_number, shard_parent
from odometer_accountant.stores import EMPTY_HEAD, Head, NewEntry, Row, Store, Write
from odometer_accountant.writer.rotation import TURN_BLOB, WriterRotation, age_s
from odometer_accountant.writer.stats import WriterStats

log = logging.getLogger("odometer.writer")

STREAMS_CACHED: Final = 1024
SCOPES_CACHED: Final = 512
_ATTEMPTS: Final = 20

Outcome = Decision | OdometerError


class ReplySink(Protocol):
    """Where answers go: called once per batch, from the writer's thread, and must not raise or wait."""

    def deliver(self, answers: Sequence[tuple[Any, Outcome]]) -> None: ...


@dataclass(frozen=True, slots=True)
class Submission:
    """A command for a stream, and where its outcome goes."""

    stream: str
    command: Command
    sink: ReplySink
    token: Any


@dataclass(frozen=True)
class Plan:
    """What one stream's commands come to; `write` is None when there is nothing to append."""

    stream: str
    decisions: list[tuple[Submission, Outcome]]
    write: Write | None
    state: State | None


@dataclass
class _Draft:
    """A stream's state as its commands are decided, and the entries so far."""

    state: State | None
    entries: list[NewEntry] = field(default_factory=list)

    def take(self, outcome: Admitted) -> None:
        self.state = outcome.state
        self.entries.append(outcome.entry)


class Book:
    """The writer's memory. Used by its thread alone, but for `seen` and `streams`."""

    def __init__(self, store: Store, counts: WriterStats) -> None:
        self._store = store
        self._counts = counts
        self._states: OrderedDict[str, State] = OrderedDict()
        self._seen: dict[str, KnownHead] = {}
        self._behind: set[str] = set()
        """Streams that others may have moved on since their state was kept."""
        self._turns: OrderedDict[str, WriterRotation] = OrderedDict()
        """Of streams that others write too."""
        self._holders = Holders()
        self._me = token_hex(4)
        self._latest = ""
        """The latest time that the clock has said."""
        self._looked: tuple[str, Head, dict[str, Row | None]] | None = None
        """Keys that were looked for in a stream together with its head, and what was found."""

    def wait_s(self, stream: str, jobs: Sequence[Submission], now: str) -> float:
        """How long these commands should wait before they are planned: others write the stream too.

        0 for now. Only advice. Raises OdometerError as `plan` does.
        """
        turn = self._turns.get(stream)
        if turn is None:
            return 0.0
        self._turns.move_to_end(stream)
        rest_s = turn.rest_s(monotonic(), len(jobs))
        if rest_s > 0:
            return rest_s
        self.behind(stream)  # look before deciding: it is cheaper than to decide in vain
        try:
            state = self._state(stream, jobs)
        except LedgerRolledBack:
            return 0.0  # `plan` meets it too
        if state is None:
            return 0.0
        self._remember(state)
        return turn.wait_s(monotonic(), age_s(state.time, now))

    def lost(self, stream: str) -> float:
        """Others were faster. How long to wait before the next try, in seconds."""
        self.behind(stream)
        turn = self._turns.get(stream)
        if turn is None:
            turn = self._turns[stream] = WriterRotation(self._me)
            if len(self._turns) > STREAMS_CACHED:
                self._turns.popitem(last=False)
        return turn.lost()

    def losses(self, stream: str) -> int:
        """How often others were faster since this process last wrote."""
        turn = self._turns.get(stream)
        return turn.losses if turn else 0

    def plan(self, stream: str, jobs: Sequence[Submission], now: str) -> Plan | None:
        """Decide all commands of a stream in order. None: the head moved on, ask again.

        Raises OdometerError when the stream cannot be read for certain.
        """
        try:
            before = self._state(stream, jobs)
        except LedgerRolledBack as lost:
            return self._freeze(stream, jobs, now, lost)
        dataset = self._dataset_of(stream)
        if dataset is not None and any(isinstance(job.command, ChargeCommand) for job in jobs):
            before = self._opened(dataset, stream, before, now)
        held = self._held(stream, before, jobs)
        if before is not None:
            planned = before if dataset is None else replace(before, budgets=dataset.budgets)
            names = (*planned.standing, *self._names(planned, jobs, held), *self._open_names(planned))
            before = with_blobs(self._store, before, names)
            if before is None:
                self.behind(stream)
                return None
        draft = _Draft(self._in_time(before, now))
        if dataset is not None:
            _follow(dataset, draft, now)
        return self._decided(stream, jobs, now, before, draft, held)

    def _in_time(self, state: State | None, now: str) -> State | None:
        """The state, no earlier than a clock has been: what was over by it stays over when it goes back."""
        self._latest = max(self._latest, now)
        if state is None or now == self._latest or state.time >= self._latest:
            return state
        return state.moved(state.head, self._latest, state.totals)

    def _decided(
        self,
        stream: str,
        jobs: Sequence[Submission],
        now: str,
        before: State | None,
        draft: _Draft,
        held: dict[int, Row],
    ) -> Plan | None:
        known = self._known(stream, before, _keys(jobs))
        known |= self._settlements(stream, jobs, known)
        self._carry(draft, now)
        followed, decisions = len(draft.entries), []
        for job in jobs:
            outcome = _judge(draft.state, job.command, known, now, held)
            if isinstance(outcome, Admitted):
                outcome = self._with_a_place(outcome, job.command, draft, now)
            if isinstance(outcome, Admitted):
                draft.take(outcome)
                if isinstance(job.command, KeyedCommand):
                    number = outcome.state.head.sequence
                    known[job.command.ledger_key] = Row(number, outcome.entry.hash, outcome.entry.body)
                elif before is not None:
                    before = self._widened(before, draft, jobs, held)
                    if before is None:
                        self.behind(stream)
                        return None
                self._carry(draft, now)
            decisions.append((job, outcome))
        if len(draft.entries) == followed:
            return self._without_append(stream, before, decisions)
        return self._plan(stream, decisions, before, draft)

    def _carry(self, draft: _Draft, now: str) -> None:
        """Where windows do not count what is open, an entry first says what is. Raises LedgerCorrupt."""
        state = draft.state
        if state is not None and state.frozen is None and state.must_carry:
            draft.take(carried.carried(state, self._open_parts(state, draft.entries), now))

    def _open_names(self, state: State, new: Sequence[NewEntry] = ()) -> tuple[str, ...]:
        """The counts that it takes to say what is open, where this must be said."""
        if state.frozen is not None or not state.must_carry:
            return ()
        scopes = dict.fromkeys(carried.scopes(state, self._open_parts(state, new)))
        return state.blob_names(scopes)

    def _with_a_place(self, outcome: Admitted, command: Command, draft: _Draft, now: str) -> Decision:
        """A decision to admit, unless it is a hold of whoever has as many as one may have."""
        state = draft.state
        if state is None or not isinstance(command, ChargeCommand):
            return outcome
        stored = state.head.sequence - len(draft.entries)
        try:
            self._holders.check(state, command, now, stored, self._rows(state, draft.entries))
        except TooManyHolds as error:
            return Refused(error, state)
        return outcome

    def _open_parts(self, state: State, new: Sequence[NewEntry]) -> dict[str, Any]:
        """`new` are the last entries of `state`, which the store has not yet."""
        return carried.parts(state, self._rows(state, new))

    def _rows(self, state: State, new: Sequence[NewEntry]) -> Callable[[int], Row | None]:
        """Finds an entry by its number: one of `new`, which the store has not yet, or of the store."""
        stored = state.head.sequence - len(new)

        def row(number: int) -> Row | None:
            if number > stored:
                entry = new[number - stored - 1]
                return Row(number, entry.hash, entry.body)
            last = json.loads(new[0].body)["prev"] if new else state.head.hash
            return row_at(self._store, state.stream, Head(stored, last), number)

        return row

    def _settlements(self, stream: str, jobs: Sequence[Submission], known: dict[str, Row]) -> dict[str, Row]:
        """Of holds that are asked for again: what they were settled for."""
        holds = [
            known[job.command.ledger_key].sequence
            for job in jobs
            if isinstance(job.command, ChargeCommand)
            and job.command.prepared.expires_in_s is not None
            and job.command.ledger_key in known
        ]
        return self._store.find(stream, [settlement_key(number) for number in holds]) if holds else {}

    def _widened(
        self, before: State, draft: _Draft, jobs: Sequence[Submission], held: dict[int, Row]
    ) -> State | None:
        """With the counts that commands need since one of them changed what is counted; None: read anew."""
        state = draft.state
        if state is None or state.totals.complete:
            return before
        # What the batch itself has begun to count is not stored yet: it stays new, and so is written.
        names = (*state.standing, *self._names(state, jobs, held), *self._open_names(state, draft.entries))
        wider = with_blobs(self._store, before, [name for name in names if not in_view(state.totals, name)])
        if wider is not None:
            life, windows = {**wider.totals.life, **state.totals.life}, dict(wider.totals.windows)
            totals = Totals(state.totals.grid, life, windows | dict(state.totals.windows))
            draft.state = replace_totals(state, totals)
        return wider

    def _known(self, stream: str, before: State | None, keys: Sequence[str]) -> dict[str, Row]:
        """The entries that have these keys.

        A key that had none at a head has none as long as the stream ends there, and nothing is appended
        if it does not: what was found together with a head need not be looked for again.
        """
        if not keys:
            return {}
        if self._looked is not None and before is not None:
            looked_in, head, found = self._looked
            if (looked_in, head) == (stream, before.head) and all(key in found for key in keys):
                return {key: row for key in keys if (row := found[key]) is not None}
        return self._store.find(stream, keys)

    def _plan(
        self, stream: str, decisions: list[tuple[Submission, Outcome]], before: State | None, draft: _Draft
    ) -> Plan:
        state = draft.state
        blobs = state.blobs(before) if state else {}
        expected = before.head if before else EMPTY_HEAD
        if stream in self._turns:
            blobs[TURN_BLOB] = self._turns[stream].blob()
        return Plan(stream, decisions, Write(stream, expected, draft.entries, blobs), state)

    def _without_append(
        self, stream: str, before: State | None, decisions: list[tuple[Submission, Outcome]]
    ) -> Plan | None:
        """Nothing to write: make sure that the refusals were not judged on a state that others moved on."""
        head, _ = self._store.load(stream, [])
        if head != (before.head if before else EMPTY_HEAD):
            self.behind(stream)
            return None
        return Plan(stream, decisions, None, before)

    def _freeze(
        self, stream: str, jobs: Sequence[Submission], now: str, lost: LedgerRolledBack
    ) -> Plan | None:
        """Write into the ledger that its history changed: then every process stops, also after a restart.

        None when another process has written that, or more, already: what it wrote is followed from here on,
        or this process would never hear that a person has decided.
        """
        state, seen = load_state(self._store, stream), self._seen[stream].head
        decisions: list[tuple[Submission, Outcome]] = [(job, lost) for job in jobs]
        if state is None:
            raise lost
        if state.frozen is not None and state.frozen.sequence >= seen.sequence:
            self._remember(state)
            return None
        log.critical("%s went back in time: entry %d is gone; it is frozen now", stream, seen.sequence)
        frozen = decide(state, FreezeCommand(seen), None, now)
        if not isinstance(frozen, Admitted):
            raise lost
        draft = _Draft(state)
        draft.take(frozen)
        return self._plan(stream, decisions, state, draft)

    def _dataset_of(self, stream: str) -> State | None:
        """Of a shard, the dataset whose budgets it has; None for a dataset itself."""
        parent = shard_parent(stream)
        if parent is None:
            return None
        dataset = self._fresh(parent)
        if dataset is None:
            raise UnknownDataset(
                f"there is no dataset {parent}: create it first, it is never created on the fly"
            )
        if dataset.frozen is not None:
            raise frozen_error(dataset)
        return dataset

    def _opened(self, dataset: State, stream: str, before: State | None, now: str) -> State | None:
        """A shard that is about to be charged: opened first, and then listed in its dataset's ledger.

        Both before anything is admitted on it: one that is listed and missing was lost, and not begun anew.
        """
        shard = shard_number(stream)
        if before is not None and shard in dataset.opened:
            return before
        if dataset.closed:
            raise DatasetClosed(f"dataset {dataset.dataset.name} is closed: it takes no more charges")
        if before is None and shard in dataset.opened:
            raise lost_shard(dataset, shard)
        if before is None:
            budgets = {name: entry.document() for name, entry in dataset.budgets.items()}
            document = {
                "type": "opened",
                "time": max(now, dataset.time),
                "principal": "service",
                "budgets": budgets,
                "dataset": dataset.dataset.model_dump(mode="json"),
                "shard": shard,
            }
            version = max(dataset.dataset.entry_format, entry_format(dataset.budgets.values()))
            # If another process is faster, it has done the same.
            begun = admit(None, document, version=version)
            self._store.append([Write(stream, EMPTY_HEAD, [begun.entry], begun.state.blobs())])
        self._list_shard(dataset.stream, shard, now)
        return self._state(stream)

    def _list_shard(self, name: str, shard: int, now: str) -> None:
        for _ in range(_ATTEMPTS):
            dataset = self._fresh(name)
            if dataset is None or shard in dataset.opened:
                return
            time = max(now, dataset.time)
            listed = {"type": "shard_opened", "time": time, "principal": "service", "shard": shard}
            after = admit(dataset, listed)
            write = Write(name, dataset.head, [after.entry], after.state.blobs(dataset))
            if self._store.append([write]) == [True]:
                self._remember(after.state)
                return
            self.behind(name)
        raise StoreUnavailable("other writers were faster each time: ask again with the same key")

    def _fresh(self, stream: str) -> State | None:
        """A state that the store has now."""
        state = self._state(stream)
        head, _ = self._store.load(stream, [])
        if head != (state.head if state else EMPTY_HEAD):
            self.behind(stream)
            state = self._state(stream)
        if state is not None:
            self._remember(state)
        return state

    def _held(self, stream: str, state: State | None, jobs: Sequence[Submission]) -> dict[int, Row]:
        """The entries that settlements and descendants name."""
        found: dict[int, Row] = {}
        for number in {job.command.entry_number for job in jobs}:
            if number is not None and state is not None and 0 < number <= state.head.sequence:
                row = row_at(self._store, stream, state.head, number)
                found |= {} if row is None else {number: row}
        return found

    def _names(self, state: State, jobs: Sequence[Submission], held: dict[int, Row]) -> Iterable[str]:
        """The counts that the commands move."""
        names: dict[str, None] = {}
        done: set[tuple[int, int]] = set()
        for job in jobs:
            command = job.command
            if isinstance(command, ChargeCommand):
                affected = command.affected
                same = (id(affected), id(command.prepared))  # a job charges the same again and again
                if same in done:
                    continue
                done.add(same)
                scopes = state.scopes(affected, command.prepared.kinds)
            elif isinstance(command, SettleCommand) and command.hold in held:
                entry = _said(held[command.hold], state.stream)
                if entry.get("type") != "held":
                    continue
                scopes = state.scopes(affected_by(entry), kinds_of(entry))
            elif isinstance(command, EndCommand) and command.session in held:
                entry = _said(held[command.session], state.stream)
                if "command" not in entry:
                    continue
                scopes = state.scopes(affected_by(entry), ())
            else:
                continue
            names |= dict.fromkeys(state.blob_names(scopes))
        return names

    def keep(self, plan: Plan) -> None:
        """Remember the state after an append."""
        if plan.state is not None:
            self._remember(plan.state)
        turn = self._turns.get(plan.stream)
        if turn is not None and not turn.went(monotonic(), len(plan.decisions)):
            del self._turns[plan.stream]

    def _remember(self, state: State) -> None:
        stream = state.stream
        self._count(state)
        self._seen[stream] = KnownHead.of(state)
        self._states[stream] = _trimmed(state)
        self._behind.discard(stream)
        self._states.move_to_end(stream)
        if len(self._states) > STREAMS_CACHED:
            self._states.popitem(last=False)

    def testify(self, stream: str, seen: KnownHead) -> None:
        """What somebody else saw of a stream: before the first command."""
        self._seen.setdefault(stream, seen)

    def seen(self, stream: str) -> KnownHead | None:
        """The end of a stream as last seen, if ever. For any thread."""
        return self._seen.get(stream)

    def streams(self) -> list[str]:
        """Every stream that was seen. For any thread."""
        return list(self._seen)

    def forget(self, stream: str) -> None:
        """Drop what is cached, never what was seen."""
        self._states.pop(stream, None)
        self._behind.discard(stream)

    def behind(self, stream: str) -> None:
        """Look at the stream again before the next decision: others may have written to it."""
        if stream in self._states:
            self._behind.add(stream)

    def _state(self, stream: str, jobs: Sequence[Submission] = ()) -> State | None:
        state = self._states.get(stream)
        if state is not None and stream in self._behind:
            state = self._caught_up(stream, state, jobs)
        if state is not None:
            return state
        state = load_state(self._store, stream)
        if state is not None and stream not in self._seen:
            recount_recent(self._store, state)
        check_history(self._store, stream, self._seen.get(stream), state)
        if state is not None:  # a name that nobody opened is not worth remembering
            self._count(state)
            self._seen[stream] = KnownHead.of(state)
        return state

    def _caught_up(self, stream: str, old: State, jobs: Sequence[Submission]) -> State | None:
        """From what is cached, with the counts that the commands move; None: everything must be read anew."""
        found = None
        if self._seen[stream].head == old.head:
            names = (*old.standing, *self._names(old, jobs, {}))
            keys = _keys(jobs)
            found = catch_up(self._store, old, names, [TURN_BLOB], keys)
        self.forget(stream)
        if found is None:
            return None
        state, view = found
        self._remember(state)
        self._looked = (stream, state.head, dict.fromkeys(keys) | view.found)
        turn = self._turns.get(stream)
        if turn is not None and state.head != old.head:
            turn.saw(view.blobs.get(TURN_BLOB), monotonic())
        return state

    def _count(self, state: State) -> None:
        if state.frozen is not None:
            self._counts.froze(state.stream)
        elif self._counts.frozen:
            self._counts.thawed(state.stream)


def _follow(dataset: State, draft: _Draft, now: str) -> None:
    """Bring a shard's budgets up to its dataset's.

    A shard is a ledger that can be counted on its own: what its charges were judged by is among its entries.
    """
    state = draft.state
    if state is None or state.frozen is not None:
        return
    if (state.budgets, state.closed) != (dataset.budgets, dataset.closed):
        budgets = {name: entry.document() for name, entry in dataset.budgets.items()}
        synced = {
            "type": "synced",
            "time": max(now, state.time),
            "principal": "service",
            "budgets": budgets,
            "closed": dataset.closed,
        }
        draft.take(admit(state, synced, version=entry_format(dataset.budgets.values())))


def _trimmed(state: State) -> State:
    """With the counts that are always needed alone, when there are many others."""
    totals = state.totals
    if len(totals.life) <= SCOPES_CACHED and state.composition != "by_unit":
        return state if not totals.complete else replace_totals(state, replace(totals, complete=False))
    standing = set(state.standing)
    life = {scope: loss for scope, loss in totals.life.items() if f"totals/{scope}" in standing}
    windows = {key: spent for key, spent in totals.windows.items() if f"window/{key}" in standing}
    return replace_totals(state, Totals(totals.grid, life, windows))


def replace_totals(state: State, totals: Totals) -> State:
    """The same state with other totals in view."""
    return state.moved(state.head, state.time, totals)


def _keys(jobs: Sequence[Submission]) -> list[str]:
    return [job.command.ledger_key for job in jobs if isinstance(job.command, KeyedCommand)]


def _said(row: Row, stream: str) -> dict[str, Any]:
    """What an entry says; nothing of a damaged one: the decision says that."""
    try:
        return content(row, stream)
    except LedgerCorrupt:
        return {}


def _judge(
    state: State | None, command: Command, known: dict[str, Row], now: str, held: dict[int, Row]
) -> Outcome:
    if isinstance(command, LookCommand):
        return Refused(NotFound("nothing was asked"), state)
    row = known.get(command.ledger_key) if isinstance(command, KeyedCommand) else None
    number = command.entry_number
    about = None if number is None else held.get(number)
    settled = known.get(settlement_key(row.sequence)) if row and isinstance(command, ChargeCommand) else None
    try:
        return decide(state, command, row, now, about, settled)
    except Exception:
        log.exception("a decision failed; nothing was charged")
        return Refused(InternalError("the service could not decide: nothing was charged"), state)
