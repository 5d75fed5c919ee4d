"""Compares the blobs stored beside a stream's entries with the state that the entries fold into."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from odometer_accountant.ledger.blobs import (
    CONFIG_BLOB,
    HOLDS_BLOB,
    LOSS_DICTIONARY_BLOB,
    SESSIONS_BLOB,
    TOTALS,
    WINDOWS,
)
from odometer_accountant.ledger.findings import Finding, first_difference
from odometer_accountant.ledger.state import State
from odometer_accountant.ledger.totals import InWindow
from odometer_accountant.stores import Examined, Store

PAGE: Final = 128
"""Blobs whose names are read at once."""
BESIDE: Final = (CONFIG_BLOB, HOLDS_BLOB, LOSS_DICTIONARY_BLOB, SESSIONS_BLOB)
"""The blobs of a state that hold no counts."""
_ABSENT: Final = {
    CONFIG_BLOB: ("configuration", b""),
    HOLDS_BLOB: ("list of open holds", b"{}"),
    LOSS_DICTIONARY_BLOB: ("loss dictionary", b""),
    SESSIONS_BLOB: ("list of open sessions", b"{}"),
}
"""The words for each, and its bytes where there is none."""
_UNSAID: Final[dict[str, Any]] = {"partitions": [], "shard": None}
"""Defaults of the keys that a configuration of format 1 has not."""
_UNSAID_OF_DATASET: Final[dict[str, Any]] = {"composition": "sequential", "shards": 0}

Report = Callable[[Finding], None]


def counts_of(state: State) -> set[str]:
    """Names of the count blobs that a state has."""
    totals = state.totals
    return {TOTALS + scope for scope in totals.life} | {WINDOWS + key for key in totals.windows}


def counts_in(store: Store, stream: str) -> Iterator[str]:
    """Names of the count blobs that are stored."""
    for prefix in (TOTALS, WINDOWS):
        after = ""
        while page := store.names(stream, prefix, after, PAGE):
            yield from page
            after = page[-1]


def compare(
    state: State, names: Sequence[str], stored: Examined, report: Report, ours: Mapping[str, bytes]
) -> None:
    """Report each blob of `names`, and of those that are always there, that differs from the state.

    `ours` is `state.blobs()`.
    """
    blobs = stored.blobs
    for name in (*BESIDE, *names):
        if not _differs(name, state, blobs.get(name), ours.get(name), report) and name in stored.faults:
            # Its bytes are right, and its mark is not: the service would refuse it.
            report(Finding(state.stream, f"what is stored of it {stored.faults[name]}", scope=name))


def _differs(name: str, state: State, blob: bytes | None, ours: bytes | None, report: Report) -> bool:
    """Whether a blob differs from its entries. Reports it if so."""
    if name not in _ABSENT:
        return (blob is None or blob != ours) and _compare_count(name, state, blob, report)
    what, absent = _ABSENT[name]
    if _same(name, absent if blob is None else as_bytes(blob), absent if ours is None else ours):
        return False
    report(Finding(state.stream, f"its stored {what} is not what its entries say", scope=name))
    return True


def _compare_count(name: str, state: State, blob: bytes | None, report: Report) -> bool:
    """Whether a count differs from its entries. Reports it if so."""
    scope, life = name.removeprefix(TOTALS).removeprefix(WINDOWS), name.startswith(TOTALS)

    def part(what: str, coordinate: str | None = None) -> bool:
        report(Finding(state.stream, what, state.head.sequence, scope, coordinate))
        return True

    grid = state.dataset.grid
    within = None if life else state.totals.windows.get(scope)
    ours = state.totals.life.get(scope) if life else within.loss if within else None
    if blob is None:
        return part("its totals are missing from the store")
    try:
        line = as_bytes(blob).decode("ascii")
        words = state.loss_dictionary
        counted = None if life else InWindow.decode(grid, line, words)
        theirs = words.decode(grid, line) if counted is None else counted.loss
    except ValueError as error:
        return part(f"its stored totals cannot be read: {error}")
    if ours is None:
        return part("the store holds totals of it, but no entry moved them")
    if within is not None and not line.startswith(f"{within.name} "):
        return part(f"the store counts the window {line.partition(' ')[0]}, the entries {within.name}")
    if differs := first_difference(theirs, ours):
        return part(
            f"the store holds {differs.theirs}, the entries add up to {differs.ours}{differs.also}",
            differs.where,
        )
    if within is not None and counted is not None and counted.open != within.open:
        return part("the store says otherwise than the entries what of it is open")
    return False


def _same(name: str, theirs: bytes, ours: bytes) -> bool:
    """Whether a stored blob is right. A configuration of format 1 may leave out some keys."""
    if theirs == ours or name != CONFIG_BLOB:
        return theirs == ours
    try:
        said, due = json.loads(theirs), json.loads(ours)
        return bool({**_UNSAID, **said, "dataset": {**_UNSAID_OF_DATASET, **said["dataset"]}} == due)
    except (ValueError, KeyError, TypeError):
        return False


def as_bytes(value: Any) -> bytes:
    """A stored value as bytes: a database tool may have written text in their place."""
    return value if isinstance(value, bytes) else str(value).encode()
