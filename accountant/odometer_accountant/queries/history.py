"""Reads the history of a dataset, and its entries in pages."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from odometer_accountant.ledger.checkpoints import CHECKPOINT_EVERY, last_checkpoint
from odometer_accountant.ledger.entries import content, contents, row_at
from odometer_accountant.ledger.entry_types import loss_change
from odometer_accountant.ledger.state import State
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.queries import readings
from odometer_accountant.queries.advice import finite
from odometer_accountant.queries.reading import whole
from odometer_accountant.scopes import DATASET_SCOPE
from odometer_accountant.stores import Row, Store

PAGE_BYTES: Final = 1024 * 1024
"""Of a page of entries, in bytes: so much a reader who takes it slowly keeps in memory."""
_AT_ONCE: Final = 64
"""Entries that are read at once for a page."""
FOLD_MAX: Final = 1024
"""Up to so many entries a history is folded from all of them, beyond from the checkpoints alone."""
PARTITIONED_FOLD_MAX: Final = 8192
_ADDITIONS_MAX: Final = 2**21
"""Additions to partitions that one history may take."""
_INT64_MAX: Final = 2**62
_ORDER_DIGITS: Final = 12
"""In which a history of partitions counts the orders."""


def series(store: Store, state: State, points: int) -> list[dict[str, Any]]:
    """At most `points` moments, oldest first, ending now: the reading and each budget's share used."""
    if _can_fold(state):
        moments = list(_folded(state, list(_steps(store, state)), points - 1))
    elif state.partitions:
        moments = []  # checkpoints know nothing of partitions: better one true point than a line too low
    else:
        moments = list(_checkpoints(store, state, points - 1))
    now = (state.head.sequence, state.time, whole(state))
    if not moments or moments[-1][0] != now[0]:
        moments.append(now)
    return [_point(state, *moment) for moment in moments]


def _can_fold(state: State) -> bool:
    last, parts = state.head.sequence, len(state.partitions)
    return last <= PARTITIONED_FOLD_MAX and last * parts <= _ADDITIONS_MAX if parts else last <= FOLD_MAX


def _point(state: State, sequence: int, time: str, spent: Loss) -> dict[str, Any]:
    return {
        "sequence": sequence,
        "time": time,
        "if_stopped_now": finite(readings.stopped_now(state, spent)),
        "used": {
            limit.filter.name: limit.filter.left_of_limit(spent).used
            for limit in state.limits
            if limit.kind == "dataset" and limit.window is None
        },
    }


class _Step(NamedTuple):
    """The effect of one entry on the totals of the dataset, or of the partitions in these rows."""

    sequence: int
    time: str
    gained: Loss
    taken: Loss
    """What a settlement takes out again, before it adds what was used."""
    rows: npt.NDArray[np.int16] | None


def _steps(store: Store, state: State) -> Iterator[_Step]:
    """Reads all entries that count, each once."""
    name, grid, after = state.dataset.name, state.dataset.grid, 0
    places = {f"partition/{part}": row for row, part in enumerate(state.partitions)}
    zero = Loss.zero(grid)
    while after < state.head.sequence and (rows := store.entries(name, after, FOLD_MAX)):
        for row, entry in zip(rows, contents(rows, name), strict=True):
            if row.sequence > state.head.sequence:
                continue
            if row.sequence == 1:
                yield _Step(row.sequence, entry["time"], zero, zero, None)
            change = loss_change(grid, state.composition, entry)
            if change is None:
                continue
            parts = None
            if DATASET_SCOPE not in change.scopes:
                named = [places[scope] for scope in change.scopes if scope in places]
                parts = np.array(named, dtype=np.int16)
            yield _Step(
                row.sequence,
                entry["time"],
                change.gained,
                zero if change.taken is None else change.taken,
                parts,
            )
        after = rows[-1].sequence


def _folded(state: State, steps: list[_Step], points: int) -> Iterator[tuple[int, str, Loss]]:
    """At most `points` moments; of a partitioned dataset the worst that anybody may have lost."""
    kept = set(_thin(len(steps), points))
    everybody, parts = Loss.zero(state.dataset.grid), _Rows(state.dataset.grid, len(state.partitions))
    for place, step in enumerate(steps):
        if step.rows is None:
            everybody = everybody.minus(step.taken).plus(step.gained)
        else:
            parts.move(step.rows, step.taken, step.gained)
        if place in kept:
            yield step.sequence, step.time, everybody.plus(parts.worst())


class _Rows:
    """The totals of all partitions side by side: a row each, whole numbers, moved many at once.

    Of a finer grid the orders are counted in units of 1e-12, each loss rounded up: machine words hold them.
    """

    def __init__(self, grid: Grid, rows: int) -> None:
        self._grid = grid
        self._coarse = 10 ** max(0, grid.order_digits - _ORDER_DIGITS)
        self._orders: npt.NDArray[Any] = np.zeros((rows, grid.n_orders), dtype=np.int64)
        self._others: npt.NDArray[Any] = np.zeros((rows, grid.size - grid.n_orders), dtype=object)
        self._unbounded: npt.NDArray[Any] = np.zeros((rows, grid.size), dtype=np.int64)
        self._most = 0
        """No number in the table of orders is above this."""

    def move(self, rows: npt.NDArray[np.int16], taken: Loss, gained: Loss) -> None:
        """Take a loss out of some rows and add another."""
        out, into = self._ordered(taken), self._ordered(gained)
        self._most += max(*into, *out)
        if self._most > _INT64_MAX and self._orders.dtype != object:
            self._orders = self._orders.astype(object)  # slower, and without an end
        self._orders[rows] += _difference(into, out, self._orders.dtype)
        n_orders = self._grid.n_orders
        self._others[rows] += _difference(gained.values[n_orders:], taken.values[n_orders:], np.dtype(object))
        self._unbounded[rows] += _difference(gained.unbounded, taken.unbounded, self._unbounded.dtype)

    def _ordered(self, loss: Loss) -> list[int]:
        return [-(-value // self._coarse) for value in loss.values[: self._grid.n_orders]]

    def worst(self) -> Loss:
        """The largest of each coordinate; nothing without rows."""
        if not len(self._orders):
            return Loss.zero(self._grid)
        orders, others, unbounded = (
            [int(number) for number in table.max(axis=0)]
            for table in (self._orders, self._others, self._unbounded)
        )
        values = (*(number * self._coarse for number in orders), *others)
        return Loss(self._grid, values, tuple(unbounded))


def _difference(more: Sequence[int], less: Sequence[int], kind: np.dtype[Any]) -> npt.NDArray[Any]:
    return np.array([one - other for one, other in zip(more, less, strict=True)], dtype=kind)


def _checkpoints(store: Store, state: State, points: int) -> Iterator[tuple[int, str, Loss]]:
    last = last_checkpoint(state.head.sequence) // CHECKPOINT_EVERY
    step = max(1, last / points)
    wanted = sorted({max(1, round(step * index)) for index in range(1, points + 1)})
    for number in wanted:
        if number > last:
            return
        row = row_at(store, state.dataset.name, state.head, number * CHECKPOINT_EVERY)
        entry = {} if row is None else content(row, state.dataset.name)
        if row is not None and "totals" in entry:
            yield row.sequence, entry["time"], Loss.decode(state.dataset.grid, entry["totals"])


def _thin(moments: int, points: int) -> list[int]:
    """The indices of the moments that are kept: evenly spaced in the entries, with the first and the last."""
    if moments <= points:
        return list(range(moments))
    return sorted({round(index * (moments - 1) / max(1, points - 1)) for index in range(points)})


def page(
    store: Store, state: State, after: int, limit: int, before: int | None, newest_first: bool
) -> dict[str, Any]:
    """One page of entries; `next` is the cursor (`after`, or `before` when the newest come first).

    Less than `limit` of them where entries are long: a page ends when it has PAGE_BYTES.
    """
    name, last = state.dataset.name, state.head.sequence
    if newest_first:
        end = last if before is None else min(before - 1, last)
        rows = list(_until_full(_backwards(store, name, end, limit)))
        following = rows[-1].sequence if rows and rows[-1].sequence > 1 else None
    else:
        rows = [row for row in _until_full(_forwards(store, name, after, limit)) if row.sequence <= last]
        following = rows[-1].sequence if rows and rows[-1].sequence < last else None
    in_order = rows[::-1] if newest_first else rows
    items = [
        {"sequence": row.sequence, "hash": row.hash, "entry": entry}
        for row, entry in zip(in_order, contents(in_order, name), strict=True)
    ]
    return {"items": items[::-1] if newest_first else items, "next": following}


def _until_full(rows: Iterator[Row]) -> Iterator[Row]:
    size = 0
    for row in rows:
        yield row
        size += len(row.body)
        if size >= PAGE_BYTES:
            return


def _forwards(store: Store, name: str, after: int, limit: int) -> Iterator[Row]:
    while limit > 0:
        part = store.entries(name, after, min(limit, _AT_ONCE))
        yield from part
        if len(part) < min(limit, _AT_ONCE):
            return
        after, limit = part[-1].sequence, limit - len(part)


def _backwards(store: Store, name: str, end: int, limit: int) -> Iterator[Row]:
    while limit > 0 and end > 0:
        number = min(limit, end, _AT_ONCE)
        yield from (row for row in reversed(store.entries(name, end - number, number)) if row.sequence <= end)
        end, limit = end - number, limit - number
