"""A small organisation that charges and reads, and the truth of what it was told, counted apart.

All losses are pure ε in sixteenths, so that sums are exact. `Truth` adds up what was admitted; `Asking` asks
an accountant everything that it answers, and says for each reply whether it was right, refused for want of a
certain answer, or wrong.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from odometer_accountant.errors import BudgetExceeded, LedgerCorrupt, LedgerRolledBack, StoreUnavailable
from odometer_accountant.ledger.commands import Caller
from odometer_accountant.service.accountant import Accountant
from tests.golden.ledger.drive import Clock

UNSURE = (LedgerCorrupt, LedgerRolledBack, StoreUnavailable)
"""What an accountant says that does not believe its store."""
STEP = Fraction(1, 16)
TEAMS = {"ann": "red", "bob": "red", "cat": "blue", "dan": None}
UNITS = tuple(f"u{number}" for number in range(6))
PARTS = ("eu", "us", "asia")
LIMITS = {"dataset": 40, "principal": 4, "team": 9, "group": 5, "partition": 6, "unit": 3}
DAILY = 2
_PERSON: dict[str, Any] = {"unit": "person", "adjacency": "add_remove", "delta": 1e-6}


def _each(*kinds: str) -> list[dict[str, Any]]:
    found = [{"name": kind, "kind": "pure", "epsilon": LIMITS[kind], "scope": f"{kind}/*"} for kind in kinds]
    return [one | {"scope": "dataset"} if one["name"] == "dataset" else one for one in found]


DATASETS: tuple[dict[str, Any], ...] = (
    {
        "name": "flat",
        **_PERSON,
        "budgets": [
            *_each("dataset", "principal", "team", "group"),
            {"name": "daily", "kind": "pure", "epsilon": DAILY, "scope": "principal/ann", "window": "day"},
        ],
    },
    {
        "name": "parts",
        **_PERSON,
        "composition": "by_partition",
        "partitions": list(PARTS[:2]),
        "budgets": _each("partition", "principal"),
    },
    {"name": "phones", **_PERSON, "composition": "by_unit", "shards": 2, "budgets": _each("unit")},
)


def caller(name: str) -> Caller:
    return Caller(name, team=TEAMS[name])


def body(sixteenths: int, **more: Any) -> dict[str, Any]:
    return {"mechanism": {"kind": "pure", "epsilon": 0.0625}, "count": sixteenths, **more}


def scopes_of(dataset: str, who: str, more: dict[str, Any]) -> list[str]:
    """Whose loss a charge is, by what the documentation says."""
    if dataset == "phones":
        return [f"unit/{unit}" for unit in more["units"]]
    parts = more.get("partitions", "all")
    found = ["dataset"] if dataset == "flat" or parts == "all" else [f"partition/{part}" for part in parts]
    found += [f"principal/{who}", "mechanism/" + more.get("kind", "pure")]
    found += [f"team/{TEAMS[who]}"] if TEAMS[who] else []
    return found + ([f"group/{more['group']['name']}"] if "group" in more else [])


@dataclass
class Truth:
    """What was admitted, by dataset and scope, in sixteenths; and what is open."""

    spent: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    daily: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    """By principal and day."""
    keys: dict[tuple[str, str, str], tuple[int, dict[str, Any]]] = field(default_factory=dict)
    """By dataset, principal and key: the entry, and what was asked."""
    holds: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    """Open, by id: dataset, principal, sixteenths."""
    others: list[tuple[Any, ...]] = field(default_factory=list)
    """Holds, sessions and answers: the method, its arguments, and who called."""
    sessions: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Open, of `flat`, by id: opener, above answers."""

    def copy(self) -> "Truth":
        made = Truth()
        for name in ("spent", "daily", "keys", "holds", "sessions"):
            getattr(made, name).update(getattr(self, name))
        made.others += self.others
        return made

    def add(self, dataset: str, scopes: list[str], sixteenths: int, day: str) -> None:
        for scope in scopes:
            self.spent[dataset, scope] += sixteenths
            if (dataset, scope) == ("flat", "principal/ann"):
                self.daily[scope, day] += sixteenths

    def reading(self, dataset: str, scope: str) -> Fraction:
        own = self.spent[dataset, scope]
        return STEP * (own + self.spent[dataset, "dataset"] if scope.startswith("partition/") else own)

    def room(self, dataset: str, who: str, day: str, more: dict[str, Any]) -> int:
        """The sixteenths that every budget still allows."""
        left = []
        for scope in scopes_of(dataset, who, more):
            kind = scope.partition("/")[0]
            if dataset == "parts" and kind == "dataset":
                left += [6 * 16 - int(self.reading("parts", f"partition/{part}") * 16) for part in PARTS]
            elif kind in LIMITS and kind in _budgets(dataset):
                left.append(LIMITS[kind] * 16 - int(self.reading(dataset, scope) * 16))
            if (dataset, scope) == ("flat", "principal/ann"):
                left.append(DAILY * 16 - self.daily[scope, day])
        return min(left)


def _budgets(dataset: str) -> set[str]:
    document = next(one for one in DATASETS if one["name"] == dataset)
    return {budget["name"] for budget in document["budgets"]}


class Asking:
    """Someone who charges, reads, and keeps the truth of it. A wrong reply is an AssertionError."""

    def __init__(self, accountant: Accountant, truth: Truth, clock: Clock) -> None:
        self.accountant = accountant
        self.truth = truth
        self.clock = clock
        self.unsure: list[str] = []
        """What was not answered, and why."""

    @property
    def day(self) -> str:
        return self.clock()[:10]

    def sure(self, what: str, ask: Callable[[], Any]) -> Any:
        """The answer, or None when the accountant does not believe its store."""
        try:
            return ask()
        except UNSURE as error:
            self.unsure.append(f"{what}: {error.detail}")
            return None

    def charge(self, dataset: str, who: str, key: str, sixteenths: int, **more: Any) -> bool | None:
        """True: admitted. False: refused. None: no answer. Wrong where the truth says something else."""
        fits = sixteenths <= self.truth.room(dataset, who, self.day, more)
        try:
            asked = self.sure(
                f"charge {dataset} {who}",
                lambda: self.accountant.charge(dataset, body(sixteenths, **more), key, caller(who)),
            )
        except BudgetExceeded:
            assert not fits, f"{dataset}, {who}: {sixteenths} refused, and they fit"
            return False
        if asked is None:
            return None
        receipt, replayed = asked
        assert not replayed, f"{dataset}, {who}: a new charge is taken for one of before"
        assert fits, f"OVERSPENT {dataset}, {who}, {more}: {sixteenths} admitted"
        self.truth.add(dataset, scopes_of(dataset, who, more), sixteenths, self.day)
        self.truth.keys[dataset, who, key] = (receipt["sequence"], {"sixteenths": sixteenths, **more})
        return True

    def hold(self, who: str, key: str, sixteenths: int) -> None:
        more = body(sixteenths, expires_in_s=1_000_000)
        receipt, _ = self.accountant.hold("flat", more, key, caller(who))
        self.truth.add("flat", scopes_of("flat", who, {}), sixteenths, self.day)
        self.truth.holds[receipt["hold"]["id"]] = ("flat", who, sixteenths)
        self.truth.others.append(("hold", "flat", more, key, who))

    def settle(self, hold: str, used: int) -> None:
        dataset, who, held = self.truth.holds[hold]
        said = self.sure(
            f"settle {hold}", lambda: self.accountant.settle(dataset, hold, {"used": used}, caller(who))
        )
        if said is not None:
            assert said[0]["used"] == [used]
            assert not said[1]
            del self.truth.holds[hold]
            for scope in scopes_of(dataset, who, {}):
                self.truth.spent[dataset, scope] -= held - used

    def open_session(self, who: str, key: str) -> None:
        asked = {"session": {"kind": "sparse_vector", "max_above": 6, **_THRESHOLDS}}
        reply, _ = self.accountant.open_session("flat", asked, key, caller(who))
        self.truth.add("flat", scopes_of("flat", who, _SESSION), 2, self.day)
        self.truth.sessions[reply["session"]["id"]] = (who, 0)
        self.truth.others.append(("open_session", "flat", asked, key, who))

    def answer(self, session: str, key: str) -> None:
        """An above answer, which opens the next run."""
        who, above = self.truth.sessions[session]
        said = self.sure(
            f"answer {session}",
            lambda: self.accountant.answer_session("flat", session, {"above": True}, key, caller(who)),
        )
        if said is not None:
            assert said[0]["session"]["above"] == above + 1
            self.truth.sessions[session] = (who, above + 1)
            self.truth.others.append(("answer_session", "flat", session, {"above": True}, key, who))
            self.truth.add("flat", scopes_of("flat", who, _SESSION), 2, self.day)

    # -- everything that is read

    def read_all(self) -> None:
        for document in DATASETS:
            self._read(document["name"])
        self.sure("datasets", lambda: self._listed(self.accountant.datasets()["items"]))

    def _listed(self, items: list[dict[str, Any]]) -> None:
        named = {item["name"]: item for item in items}
        for document in DATASETS:
            item = named.get(document["name"])
            if item is None or "problem" in item:
                raise StoreUnavailable(f"{document['name']} is listed with a problem")

    def _read(self, name: str) -> None:
        ask, truth = self.accountant, self.truth
        for scope in sorted(scope for dataset, scope in truth.spent if dataset == name):
            if scope.startswith("mechanism/") or (scope == "dataset" and name != "flat"):
                continue
            found = self.sure(f"odometer {name} {scope}", lambda at=scope: ask.odometer(name, scope=at))
            if found is not None:
                told = Fraction(found["totals"]["pure"])
                assert told == truth.reading(name, scope), f"{name} {scope}: told {told}"
                self._budgets_of(name, scope, found["left"])
        self.sure(f"dataset {name}", lambda: ask.dataset(name))
        self._ledger(name)
        if name == "phones":
            return
        self.sure(f"history {name}", lambda: ask.history(name))
        self.sure(f"spend {name}", lambda: self._spent(name, ask.spend(name)))
        kinds = {scope.partition("/")[0] for dataset, scope in truth.spent if dataset == name} - {"dataset"}
        for kind in sorted(kinds):
            listed = self.sure(f"scopes {name} {kind}", lambda at=kind: ask.scopes(name, at)["items"])
            if listed is not None:
                told_all = {item["scope"]: Fraction(item["totals"]["pure"]) for item in listed}
                due = {
                    s: truth.reading(name, s)
                    for d, s in truth.spent
                    if d == name and s.startswith(kind + "/")
                }
                assert {s: e for s, e in told_all.items() if e or s in due} == due, f"scopes {name} {kind}"
        if name == "flat":
            self._open()

    def _budgets_of(self, name: str, scope: str, left: list[dict[str, Any]]) -> None:
        for budget in left:
            due = self.truth.reading(name, scope)
            if budget.get("window"):
                due = STEP * self.truth.daily[scope, self.day]
            if budget["scope"] == scope and "spent" in budget:
                assert Fraction(budget["spent"]) == due, f"{name} {scope} {budget}"

    def _spent(self, name: str, spend: dict[str, Any]) -> None:
        told = {item["principal"] for item in spend["by_principal"]}
        due = {s.partition("/")[2] for d, s in self.truth.spent if d == name and s.startswith("principal/")}
        assert told == due, f"spend {name}: {told}"

    def _open(self) -> None:
        holds = self.sure("holds", lambda: self.accountant.holds("flat")["items"])
        if holds is not None:
            assert {item["id"] for item in holds} == set(self.truth.holds)
        sessions = self.sure("sessions", lambda: self.accountant.sessions("flat")["items"])
        if sessions is not None:
            told = {item["id"]: item["above"] for item in sessions}
            assert told == {one: above for one, (_, above) in self.truth.sessions.items()}

    def _ledger(self, name: str) -> None:
        """Every entry, and that each has the number that it was told to have."""
        pages = self.sure(f"ledger {name}", lambda: self.accountant.ledger(name, limit=1000)["items"])
        if pages is None:
            return
        assert [item["sequence"] for item in pages] == [item["entry"]["seq"] for item in pages]
        if name != "phones":
            last = max((at for (d, _, _), (at, _) in self.truth.keys.items() if d == name), default=0)
            assert len(pages) >= last, f"ledger {name}: entries are gone"

    def retry_all(self) -> None:
        """Every charge once more, with its key: it was done, and is not done again."""
        for (dataset, who, key), (sequence, asked) in list(self.truth.keys.items()):
            more = dict(asked)
            again = body(more.pop("sixteenths"), **more)
            said = self.sure(
                f"retry {dataset} {who}/{key}",
                lambda d=dataset, a=again, k=key, w=who: self.accountant.charge(d, a, k, caller(w)),
            )
            if said is not None:
                assert said[1], f"retry {dataset} {who}/{key}: charged again"
                assert said[0]["sequence"] == sequence
        for method, *arguments, who in list(self.truth.others):
            said = self.sure(
                f"retry {method} of {who}",
                lambda m=method, a=arguments, w=who: getattr(self.accountant, m)(*a, caller(w)),
            )
            assert said is None or said[1], f"retry {method} {arguments}: done again"

    def charge_all(self, mark: str) -> None:
        """For every scope what is one too many, and then what just fits."""
        for place, (dataset, who, more) in enumerate(targets()):
            room = self.truth.room(dataset, who, self.day, more)
            self.charge(dataset, who, f"over-{mark}-{place}", room + 1, **more)
            if room > 0:
                self.charge(dataset, who, f"fits-{mark}-{place}", 1, **more)
        for hold in list(self.truth.holds):
            self.settle(hold, 1)
        for session in list(self.truth.sessions):
            self.answer(session, f"answer-{mark}-{session}")


_THRESHOLDS = {"epsilon_threshold": 0.0625, "epsilon_answers": 0.0625}
_SESSION = {"kind": "above_threshold"}


def targets() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Who charges what, so that every scope is charged."""
    yield "flat", "ann", {"group": {"name": "sweep", "runs": 1}}
    yield "flat", "bob", {}
    yield "flat", "cat", {"group": {"name": "scan", "runs": 1}}
    yield "flat", "dan", {}
    for part in PARTS:
        yield "parts", "ann" if part == "eu" else "bob", {"partitions": [part]}
    yield "parts", "cat", {"partitions": "all"}
    for unit in UNITS:
        yield "phones", "ann", {"units": [unit]}


def story(asking: Asking, halfway: Callable[[], None]) -> None:
    """All kinds of what is stored, each written before and after `halfway`, which is just before midnight."""
    accountant = asking.accountant
    for document in DATASETS:
        accountant.create_dataset(_generous(document), "root")
    for half in (0, 1):
        asking.clock.tick()
        if half == 0:
            accountant.add_partitions("parts", {"partitions": ["asia"]}, "root")
        for place, (dataset, who, more) in enumerate(targets()):
            assert asking.charge(dataset, who, f"{half}-{place}", 3 + place % 3 + half, **more)
        asking.hold("bob", f"hold-{half}", 4)
        asking.hold("dan", f"kept-{half}", 3)
        asking.open_session("cat", f"session-{half}")
        if half == 0:
            halfway()
            asking.clock.tick(3600)
        else:
            tags = {item["name"]: item["etag"] for item in accountant.budgets("flat")["items"]}
            lower = {"name": "dataset", "kind": "pure", "epsilon": LIMITS["dataset"]}
            accountant.change_budget("flat", "dataset", lower, tags["dataset"], "root")
            first = next(iter(asking.truth.sessions))
            asking.answer(first, "first-answer")


def _generous(document: dict[str, Any]) -> dict[str, Any]:
    """With more for the dataset than it has in the end: an older configuration would allow too much."""
    budgets = [one | {"epsilon": 60} if one["name"] == "dataset" else one for one in document["budgets"]]
    return {**document, "budgets": budgets}
