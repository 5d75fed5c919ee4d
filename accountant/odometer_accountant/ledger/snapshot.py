"""Reads the state of a stream from the store, and checks it against the last known head."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from odometer_accountant.errors import LedgerCorrupt, LedgerRolledBack, StoreUnavailable
from odometer_accountant.ledger.adoption import adopt
from odometer_accountant.ledger.blobs import (
    CONFIG_BLOB,
    HOLDS_BLOB,
    LOSS_DICTIONARY_BLOB,
    SESSIONS_BLOB,
    TOTALS,
    WINDOWS,
)
from odometer_accountant.ledger.checkpoints import last_checkpoint
from odometer_accountant.ledger.entries import canonical, check_format, content, contents, entry_hash
from odometer_accountant.ledger.entry_parts import Entry
from odometer_accountant.ledger.entry_types import loss_change
from odometer_accountant.ledger.session_state import Sessions, load
from odometer_accountant.ledger.state import State, read_holds
from odometer_accountant.ledger.stored_counts import BESIDE
from odometer_accountant.ledger.totals import InWindow, Totals
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.scopes import DATASET_SCOPE
from odometer_accountant.stores import EMPTY_HEAD, Head, Row, Store, View

_READS: Final = 20
"""Attempts to read a state whose stream is appended to between two reads."""
_TOGETHER: Final = 512
"""Blobs read at once."""
_CLOSE: Final = 32
"""Most entries that are read at once when only the first and the last of them are needed."""


@dataclass(frozen=True)
class KnownHead:
    """The end of a stream as this process last saw it, and the time of the last accepted loss."""

    head: Head
    accepted_loss: str = ""

    @classmethod
    def of(cls, state: State) -> "KnownHead":
        return cls(state.head, state.accepted_loss.time if state.accepted_loss else "")


def load_state(store: Store, stream: str, names: Iterable[str] = ()) -> State | None:
    """A stream's state with its standing counts and the named blobs; None when there is no such stream.

    Raises StoreUnavailable when unsure, LedgerCorrupt when head, entry and blobs contradict each other.
    """
    for _ in range(_READS):
        head, blobs = store.load(stream, BESIDE)
        if head == EMPTY_HEAD:
            return None
        if not head.marked:
            adopt(store, stream)
            continue
        state = _restored(store, stream, head, blobs)
        complete = state and with_blobs(store, state, (*state.standing, *names))
        if complete is not None:
            return complete
    raise StoreUnavailable(f"{stream} changed each time it was read: retry")


def _restored(store: Store, stream: str, head: Head, blobs: Mapping[str, bytes]) -> State | None:
    rows = store.entries(stream, head.sequence - 1, 1)
    if not rows or rows[0].hash != head.hash or entry_hash(rows[0].body) != head.hash:
        now, _ = store.load(stream, [])
        if now != head:
            return None
        raise LedgerCorrupt(
            f"the last entry of {stream} ({head.sequence}) is missing or changed: run odometer verify"
        )
    if CONFIG_BLOB not in blobs:
        raise LedgerCorrupt(f"the configuration of {stream} is missing: run odometer verify")
    time, holds, loss_dictionary = (
        _time_of(stream, rows[0]),
        blobs.get(HOLDS_BLOB),
        blobs.get(LOSS_DICTIONARY_BLOB),
    )
    state = State.restore(head, time, blobs[CONFIG_BLOB], holds, loss_dictionary, blobs.get(SESSIONS_BLOB))
    if state.stream != stream:
        raise LedgerCorrupt(f"the ledger of {stream} is that of {state.stream}: run odometer verify")
    return state


def with_blobs(store: Store, state: State, names: Iterable[str]) -> State | None:
    """The state with the counts in the named blobs too; None when its stream was appended to meanwhile."""
    totals = state.totals
    if totals.complete:
        return state
    missing = [name for name in dict.fromkeys(names) if not in_view(totals, name)]
    if not missing:
        return state
    life, windows = dict(totals.life), dict(totals.windows)
    for start in range(0, len(missing), _TOGETHER):
        some = missing[start : start + _TOGETHER]
        head, blobs = store.load(state.stream, some)
        if head != state.head:
            return None
        if not head.marked:
            raise LedgerCorrupt(f"the mark of the end of {state.stream} is gone: run odometer verify")
        _read_counts(state, some, blobs, life, windows)
    return state.moved(state.head, state.time, Totals(totals.grid, life, windows))


def catch_up(
    store: Store, state: State, names: Iterable[str], beside: Sequence[str] = (), keys: Sequence[str] = ()
) -> tuple[State, View] | None:
    """The present state with the named counts, from an earlier state: cheaper than `load_state`.

    With it comes the view of the store, with the blobs named in `beside` and the entries of `keys`. None when
    the state is not certain, for example because budgets changed or the last entry of `state` is gone: then
    `load_state` must be called.
    """
    names = list(dict.fromkeys(names))
    if len(names) > _TOGETHER:
        return None
    stream, before = state.stream, state.head
    view = store.view(stream, [*BESIDE, *beside, *names], before.sequence - 1, _CLOSE, keys)
    head, blobs = view.head, view.blobs
    if not head.marked or head.sequence < before.sequence or blobs.get(CONFIG_BLOB) != state.config():
        return None
    if state.shard is not None and blobs.get(LOSS_DICTIONARY_BLOB) != canonical(
        {"losses": state.loss_dictionary.dump()}
    ):
        return None  # counts are multiples of losses that this state lacks, or has under other numbers
    rows = {row.sequence: row for row in view.rows}
    if head.sequence not in rows:
        rows |= {row.sequence: row for row in store.entries(stream, head.sequence - 1, 1)}
    first, last = rows.get(before.sequence), rows.get(head.sequence)
    if first is None or last is None or (first.hash, last.hash) != (before.hash, head.hash):
        return None
    if entry_hash(last.body) != head.hash:
        return None
    life: dict[str, Loss] = {}
    windows: dict[str, InWindow] = {}
    _read_counts(state, names, blobs, life, windows)
    totals = Totals(state.dataset.grid, life, windows)
    holds = _holds_of(stream, blobs.get(HOLDS_BLOB))
    sessions = _sessions_of(stream, blobs.get(SESSIONS_BLOB))
    time = _time_of(stream, last)
    return state.moved(head, time, totals, holds=holds, sessions=sessions, charges=0), view


def _sessions_of(stream: str, blob: bytes | None) -> Sessions:
    try:
        return load(blob)
    except (ValueError, TypeError, AttributeError) as error:
        raise LedgerCorrupt(f"the open sessions of {stream} cannot be read: run odometer verify") from error


def _holds_of(stream: str, blob: bytes | None) -> dict[int, str]:
    try:
        return read_holds(blob)
    except (ValueError, TypeError, AttributeError) as error:
        raise LedgerCorrupt(f"the open holds of {stream} cannot be read: run odometer verify") from error


def in_view(totals: Totals, name: str) -> bool:
    """Whether the totals hold the count of that blob."""
    if name.startswith(TOTALS):
        return name[len(TOTALS) :] in totals.life
    return name[len(WINDOWS) :] in totals.windows


def _read_counts(
    state: State,
    names: Sequence[str],
    blobs: Mapping[str, bytes],
    life: dict[str, Loss],
    windows: dict[str, InWindow],
) -> None:
    grid, always = state.dataset.grid, _from_the_start(state)
    # Many scopes have the same count: it is parsed once, and they share it.
    lost: dict[bytes | None, Loss] = {None: Loss.zero(grid)}
    within: dict[bytes | None, InWindow] = {None: InWindow("", Loss.zero(grid))}
    for name in names:
        blob = blobs.get(name)
        scope = name.removeprefix(TOTALS).removeprefix(WINDOWS)
        if blob is None and (scope == DATASET_SCOPE or name.removeprefix(TOTALS) in always):
            raise LedgerCorrupt(
                f"the totals of {scope} of {state.stream} are missing, which does not mean zero: "
                "run odometer verify"
            )
        try:
            if name.startswith(TOTALS):
                if blob not in lost:
                    lost[blob] = state.loss_dictionary.decode(grid, (blob or b"").decode("ascii"))
                life[scope] = lost[blob]
            else:
                if blob not in within:
                    within[blob] = InWindow.decode(grid, (blob or b"").decode("ascii"), state.loss_dictionary)
                windows[scope] = within[blob]
        except ValueError as error:
            raise LedgerCorrupt(f"the totals of {scope} cannot be read: {error}") from error


def _from_the_start(state: State) -> set[str]:
    """Scopes whose totals are stored from the start, so that a missing one is a fault."""
    return {f"partition/{name}" for name in state.partitions}


def _time_of(stream: str, row: Row) -> str:
    try:
        entry = content(row, stream)
        check_format(stream, entry.get("v"))
        return str(entry["time"])
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerCorrupt(
            f"entry {row.sequence} of {stream} cannot be read: run odometer verify"
        ) from error


def recount_recent(store: Store, state: State) -> None:
    """Raise LedgerCorrupt unless the dataset's stored total is the last checkpoint plus the entries after it.

    Called when a process first reads a dataset. It reads at most CHECKPOINT_EVERY entries, and finds a lost
    or lowered total before anything is admitted on it. `odometer verify` counts all entries.
    """
    name, head, grid = state.stream, state.head, state.dataset.grid
    checkpoint = last_checkpoint(head.sequence)
    after = max(0, checkpoint - 1)
    try:
        rows = store.entries(name, after, head.sequence - after)
        entries = list(contents(rows, name))
        if not rows or rows[-1].hash != head.hash:
            raise LedgerCorrupt(f"the last entries of {name} are not its own: run odometer verify")
        if checkpoint and "totals" not in entries[0]:
            return  # the entry of that number changes no total, so it states none
        spent = Loss.decode(grid, entries[0]["totals"]) if checkpoint else Loss.zero(grid)
        for entry in entries[1:]:  # the first is the checkpoint, or the opening
            spent = count_entry(grid, state.composition, spent, entry)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise LedgerCorrupt(f"the last entries of {name} cannot be read: run odometer verify") from error
    if spent != state.spent:
        raise LedgerCorrupt(
            f"the stored total of {name} is not the sum of its entries: nothing is admitted until a person "
            "has looked; run odometer verify"
        )


def count_entry(grid: Grid, composition: str, spent: Loss, entry: Entry, scope: str = DATASET_SCOPE) -> Loss:
    """A scope's total after one more entry of any type. Not for kinds of mechanisms."""
    change = loss_change(grid, composition, entry)
    return spent if change is None or scope not in change.scopes else change.after(spent)


def check_history(store: Store, stream: str, seen: KnownHead | None, state: State | None) -> None:
    """Raise LedgerRolledBack unless the last known entry is still there, or a person accepted its loss."""
    head = state.head if state else EMPTY_HEAD
    if seen is None or head == seen.head:
        return
    number = seen.head.sequence
    rows = store.entries(stream, number - 1, 1) if head.sequence >= number else []
    if rows and rows[0].hash == seen.head.hash:
        return
    accepted_loss = state.accepted_loss if state else None
    if (
        accepted_loss is not None
        and accepted_loss.time > seen.accepted_loss
        and number <= accepted_loss.lost.sequence
    ):
        return
    raise LedgerRolledBack(
        f"entry {number} of the ledger of {stream} was there and is gone or differs: nothing is admitted "
        "until a person has looked: restore the store, or decide with `odometer unfreeze` to go on without "
        "what was lost",
        sequence=number,
    )
