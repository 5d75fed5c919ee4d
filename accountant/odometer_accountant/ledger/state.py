"""The state that a stream's entries fold into, and the blobs that store it beside them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from odometer_accountant.errors import LedgerCorrupt
from odometer_accountant.ledger.active_budgets import ActiveBudget
from odometer_accountant.ledger.blobs import (
    CONFIG_BLOB,
    HOLDS_BLOB,
    LOSS_DICTIONARY_BLOB,
    SESSIONS_BLOB,
    TOTALS,
    WINDOWS,
    scope_blob,
    window_blob,
)
from odometer_accountant.ledger.dataset import BudgetVersion, Dataset
from odometer_accountant.ledger.entries import (
    FORMAT,
    canonical,
    check_format,
)
from odometer_accountant.ledger.loss_dictionary import LossDictionary
from odometer_accountant.ledger.session_state import SessionState, dump, load
from odometer_accountant.ledger.totals import Totals, counted_windows
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.once import once
from odometer_accountant.scopes import DATASET_SCOPE, AffectedScopes, shard_stream
from odometer_accountant.stores import Head
from odometer_accountant.windows import Window


@dataclass(frozen=True)
class AcceptedLoss:
    """The last of the entries that were lost, and the time at which a person accepted that."""

    lost: Head
    time: str


@dataclass(frozen=True)
class State:
    """The state of a stream at `head`. `totals` holds the scopes that were asked for."""

    head: Head
    time: str
    dataset: Dataset
    budgets: Mapping[str, BudgetVersion]
    totals: Totals
    closed: bool = False
    charges: int = 0
    partitions: tuple[str, ...] = ()
    holds: Mapping[int, str] = field(default_factory=dict)
    """Open holds: the number of the entry, and the time at which it expires."""
    sessions: Mapping[int, SessionState] = field(default_factory=dict)
    """Open sessions, by the number of the entry that opened them."""
    frozen: Head | None = None
    """The last entry that was seen and is gone: nothing is admitted until a person decides."""
    accepted_loss: "AcceptedLoss | None" = None
    """The last loss of entries that a person accepted."""
    shard: int | None = None
    """Only for a shard: its number."""
    opened: tuple[int, ...] = ()
    """Only for a dataset by unit: the shards that were opened. A missing one was lost."""
    reached: Mapping[str, tuple[Window, ...]] = field(default_factory=dict)
    """The windows, by kind of scope, whose counts state the part that is open."""
    version: int = FORMAT
    """The latest format of its entries, at least the usual one."""
    loss_dictionary: LossDictionary = field(default_factory=LossDictionary)
    """Only for a shard: the losses that totals are stored as multiples of."""

    @once
    def limits(self) -> tuple[ActiveBudget, ...]:
        """The budgets, compiled."""
        return tuple(ActiveBudget.of(entry, self.dataset.grid) for entry in self.budgets.values())

    @once
    def windows(self) -> Mapping[str, tuple[Window, ...]]:
        """The windows that budgets need counted, by kind of scope."""
        found: dict[str, list[Window]] = {}
        for limit in self.limits:
            kinds = [limit.kind]
            if self.dataset.composition == "by_partition" and limit.kind in ("dataset", "partition"):
                kinds = ["dataset", "partition"]
            for kind in kinds if limit.window else ():
                if limit.window and limit.window not in found.setdefault(kind, []):
                    found[kind].append(limit.window)
        return {kind: tuple(sorted(windows)) for kind, windows in found.items()}

    @once
    def standing(self) -> tuple[str, ...]:
        """Names of the blobs that are always read: counts for budgets of the dataset and of named scopes."""
        scopes = [DATASET_SCOPE]
        scopes += [f"partition/{name}" for name in self.partitions]
        scopes += [f"{limit.kind}/{limit.name}" for limit in self.limits if limit.name not in ("", "*")]
        scopes += [team for limit in self.limits for team in limit.shares]
        return self.blob_names(dict.fromkeys(scopes))

    def blob_names(self, scopes: Iterable[str]) -> tuple[str, ...]:
        """Names of the blobs that hold the counts of `scopes`, for life and in the windows that matter."""
        names = list(scopes)
        within = counted_windows(names, self.windows)
        return (
            *(scope_blob(scope) for scope in names),
            *(window_blob(scope, window) for scope, window in within),
        )

    @property
    def must_carry(self) -> bool:
        """Whether windows do not count an open hold or session as open: then `carried` must come first."""
        return self.reached != self.windows and bool(self.holds or self.sessions)

    @property
    def composition(self) -> str:
        return self.dataset.composition

    @property
    def stream(self) -> str:
        name = self.dataset.name
        return name if self.shard is None else shard_stream(name, self.shard)

    @property
    def spent(self) -> Loss:
        """The dataset's total. In a partitioned dataset it adds to the total of every partition."""
        return self.totals.of(DATASET_SCOPE)

    def scopes(self, affected: AffectedScopes, kinds: Iterable[str]) -> tuple[str, ...]:
        """Every scope whose total a charge changes."""
        own = affected.scopes(self.composition)
        if self.composition == "by_unit":
            return own
        return (*own, *dict.fromkeys(f"mechanism/{kind}" for kind in kinds))

    def moved(self, head: Head, time: str, totals: Totals, **changes: Any) -> "State":
        """The state after a charge or a settlement. Keeps the compiled budgets."""
        after = object.__new__(State)  # `replace` costs as much as a sum, and drops the compiled budgets
        after.__dict__.update(self.__dict__, head=head, time=time, totals=totals, **changes)
        return after

    def _configured(self) -> tuple[object, ...]:
        return (
            self.budgets,
            self.closed,
            self.partitions,
            self.opened,
            self.frozen,
            self.accepted_loss,
            self.reached,
            self.version,
        )

    def config(self) -> bytes:
        """Everything but head, totals and holds, as it is stored beside the entries."""
        return self._config

    @once
    def _config(self) -> bytes:
        document: dict[str, Any] = {
            "dataset": self.dataset.model_dump(mode="json"),
            "budgets": {name: entry.kept() for name, entry in self.budgets.items()},
            "closed": self.closed,
            "partitions": list(self.partitions),
            "shard": self.shard,
        }
        if self.version > FORMAT:  # a reader of the state alone learns which version it needs
            document["format"] = self.version
        if self.reached:
            document["reached"] = {kind: list(windows) for kind, windows in self.reached.items()}
        if self.opened:
            document["opened"] = list(self.opened)
        if self.frozen is not None:
            document["frozen"] = [self.frozen.sequence, self.frozen.hash]
        if self.accepted_loss is not None:
            lost = self.accepted_loss.lost
            document["amnesty"] = [lost.sequence, lost.hash, self.accepted_loss.time]
        return canonical(document)

    @classmethod
    def restore(
        cls,
        head: Head,
        time: str,
        config: bytes,
        holds: bytes | None,
        loss_dictionary: bytes | None = None,
        sessions: bytes | None = None,
    ) -> Self:
        """The inverse of `config`, without any totals. Raises LedgerCorrupt when it cannot be read."""
        try:
            document = json.loads(config)
            check_format(document["dataset"]["name"], document.get("format"))
            dataset = Dataset.model_validate_json(json.dumps(document["dataset"]))
            budgets = {name: BudgetVersion.parse(entry) for name, entry in document["budgets"].items()}
            return cls(
                head,
                time,
                dataset,
                budgets,
                Totals(dataset.grid, {}, {}),
                document["closed"],
                partitions=tuple(document.get("partitions", ())),
                holds=read_holds(holds),
                sessions=load(sessions),
                frozen=parse_head(document.get("frozen")),
                accepted_loss=parse_accepted_loss(document.get("amnesty")),
                shard=document.get("shard"),
                reached={kind: tuple(found) for kind, found in document.get("reached", {}).items()},
                version=document.get("format", FORMAT),
                opened=tuple(document.get("opened", ())),
                loss_dictionary=_read_loss_dictionary(dataset.grid, loss_dictionary),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LedgerCorrupt(f"the stored configuration of a dataset cannot be read: {error}") from error

    def blobs(self, before: "State | None" = None) -> dict[str, bytes]:
        """The blobs to store beside the entries; with `before`, only those that differ from it."""
        old = before.totals if before else Totals(self.dataset.grid, {}, {})
        parts = before.partitions if before else ()
        # The totals of a new partition are stored although they are zero: a missing one is then a fault.
        new = {f"partition/{name}" for name in self.partitions if name not in parts}
        found = {
            TOTALS + scope: self.loss_dictionary.encode(loss).encode("ascii")
            for scope, loss in self.totals.life.items()
            if old.life.get(scope) is not loss or scope in new
        }
        found |= {
            WINDOWS + key: within.encode(self.loss_dictionary).encode("ascii")
            for key, within in self.totals.windows.items()
            if old.windows.get(key) is not within
        }
        if before is None or before.holds is not self.holds:
            found[HOLDS_BLOB] = canonical({str(number): expires for number, expires in self.holds.items()})
        if (before is None and self.sessions) or (before and before.sessions is not self.sessions):
            found[SESSIONS_BLOB] = canonical(dump(self.sessions))
        if self.shard is not None and (before is None or before.loss_dictionary is not self.loss_dictionary):
            found[LOSS_DICTIONARY_BLOB] = canonical({"losses": self.loss_dictionary.dump()})
        if before is None or self._configured() != before._configured():
            found[CONFIG_BLOB] = self.config()
        return found


def parse_head(pair: Sequence[Any] | None) -> Head | None:
    """A head from its stored (sequence, hash)."""
    return None if pair is None else Head(int(pair[0]), str(pair[1]))


def parse_accepted_loss(parts: Sequence[Any] | None) -> AcceptedLoss | None:
    """An accepted loss from its stored (sequence, hash, time)."""
    return None if parts is None else AcceptedLoss(Head(int(parts[0]), str(parts[1])), str(parts[2]))


def read_holds(blob: bytes | None) -> dict[int, str]:
    """The open holds that a blob lists: the number of the entry, and the time at which it expires."""
    return {} if blob is None else {int(number): str(end) for number, end in json.loads(blob).items()}


def _read_loss_dictionary(grid: Grid, blob: bytes | None) -> LossDictionary:
    return LossDictionary() if blob is None else LossDictionary.load(grid, json.loads(blob)["losses"])
