"""What a dataset's ledger looked like over time, who spent it, and its pages. Reads only."""

import json
from collections.abc import Iterator
from typing import Any, Final

from accountant import odometer
from accountant.advice import finite
from accountant.ledger import CHECKPOINT_EVERY, State, scope_blob
from accountant.loss import Loss
from accountant.odometer import fixed_plan
from accountant.reading import count_entry, with_blobs
from accountant.receipts import left_of
from accountant.rules import if_stopped_now
from accountant.stores import Row, Store

FOLD_MAX: Final = 1024
"""Up to so many entries a history is folded from all of them, beyond from the checkpoints alone."""
PARTITIONED_FOLD_MAX: Final = 8192
_SCOPES_MAX: Final = 1000
_COUNTING: Final = ("opened", "charged", "held", "settled")


def series(store: Store, state: State, points: int) -> list[dict[str, Any]]:
    """At most `points` moments, oldest first, ending now: the reading and each budget's share used."""
    if state.head.sequence <= (PARTITIONED_FOLD_MAX if state.partitions else FOLD_MAX):
        moments = _thin(list(_folded(store, state)), points - 1)
    elif state.partitions:
        moments = []  # checkpoints know nothing of partitions: better one true point than a line too low
    else:
        moments = list(_checkpoints(store, state, points - 1))
    now = (state.head.sequence, state.time, odometer.whole(state))
    if not moments or moments[-1][0] != now[0]:
        moments.append(now)
    return [_point(state, *moment) for moment in moments]


def _point(state: State, sequence: int, time: str, spent: Loss) -> dict[str, Any]:
    mixture, delta_add = state.dataset.mixture, int(state.dataset.delta_add)
    return {
        "sequence": sequence,
        "time": time,
        "if_stopped_now": finite(if_stopped_now(spent, mixture, delta_add)),
        "used": {
            limit.rule.name: limit.rule.left_of_limit(spent).used
            for limit in state.limits
            if limit.kind == "dataset" and limit.window is None
        },
    }


def _folded(store: Store, state: State) -> Iterator[tuple[int, str, Loss]]:
    """From all entries; of a partitioned dataset what anybody may have lost, the worst of each coordinate."""
    grid, name = state.dataset.grid, state.dataset.name
    spent, parts = Loss.zero(grid), {part: Loss.zero(grid) for part in state.partitions}
    after = 0
    while after < state.head.sequence and (rows := store.entries(name, after, FOLD_MAX)):
        for row in rows:
            entry = json.loads(row.body)
            spent = count_entry(grid, state.composition, spent, entry)
            if parts:
                parts = {
                    part: count_entry(grid, state.composition, lost, entry, f"partition/{part}")
                    for part, lost in parts.items()
                }
            if entry["type"] in _COUNTING and row.sequence <= state.head.sequence:
                yield row.sequence, entry["time"], _worst(spent, parts)
        after = rows[-1].sequence


def _worst(spent: Loss, parts: dict[str, Loss]) -> Loss:
    worst = Loss.zero(spent.grid)
    for lost in parts.values():
        worst = worst.at_least(lost)
    return spent.plus(worst)


def _checkpoints(store: Store, state: State, points: int) -> Iterator[tuple[int, str, Loss]]:
    last = state.head.sequence // CHECKPOINT_EVERY
    step = max(1, last / points)
    wanted = sorted({max(1, round(step * index)) for index in range(1, points + 1)})
    for number in wanted:
        if number > last:
            return
        rows = store.entries(state.dataset.name, number * CHECKPOINT_EVERY - 1, 1)
        entry = json.loads(rows[0].body) if rows else {}
        if "totals" in entry:
            yield rows[0].sequence, entry["time"], Loss.decode(state.dataset.grid, entry["totals"])


def _thin(moments: list[tuple[int, str, Loss]], points: int) -> list[tuple[int, str, Loss]]:
    """Evenly spaced in the entries, first and last kept."""
    if len(moments) <= points:
        return moments
    places = sorted({round(index * (len(moments) - 1) / (points - 1)) for index in range(points)})
    return [moments[place] for place in places]


def spend(store: Store, state: State) -> dict[str, Any]:
    """The totals of each principal and of each kind of mechanism, as plans of their own."""
    delta = float(state.dataset.delta)
    return {
        "by_principal": [
            {"principal": name, "name": note, **numbers}
            for name, note, numbers in _scopes(store, state, "principal/", delta)
        ],
        "by_mechanism": [
            {"kind": name, **numbers} for name, _, numbers in _scopes(store, state, "mechanism/", delta)
        ],
        "delta": delta,
        "holds": "Each alone, as a plan fixed in advance, for comparison: parts do not add up to the whole.",
    }


def _scopes(
    store: Store, state: State, kind: str, delta: float
) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    prefix = scope_blob(kind)
    blobs = store.blobs(state.dataset.name, prefix, "", _SCOPES_MAX)
    names = [name.removeprefix(prefix) for name, _ in blobs]
    notes = store.notes(names) if kind == "principal/" else {}
    for name, (_, blob) in zip(names, blobs, strict=True):
        loss = Loss.decode(state.dataset.grid, blob.decode("ascii"))
        shown = odometer.loss_document(loss)
        epsilon = fixed_plan(loss, delta).value
        note = notes[name].text if name in notes else None
        yield name, note, {"epsilon": epsilon, "rho": shown["rho"], "delta": shown["delta"]}


def scopes(store: Store, state: State, kind: str, after: str, limit: int, now: str) -> dict[str, Any] | None:
    """One page of the scopes of a kind that were ever charged, by name; None when the stream moved on.

    Each with the budget that it has used most of, and every budget that it has.
    """
    prefix = scope_blob(f"{kind}/")
    blobs = store.blobs(state.dataset.name, prefix, prefix + after if after else "", limit + 1)
    names = [name.removeprefix(scope_blob("")) for name, _ in blobs[:limit]]
    ready = with_blobs(store, state, state.blob_names(names))
    if ready is None:
        return None
    delta, time = float(state.dataset.delta), max(state.time, now)
    items = []
    for name in names:
        loss = ready.totals.of(name)
        if kind == "partition":
            loss = ready.spent.plus(loss)
        left = left_of(ready, name, time)
        reading = if_stopped_now(loss, state.dataset.mixture, int(state.dataset.delta_add))
        items.append(
            {
                "scope": name,
                "if_stopped_now": finite(reading),
                "delta": delta,
                "totals": odometer.loss_document(loss),
                "tightest": max(left, key=lambda one: one["used"], default=None),
                "budgets": len(left),
            }
        )
    last = blobs[limit - 1][0].removeprefix(prefix) if len(blobs) > limit else None
    return {"items": items, "next": last}


def page(
    store: Store, state: State, after: int, limit: int, before: int | None, newest_first: bool
) -> dict[str, Any]:
    """One page of entries; `next` is the cursor (`after`, or `before` when the newest come first)."""
    name, last = state.dataset.name, state.head.sequence
    if newest_first:
        end = last if before is None else min(before - 1, last)
        rows = store.entries(name, max(0, end - limit), min(limit, end)) if end > 0 else []
        rows = [row for row in reversed(rows) if row.sequence <= end]
        following = rows[-1].sequence if rows and rows[-1].sequence > 1 else None
    else:
        rows = [row for row in store.entries(name, after, limit) if row.sequence <= last]
        following = rows[-1].sequence if rows and rows[-1].sequence < last else None
    return {"items": [_shown(row) for row in rows], "next": following}


def _shown(row: Row) -> dict[str, Any]:
    return {"sequence": row.sequence, "hash": row.hash, "entry": json.loads(row.body)}
