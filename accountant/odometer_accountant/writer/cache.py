"""Cached states of streams, and the last known head of every stream that this process has read or written."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from time import monotonic
from typing import Final

from odometer_accountant.ledger.snapshot import (
    KnownHead,
    catch_up,
    check_history,
    load_state,
    recount_recent,
)
from odometer_accountant.ledger.state import State
from odometer_accountant.ledger.totals import Totals
from odometer_accountant.stores import EMPTY_HEAD, Head, Row, Store
from odometer_accountant.writer.batch import Submission, blobs_needed, ledger_keys, replace_totals
from odometer_accountant.writer.rotation import TURN_BLOB, StreamRotations
from odometer_accountant.writer.stats import WriterStats

STREAMS_CACHED: Final = 1024
SCOPES_CACHED: Final = 512
"""A state with the totals of more scopes is cached without those that only some charges need."""


class StateCache:
    """States and known heads by stream. For the writer's thread only, except `known` and `streams`.

    A known head is never dropped: every later read of the stream is checked against it.
    """

    def __init__(self, store: Store, stats: WriterStats) -> None:
        self.store = store
        self.rotations = StreamRotations()
        self._stats = stats
        self._states: OrderedDict[str, State] = OrderedDict()
        self._known: dict[str, KnownHead] = {}
        self._stale: set[str] = set()
        """Streams whose cached state may be stale: others may have written to them."""
        self._lookup: tuple[str, Head, dict[str, Row | None]] | None = None
        """The stream, the head and the results of the last key lookup that was made together with a head."""

    def state(self, stream: str, submissions: Sequence[Submission] = ()) -> State | None:
        """The state, with the totals that the commands need if they had to be read again.

        None for a stream that does not exist. Raises LedgerRolledBack when known entries are gone.
        """
        state = self._states.get(stream)
        if state is not None and stream in self._stale:
            state = self._catch_up(stream, state, submissions)
        if state is not None:
            return state
        state = load_state(self.store, stream)
        if state is not None and stream not in self._known:
            recount_recent(self.store, state)
        check_history(self.store, stream, self._known.get(stream), state)
        if state is not None:  # a name that nobody opened is not worth remembering
            self._note_frozen(state)
            self._known[stream] = KnownHead.of(state)
        return state

    def current(self, stream: str) -> State | None:
        """The state at the head that the store has now."""
        state = self.state(stream)
        head, _ = self.store.load(stream, [])
        if head != (state.head if state else EMPTY_HEAD):
            self.mark_stale(stream)
            state = self.state(stream)
        if state is not None:
            self.keep(state)
        return state

    def keep(self, state: State) -> None:
        """Cache a state that the store has, and take its head as known."""
        stream = state.stream
        self._note_frozen(state)
        self._known[stream] = KnownHead.of(state)
        self._states[stream] = _trimmed(state)
        self._stale.discard(stream)
        self._states.move_to_end(stream)
        if len(self._states) > STREAMS_CACHED:
            self._states.popitem(last=False)

    def trust(self, stream: str, head: KnownHead) -> None:
        """Take a head that someone else saw as known, unless one is known already."""
        self._known.setdefault(stream, head)

    def known(self, stream: str) -> KnownHead | None:
        """The last known head of a stream, None for one never seen. For any thread."""
        return self._known.get(stream)

    def streams(self) -> list[str]:
        """Every stream with a known head. For any thread."""
        return list(self._known)

    def forget(self, stream: str) -> None:
        """Drop the cached state, never the known head."""
        self._states.pop(stream, None)
        self._stale.discard(stream)

    def mark_stale(self, stream: str) -> None:
        """Read the stream's new entries before the next decision: others may have written to it."""
        if stream in self._states:
            self._stale.add(stream)

    def find(self, stream: str, state: State | None, keys: Sequence[str]) -> dict[str, Row]:
        """The entries that have these keys.

        A key without an entry at a head has none as long as the stream ends there, and nothing is appended
        if it does not. So the results of a lookup made together with that head are used again.
        """
        if not keys:
            return {}
        if self._lookup is not None and state is not None:
            searched, head, found = self._lookup
            if (searched, head) == (stream, state.head) and all(key in found for key in keys):
                return {key: row for key in keys if (row := found[key]) is not None}
        return self.store.find(stream, keys)

    def _catch_up(self, stream: str, old: State, submissions: Sequence[Submission]) -> State | None:
        """The cached state moved on to the store's head. None: everything must be read again."""
        found = None
        if self._known[stream].head == old.head:
            names = (*old.standing, *blobs_needed(old, submissions, {}))
            keys = ledger_keys(submissions)
            found = catch_up(self.store, old, names, [TURN_BLOB], keys)
        self.forget(stream)
        if found is None:
            return None
        state, view = found
        self.keep(state)
        self._lookup = (stream, state.head, dict.fromkeys(keys) | view.found)
        rotation = self.rotations.get(stream)
        if rotation is not None and state.head != old.head:
            rotation.saw(view.blobs.get(TURN_BLOB), monotonic())
        return state

    def _note_frozen(self, state: State) -> None:
        if state.frozen is not None:
            self._stats.froze(state.stream)
        elif self._stats.frozen:
            self._stats.thawed(state.stream)


def _trimmed(state: State) -> State:
    """Without the totals that only some charges need, when there are many."""
    totals = state.totals
    if len(totals.life) <= SCOPES_CACHED and state.composition != "by_unit":
        return state if not totals.complete else replace_totals(state, replace(totals, complete=False))
    standing = set(state.standing)
    life = {scope: loss for scope, loss in totals.life.items() if f"totals/{scope}" in standing}
    windows = {key: spent for key, spent in totals.windows.items() if f"window/{key}" in standing}
    return replace_totals(state, Totals(totals.grid, life, windows))
