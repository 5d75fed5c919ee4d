"""Decides the commands of one stream in order, and plans what to append for them."""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

from odometer_accountant.errors import InternalError, LedgerRolledBack, NotFound, TooManyHolds
from odometer_accountant.ledger import carried
from odometer_accountant.ledger.commands import (
    ChargeCommand,
    Command,
    FreezeCommand,
    KeyedCommand,
    LookCommand,
)
from odometer_accountant.ledger.decide import decide
from odometer_accountant.ledger.decisions import Admitted, Decision, Refused
from odometer_accountant.ledger.entries import row_at
from odometer_accountant.ledger.entry_parts import settlement_key
from odometer_accountant.ledger.hold_owners import Holders
from odometer_accountant.ledger.snapshot import in_view, load_state, with_blobs
from odometer_accountant.ledger.state import State
from odometer_accountant.ledger.totals import Totals
from odometer_accountant.stores import EMPTY_HEAD, Head, NewEntry, Row, Write
from odometer_accountant.writer.batch import (
    Draft,
    Outcome,
    Plan,
    Submission,
    blobs_needed,
    ledger_keys,
    replace_totals,
)
from odometer_accountant.writer.cache import StateCache
from odometer_accountant.writer.rotation import TURN_BLOB, age_s
from odometer_accountant.writer.shards import dataset_of, opened_shard, sync_budgets

log = logging.getLogger("odometer.writer")


class BatchPlanner:
    """Plans batches over cached states. For the writer's thread only."""

    def __init__(self, cache: StateCache) -> None:
        self._cache = cache
        self._store = cache.store
        self._rotations = cache.rotations
        self._hold_owners = Holders()
        self._latest = ""
        """The latest time that the clock has shown."""

    def plan(self, stream: str, submissions: Sequence[Submission], now: str) -> Plan | None:
        """Decide all commands of a stream in order. None: others have written to it, so plan again.

        Raises OdometerError when the stream's state cannot be read with certainty.
        """
        try:
            before = self._cache.state(stream, submissions)
        except LedgerRolledBack as lost:
            return self._plan_freeze(stream, submissions, now, lost)
        dataset = dataset_of(self._cache, stream)
        if dataset is not None and any(isinstance(each.command, ChargeCommand) for each in submissions):
            before = opened_shard(self._cache, dataset, stream, before, now)
        named = self._named_entries(stream, before, submissions)
        if before is not None:
            planned = before if dataset is None else replace(before, budgets=dataset.budgets)
            needed = (*planned.standing, *blobs_needed(planned, submissions, named))
            before = with_blobs(self._store, before, (*needed, *self._blobs_to_carry(planned)))
            if before is None:
                self._cache.mark_stale(stream)
                return None
        draft = Draft(self._not_before_latest(before, now))
        if dataset is not None:
            sync_budgets(dataset, draft, now)
        return self._decide_all(stream, submissions, now, before, draft, named)

    def keep(self, plan: Plan) -> None:
        """Cache the state after a plan was appended."""
        if plan.state is not None:
            self._cache.keep(plan.state)
        self._rotations.went(plan.stream, monotonic(), len(plan.decisions))

    def wait_s(self, stream: str, submissions: Sequence[Submission], now: str) -> float:
        """How long these commands should wait because other processes write the stream too, in seconds.

        0 to plan now. Advice only. Raises OdometerError as `plan` does.
        """
        rotation = self._rotations.get(stream)
        if rotation is None:
            return 0.0
        rest_s = rotation.rest_s(monotonic(), len(submissions))
        if rest_s > 0:
            return rest_s
        self._cache.mark_stale(stream)  # reading the head now is cheaper than losing the append race later
        try:
            state = self._cache.state(stream, submissions)
        except LedgerRolledBack:
            return 0.0  # `plan` raises it again
        if state is None:
            return 0.0
        self._cache.keep(state)
        return rotation.wait_s(monotonic(), age_s(state.time, now))

    def lost(self, stream: str) -> float:
        """Note a lost append race. Returns how long to wait before the next try, in seconds."""
        self._cache.mark_stale(stream)
        return self._rotations.lost(stream)

    def losses(self, stream: str) -> int:
        """Append races lost on a stream since this process last wrote it."""
        return self._rotations.losses(stream)

    def _not_before_latest(self, state: State | None, now: str) -> State | None:
        """The state, at the latest time that the clock has shown.

        A hold or window that ended by then stays ended when the clock goes back.
        """
        self._latest = max(self._latest, now)
        if state is None or now == self._latest or state.time >= self._latest:
            return state
        return state.moved(state.head, self._latest, state.totals)

    def _decide_all(
        self,
        stream: str,
        submissions: Sequence[Submission],
        now: str,
        before: State | None,
        draft: Draft,
        named: dict[int, Row],
    ) -> Plan | None:
        found = self._cache.find(stream, before, ledger_keys(submissions))
        found |= self._settlements(stream, submissions, found)
        self._carry(draft, now)
        not_asked_for, decisions = len(draft.entries), []
        for submission in submissions:
            command = submission.command
            outcome = _decide(draft.state, command, found, now, named)
            if isinstance(outcome, Admitted):
                outcome = self._check_open_holds(outcome, command, draft, now)
            if isinstance(outcome, Admitted):
                draft.add(outcome)
                if isinstance(command, KeyedCommand):
                    number = outcome.state.head.sequence
                    found[command.ledger_key] = Row(number, outcome.entry.hash, outcome.entry.body)
                elif before is not None:
                    before = self._with_new_scopes(before, draft, submissions, named)
                    if before is None:
                        self._cache.mark_stale(stream)
                        return None
                self._carry(draft, now)
            decisions.append((submission, outcome))
        if len(draft.entries) == not_asked_for:
            return self._plan_nothing(stream, before, decisions)
        return self._plan_append(stream, decisions, before, draft)

    def _carry(self, draft: Draft, now: str) -> None:
        """Add an entry that lists what is open, if windows do not count it yet. Raises LedgerCorrupt."""
        state = draft.state
        if state is not None and state.frozen is None and state.must_carry:
            draft.add(carried.carried(state, self._open_parts(state, draft.entries), now))

    def _blobs_to_carry(self, state: State, new: Sequence[NewEntry] = ()) -> tuple[str, ...]:
        """The count blobs that `_carry` needs; none when it adds no entry."""
        if state.frozen is not None or not state.must_carry:
            return ()
        scopes = dict.fromkeys(carried.scopes(state, self._open_parts(state, new)))
        return state.blob_names(scopes)

    def _check_open_holds(self, admitted: Admitted, command: Command, draft: Draft, now: str) -> Decision:
        """Refuse a hold when its principal already has as many open holds as one principal may have."""
        state = draft.state
        if state is None or not isinstance(command, ChargeCommand):
            return admitted
        stored = state.head.sequence - len(draft.entries)
        try:
            self._hold_owners.check(state, command, now, stored, self._rows(state, draft.entries))
        except TooManyHolds as error:
            return Refused(error, state)
        return admitted

    def _open_parts(self, state: State, new: Sequence[NewEntry]) -> dict[str, Any]:
        """Open holds and sessions. `new`: the last entries of `state`, which are not stored yet."""
        return carried.parts(state, self._rows(state, new))

    def _rows(self, state: State, new: Sequence[NewEntry]) -> Callable[[int], Row | None]:
        """A lookup of entries by number, in the store and in `new`, which is not stored yet."""
        stored = state.head.sequence - len(new)

        def row(number: int) -> Row | None:
            if number > stored:
                entry = new[number - stored - 1]
                return Row(number, entry.hash, entry.body)
            last = json.loads(new[0].body)["prev"] if new else state.head.hash
            return row_at(self._store, state.stream, Head(stored, last), number)

        return row

    def _settlements(
        self, stream: str, submissions: Sequence[Submission], found: dict[str, Row]
    ) -> dict[str, Row]:
        """The settlements of holds that are asked for again."""
        holds = [
            found[each.command.ledger_key].sequence
            for each in submissions
            if isinstance(each.command, ChargeCommand)
            and each.command.prepared.expires_in_s is not None
            and each.command.ledger_key in found
        ]
        return self._store.find(stream, [settlement_key(number) for number in holds]) if holds else {}

    def _with_new_scopes(
        self, before: State, draft: Draft, submissions: Sequence[Submission], named: dict[int, Row]
    ) -> State | None:
        """Read the totals that the commands need after one of them changed the scopes. None: read again."""
        state = draft.state
        if state is None or state.totals.complete:
            return before
        # Totals that start in this batch are not stored yet: they stay new, and so are written.
        names = (*state.standing, *blobs_needed(state, submissions, named))
        names = (*names, *self._blobs_to_carry(state, draft.entries))
        wider = with_blobs(self._store, before, [name for name in names if not in_view(state.totals, name)])
        if wider is not None:
            life, windows = {**wider.totals.life, **state.totals.life}, dict(wider.totals.windows)
            totals = Totals(state.totals.grid, life, windows | dict(state.totals.windows))
            draft.state = replace_totals(state, totals)
        return wider

    def _plan_append(
        self, stream: str, decisions: list[tuple[Submission, Outcome]], before: State | None, draft: Draft
    ) -> Plan:
        state = draft.state
        blobs = state.blobs(before) if state else {}
        expected = before.head if before else EMPTY_HEAD
        rotation = self._rotations.get(stream)
        if rotation is not None:
            blobs[TURN_BLOB] = rotation.blob()
        return Plan(stream, decisions, Write(stream, expected, draft.entries, blobs), state)

    def _plan_nothing(
        self, stream: str, before: State | None, decisions: list[tuple[Submission, Outcome]]
    ) -> Plan | None:
        """Nothing to append. Checks that the refusals were not based on a stale state."""
        head, _ = self._store.load(stream, [])
        if head != (before.head if before else EMPTY_HEAD):
            self._cache.mark_stale(stream)
            return None
        return Plan(stream, decisions, None, before)

    def _plan_freeze(
        self, stream: str, submissions: Sequence[Submission], now: str, lost: LedgerRolledBack
    ) -> Plan | None:
        """Record in the ledger that it was rolled back: every process then stops, after restarts too.

        None when another process has recorded the same loss, or a later one. This process then follows that
        record, so that it also sees a person's decision about it.
        """
        state, known = load_state(self._store, stream), self._cache.known(stream)
        if state is None or known is None:
            raise lost
        if state.frozen is not None and state.frozen.sequence >= known.head.sequence:
            self._cache.keep(state)
            return None
        log.critical(
            "%s was rolled back: entry %d is gone; the stream is frozen now", stream, known.head.sequence
        )
        frozen = decide(state, FreezeCommand(known.head), None, now)
        if not isinstance(frozen, Admitted):
            raise lost
        draft = Draft(state)
        draft.add(frozen)
        decisions: list[tuple[Submission, Outcome]] = [(each, lost) for each in submissions]
        return self._plan_append(stream, decisions, state, draft)

    def _named_entries(
        self, stream: str, state: State | None, submissions: Sequence[Submission]
    ) -> dict[int, Row]:
        """The entries that commands refer to, by number."""
        found: dict[int, Row] = {}
        for number in {each.command.entry_number for each in submissions}:
            if number is not None and state is not None and 0 < number <= state.head.sequence:
                row = row_at(self._store, stream, state.head, number)
                found |= {} if row is None else {number: row}
        return found


def _decide(
    state: State | None, command: Command, found: dict[str, Row], now: str, named: dict[int, Row]
) -> Outcome:
    """One command's outcome. A fault in the decision is an InternalError, and charges nothing."""
    if isinstance(command, LookCommand):
        return Refused(NotFound("nothing was asked"), state)
    row = found.get(command.ledger_key) if isinstance(command, KeyedCommand) else None
    number = command.entry_number
    about = None if number is None else named.get(number)
    settled = found.get(settlement_key(row.sequence)) if row and isinstance(command, ChargeCommand) else None
    try:
        return decide(state, command, row, now, about, settled)
    except Exception:
        log.exception("a decision failed; nothing was charged")
        return Refused(InternalError("the service could not decide; nothing was charged"), state)
