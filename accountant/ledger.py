"""Entries, their hash chain, and the state that folds out of them.

An entry is canonical JSON (sorted keys, no spaces, no floats) that names the hash of the entry
before it; its own hash is SHA-256 of those bytes, which are stored as they are.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, Self

from accountant.budgets import ANY_BUDGET, Budget, Workload, split_delta, workload_loss
from accountant.errors import LedgerCorrupt
from accountant.grid import DELTA_UNIT, GRIDS, Grid
from accountant.loss import Loss, total
from accountant.mechanisms import Adjacency, Document
from accountant.mechanisms.base import frozen, thawed
from accountant.mixture import Mixture
from accountant.rounding import floor_units
from accountant.rules import Rule
from accountant.stores import EMPTY_HEAD, Head, NewEntry
from accountant.weights import reading_prior, workload_prior

FORMAT: Final = 1
CHECKPOINT_EVERY: Final = 128
"""Every so many entries one also carries the dataset's totals: history without folding everything."""
DATASET_SCOPE: Final = "dataset"
CONFIG_BLOB: Final = "config"


def canonical(document: Mapping[str, Any]) -> bytes:
    """The bytes that are hashed and stored. Raises TypeError or ValueError for floats and unknown types."""
    _refuse_floats(document)
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii")


def _refuse_floats(value: Any) -> None:
    if isinstance(value, float):
        raise TypeError(f"a ledger entry holds no floats, got {value!r}")
    if isinstance(value, Mapping):
        for item in value.values():
            _refuse_floats(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_floats(item)


def entry_hash(body: bytes) -> str:
    """SHA-256 of an entry's bytes, in hex."""
    return hashlib.sha256(body).hexdigest()


def timestamp(moment: datetime) -> str:
    """UTC with microseconds; such strings sort as the moments do."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass(frozen=True)
class BudgetEntry:
    """A budget in force: its document, its version, and what was fixed when its weights were."""

    budget: Budget
    version: int
    fixed: Mapping[str, Any]
    since: int
    """Sequence number of the entry that fixed its weights: the promise covers the entries after it."""

    def document(self) -> dict[str, Any]:
        return {
            "budget": frozen(self.budget.document()),
            "version": self.version,
            "fixed": dict(self.fixed),
            "since": self.since,
        }

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        budget = ANY_BUDGET.validate_python(thawed(document["budget"]))
        return cls(budget, document["version"], document["fixed"], document["since"])


class Dataset(Document):
    """What is protected, as bound by its first entry."""

    name: str
    unit: str
    adjacency: Adjacency
    grid_version: int
    delta: str
    """δ of the running readings, a decimal string, with its fixed split."""
    delta_add: str
    delta_mix: str
    weights: tuple[int, ...]
    odometer_only: bool
    created: str

    @property
    def grid(self) -> Grid:
        return GRIDS[self.grid_version]

    @property
    def mixture(self) -> Mixture:
        """The mixture of the running readings."""
        return Mixture(self.grid, self.weights, float(self.delta_mix))


def bind_dataset(
    request: Any,
    grid: Grid,
    created: str,
) -> Dataset:
    """The facts that a dataset's first entry fixes, from a request to create it."""
    add, mix = split_delta(request.delta, request.delta_add)
    workload: Workload | None = request.workload
    if workload is None:
        weights = reading_prior(grid)
    else:
        weights = workload_prior(grid, workload_loss(workload, grid), mix)
    return Dataset(
        name=request.name,
        unit=request.unit,
        adjacency=request.adjacency,
        grid_version=grid.version,
        delta=repr(request.delta),
        delta_add=str(floor_units(add, DELTA_UNIT)),
        delta_mix=repr(mix),
        weights=weights,
        odometer_only=request.odometer_only,
        created=created,
    )


@dataclass(frozen=True)
class State:
    """A dataset as its entries fold up to `head`. `totals` holds the scopes that were asked for."""

    head: Head
    time: str
    dataset: Dataset
    budgets: Mapping[str, BudgetEntry]
    closed: bool = False
    charges: int = 0
    totals: Mapping[str, Loss] = field(default_factory=dict)

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        grid = self.dataset.grid
        return tuple(entry.budget.rule(grid, dict(entry.fixed)) for entry in self.budgets.values())

    @property
    def spent(self) -> Loss:
        """The dataset's own totals."""
        return self.totals.get(DATASET_SCOPE) or Loss.zero(self.dataset.grid)

    def charged(self, head: Head, time: str, totals: Mapping[str, Loss]) -> "State":
        """The state after a charge, which leaves the compiled rules as they are."""
        moved = State(head, time, self.dataset, self.budgets, self.closed, self.charges + 1, totals)
        moved.__dict__["rules"] = self.rules
        return moved

    def config(self) -> bytes:
        """Everything but head and totals, as the store keeps it beside the entries."""
        return canonical(
            {
                "dataset": self.dataset.model_dump(mode="json"),
                "budgets": {name: entry.document() for name, entry in self.budgets.items()},
                "closed": self.closed,
            }
        )

    @classmethod
    def restore(cls, head: Head, time: str, config: bytes, totals: Mapping[str, Loss]) -> Self:
        """The inverse of `config`. Raises LedgerCorrupt when it cannot be read."""
        try:
            document = json.loads(config)
            dataset = Dataset.model_validate_json(json.dumps(document["dataset"]))
            budgets = {name: BudgetEntry.parse(entry) for name, entry in document["budgets"].items()}
            return cls(head, time, dataset, budgets, document["closed"], totals=dict(totals))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LedgerCorrupt(f"the stored configuration of a dataset cannot be read: {error}") from error


def scope_blob(scope: str) -> str:
    """Name of the blob that holds a scope's running totals."""
    return f"totals/{scope}"


def seal(state_head: Head, document: dict[str, Any], key: str | None = None) -> tuple[NewEntry, Head]:
    """The entry after `state_head`, with its number, its predecessor's hash and the format version."""
    sequence = state_head.sequence + 1
    body = canonical({**document, "v": FORMAT, "seq": sequence, "prev": state_head.hash})
    digest = entry_hash(body)
    return NewEntry(digest, body, key), Head(sequence, digest)


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
        if entry["v"] != FORMAT or entry["seq"] != at or entry["prev"] != head.hash:
            raise LedgerCorrupt(f"entry {at}: it does not follow the entry before it", sequence=at)
        if state is not None and entry["time"] < state.time:
            raise LedgerCorrupt(f"entry {at}: its time lies before the entry before it", sequence=at)
        return _apply(state, Head(at, digest), entry)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise LedgerCorrupt(f"entry {at} cannot be read: {error!r}", sequence=at) from error


def _apply(state: "State | None", head: Head, entry: Mapping[str, Any]) -> State:
    kind, time = entry["type"], entry["time"]
    if (kind == "opened") != (state is None):
        raise ValueError(f"a ledger starts with `opened`, and only starts with it, got {kind!r}")
    if state is None:
        dataset = Dataset.model_validate_json(json.dumps(entry["dataset"]))
        budgets = {name: BudgetEntry.parse(item) for name, item in entry["budgets"].items()}
        # Totals from the start: that they are missing can then never mean that nothing was spent.
        return State(head, time, dataset, budgets, totals={DATASET_SCOPE: Loss.zero(dataset.grid)})
    state = replace(state, head=head, time=time)
    if kind == "charged":
        return _apply_charge(state, entry)
    if kind == "budget_set":
        changed = {**state.budgets, entry["name"]: BudgetEntry.parse(entry["entry"])}
        return replace(state, budgets=dict(sorted(changed.items())))  # as every stored form has them
    if kind == "closed":
        return replace(state, closed=True)
    raise ValueError(f"unknown type of entry {kind!r}")


def _apply_charge(state: State, entry: Mapping[str, Any]) -> State:
    grid = state.dataset.grid
    losses = entry_losses(grid, entry)
    items = entry["command"]["charges"]
    if len(items) != len(losses):
        raise ValueError(f"{len(items)} charges but {len(losses)} losses")
    totals = add_losses(state, entry["principal"], [item["mechanism"]["kind"] for item in items], losses)
    spent = totals[DATASET_SCOPE]
    if entry["seq"] % CHECKPOINT_EVERY == 0 and entry.get("totals") != spent.encode():
        raise ValueError("its checkpoint differs from the sum of the entries before it")
    return state.charged(state.head, state.time, totals)


def entry_losses(grid: Grid, entry: Mapping[str, Any]) -> list[Loss]:
    """The losses of a `charged` entry, one per charge. Raises KeyError or ValueError for anything else."""
    return [Loss.decode(grid, line) for line in entry["losses"]]


def add_losses(
    state: State, principal: str, kinds: Sequence[str], losses: Sequence[Loss], spent: Loss | None = None
) -> dict[str, Loss]:
    """The totals of every scope after a charge; all scopes move together.

    `spent` is the dataset's total after it, where the caller has added it up already.
    """
    grid = state.dataset.grid
    zero, totals = Loss.zero(grid), dict(state.totals)
    asked = losses[0] if len(losses) == 1 else total(grid, losses)
    totals[DATASET_SCOPE] = state.spent.plus(asked) if spent is None else spent
    scope = f"principal/{principal}"
    totals[scope] = totals.get(scope, zero).plus(asked)
    for kind, loss in zip(kinds, losses, strict=True):
        scope = f"mechanism/{kind}"
        totals[scope] = totals.get(scope, zero).plus(loss)
    return totals
