"""What callers were told, and whether a ledger keeps it: counted from its entries alone.

Every charge here is of `UNIT`, which costs rho = 0.5 each time; so what is spent is a number of times, and is
counted without any of the code that composes losses.
"""

import json
import threading
import time
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from odometer_accountant.ledger.blobs import TOTALS
from odometer_accountant.ledger.entries import timestamp
from odometer_accountant.ledger.fold import apply
from odometer_accountant.ledger.snapshot import load_state
from odometer_accountant.ledger.state import State
from odometer_accountant.stores import Row, Store
from odometer_accountant.verify.walk import all_streams, verify

UNIT = {"kind": "gaussian", "noise_multiplier": 1.0}
RHO_EACH = 0.5
PAGE = 1000
LATE_S = 20.0
"""How long before an entry's time the state before it may have been judged on at most: pauses are shorter."""
FAULTS = (
    "lost",
    "doubled",
    "overshot",
    "misfolded",
    "unverified",
    "wrong",
    "unresolved",
    "frozen",
)
"""What an examination may find."""
UNSURE_CODES = ("store-unavailable", "overloaded")
"""What a 503 may say while nothing is lost."""


@dataclass(frozen=True)
class Dataset:
    """A dataset of the load: the document that opens it, and how often `UNIT` fits each of its scopes."""

    name: str
    document: Mapping[str, Any]
    cap: int
    """For the whole, each partition or each unit."""


@dataclass(frozen=True)
class Ask:
    """One charge, hold or settlement that a caller wants."""

    dataset: Dataset
    path: str
    body: Mapping[str, Any]
    key: str | None
    """None for a settlement: the hold's number stands for it."""
    runs: int
    scopes: tuple[str, ...]
    """What must not go above the cap: the names of partitions or units, or "dataset"."""
    hold: str | None = None

    @property
    def name(self) -> tuple[str, str]:
        """What the ledger must not have twice."""
        return self.dataset.name, self.key if self.key is not None else f"settles {self.hold}"


@dataclass(frozen=True)
class Refusal:
    ask: Ask
    asked: float
    answered: float
    problem: Mapping[str, Any]


@dataclass
class Promises:
    """Everything that callers were told. Safe to use from several threads."""

    acked: dict[tuple[str, str], tuple[Ask, Mapping[str, Any]]] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Answers that must not be."""
    unknown_holds: list[Ask] = field(default_factory=list)
    """Settlements of which a caller heard that there is no such hold: wrong unless the hold was lost."""
    unresolved: list[Ask] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    rolled_back: Counter[str] = field(default_factory=Counter)
    """Datasets of which a caller heard that their history is gone."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def heard(self, ask: Ask, status: int, document: Mapping[str, Any], asked: float, tries: int) -> bool:
        """Note an answer; returns whether it is the last word."""
        with self._lock:
            code = str(document.get("type", "")).rpartition("/")[2]
            if status == 503:
                self.counts["unsure"] += 1
                if code == "ledger-rolled-back":
                    self.rolled_back[ask.dataset.name] += 1
                elif code not in UNSURE_CODES:
                    self.wrong.append(f"503 {code}: {document.get('detail')}")
                return False
            if status in (200, 201):
                replayed = bool(document["replayed"])
                self.counts["replayed"] += replayed
                self.counts["acked"] += 1
                if replayed and tries == 1:
                    self.wrong.append(f"{ask.name}: a replay, but it was asked once")
                self.acked[ask.name] = ask, document
            elif status == 409 and code == "budget-exceeded":
                self.counts["refused"] += 1
                self.refused.append(Refusal(ask, asked, time.time(), document))
            elif code == "unknown-hold":
                self.unknown_holds.append(ask)
            else:
                self.wrong.append(f"{status} {code} for {ask.name}: {document.get('detail')}")
            return True


@dataclass
class Findings:
    """What an examination came to. All lists are empty when the ledger keeps every promise."""

    entries: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    overshot: list[str] = field(default_factory=list)
    misfolded: list[str] = field(default_factory=list)
    unverified: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    unresolved: list[str] = field(default_factory=list)
    frozen: list[str] = field(default_factory=list)
    full: list[str] = field(default_factory=list)
    """Datasets with a scope at its cap: not a fault."""
    silent: int = 0
    """Entries that nobody was told of and that a caller asked for: their answers were lost for good."""

    def faults(self) -> dict[str, list[str]]:
        """What is off, by kind."""
        return {name: found for name in FAULTS if (found := getattr(self, name))}


@dataclass
class _Walk:
    """One stream, folded entry by entry, with the spending of its scopes counted apart."""

    dataset: Dataset
    stream: str
    findings: Findings
    spent: Counter[str] = field(default_factory=Counter)
    entries: int = 0
    times: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """By scope: when it moved."""
    totals: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By scope: what it had spent from then on."""
    found: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    used: dict[str, Any] = field(default_factory=dict)
    hashes: dict[int, str] = field(default_factory=dict)
    state: State | None = None
    frozen_at: int = 0

    def read(self, store: Store) -> None:
        after = 0
        while rows := store.entries(self.stream, after, PAGE):
            for row in rows:
                self.state = apply(self.state, row.hash, row.body)
                self._count(row, json.loads(row.body))
            after = rows[-1].sequence

    def _count(self, row: Row, entry: Mapping[str, Any]) -> None:
        kind = entry["type"]
        self.entries += 1
        if kind in ("charged", "held"):
            self.found[entry["key"]].append(row)
            self.hashes[row.sequence] = row.hash
            self._add(entry["time"], entry["command"], _runs(entry["command"]))
        elif kind == "settled":
            hold = _hold_id(self.stream, entry["hold"], self.hashes[entry["hold"]])
            self.found[f"settles {hold}"].append(row)
            self.used[str(row.sequence)] = entry["used"]
            command = entry["held"]["command"]
            self._add(entry["time"], command, sum(entry["used"]) - _runs(command))
        elif kind == "frozen":
            self.frozen_at = max(self.frozen_at, entry["seen"][0])

    def _add(self, time_: str, command: Mapping[str, Any], runs: int) -> None:
        for scope in scopes_of(command):
            self.spent[scope] += runs
            self.times[scope].append(time_)
            self.totals[scope].append(self.spent[scope])
        for scope in self._capped(scopes_of(command)):
            total = self._total(scope)
            if total > self.dataset.cap or self.spent[scope] < 0:
                self.findings.overshot.append(f"{self.stream} {scope}: {total} of {self.dataset.cap}")

    def _capped(self, scopes: tuple[str, ...]) -> tuple[str, ...]:
        """The scopes with a cap that a charge counts in: one on everybody counts in every part."""
        parts = self.dataset.document.get("partitions")
        return tuple(parts) if parts and scopes == ("dataset",) else scopes

    def _total(self, scope: str) -> int:
        """What a scope has spent, with what was charged on everybody."""
        return self.spent[scope] + (self.spent["dataset"] if scope != "dataset" else 0)

    def refusable(self, refusal: Refusal) -> bool:
        """Whether it did not fit in some state that the service may have judged on."""
        answered, earliest = _stamp(refusal.answered), _stamp(refusal.asked - LATE_S)
        for scope in self._capped(refusal.ask.scopes):
            most = self._most(scope, earliest, answered)
            most += self._most("dataset", earliest, answered) if scope != "dataset" else 0
            if most + refusal.ask.runs > self.dataset.cap:
                return True
        return False

    def _most(self, scope: str, earliest: str, latest: str) -> int:
        """The most that a scope had spent at some time between the two."""
        times = self.times.get(scope, [])
        first = max(bisect_left(times, earliest) - 1, 0)
        return max(self.totals[scope][first : bisect_right(times, latest)], default=0)

    def close(self, store: Store) -> None:
        """The stored totals are what the entries fold to."""
        state = self.state
        assert state is not None
        stored = load_state(store, self.stream, [TOTALS + scope for scope in state.totals.life])
        if stored is None or (stored.head, stored.totals.life) != (state.head, state.totals.life):
            self.findings.misfolded.append(self.stream)
        if state.frozen is not None:
            self.findings.frozen.append(self.stream)
        if any(self._total(scope) == self.dataset.cap for scope in self._capped(tuple(self.spent))):
            self.findings.full.append(self.stream)


def scopes_of(command: Mapping[str, Any]) -> tuple[str, ...]:
    """The scopes of a charge that have a cap here."""
    parts = command.get("partitions", ())
    return tuple(command.get("units", ())) or (() if parts == "all" else tuple(parts)) or ("dataset",)


def examine(store: Store, datasets: Iterable[Dataset], promises: Promises) -> Findings:
    """Read every ledger, and hold it against what callers were told. Nobody may charge meanwhile."""
    findings = Findings(wrong=list(promises.wrong), unresolved=[str(ask) for ask in promises.unresolved])
    findings.wrong += [f"{ask.name}: unknown-hold" for ask in promises.unknown_holds]
    by_name = {dataset.name: dataset for dataset in datasets}
    walks: dict[str, list[_Walk]] = defaultdict(list)
    for stream in all_streams(store):
        dataset = by_name.get(stream.removeprefix("~units/").partition("/")[0])
        if dataset is None:
            continue
        walk = _Walk(dataset, stream, findings)
        walk.read(store)
        walk.close(store)
        walks[dataset.name].append(walk)
        findings.entries += walk.entries
    _hold_against(promises, walks, findings)
    findings.unverified = [
        f"{verdict.stream}: {verdict.findings[0]}" for verdict in verify(store) if not verdict.ok
    ]
    return findings


def _hold_against(promises: Promises, walks: Mapping[str, list[_Walk]], findings: Findings) -> None:
    found: dict[tuple[str, str], list[tuple[_Walk, Row]]] = defaultdict(list)
    for name, some in walks.items():
        for walk in some:
            for key, rows in walk.found.items():
                found[name, key] += [(walk, row) for row in rows]
    findings.doubled = [f"{name}: {len(rows)} entries" for name, rows in found.items() if len(rows) > 1]
    refused = {refusal.ask.name for refusal in promises.refused}
    for name, (ask, receipt) in promises.acked.items():
        told = receipt["sequence"], receipt["hash"]
        here = [walk for walk, row in found[name] if (row.sequence, row.hash) == told]
        if not here:
            findings.lost.append(f"{name}: entry {receipt['sequence']}")
        elif ask.key is None and here[0].used[str(receipt["sequence"])] != [ask.body["used"]]:
            findings.wrong.append(f"{name}: settled for another number")
    for name in list(found):
        if name in refused and found[name]:
            findings.wrong.append(f"{name}: refused, and charged")
        findings.silent += name not in promises.acked and bool(found[name])
    for refusal in promises.refused:
        some = walks.get(refusal.ask.dataset.name, [])
        if not any(walk.refusable(refusal) for walk in some):
            findings.wrong.append(f"{refusal.ask.name}: refused, though it fitted: {refusal.problem}")


def _runs(command: Mapping[str, Any]) -> int:
    return sum(int(item["count"]) for item in command["charges"])


def _hold_id(stream: str, number: int, digest: str) -> str:
    name = f"{number}.{digest[:8]}"
    return f"{stream.rpartition('/')[2]}-{name}" if stream.startswith("~") else name


def _stamp(moment_s: float) -> str:
    return timestamp(datetime.fromtimestamp(moment_s, UTC))
