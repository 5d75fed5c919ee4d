"""Adopts streams of an earlier version: their entries are counted again, once.

Such streams have no marks (stores.marks), so a stored total may be an old one. The entries are certain: each
names the hash of the one before it. They are folded page by page, and the stored state must equal the result.
Then all of it is written again, with marks, and with an entry of the present format. From then on a worker of
the earlier version finds that the stream changed, cannot read its state, and refuses: it never writes a total
without a mark beside those that have one.
"""

import logging
from dataclasses import replace
from typing import Final

from odometer_accountant.errors import LedgerCorrupt, OdometerError, StoreUnavailable
from odometer_accountant.ledger.decisions import admit
from odometer_accountant.ledger.entries import FORMAT, LATEST
from odometer_accountant.ledger.entry_parts import Entry
from odometer_accountant.ledger.entry_types import entry_type
from odometer_accountant.ledger.findings import Finding
from odometer_accountant.ledger.fold import apply
from odometer_accountant.ledger.state import State
from odometer_accountant.ledger.stored_counts import BESIDE, compare, counts_in, counts_of
from odometer_accountant.scopes import holds_losses
from odometer_accountant.stores import Head, Store, Write

log = logging.getLogger("odometer.ledger")

PAGE: Final = 128
"""Entries read at once: one may have some hundred kB."""
_AT_ONCE: Final = 512
"""Blobs read at once."""
_ATTEMPTS: Final = 20
_STREAMS: Final = 128


def adopt(store: Store, stream: str) -> None:
    """Count a stream of an earlier version again and mark it. Does nothing where it has marks.

    Raises LedgerCorrupt where the stored state differs from the entries, StoreUnavailable when unsure.
    Takes about a minute for a million entries.
    """
    for _ in range(_ATTEMPTS):
        head, _blobs = store.load(stream, [])
        if head.marked:
            return
        if not holds_losses(stream):
            if store.append([Write(stream, head, [], adopts=True)]) == [True]:
                return
            continue
        log.warning(
            "%s was written by an earlier version: its %d entries are counted again", stream, head.sequence
        )
        state = _folded(store, stream, head)
        if state is None or not _compared(store, state):
            continue
        document = {"type": "recounted", "time": state.time, "principal": "service"}
        after = admit(state, document, version=LATEST)
        if store.append([Write(stream, head, [after.entry], after.state.blobs(), adopts=True)]) == [True]:
            log.warning("%s was counted again: all that is stored is what its entries come to", stream)
            return
    raise StoreUnavailable(f"{stream} changed each time it was counted: retry")


def adopt_all(store: Store) -> None:
    """`adopt` every stream. A stream that cannot be counted is logged, and the others are adopted."""
    after = ""
    while names := store.streams(after, _STREAMS):
        for name in names:
            try:
                adopt(store, name)
            except OdometerError as error:
                log.exception("%s is refused: %s", name, error.detail)
        after = names[-1]


@entry_type("recounted")
def _recounted(state: State, head: Head, entry: Entry) -> State:
    """All entries were counted again: the largest limits that earlier formats leave out are known."""
    budgets = {
        name: replace(budget, told=budget.largest is not None) for name, budget in state.budgets.items()
    }
    return replace(state, head=head, time=entry["time"], budgets=budgets)


def _folded(store: Store, stream: str, head: Head) -> State | None:
    """The state that the entries fold into; None when the stream was appended to meanwhile."""
    state: State | None = None
    after = 0
    while after < head.sequence:
        rows = store.entries(stream, after, min(PAGE, head.sequence - after))
        if not rows:
            raise LedgerCorrupt(f"entries of {stream} after {after} are missing: run odometer verify")
        for row in rows:
            state = apply(state, row.hash, row.body)
        after = rows[-1].sequence
    if state is None or state.head != head:
        if store.load(stream, [])[0] != head:
            return None
        raise LedgerCorrupt(f"the last entry of {stream} is not the one its head names: run odometer verify")
    if state.stream != stream:
        raise LedgerCorrupt(f"the ledger of {stream} is that of {state.stream}: run odometer verify")
    if state.version > FORMAT:  # only versions that write marks write such entries
        raise LedgerCorrupt(f"the marks of {stream} are gone: run odometer verify")
    return state


def _compared(store: Store, state: State) -> bool:
    """Whether the stream still ends where it was counted. Raises LedgerCorrupt where a blob differs."""
    names = sorted(counts_of(state) | set(counts_in(store, state.stream)))
    ours = state.blobs()
    for start in range(0, len(names) or 1, _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        stored = store.examine(state.stream, [*BESIDE, *some])
        if stored.head != state.head:
            return False
        compare(state, some, stored, _refuse, ours)
    return True


def _refuse(finding: Finding) -> None:
    raise LedgerCorrupt(
        f"{finding}: nothing is admitted until a person has looked; run odometer verify",
        sequence=finding.sequence,
    )
