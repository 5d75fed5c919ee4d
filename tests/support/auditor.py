"""A naive auditor: what a ledger comes to, from its entries alone, added up anew for every question.

It uses no loss, total, limit, rule, state or window of ours: it keeps a list of charges and looks through all
of them. Curves of single releases are taken as they are: tests/laws holds them to the truth.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cache
from operator import add
from typing import Any, Self

import numpy as np

from odometer_accountant.mechanisms import ANY_MECHANISM
from odometer_accountant.model import text_to_floats
from odometer_accountant.numerics.grid import CURRENT_GRID

Document = dict[str, Any]
UNITS = CURRENT_GRID.units
STEPS = np.array([float(order) for order in CURRENT_GRID.exact_orders]) - 1
MARGIN = 1e-7
"""Nearer to the limit than this (in log delta), a naive maximum does not tell."""
SCOPED = ("principal", "team", "group")


@dataclass
class Sum:
    """Per coordinate an exact number of units, and how many contributions had no bound."""

    units: list[int] = field(default_factory=lambda: [0] * CURRENT_GRID.size)
    unbounded: list[int] = field(default_factory=lambda: [0] * CURRENT_GRID.size)

    @classmethod
    def of(cls, mechanism: Document, count: int) -> Self:
        """`count` releases, as one charge of them is rounded up; of none, nothing."""
        made = cls()
        if count:
            made.add(mechanism, count)
        return made

    def add(self, mechanism: Document, count: int) -> None:
        """One charge more."""
        for place, (amount, unit) in enumerate(zip(_amounts(json.dumps(mechanism)), UNITS, strict=True)):
            if amount is None:
                self.unbounded[place] += count
            else:
                self.units[place] += math.ceil(count * amount / unit)

    def plus(self, other: Self) -> Self:
        units, unbounded = map(add, self.units, other.units), map(add, self.unbounded, other.unbounded)
        return type(self)(list(units), list(unbounded))

    def within(self, other: "Sum") -> bool:
        """Whether this is nowhere above `other`."""
        pairs = zip(self.units + self.unbounded, other.units + other.unbounded, strict=True)
        return all(mine <= theirs for mine, theirs in pairs)

    def amount(self, place: int) -> Fraction | None:
        """A coordinate in nats (delta: a probability), exactly; None for no bound."""
        return None if self.unbounded[place] else self.units[place] * UNITS[place]

    def encoded(self) -> str:
        """As a store has it, but for those that it keeps as multiples: see `written_out`."""
        marks = " ".join(f"{place}:{count}" for place, count in enumerate(self.unbounded) if count)
        return " ".join(map(str, self.units)) + "|" + marks


@cache
def _amounts(mechanism: str) -> tuple[Fraction | None, ...]:
    return ANY_MECHANISM.validate_python(json.loads(mechanism)).curve(CURRENT_GRID).amounts


# -- the calendar


def start_of(window: str, time: str) -> datetime:
    """When the window that a ledger timestamp lies in began."""
    moment = datetime.strptime(time, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    hour = moment - timedelta(minutes=moment.minute, seconds=moment.second, microseconds=moment.microsecond)
    day = hour - timedelta(hours=moment.hour)
    return {
        "hour": hour,
        "day": day,
        "week": day - timedelta(days=moment.weekday()),
        "month": day - timedelta(days=moment.day - 1),
    }[window]


def name_of(window: str, time: str) -> str:
    """What a store calls the window that a ledger timestamp lies in."""
    form = {"hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m"}[window]
    return start_of(window, time).strftime(form)


# -- what a budget promises


def allows(entry: Document, after: Sum) -> bool | None:
    """Whether a budget in force allows `after`; None when it is too near to tell."""
    budget, grid = entry["budget"], CURRENT_GRID
    if budget["kind"] == "approximate":
        return _approximate(entry, after)
    if after.units[grid.delta] or after.unbounded[grid.delta]:
        return False
    place, limit = _coordinate(budget)
    return not after.unbounded[place] and after.units[place] * UNITS[place] <= limit


def _coordinate(budget: Document) -> tuple[int, Fraction]:
    """The one coordinate that a budget limits, and the limit."""
    grid = CURRENT_GRID
    if budget["kind"] == "pure":
        return grid.pure, Fraction(budget["epsilon"])
    if budget["kind"] == "zcdp":
        return grid.rho, Fraction(budget["rho"])
    if budget["kind"] == "gdp":
        return grid.mu_squared, Fraction(budget["mu"]) ** 2
    order = Fraction(budget["order"])
    place = next(place for place, known in enumerate(grid.exact_orders) if known >= order)
    return place, Fraction(budget["epsilon"])


def _approximate(entry: Document, after: Sum) -> bool | None:
    budget, fixed, grid = entry["budget"], entry["fixed"], CURRENT_GRID
    if after.unbounded[grid.delta] or after.units[grid.delta] > int(fixed["delta_add"]):
        return False
    epsilon = Fraction(budget["epsilon"])
    if not after.unbounded[grid.pure] and after.units[grid.pure] * UNITS[grid.pure] <= epsilon:
        return True
    losses = np.array([float(units * UNITS[0]) for units in after.units[: grid.n_orders]], dtype=float)
    losses[np.array(after.unbounded[: grid.n_orders]) > 0] = np.inf
    weights = np.array(fixed["weights"], dtype=float) / 1e18
    terms = np.log(weights) + STEPS * (float(epsilon) - losses)
    excess = _naive_maximum(terms) - math.log(float(fixed["delta_mix"]))
    return None if abs(excess) < MARGIN else excess < 0


def _naive_maximum(terms: Any) -> float:
    """Log max over x of (1 - e^-x) / sum exp(terms + steps x), by looking at many x, then closer."""
    low, high, best = 1e-6, 5.0, -math.inf
    for _ in range(5):
        x = np.geomspace(low, high, 60)
        exponents = terms[:, None] + STEPS[:, None] * x
        top = exponents.max(axis=0)
        if not np.isfinite(top).all():
            return math.inf
        values = np.log(-np.expm1(-x)) - top - np.log(np.exp(exponents - top).sum(axis=0))
        place = int(values.argmax())
        best = max(best, float(values[place]))
        low, high = float(x[max(place - 1, 0)]), float(x[min(place + 1, 59)])
    return best


# -- the books


@dataclass
class Record:
    """One charge: who, about whom, when, and what it comes to by now."""

    principal: str
    team: str | None
    command: Document
    number: int
    time: str
    losses: list[Sum]
    expires: str = ""
    """Of a hold."""
    settled: tuple[int, str] | None = None
    """The settlement of a hold: its entry and its time."""

    @classmethod
    def of(cls, entry: Document) -> Self:
        losses = [
            Sum.of(text_to_floats(one["mechanism"]), one["count"]) for one in entry["command"]["charges"]
        ]
        return cls(
            entry["principal"],
            entry.get("team"),
            entry["command"],
            entry["seq"],
            entry["time"],
            losses,
            entry.get("expires", ""),
        )

    @property
    def until(self) -> str:
        """Up to when it may have gone on releasing."""
        return self.settled[1] if self.settled else self.expires or self.time

    def open_at(self, number: int, time: str) -> bool:
        """Whether it was a hold that could still be settled after that entry."""
        return self.expires >= time and (self.settled is None or self.settled[0] > number)

    @property
    def whole(self) -> Sum:
        whole = Sum()
        for loss in self.losses:
            whole = whole.plus(loss)
        return whole

    def name(self, kind: str) -> str | None:
        """The principal, team or group that it is charged to."""
        if kind == "group":
            return self.command["group"]["name"] if "group" in self.command else None
        return self.principal if kind == "principal" else self.team

    def about(self, partition: str) -> bool:
        """Whether it read a partition: `all` has read those added later too."""
        return self.command["partitions"] == "all" or partition in self.command["partitions"]


@dataclass
class Auditor:
    """What one stream's entries come to. `take` each in turn; raises AssertionError at what should not be."""

    composition: str = ""
    partitions: list[str] = field(default_factory=list)
    shards: list[int] = field(default_factory=list)
    budgets: dict[str, Document] = field(default_factory=dict)
    closed: bool = False
    records: list[Record] = field(default_factory=list)
    holds: dict[int, Document] = field(default_factory=dict)
    """The entries of holds that are not settled, expired ones too."""
    settled: set[int] = field(default_factory=set)
    since: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)
    """Entry after which a kind of scope is counted within a kind of window, that of the first such budget,
    and its time. What was open by then counts too."""
    moved: dict[tuple[str, str], str] = field(default_factory=dict)
    """When a scope was last counted anew within a kind of window."""
    reached: set[tuple[str, str]] = field(default_factory=set)
    number: int = 0
    time: str = ""

    def take(self, body: bytes) -> None:
        entry = json.loads(body)
        assert entry["seq"] == self.number + 1
        assert entry["time"] >= self.time
        getattr(self, "_" + entry["type"])(entry)
        self.number, self.time = entry["seq"], entry["time"]
        for item in self.budgets.values():
            budget = item["budget"]
            if "window" in budget:
                for kind in self._coupled(kind_of(budget)[0]):
                    self.since.setdefault((kind, budget["window"]), (self.number, self.time))

    def _opened(self, entry: Document) -> None:
        self.composition = entry["dataset"]["composition"]
        self.budgets = dict(entry["budgets"])
        self.partitions = list(entry.get("partitions", []))

    def _budget_set(self, entry: Document) -> None:
        self.budgets[entry["name"]] = entry["entry"]

    def _synced(self, entry: Document) -> None:
        self.budgets, self.closed = dict(entry["budgets"]), entry["closed"]

    def _shard_opened(self, entry: Document) -> None:
        assert entry["shard"] not in self.shards  # each once
        self.shards.append(entry["shard"])

    def _partitions_added(self, entry: Document) -> None:
        self.partitions += entry["partitions"]

    def _closed(self, _: Document) -> None:
        self.closed = True

    def _charged(self, entry: Document) -> None:
        assert not self.closed
        record = Record.of(entry)
        refusing, _ = self.refusing(record)
        assert not refusing, f"entry {entry['seq']} was admitted against {refusing}"
        self.records.append(record)
        self._move(record, entry["time"])

    def _move(self, record: Record, time: str, but: set[tuple[str, str]] | None = None) -> None:
        for scope in self.scopes(record):
            for kind, window in set(self.since) - (but or set()):
                if kind == scope.partition("/")[0]:
                    self.moved[scope, window] = time

    def _held(self, entry: Document) -> None:
        self._charged(entry)
        self.holds[entry["seq"]] = entry
        self.reached = set(self.since)

    def _carried(self, entry: Document) -> None:
        """Written only where windows do not count what is open as open, and then with all of it."""
        assert {int(number) for number in entry["holds"]} >= set(self.open_holds(entry["time"]))
        assert set(self.since) != self.reached
        for number in entry["holds"]:
            record = next(one for one in self.records if one.number == int(number))
            if record.expires >= entry["time"]:
                self._move(record, entry["time"], but=self.reached)
        self.reached = set(self.since)

    def _settled(self, entry: Document) -> None:
        number, used = entry["hold"], entry["used"]
        hold = self.holds.pop(number)  # never twice, never what was no hold
        self.settled.add(number)
        assert hold["expires"] >= entry["time"]
        record = next(one for one in self.records if one.number == number)
        charges = hold["command"]["charges"]
        assert all(0 <= some <= one["count"] for some, one in zip(used, charges, strict=True))
        after = [
            Sum.of(text_to_floats(one["mechanism"]), some) for some, one in zip(used, charges, strict=True)
        ]
        assert all(new.within(old) for new, old in zip(after, record.losses, strict=True))
        record.losses, record.settled = after, (entry["seq"], entry["time"])
        self._move(record, entry["time"])

    def _coupled(self, kind: str) -> tuple[str, ...]:
        parted = self.composition == "by_partition" and kind in ("dataset", "partition")
        return ("dataset", "partition") if parted else (kind,)

    def open_holds(self, time: str) -> dict[int, str]:
        """Those that can still be settled, with their end."""
        return {number: one["expires"] for number, one in self.holds.items() if one["expires"] >= time}

    # -- judging

    def refusing(
        self, asked: Record, budgets: dict[str, Document] | None = None
    ) -> tuple[set[str], set[str]]:
        """The budgets that must refuse, and those too near to tell."""
        wrong, unsure = set(), set()
        for name, entry in (self.budgets if budgets is None else budgets).items():
            verdicts = {self._verdict(entry, asked, kind, one) for kind, one in self._targets(entry, asked)}
            if False in verdicts:
                wrong.add(name)
            elif None in verdicts:
                unsure.add(name)
        return wrong, unsure

    def _targets(self, entry: Document, asked: Record) -> Iterator[tuple[str, str]]:
        """Whose counts a budget limits, of those that a charge moves."""
        kind, name = kind_of(entry["budget"])
        if self.composition == "by_partition" and kind in ("dataset", "partition"):
            for one in self.partitions:
                if asked.about(one) and (kind == "dataset" or name in ("*", one)):
                    yield "partition", one
            if not self.partitions and (kind == "dataset" or name == "*"):
                yield "partition", ""  # one that comes later has lost this from its first day
        elif kind == "dataset":
            yield "dataset", ""
        elif kind == "unit":
            yield from (("unit", one) for one in asked.command["units"] if name in ("*", one))
        elif asked.name(kind) is not None and name in ("*", asked.name(kind)):
            yield kind, asked.name(kind) or ""

    def _verdict(self, entry: Document, asked: Record, kind: str, name: str) -> bool | None:
        budget = entry["budget"]
        after = self.spent(kind, name, budget.get("window"), asked.time).plus(asked.whole)
        verdict = allows(entry, after)
        if verdict and "reserved" in budget:
            return self._keeps(budget, asked, after)
        return verdict

    def _keeps(self, budget: Document, asked: Record, after: Sum) -> bool:
        """Whether what every team has left of its share is still there for it."""
        place, limit = _coordinate(budget)
        capacity = math.floor(limit / UNITS[place])
        now, then = after.units[place] - asked.whole.units[place], after.units[place]
        for team, share in budget["reserved"].items():
            spent = self.spent("team", team, None, asked.time)
            most = math.floor(Fraction(share) * capacity)
            if not spent.unbounded[place]:
                now += max(0, most - spent.units[place])
            if team == asked.team:
                spent = spent.plus(asked.whole)
            if not spent.unbounded[place]:
                then += max(0, most - spent.units[place])
        return then <= max(capacity, now)  # an edit may have left it above: it grows no further

    def spent(self, kind: str, name: str, window: str | None, time: str) -> Sum:
        """What somebody has spent, for life or in the window of `time`: by looking at every charge."""
        spent = Sum()
        for record in self.records:
            if self._concerns(record, kind, name) and self._counts(record, kind, window, time):
                spent = spent.plus(record.whole)
        return spent

    def _concerns(self, record: Record, kind: str, name: str) -> bool:
        if kind == "dataset":
            return True
        if kind == "partition":
            return record.about(name)
        if kind == "unit":
            return name in record.command["units"]
        return record.name(kind) == name

    def _counts(self, record: Record, kind: str, window: str | None, time: str) -> bool:
        if window is None:
            return True
        number, began = self.since.get((kind, window), (self.number, self.time))
        if record.number <= number and not record.open_at(number, began):
            return False
        return start_of(window, record.time) <= start_of(window, time) <= start_of(window, record.until)

    # -- what a store must hold

    def scopes(self, record: Record) -> list[str]:
        """Where the whole of a charge is kept."""
        if self.composition == "by_unit":
            return ["dataset", *(f"unit/{one}" for one in record.command["units"])]
        parts = record.command.get("partitions", "all")
        found = ["dataset"] if parts == "all" else [f"partition/{one}" for one in parts]
        return found + [f"{kind}/{record.name(kind)}" for kind in SCOPED if record.name(kind) is not None]

    def stored_totals(self) -> dict[str, str]:
        """For life, by scope; a partition's own, without what is kept for all."""
        found = {"dataset": Sum(), **{f"partition/{name}": Sum() for name in self.partitions}}
        for record in self.records:
            for scope in self.scopes(record):
                found[scope] = found.get(scope, Sum()).plus(record.whole)
            if self.composition != "by_unit":
                for charge, loss in zip(record.command["charges"], record.losses, strict=True):
                    scope = f"mechanism/{charge['mechanism']['kind']}"
                    found[scope] = found.get(scope, Sum()).plus(loss)
        return {scope: total.encoded() for scope, total in found.items()}

    def stored_windows(self) -> dict[str, str]:
        """By scope@window: the last one in which anything was counted, how much, and what of it is open."""
        found = {}
        for (scope, window), time in self.moved.items():
            kind, name = scope.partition("/")[0], name_of(window, time)
            mine = [
                one
                for one in self.records
                if scope in self.scopes(one) and self._counts(one, kind, window, time)
            ]
            spent, still = Sum(), {}
            for record in mine:
                spent = spent.plus(record.whole)
                whole = record.whole
                if record.expires and record.settled is None and any(whole.units + whole.unbounded):
                    key = name_of(window, record.expires)
                    still[key] = still.get(key, Sum()).plus(record.whole)
            parts = "".join(f";{key} {total.encoded()}" for key, total in sorted(still.items()))
            found[f"{scope}@{window}"] = f"{name} {spent.encoded()}{parts}"
        return found

    def held(self, kind: str, name: str, time: str) -> Sum:
        """What open holds of a scope come to."""
        held, numbers = Sum(), self.open_holds(time)
        for record in self.records:
            if record.number in numbers and self._concerns(record, kind, name):
                held = held.plus(record.whole)
        return held


def written_out(line: str, losses: list[str]) -> str:
    """A stored count in full; a shard keeps some as `times*number`, a multiple of one of these losses."""
    return ";".join(_written_out(part, losses) for part in line.split(";"))


def _written_out(line: str, losses: list[str]) -> str:
    window, space, total = line.rpartition(" ") if "*" in line else ("", "", line)
    times, star, number = total.partition("*")
    if not star:
        return line
    values, _, marks = losses[int(number)].partition("|")
    whole = Sum([int(times) * int(value) for value in values.split(" ")])
    for mark in marks.split():
        place, _, count = mark.partition(":")
        whole.unbounded[int(place)] = int(times) * int(count) if int(times) else 0
    return f"{window}{space}{whole.encoded()}"


def kind_of(budget: Document) -> tuple[str, str]:
    """(kind, name) of what a budget limits."""
    kind, _, name = budget.get("scope", "dataset").partition("/")
    return kind, name
