"""Recomputes every chain and every total from the entries, and reports each stored value that differs.

It only reads, page by page: memory grows with the scopes of one stream, not with its entries. A stream may be
appended to meanwhile. The store alone cannot show that a whole ledger was cut back or rewritten; the sequence
and hash of a receipt that is kept elsewhere can.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from odometer_accountant.errors import LedgerCorrupt, UnknownDataset
from odometer_accountant.ledger.findings import Finding
from odometer_accountant.ledger.state import State
from odometer_accountant.ledger.stored_counts import BESIDE, as_bytes, compare, counts_in, counts_of
from odometer_accountant.scopes import holds_losses, shard_parent, shard_stream
from odometer_accountant.stores import EMPTY_HEAD, Head, Row, Store
from odometer_accountant.stores.marks import HEAD
from odometer_accountant.verify.recount import Recount
from odometer_accountant.verify.shards import BudgetHistory

STORE: Final = "~store"
"""The stream name in the verdict on the store itself."""
PAGE: Final = 128
"""Entries, streams or blobs read at once: an entry may have some hundred kB."""
FINDINGS_MAX: Final = 100
"""Findings of a stream that are kept; the rest is counted."""
_SCOPES_AT_ONCE: Final = 64
_ROUNDS_MAX: Final = 20

Progress = Callable[[int], None]
"""Called with the number of entries that were read since the last call."""


@dataclass(frozen=True)
class Verdict:
    """The result for one stream: `ok`, or the places where it contradicts itself."""

    stream: str
    head: Head
    findings: tuple[Finding, ...]
    more: int = 0
    """Findings beyond those kept."""

    @property
    def ok(self) -> bool:
        return not self.findings

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "stream": self.stream,
            "ok": self.ok,
            "entries": self.head.sequence,
            "hash": self.head.hash,
            "findings": [finding.document() for finding in self.findings],
            "more": self.more,
        }


def verify(
    store: Store, names: Iterable[str] | None = None, progress: Progress | None = None
) -> Iterator[Verdict]:
    """A verdict for each stream, or for those named; first of all one on the store if that is damaged.

    Raises StoreUnavailable when the store cannot be read, UnknownDataset for a name without a stream.
    """
    if names is None:
        yield from _store_itself(store)
    budget_history = BudgetHistory(store)
    for name in all_streams(store) if names is None else names:
        yield _Walk(store, name, progress or (lambda _: None), budget_history).verdict()


def _store_itself(store: Store) -> Iterator[Verdict]:
    """A verdict on the store itself, if it is damaged."""
    try:
        found = store.check()
    except LedgerCorrupt as error:
        found = [error.detail]
    if found:
        yield Verdict(STORE, EMPTY_HEAD, tuple(Finding(STORE, what) for what in found))


def all_streams(store: Store) -> Iterator[str]:
    """The name of every stream, datasets and others."""
    after = ""
    while page := store.streams(after, PAGE):
        yield from page
        after = page[-1]


@dataclass
class _Walk:
    """One stream, read from its first entry on."""

    store: Store
    stream: str
    progress: Progress
    budget_history: BudgetHistory
    findings: list[Finding] = field(default_factory=list)
    more: int = 0

    def __post_init__(self) -> None:
        self.recount = Recount(self.stream, self.report)
        self._budgets_seen = 0

    def report(self, finding: Finding) -> None:
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)
        else:
            self.more += 1

    def verdict(self) -> Verdict:
        head = EMPTY_HEAD
        try:
            stored = self.store.examine(self.stream, [])
            head = stored.head
            if head == EMPTY_HEAD and not stored.faults:
                raise UnknownDataset(f"there is no stream {self.stream[:80]!r} in this store")
            self._to(head)
            if HEAD in stored.faults and head == EMPTY_HEAD:
                self.report(Finding(self.stream, f"it {stored.faults[HEAD]}"))
            elif holds_losses(self.stream):
                self._compare()
                self._look_for_shards()
            if HEAD in stored.faults and not self.findings:
                self.report(Finding(self.stream, f"it {stored.faults[HEAD]}", head.sequence))
        except LedgerCorrupt as error:
            self.report(Finding(self.stream, f"cannot be read: {error.detail}"))
        reached = Head(self.recount.sequence, self.recount.hash) if self.recount.sequence else head
        return Verdict(self.stream, reached, tuple(self.findings), self.more)

    def _look_for_shards(self) -> None:
        """Report a shard that the dataset lists and the store does not have: its totals are lost."""
        state = self._state()
        for shard in state.opened:
            head = self.store.examine(shard_stream(state.dataset.name, shard), []).head
            if head == EMPTY_HEAD:
                self.report(Finding(self.stream, f"its shard {shard} was opened, and is not in the store"))

    def _to(self, head: Head) -> None:
        """Read on up to `head`."""
        at = self.recount
        if at.sequence == head.sequence:
            return
        if at.sequence > head.sequence:
            raise LedgerCorrupt(f"it had {at.sequence} entries and has {head.sequence} now")
        while at.sequence < head.sequence:
            before = at.sequence
            rows = self._rows(before, min(PAGE, head.sequence - before))
            for row in rows:
                at.take(row)
                self._check_budgets(row)
            self._look_up(rows)
            if at.sequence == before:
                at.skip(head.sequence)
            self.progress(at.sequence - before)
        if at.hash and at.hash != head.hash:
            self.report(
                Finding(
                    self.stream,
                    f"the store's head has the hash {head.hash[:16]}…, its last entry {at.hash[:16]}…",
                    head.sequence,
                )
            )

    def _rows(self, after: int, limit: int) -> list[Row]:
        try:
            return [_plain(row) for row in self.store.entries(self.stream, after, limit)]
        except LedgerCorrupt:
            # One at a time, to find the lost ones: they leave a gap in the numbers.
            return [row for sequence in range(after, after + limit) for row in self._one(sequence)]

    def _one(self, after: int) -> list[Row]:
        try:
            return [_plain(row) for row in self.store.entries(self.stream, after, 1)]
        except LedgerCorrupt:
            return []

    def _check_budgets(self, row: Row) -> None:
        """Report a shard whose budgets are not its dataset's."""
        if shard_parent(self.stream) is None or self.recount.lost:
            return
        what, self._budgets_seen = self.budget_history.fault(self.stream, row.body, self._budgets_seen)
        if what:
            self.report(Finding(self.stream, what, row.sequence))

    def _look_up(self, rows: list[Row]) -> None:
        """Report a charge that is not found by its idempotency key: a retry of it would be charged again."""
        wanted = self.recount.take_keys()
        there = {row.sequence for row in rows}
        found = self._found(list(wanted)) if wanted else {}
        for key, sequence in wanted.items():
            row = found.get(key)
            if sequence in there and (row is None or row.sequence != sequence):
                where = "leads nowhere" if row is None else f"leads to entry {row.sequence}"
                self.report(Finding(self.stream, f"its idempotency key {where}", sequence))

    def _found(self, keys: list[str]) -> dict[str, Row]:
        try:
            return self.store.find(self.stream, keys)
        except LedgerCorrupt:
            # One at a time, to find the key that leads nowhere.
            return (
                {}
                if len(keys) == 1
                else {key: row for one in keys for key, row in self._found([one]).items()}
            )

    def _compare(self) -> None:
        """Compare the stored configuration and totals with the entries, each at one moment of the store."""
        if self.recount.lost:
            self.report(Finding(self.stream, f"totals were not compared: {self.recount.lost}"))
            return
        listed = set(counts_in(self.store, self.stream))
        done: set[str] = set()
        for _ in range(_ROUNDS_MAX):
            pending = sorted((listed | counts_of(self._state())) - done)
            if not pending:
                return
            for start in range(0, len(pending), _SCOPES_AT_ONCE):
                self._compare_some(pending[start : start + _SCOPES_AT_ONCE])
            done.update(pending)

    def _compare_some(self, names: list[str]) -> None:
        stored = self.store.examine(self.stream, [*BESIDE, *names])
        self._to(stored.head)
        state = self._state()
        compare(state, names, stored, self.report, state.blobs())

    def _state(self) -> State:
        state = self.recount.state
        if state is None:
            raise LedgerCorrupt("it has no first entry that could be read")
        return state


def _plain(row: Row) -> Row:
    return replace(row, body=as_bytes(row.body))
