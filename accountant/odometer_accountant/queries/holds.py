"""Reads the open holds of a stream, and computes the loss of what was used of one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from odometer_accountant.errors import LedgerCorrupt, UnknownHold
from odometer_accountant.ledger.charge_totals import open_holds, refund
from odometer_accountant.ledger.entries import content, hold_id, row_at
from odometer_accountant.ledger.entry_parts import affected_by, entry_losses
from odometer_accountant.ledger.holds import check_used, held_entry, open_entry
from odometer_accountant.ledger.state import State
from odometer_accountant.ledger.totals import Totals, counted_windows
from odometer_accountant.mechanisms.charge import Charge
from odometer_accountant.model import text_to_floats
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss, total
from odometer_accountant.queries.reading import loss_document
from odometer_accountant.scopes import DATASET_SCOPE, split
from odometer_accountant.stores import Row, Store


class HeldEntry(NamedTuple):
    """The entry of an open hold."""

    row: Row
    expires: str
    entry: dict[str, Any]


def read(store: Store, stream: str, name: str, number: int, mark: str) -> dict[str, Any]:
    """The entry of a hold, whose hash starts with `mark`.

    Raises UnknownHold, or LedgerCorrupt when the entry of that number is not the one that stood there.
    """
    rows = [row for row in store.entries(stream, number - 1, 1) if row.sequence == number]
    try:
        return held_entry(rows[0] if rows else None, number, name, mark)
    except UnknownHold:
        head, _ = store.load(stream, [])
        row = row_at(store, stream, head, number)
        if row is not None:
            content(row, stream)  # says so when it is not
        raise


def used_losses(grid: Grid, held: Mapping[str, Any], used: Sequence[int]) -> tuple[Loss, ...]:
    """The loss of what was used, one per charge. Raises InvalidRequest when it is more than was held."""
    check_used(held, tuple(used))
    charges = [Charge.of_ledger(item) for item in held["command"]["charges"]]
    return tuple(
        charge.mechanism.curve(grid).times(number) if number else Loss.zero(grid)
        for charge, number in zip(charges, used, strict=True)
    )


def documents(store: Store, state: State, now: str) -> Iterator[dict[str, Any]]:
    """The open holds of a stream, oldest first."""
    for row, expires, entry in open_entries(store, state, max(state.time, now)):
        grid = state.dataset.grid
        yield {
            "id": hold_id(state.shard, row.sequence, row.hash),
            "principal": entry["principal"],
            "by": entry.get("by"),
            "team": entry.get("team"),
            "group": entry["command"].get("group"),
            "time": entry["time"],
            "expires": expires,
            "charges": [text_to_floats(item) for item in entry["command"]["charges"]],
            "loss": loss_document(total(grid, entry_losses(grid, entry))),
        }


def open_entries(store: Store, state: State, now: str) -> Iterator[HeldEntry]:
    """The entries of the open holds, oldest first. Reads the store once for each."""
    for number, expires in open_holds(state.holds, now).items():
        row = row_at(store, state.stream, state.head, number)
        entry = open_entry(row, number, state.stream)
        if row is not None:
            yield HeldEntry(row, expires, entry)


def held(state: State, scope: str | None, entries: Iterable[HeldEntry]) -> Loss:
    """The loss of the open holds `entries` on a scope: it counts as spent, and may be given back."""
    grid = state.dataset.grid
    lost = Loss.zero(grid)
    wanted = {scope or DATASET_SCOPE}
    if scope is not None and split(scope)[0] == "partition":
        wanted.add(DATASET_SCOPE)  # those on all partitions are about this one too
    for _, _, entry in entries:
        if scope in (None, DATASET_SCOPE) or wanted.intersection(
            affected_by(entry).scopes(state.composition)
        ):
            lost = lost.plus(total(grid, entry_losses(grid, entry)))
    return lost


def unused(state: State, entries: Iterable[HeldEntry], now: str) -> State:
    """The state as if the open holds `entries` were settled for nothing, in the counts that are loaded.

    Raises LedgerCorrupt where a count has less in it than an open hold put there.
    """
    try:
        totals = _without_holds(state, entries, now)
    except ValueError as error:
        raise LedgerCorrupt(
            f"the counts of dataset {state.dataset.name} are below what its open holds come to: "
            "run odometer verify"
        ) from error
    return state.moved(state.head, state.time, totals)


def _without_holds(state: State, entries: Iterable[HeldEntry], now: str) -> Totals:
    totals, grid, composition = state.totals, state.dataset.grid, state.composition
    for _, expires, entry in entries:
        nothing = [Loss.zero(grid)] * len(entry["losses"])
        taken = refund(grid, entry, nothing, composition)
        mine = {scope: loss for scope, loss in taken.items() if totals.complete or scope in totals.life}
        windows = counted_windows(mine, state.windows)
        if state.must_carry:  # windows do not say what is open: some may have given nothing back
            counted = {key: name for key, name in entry["windows"].items() if key.rpartition("@")[0] in mine}
            totals = totals.minus(mine, counted)
        else:
            totals = totals.settled(mine, mine, windows, max(state.time, now), expires)
    return totals
