"""decide(state, command) -> entry or refusal. Pure: no clock, no I/O; the time is given."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accountant.budgets import Budget
from accountant.commands import ChargeCommand, CloseCommand, Command, OpenCommand, SetBudgetCommand
from accountant.errors import (
    BudgetExceeded,
    BudgetExists,
    DatasetClosed,
    DatasetExists,
    EditConflict,
    KeyReused,
    LedgerCorrupt,
    NotValidUnderAdjacency,
    OdometerError,
    UnknownBudget,
    UnknownDataset,
)
from accountant.grid import CURRENT_GRID
from accountant.ledger import (
    CHECKPOINT_EVERY,
    DATASET_SCOPE,
    FORMAT,
    BudgetEntry,
    State,
    add_losses,
    apply,
    bind_dataset,
    canonical,
    entry_hash,
    seal,
)
from accountant.stores import EMPTY_HEAD, Head, NewEntry, Row


@dataclass(frozen=True)
class Admitted:
    """The entry to append, and the state after it."""

    entry: NewEntry
    state: State


@dataclass(frozen=True)
class Replayed:
    """This very command was admitted before, under the same key: its entry."""

    row: Row
    state: State


@dataclass(frozen=True)
class Refused:
    """Nothing changes. `state` is what the refusal was judged against, None when there is no dataset."""

    error: OdometerError
    state: State | None


_quoted = json.encoder.encode_basestring_ascii
"""A string as JSON: what json.dumps does with one, without its detours."""

Decision = Admitted | Replayed | Refused


def decide(state: State | None, command: Command, known: Row | None, now: str) -> Decision:
    """What to append for `command`, or why not.

    `known` is the entry that the command's idempotency key already has, `now` a UTC timestamp.
    """
    try:
        if isinstance(command, ChargeCommand):
            return _charge(state, command, known, now)
        if isinstance(command, OpenCommand):
            return _open(state, command, now)
        if state is None:
            raise _unknown()
        if isinstance(command, SetBudgetCommand):
            return _set_budget(state, command, now)
        return _close(state, command, now)
    except OdometerError as error:
        return Refused(error, state)


def _unknown() -> UnknownDataset:
    return UnknownDataset("there is no dataset of that name: create it first, it is never created on the fly")


def _charge(state: State | None, command: ChargeCommand, known: Row | None, now: str) -> Decision:
    if state is None:
        raise _unknown()
    prepared = command.prepared
    if known is not None:
        return _replay(state, command, known)
    if state.closed:
        raise DatasetClosed(f"dataset {state.dataset.name} is closed: it takes no more charges")
    check_adjacency(state, prepared)
    after = state.spent.plus(prepared.loss)
    refusing = [rule.name for rule in state.rules if not rule.allows(after)]
    if refusing:
        raise BudgetExceeded(
            f"the charge does not fit: {', '.join(refusing)} of dataset {state.dataset.name}",
            budgets=refusing,
        )
    totals = add_losses(state, command.principal, prepared.kinds, prepared.losses, after)
    entry, head, time = _charge_entry(state, command, totals[DATASET_SCOPE].encode, now)
    return Admitted(entry, state.charged(head, time, totals))


def _charge_entry(state: State, command: ChargeCommand, totals: Any, now: str) -> tuple[NewEntry, Head, str]:
    """The canonical bytes of a charge, written directly: the hot path. A test holds it to `canonical`."""
    prepared, sequence, time = command.prepared, state.head.sequence + 1, max(state.time, now)
    checkpoint = f'"totals":{_quoted(totals())},' if sequence % CHECKPOINT_EVERY == 0 else ""
    body = (
        f'{{"command":{prepared.command},"key":{_quoted(command.key)},"losses":{prepared.losses_json},'
        f'"prev":"{state.head.hash}","principal":{_quoted(command.principal)},"seq":{sequence},'
        f'"time":"{time}",{checkpoint}"type":"charged","v":{FORMAT}}}'
    ).encode("ascii")
    digest = entry_hash(body)
    return NewEntry(digest, body, command.ledger_key), Head(sequence, digest), time


def _replay(state: State, command: ChargeCommand, known: Row) -> Decision:
    entry = json.loads(known.body)
    whose = (entry.get("principal"), entry.get("key"))
    if whose != (command.principal, command.key) or entry_hash(known.body) != known.hash:
        # Nothing may be released on an entry that is somebody else's, or that was changed.
        raise LedgerCorrupt(
            f"key {command.key!r} leads to entry {known.sequence}, which is not its own or was changed: "
            "nothing was charged; run odometer verify",
            sequence=known.sequence,
        )
    if canonical(entry["command"]).decode() != command.prepared.command:
        raise KeyReused(
            f"key {command.key!r} was used for another charge (entry {known.sequence}): "
            "nothing was charged; use a new key for a new charge",
            sequence=known.sequence,
        )
    return Replayed(known, state)


def check_adjacency(state: State, prepared: Any) -> None:
    """Raise NotValidUnderAdjacency unless every mechanism's analysis holds for this dataset."""
    dataset = state.dataset
    if prepared.adjacency is not None and prepared.adjacency != dataset.adjacency:
        raise NotValidUnderAdjacency(
            f"the charge was computed for {prepared.adjacency.value}, dataset {dataset.name} has "
            f"{dataset.adjacency.value}: restate the noise over the sensitivity under that "
            "(a clip norm C moves a sum by C under add_remove and zero_out, by 2C under replace_one)",
            adjacency=dataset.adjacency.value,
        )
    if dataset.adjacency in prepared.adjacencies:
        return
    for index, charge in enumerate(prepared.charges):
        mechanism = charge.mechanism
        if dataset.adjacency not in mechanism.adjacencies:
            valid = ", ".join(sorted(mechanism.adjacencies))
            raise NotValidUnderAdjacency(
                f"{mechanism.kind} (charge {index + 1}) is analysed under {valid}, dataset {dataset.name} "
                f"has adjacency {dataset.adjacency.value}: {mechanism.elsewhere}",
                adjacency=dataset.adjacency.value,
                valid_under=sorted(mechanism.adjacencies),
            )


def _open(state: State | None, command: OpenCommand, now: str) -> Decision:
    request = command.request
    if state is not None:
        raise DatasetExists(f"there is a dataset {request.name} already, and names are never used twice")
    dataset = bind_dataset(request, CURRENT_GRID, now)
    budgets = {
        budget.name: BudgetEntry(budget, 1, budget.fixed(CURRENT_GRID), 0).document()
        for budget in request.budgets
    }
    document = {
        "type": "opened",
        "time": now,
        "principal": command.principal,
        "dataset": dataset.model_dump(mode="json"),
        "budgets": budgets,
    }
    return _admit(None, document)


def _set_budget(state: State, command: SetBudgetCommand, now: str) -> Decision:
    wanted, before = command.budget, state.budgets.get(command.budget.name)
    if state.closed:
        raise DatasetClosed(f"dataset {state.dataset.name} is closed: its budgets no longer change")
    if command.if_match is None:
        if before is not None:
            raise BudgetExists(f"dataset {state.dataset.name} has a budget {wanted.name}: change that one")
        entry = _fresh(state, wanted, 1)
    else:
        if before is None:
            raise UnknownBudget(f"dataset {state.dataset.name} has no budget {wanted.name}")
        if command.if_match != etag(before):
            raise EditConflict(
                f"budget {wanted.name} is at version {before.version} now: read it again, then change it",
                etag=etag(before),
            )
        entry = _edited(state, before, wanted)
    document = {
        "type": "budget_set",
        "time": max(state.time, now),
        "principal": command.principal,
        "name": wanted.name,
        "entry": entry.document(),
    }
    return _admit(state, document)


def _fresh(state: State, budget: Budget, version: int) -> BudgetEntry:
    """Weights fixed now: the promise covers what comes after, or everything if nothing was charged yet."""
    since = state.head.sequence + 1 if not state.spent.is_zero else 0
    return BudgetEntry(budget, version, budget.fixed(state.dataset.grid), since)


def _edited(state: State, before: BudgetEntry, wanted: Budget) -> BudgetEntry:
    """A new limit keeps its weights; any other change is a new version with weights fixed now."""
    if before.budget.same_weights(wanted):
        kept = wanted.fixed(state.dataset.grid, dict(before.fixed))
        return BudgetEntry(wanted, before.version + 1, kept, before.since)
    return _fresh(state, wanted, before.version + 1)


def etag(entry: BudgetEntry) -> str:
    """What If-Match must carry to change this budget."""
    return f'"v{entry.version}"'


def _close(state: State, command: CloseCommand, now: str) -> Decision:
    if state.closed:
        raise DatasetClosed(f"dataset {state.dataset.name} is closed already")
    return _admit(state, {"type": "closed", "time": max(state.time, now), "principal": command.principal})


def _admit(state: State | None, document: Mapping[str, Any]) -> Admitted:
    """Seal the entry and fold it: what is stored is what is applied."""
    entry, _ = seal(state.head if state else EMPTY_HEAD, dict(document))
    return Admitted(entry, apply(state, entry.hash, entry.body))
