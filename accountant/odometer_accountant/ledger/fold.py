"""Folds entries into the state of a stream. Pure."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from odometer_accountant.errors import LedgerCorrupt
from odometer_accountant.ledger.charge_totals import (
    charge_changes,
    charge_totals,
    counted_in,
    open_holds,
    reaching,
    sessions_after,
    settle_totals,
    step_lasts,
)
from odometer_accountant.ledger.checkpoints import CHECKPOINT_EVERY
from odometer_accountant.ledger.dataset import BudgetVersion, Dataset
from odometer_accountant.ledger.entries import (
    FORMATS,
    WINDOWS_REACHED,
    check_format,
    entry_hash,
)
from odometer_accountant.ledger.entry_parts import affected_by, entry_losses, kinds_of
from odometer_accountant.ledger.session_state import ended
from odometer_accountant.ledger.state import State, _accepted_loss, _head
from odometer_accountant.ledger.totals import Lasting, Totals, counted_windows
from odometer_accountant.numerics.loss import Loss, total
from odometer_accountant.scopes import DATASET_SCOPE, in_window, split
from odometer_accountant.stores import EMPTY_HEAD, Head


def fold(rows: Iterable[tuple[str, bytes]]) -> "State | None":
    """The state after all entries, from their (hash, bytes) in order; None without any.

    Raises LedgerCorrupt where the chain or an entry does not hold.
    """
    state: State | None = None
    for digest, body in rows:
        state = apply(state, digest, body)
    return state


def apply(state: "State | None", digest: str, body: bytes) -> State:
    """The state after one more entry. Raises LedgerCorrupt when it does not follow."""
    head = state.head if state else EMPTY_HEAD
    at = head.sequence + 1
    if entry_hash(body) != digest:
        raise LedgerCorrupt(
            f"entry {at}: its bytes do not have the hash that is stored with them", sequence=at
        )
    try:
        entry = json.loads(body)
        check_format(f"entry {at}: the ledger", entry["v"])
        if entry["v"] not in FORMATS or entry["seq"] != at or entry["prev"] != head.hash:
            raise LedgerCorrupt(f"entry {at}: it does not follow the entry before it", sequence=at)
        if state is not None and entry["time"] < state.time:
            raise LedgerCorrupt(f"entry {at}: its time lies before the entry before it", sequence=at)
        after = _apply(state, Head(at, digest), entry)
        return replace(after, version=entry["v"]) if entry["v"] > after.version else after
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise LedgerCorrupt(f"entry {at} cannot be read: {error!r}", sequence=at) from error


def _apply(state: "State | None", head: Head, entry: Mapping[str, Any]) -> State:
    kind = entry["type"]
    if (kind == "opened") != (state is None):
        raise ValueError(f"a ledger starts with `opened`, and only starts with it, got {kind!r}")
    if state is None:
        return _opened(head, entry)
    if kind in ("charged", "held"):
        return apply_charge(state, head, entry)
    if kind == "settled":
        return _settled(state, head, entry)
    change = _CHANGES.get(kind)
    if change is None:
        raise ValueError(f"unknown type of entry {kind!r}")
    return change(replace(state, head=head, time=entry["time"]), entry)


def _budget_set(state: State, entry: Mapping[str, Any]) -> State:
    before = state.budgets.get(entry["name"])
    covered = before is not None and covers_any(state, before, state.head.sequence - 1)
    told = "largest" in entry or before is None
    budget = BudgetVersion.parse(entry["entry"]).after(before, covered=covered, told=told)
    if "largest" in entry and entry["largest"] != repr(budget.largest):
        raise ValueError(f"the largest limit in force was {budget.largest!r}, it says {entry['largest']}")
    changed = {**state.budgets, entry["name"]: budget}
    return replace(state, budgets=dict(sorted(changed.items())))  # as every stored form has them


def covers_any(state: State, budget: BudgetVersion, last: int) -> bool:
    """Whether a budget may cover a charge among the entries up to number `last`."""
    return last > budget.since if budget.since else something_charged(state)


def _recounted(state: State, _: Mapping[str, Any]) -> State:
    """All entries were counted again: what those of earlier formats come to is known."""
    budgets = {name: replace(entry, told=entry.largest is not None) for name, entry in state.budgets.items()}
    return replace(state, budgets=budgets)


def something_charged(state: State) -> bool:
    """Whether a charge may be on the ledger; of a dataset by unit, whether one has begun to be."""
    if state.composition == "by_unit":
        return bool(state.opened)
    scopes = [DATASET_SCOPE, *(f"partition/{name}" for name in state.partitions)]
    return not all(state.totals.of(scope).is_zero for scope in scopes)


def _derived(state: State, entry: Mapping[str, Any]) -> State:
    if not 0 < int(entry["command"]["parent"]) < state.head.sequence:
        raise ValueError("it comes of no earlier entry")
    return state


def _carried(state: State, entry: Mapping[str, Any]) -> State:
    """What is open counts from here on in every window that it reaches: nothing said so before."""
    totals, time = state.totals, entry["time"]
    for held in entry["holds"].values():
        totals = _open_in(state, totals, held, Lasting(held["expires"]), time)
    for number, session in entry["sessions"].items():
        totals = _open_in(state, totals, session, Lasting(session=int(number)), time)
    return replace(state, totals=totals, reached=state.windows)


def _open_in(state: State, totals: Totals, about: Mapping[str, Any], lasting: Lasting, time: str) -> Totals:
    """With what is open counted in the windows that did not count it as open."""
    grid, affected = state.dataset.grid, affected_by(about)
    scopes = affected.scopes(state.composition)
    gained = dict.fromkeys(scopes, total(grid, entry_losses(grid, about)))
    counted, over = about.get("windows", {}), lasting.expires is not None and lasting.expires < time
    new = [
        (scope, window)
        for scope, window in counted_windows(scopes, state.windows)
        if window not in state.reached.get(split(scope)[0], ())
        # What expired counts on in the windows that it was made under, and in no newer ones.
        and not (over and in_window(scope, window) not in counted)
    ]
    return totals.carried(gained, new, time, lasting, counted)


def _session_closed(state: State, entry: Mapping[str, Any]) -> State:
    after = replace(state, sessions=ended(state.sessions, entry["session"]))
    if "opened" not in entry:
        return after
    windows = counted_windows(affected_by(entry["opened"]).scopes(state.composition), state.windows)
    return replace(after, totals=state.totals.ended(entry["session"], windows, entry["time"]))


_CHANGES: Final[dict[str, Callable[[State, Mapping[str, Any]], State]]] = {
    "budget_set": _budget_set,
    "partitions_added": lambda state, entry: _with_partitions(state, entry["partitions"]),
    "shard_opened": lambda state, entry: replace(state, opened=(*state.opened, int(entry["shard"]))),
    # What is stored beside the entries was written anew: see odometer_accountant.ledger.adoption.
    "recounted": _recounted,
    # A shard has its dataset's budgets.
    "synced": lambda state, entry: replace(state, budgets=_budgets(entry["budgets"]), closed=entry["closed"]),
    "derived": _derived,
    "session_closed": _session_closed,
    "carried": _carried,
    "closed": lambda state, _: replace(state, closed=True),
    "frozen": lambda state, entry: replace(state, frozen=_head(entry["seen"])),
    "unfrozen": lambda state, entry: replace(
        state, frozen=None, accepted_loss=_accepted_loss([*entry["seen"], entry["time"]])
    ),
}
"""What an entry that moves no total for life changes of a state, which has its head and time already."""


def _budgets(documents: Mapping[str, Any]) -> dict[str, BudgetVersion]:
    return {name: BudgetVersion.parse(item) for name, item in documents.items()}


def _opened(head: Head, entry: Mapping[str, Any]) -> State:
    dataset = Dataset.model_validate_json(json.dumps(entry["dataset"]))
    # Totals from the start: that they are missing can then never mean that nothing was spent.
    totals = Totals(dataset.grid, {DATASET_SCOPE: Loss.zero(dataset.grid)}, {}, complete=True)
    budgets = _budgets(entry["budgets"])
    state = State(head, entry["time"], dataset, budgets, totals, shard=entry.get("shard"))
    return _with_partitions(state, entry.get("partitions", ()))


def _with_partitions(state: State, names: Iterable[str]) -> State:
    zero = Loss.zero(state.dataset.grid)
    new = [name for name in names if name not in state.partitions]
    life = {**state.totals.life, **{f"partition/{name}": zero for name in new}}
    return replace(state, partitions=(*state.partitions, *new), totals=replace(state.totals, life=life))


def apply_charge(state: State, head: Head, entry: Mapping[str, Any]) -> State:
    """The state after a `charged` or `held` entry. Raises ValueError when it does not hold."""
    losses, kinds = entry_losses(state.dataset.grid, entry), kinds_of(entry)
    if len(kinds) != len(losses):
        raise ValueError(f"{len(kinds)} charges but {len(losses)} losses")
    affected, time = affected_by(entry), entry["time"]
    held, step = entry["type"] == "held", entry["command"].get("session")
    lasting, last_of = None, None
    if entry["v"] >= WINDOWS_REACHED and state.windows and (held or step is not None):
        lasting = Lasting(entry["expires"]) if held else None
        if step is not None:
            lasting, last_of = step_lasts(step, head.sequence)
        state = reaching(state, entry["v"])
    totals = charge_totals(state, affected, kinds, losses, time, lasting, last_of)
    if head.sequence % CHECKPOINT_EVERY == 0 and entry.get("totals") != totals.of(DATASET_SCOPE).encode():
        raise ValueError("its checkpoint differs from the sum of the entries before it")
    changes = charge_changes(state, losses)
    if not held:
        if step is not None:
            changes["sessions"] = sessions_after(state, head, entry.get("by", entry["principal"]), step)
        return state.moved(head, time, totals, **changes)
    if entry["windows"] != counted_in(state, affected, time):
        raise ValueError("it says that it was counted in other windows than it was")
    holds = {**open_holds(state.holds, time), head.sequence: entry["expires"]}
    return state.moved(head, time, totals, holds=holds, **changes)


def _settled(state: State, head: Head, entry: Mapping[str, Any]) -> State:
    if entry["hold"] not in state.holds:
        raise ValueError(f"it settles hold {entry['hold']}, which is not open")
    if state.holds[entry["hold"]] < entry["time"]:
        raise ValueError(f"it settles hold {entry['hold']}, which had expired")
    totals = settle_totals(state, entry["held"], entry_losses(state.dataset.grid, entry), entry["time"])
    if head.sequence % CHECKPOINT_EVERY == 0 and entry.get("totals") != totals.of(DATASET_SCOPE).encode():
        raise ValueError("its checkpoint differs from the sum of the entries before it")
    holds = {number: end for number, end in state.holds.items() if number != entry["hold"]}
    return state.moved(head, entry["time"], totals, holds=holds)
