"""Reads the current state of a dataset from the store."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Self

from odometer_accountant.errors import OdometerError, StoreUnavailable, UnknownDataset
from odometer_accountant.ledger.commands import Command
from odometer_accountant.ledger.dataset import Dataset
from odometer_accountant.ledger.decide import frozen_error, lost_shard
from odometer_accountant.ledger.decisions import Admitted, Refused
from odometer_accountant.ledger.snapshot import check_history, load_state, with_blobs
from odometer_accountant.ledger.state import State
from odometer_accountant.scopes import shard_number, shard_parent, shard_stream
from odometer_accountant.service.request_checks import is_slug, unknown_dataset, valid_principal
from odometer_accountant.stores import Store, open_store
from odometer_accountant.writer.batch import Outcome
from odometer_accountant.writer.rollback_monitor import RollbackMonitor
from odometer_accountant.writer.writer import LedgerWriter, utc_now

_DATASETS_KEPT: Final = 10_000
_NAMES_COMPARED: Final = 100
"""Names of datasets that a misspelt one is compared with: it takes a millisecond."""
READS_MAX: Final = 20
"""How often a stream that moves on between two reads is read anew."""


class StateReader:
    """A store, its writer, and how their states are asked for. Safe to call from several threads."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], str] = utc_now,
        on_death: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.store = store
        self.clock = MonotonicClock(clock)
        self._datasets: dict[str, Dataset] = {}
        self.writer = LedgerWriter(store, self.clock.as_it_is, on_death)  # which keeps the latest itself
        self.rollback_monitor = RollbackMonitor(store, self.writer)

    @classmethod
    def open(cls, url: str) -> Self:
        """On the store at `url`, for example `sqlite:///data/ledger.sqlite`."""
        return cls(open_store(url))

    def close(self) -> None:
        """Answer what waits, then let go of the store."""
        self.rollback_monitor.close()
        self.writer.close()
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def state(self, name: str) -> State:
        """The dataset as the store has it now. Raises UnknownDataset; LedgerRolledBack when it is frozen."""
        state = self._looked_at(name)
        if state.frozen is not None:
            raise frozen_error(state)
        return state

    def _looked_at(self, name: str) -> State:
        """As `state`, frozen or not: for what a person looks at, and for what does not show a loss."""
        state = self._read(name) if is_slug(name) else None
        if state is None:
            raise self.unknown(name)
        return state

    def unknown(self, name: str) -> UnknownDataset:
        """The refusal of a name that no dataset has, with the nearest of the first datasets by name."""
        return unknown_dataset(name, filter(is_slug, self.store.streams("", _NAMES_COMPARED)))

    def _unmoved(self, state: State) -> bool:
        """Whether the store still has the end that a state was read at. Raises LedgerRolledBack."""
        seen = self.writer.known(state.stream)
        if self.store.load(state.stream, [])[0] != state.head:
            return False
        try:
            check_history(self.store, state.stream, seen, state)
        except OdometerError:
            self.writer.check(state.stream)
            raise
        return True

    def _read(self, stream: str) -> State | None:
        seen = self.writer.known(stream)  # before the store is read: the writer moves on meanwhile
        state = load_state(self.store, stream)
        try:
            check_history(self.store, stream, seen, state)
        except OdometerError:
            self.writer.check(stream)  # which freezes it, for every process
            raise
        return state

    def _shard(self, dataset: State, stream: str, names: Sequence[str]) -> State:
        """A shard's counts under the budgets that its dataset has now."""
        state = self._with(stream, names)
        if state is None:  # nobody of that shard was charged yet
            shard = shard_number(stream)
            if shard in dataset.opened:
                raise lost_shard(dataset, shard)
            empty = replace(dataset.totals, life={}, windows={}, complete=True)
            return replace(dataset, totals=empty, shard=shard)
        return replace(state, budgets=dataset.budgets, closed=dataset.closed)

    def _with(self, stream: str, names: Sequence[str]) -> State | None:
        for _ in range(READS_MAX):
            state = self._read(stream)
            ready = None if state is None else with_blobs(self.store, state, names)
            if state is None or ready is not None:
                return ready
        raise StoreUnavailable(f"{stream} moved on each time it was read: ask again")

    def _bound(self, name: str) -> Dataset:
        """The settings that a dataset's first entry fixed for good; read once."""
        known = self._datasets.get(name)
        if known is None:
            known = self.state(name).dataset
            if len(self._datasets) >= _DATASETS_KEPT:
                self._datasets.clear()
            self._datasets[name] = known
        return known

    def _streams_of(self, name: str) -> Iterator[State]:
        """The dataset and those of its shards that exist, each as the store has it now.

        Raises LedgerRolledBack when one of them is frozen or has lost entries: the others are not all.
        """
        state = self.state(name)
        yield state
        for shard in range(state.dataset.shards):
            part = self._read(shard_stream(name, shard))
            if part is None:
                if shard in state.opened:
                    raise lost_shard(state, shard)
                continue
            if part.frozen is not None:
                raise frozen_error(part)
            yield part

    def _frozen_streams(self, name: str) -> list[str]:
        """Those of the dataset and its shards that are frozen."""
        shards = range(self._looked_at(name).dataset.shards)
        streams = [name, *(shard_stream(name, shard) for shard in shards)]
        states = (load_state(self.store, stream) for stream in streams)
        return [state.stream for state in states if state is not None and state.frozen is not None]

    def _not_lost(self, stream: str) -> None:
        """Raise LedgerRolledBack when a stream has lost entries: what is not in it may have been."""
        state = self._read(stream)
        if state is not None and state.frozen is not None:
            raise frozen_error(state)

    def _change(self, name: str, command: Command) -> State:
        decision = self._wait(name, command)
        if isinstance(decision, Admitted):
            return self.state(shard_parent(name) or name)
        error = decision.error if isinstance(decision, Refused) else decision
        raise error if isinstance(error, OdometerError) else TypeError(f"unexpected outcome {decision!r}")

    def _wait(self, stream: str, command: Command) -> Outcome:
        valid_principal(command.principal)
        sink = BlockingReply()
        self.writer.submit(stream, command, sink, None)
        return sink.wait()


class MonotonicClock:
    """A clock that never goes back: it stands still while the given clock is behind its latest time.

    Between two entries a ledger's time is the clock's. So a hold or a window that has ended stays ended.
    """

    def __init__(self, clock: Callable[[], str]) -> None:
        self._clock = clock
        self._latest = ""
        self._lock = threading.Lock()

    def __call__(self) -> str:
        self.as_it_is()
        return self._latest

    def as_it_is(self) -> str:
        """The current time of the clock; no later reading is earlier."""
        now = self._clock()
        with self._lock:
            self._latest = max(self._latest, now)
        return now


class BlockingReply:
    """A sink for one thread that waits. Unbounded in time on purpose: the writer always answers or ends."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._outcome: Outcome | None = None

    def deliver(self, answers: Sequence[tuple[Any, Outcome]]) -> None:
        self._outcome = answers[0][1]
        self._done.set()

    def wait(self) -> Outcome:
        self._done.wait()
        if self._outcome is None:
            raise StoreUnavailable("the ledger gave no answer")
        return self._outcome
