"""The state that folds out of a stream's entries, and what of it is stored beside them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from odometer_accountant.errors import LedgerCorrupt
from odometer_accountant.ledger.active_budgets import ActiveBudget
from odometer_accountant.ledger.blobs import (
    CONFIG_BLOB,
    HOLDS_BLOB,
    LEXICON_BLOB,
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
    """A history that was lost, and when a person decided to go on without it."""

    lost: Head
    time: str


@dataclass(frozen=True)
class State:
    """A stream as its entries fold up to `head`. `totals` holds the scopes that were asked for."""

    head: Head
    time: str
    dataset: Dataset
    budgets: Mapping[str, BudgetVersion]
    totals: Totals
    closed: bool = False
    charges: int = 0
    partitions: tuple[str, ...] = ()
    holds: Mapping[int, str] = field(default_factory=dict)
    """Open holds: the number of the entry, and when it expires."""
    sessions: Mapping[int, SessionState] = field(default_factory=dict)
    """Open sessions, by the number of the entry that opened them."""
    frozen: Head | None = None
    """The end of a history that was seen and is gone: until a person decides, nothing is admitted."""
    accepted_loss: "AcceptedLoss | None" = None
    """The last such history that a person has decided to go on without."""
    shard: int | None = None
    """Which part of a dataset's unit odometers this is."""
    opened: tuple[int, ...] = ()
    """Of a dataset by unit, the shards that were opened: one that is missing was lost."""
    reached: Mapping[str, tuple[Window, ...]] = field(default_factory=dict)
    """The windows, by kind of scope, whose counts say what of them is open."""
    version: int = FORMAT
    """The latest format of its entries, at least the usual one."""
    lexicon: LossDictionary = field(default_factory=LossDictionary)
    """What totals are stored as multiples of: in shards alone."""

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
        """Names of the blobs that are always read: what budgets of the dataset and of named scopes count."""
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
        """Whether something is open that windows do not count as open: it must be counted first."""
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
        """The dataset's own totals: of a partitioned dataset, those that are part of every partition."""
        return self.totals.of(DATASET_SCOPE)

    def scopes(self, affected: AffectedScopes, kinds: Iterable[str]) -> tuple[str, ...]:
        """Every scope whose odometer a charge moves."""
        own = affected.scopes(self.composition)
        if self.composition == "by_unit":
            return own
        return (*own, *dict.fromkeys(f"mechanism/{kind}" for kind in kinds))

    def moved(self, head: Head, time: str, totals: Totals, **changes: Any) -> "State":
        """The state after a charge or a settlement, which leave the compiled budgets as they are."""
        after = object.__new__(State)  # `replace` costs as much as a sum, and forgets what is compiled
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
        """Everything but head, totals and holds, as the store keeps it beside the entries."""
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
        if self.version > FORMAT:  # whoever reads the state alone sees which version it takes
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
        lexicon: bytes | None = None,
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
                lexicon=_read_lexicon(dataset.grid, lexicon),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LedgerCorrupt(f"the stored configuration of a dataset cannot be read: {error}") from error

    def blobs(self, before: "State | None" = None) -> dict[str, bytes]:
        """What is stored beside the entries; only what differs from `before`, where given."""
        old = before.totals if before else Totals(self.dataset.grid, {}, {})
        parts = before.partitions if before else ()
        # Totals of a new partition are stored though they are zero: that they are missing is then a fault.
        new = {f"partition/{name}" for name in self.partitions if name not in parts}
        found = {
            TOTALS + scope: self.lexicon.encode(loss).encode("ascii")
            for scope, loss in self.totals.life.items()
            if old.life.get(scope) is not loss or scope in new
        }
        found |= {
            WINDOWS + key: within.encode(self.lexicon).encode("ascii")
            for key, within in self.totals.windows.items()
            if old.windows.get(key) is not within
        }
        if before is None or before.holds is not self.holds:
            found[HOLDS_BLOB] = canonical({str(number): expires for number, expires in self.holds.items()})
        if (before is None and self.sessions) or (before and before.sessions is not self.sessions):
            found[SESSIONS_BLOB] = canonical(dump(self.sessions))
        if self.shard is not None and (before is None or before.lexicon is not self.lexicon):
            found[LEXICON_BLOB] = canonical({"losses": self.lexicon.dump()})
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
    """The open holds that a blob lists: number of the entry, and when it expires."""
    return {} if blob is None else {int(number): str(end) for number, end in json.loads(blob).items()}


def _read_lexicon(grid: Grid, blob: bytes | None) -> LossDictionary:
    return LossDictionary() if blob is None else LossDictionary.load(grid, json.loads(blob)["losses"])
