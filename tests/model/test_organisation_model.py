"""Teams, windows, holds, partitions, units, crashes and skewed clocks, against an auditor of entries alone.

Two accountants work on one store with clocks that step both ways; either may be asked, may be ended and begun
anew, and may find the store away before or after it appended. MODEL_EXAMPLES makes the search longer.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
import redis_server
from amount import examples
from auditor import Auditor, Document, Record, Sum, written_out
from faulty import FaultyStore, after, before
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from odometer_accountant.errors import (
    BudgetExceeded,
    BudgetExists,
    DatasetClosed,
    Forbidden,
    HoldExpired,
    HoldSettled,
    InvalidRequest,
    KeyReused,
    OdometerError,
    PartitionExists,
    SeveralShards,
    StoreUnavailable,
)
from odometer_accountant.ledger.commands import Caller
from odometer_accountant.ledger.entries import timestamp
from odometer_accountant.model import floats_to_text, text_to_floats
from odometer_accountant.numerics.grid import CURRENT_GRID
from odometer_accountant.numerics.rounding import decimal
from odometer_accountant.scopes import shard_of, shard_stream
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores import Store, open_store
from odometer_accountant.stores.memory import MemoryStore
from odometer_accountant.verify.walk import verify

FACTOR = int(os.environ.get("MODEL_EXAMPLES", "1"))
"""How many times as many examples as in a usual run."""
SHARDS = 2
PEOPLE = {
    "ada": Caller("ada", "red"),
    "ben": Caller("ben", "blue", frozenset({"cy"})),
    "cy": Caller("cy"),
    "svc": Caller("svc", "red", frozenset({"*"})),
    "root": Caller("root", admin=True),
}
UNITS = [f"u{number}" for number in range(4)]


def kind(name: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Document]:
    return st.fixed_dictionaries({"kind": st.just(name), **fields})


costs = st.sampled_from([1e-12, 0.01, 0.05, 0.1, 0.3])
mechanisms = st.one_of(
    kind("pure", epsilon=costs),
    kind("zcdp", rho=costs),
    kind("gaussian", noise_multiplier=st.sampled_from([1.0, 3.0, 30.0])),
    kind("gdp", mu=costs),
    kind("approximate", epsilon=costs, delta=st.sampled_from([1e-9, 5e-7])),
    kind("non_private", what=st.just("raw data")),
)
charge_lists = st.lists(
    st.fixed_dictionaries({"mechanism": mechanisms, "count": st.integers(1, 5)}), min_size=1, max_size=2
)
limits = st.sampled_from([0.1, 0.3, 1.0, 2.5])
windows = st.sampled_from([None, None, "hour", "day", "week", "month"])
promises = st.one_of(
    kind("pure", epsilon=limits),
    kind("zcdp", rho=limits),
    kind("gdp", mu=limits),
    kind("renyi", order=st.sampled_from([2.0, 7.9]), epsilon=limits),
    kind("approximate", epsilon=limits, delta=st.just(1e-5)),
)
shares = st.sampled_from([{"red": 0.5}, {"red": 0.4, "blue": 0.6}, {"green": 0.3}])
SCOPES = {
    "sequential": ["dataset", "dataset", "principal/*", "principal/ada", "team/*", "team/red", "group/*"],
    "by_partition": ["dataset", "partition/*", "partition/eu", "principal/*", "team/*", "group/sweep"],
    "by_unit": ["unit/*", "unit/*", "unit/u1"],
}


@st.composite
def budgets(draw: st.DrawFn, composition: str) -> Document:
    """A budget that a dataset of this composition can have, without its name."""
    budget: Document = draw(promises)
    scope, window = draw(st.sampled_from(SCOPES[composition])), draw(windows)
    if scope != "dataset":
        budget["scope"] = scope
    if window is not None:
        budget["window"] = window
    elif scope == "dataset" and composition == "sequential" and budget["kind"] != "approximate":
        reserved = draw(st.one_of(st.none(), shares))
        if reserved is not None:
            budget["reserved"] = reserved
    return budget


steps = st.one_of(
    st.integers(-7200, 7200).map(lambda seconds: timedelta(seconds=seconds)),
    st.sampled_from([timedelta(days=days) for days in (-40, -8, -1, 1, 6, 8, 33)]),
)
faults = st.sampled_from([None, None, None, None, before, after])
which = st.integers(0, 1)
people = st.sampled_from(sorted(PEOPLE))


def attempt(call: Callable[[], Any]) -> tuple[Any, OdometerError | None]:
    """What a call returns, or the error that it raises."""
    try:
        return call(), None
    except OdometerError as error:
        return None, error


class OrganisationMachine(RuleBasedStateMachine):
    """Commands through two accountants, each foretold by the auditor."""

    admitted = Bundle("admitted")
    holds = Bundle("holds")
    compositions: ClassVar[tuple[str, ...]] = ("sequential", "by_partition", "by_unit")

    # -- the stage

    def fresh(self) -> Callable[[], Store]:
        """What opens the store of one example, again and again."""
        store = MemoryStore()
        return lambda: store

    @initialize(data=st.data(), count=st.integers(1, 4))
    def open(self, data: Any, count: int) -> None:
        self.folder = ExitStack()
        self.opener = self.fresh()
        self.now = datetime(2027, 12, 30, 22, 50, tzinfo=UTC)
        self.skews = [timedelta(), timedelta()]
        self.stores: list[FaultyStore] = []
        self.accountants: list[Accountant] = []
        for number in range(2):
            self.begin(number)
        self.number = 0
        self.auditors: dict[str, Auditor] = {}
        self.read: dict[str, list[bytes]] = {}
        composition = self.composition = data.draw(st.sampled_from(self.compositions))
        named = [{"name": f"b{n}", **data.draw(budgets(composition))} for n in range(count)]
        everybody = {"sequential": ["dataset"], "by_partition": ["dataset", "partition/*"]}
        for budget in named:
            if budget.get("scope") == "partition/eu":
                budget["scope"] = "partition/*"
        limited = any(
            "window" not in one and one.get("scope", "dataset") in everybody.get(composition, ["unit/*"])
            for one in named
        )
        document = {
            "name": "d",
            "unit": "person",
            "adjacency": "add_remove",
            "delta": 1e-6,
            "composition": composition,
            "budgets": named,
            **({} if limited else {"odometer_only": True}),
            **({"shards": SHARDS} if composition == "by_unit" else {}),
        }
        if composition == "by_partition" and data.draw(st.booleans()):
            document["partitions"] = ["eu"]
        self.accountants[0].create_dataset(document, "root")

    def begin(self, number: int) -> None:
        """One more process: nothing but the store is there before it."""
        faulty = FaultyStore()
        faulty.sound = self.opener()  # type: ignore[assignment]
        accountant = Accountant(faulty, lambda: timestamp(self.now + self.skews[number]))
        self.stores[number : number + 1] = [faulty]
        self.accountants[number : number + 1] = [accountant]

    def end(self, number: int) -> None:
        self.accountants[number].rollback_monitor.close()
        self.accountants[number].writer.close()
        if not isinstance(self.stores[number].sound, MemoryStore):
            self.stores[number].sound.close()

    def teardown(self) -> None:
        if not hasattr(self, "auditors"):
            return
        try:
            store = self.stores[0].sound
            assert [str(one) for verdict in verify(store) for one in verdict.findings] == []
            for stream, bodies in self.read.items():
                fresh = Auditor()
                for body in bodies:
                    fresh.take(body)
                assert fresh == self.auditors[stream]
        finally:
            for number in range(2):
                self.end(number)
            self.folder.close()

    def audit(self) -> None:
        """Read on: what was read before must still be there."""
        store = self.stores[0].sound
        for stream in store.streams("", 100):
            auditor = self.auditors.setdefault(stream, Auditor())
            read = self.read.setdefault(stream, [])
            for row in store.entries(stream, len(read), 10_000):
                auditor.take(row.body)
                read.append(row.body)

    def auditor(self, stream: str = "d") -> Auditor:
        self.audit()
        return self.auditors.get(stream) or Auditor("by_unit")

    def clock(self, number: int) -> str:
        return timestamp(self.now + self.skews[number])

    # -- charging

    def body(self, data: Any, charges: list[Document]) -> Document:
        """A request that this dataset may take, and now and then one that it does not."""
        body: Document = {"charges": charges}
        if self.composition == "by_partition":
            some = st.lists(st.sampled_from(["eu", "us", "as"]), min_size=1, max_size=2, unique=True)
            body["partitions"] = data.draw(st.one_of(st.just("all"), some))
        if self.composition == "by_unit":
            body["units"] = data.draw(st.lists(st.sampled_from(UNITS), min_size=1, max_size=2, unique=True))
        elif data.draw(st.integers(0, 4)) == 0:
            body["group"] = {"name": data.draw(st.sampled_from(["sweep", "other"])), "runs": 2}
        if data.draw(st.integers(0, 3)) == 0:
            body["principal"] = data.draw(st.sampled_from(["cy", "ada"]))
        return body

    def stream(self, body: Document) -> str:
        return shard_stream("d", shard_of(body["units"][0], SHARDS)) if "units" in body else "d"

    def foretold(
        self, body: Document, caller: Caller, at: int
    ) -> tuple[type[OdometerError] | None, set[str], set[str]]:
        """The error that is due, or the budgets that must refuse and those too near to tell."""
        whose = body.get("principal", caller.principal)
        if whose != caller.principal and not caller.acts_for & {"*", whose}:
            return Forbidden, set(), set()
        if len({shard_of(unit, SHARDS) for unit in body.get("units", [])}) > 1:
            return SeveralShards, set(), set()
        dataset, auditor = self.auditor(), self.auditor(self.stream(body))
        if dataset.closed:
            return DatasetClosed, set(), set()
        parts = body.get("partitions", "all")
        if parts != "all" and not set(parts) <= set(dataset.partitions):
            return InvalidRequest, set(), set()
        runs = body.get("group", {}).get("runs", 1)
        command = {name: part for name, part in body.items() if name not in ("principal", "expires_in_s")}
        command["charges"] = [
            {**one, "count": one["count"] * runs} for one in floats_to_text(body["charges"])
        ]
        time = max(auditor.time or dataset.time, self.clock(at))
        losses = [Sum.of(text_to_floats(one["mechanism"]), one["count"]) for one in command["charges"]]
        asked = Record(whose, caller.team, command, 0, time, losses)
        return None, *auditor.refusing(asked, dataset.budgets)

    def ask(self, body: Document, caller: Caller, key: str, at: int, fault: Any) -> Any:
        """Charge or hold; the outcome, or its error, is what the auditor foretold."""
        due, refusing, unsure = self.foretold(body, caller, at)
        stream = self.stream(body)
        count = self.auditor(stream).number
        # A shard is opened, and then listed by its dataset, before anything is decided on it.
        opening = stream != "d" and shard_of(body["units"][0], SHARDS) not in self.auditor().shards
        accountant = self.accountants[at]
        verb = accountant.hold if "expires_in_s" in body else accountant.charge
        done, error = self.through(at, fault, lambda: verb("d", body, key, caller))
        auditor = self.auditor(stream)
        if due is not None:
            assert isinstance(error, due)
        elif error is not None:
            assert isinstance(error, BudgetExceeded)
            named = {refusal["budget"] for refusal in error.fields["refusals"]}
            assert refusing <= named <= refusing | unsure
        if done is None:
            assert auditor.number == count or (opening and auditor.number == 1)
            return None
        receipt, replayed = done
        assert not refusing
        assert replayed is (fault is after and not opening)
        assert receipt["sequence"] == auditor.number
        new = [json.loads(one)["type"] for one in self.read[stream][count:]]
        assert new[-1] == ("held" if "expires_in_s" in body else "charged")
        assert new[:-1] in ([[]] if stream == "d" else [[], ["synced"], ["synced", "carried"], ["opened"]])
        entry = json.loads(self.read[stream][-1])
        assert entry["principal"] == receipt["principal"] == body.get("principal", caller.principal)
        assert entry.get("team") == caller.team
        assert auditor.budgets == self.auditor().budgets
        return receipt

    def through(self, at: int, fault: Any, call: Callable[[], Any]) -> tuple[Any, OdometerError | None]:
        """A call that runs into a fault of the store's append, then the same once more."""
        store = self.stores[at]
        if fault is not None:
            store.fail(fault, "append")
            done, error = attempt(call)
            store.heal()
            if error is None:
                assert done[1]  # a replay has nothing to append
                return done, error
            if not isinstance(error, StoreUnavailable):
                return done, error  # refused before there was anything to append
        return attempt(call)

    def key(self) -> str:
        self.number += 1
        return f"key-{self.number}"

    @rule(
        target=admitted,
        data=st.data(),
        charges=charge_lists,
        who=people,
        at=which,
        fault=faults,
    )
    def charge(self, data: Any, charges: list[Document], who: str, at: int, fault: Any) -> Any:
        body, key = self.body(data, charges), self.key()
        receipt = self.ask(body, PEOPLE[who], key, at, fault)
        return multiple() if receipt is None else (body, who, key, receipt)

    @rule(
        target=holds,
        data=st.data(),
        charges=charge_lists,
        who=people,
        at=which,
        fault=faults,
        seconds=st.sampled_from([1, 60, 3600, 90_000, 3_000_000]),
    )
    def hold(self, data: Any, charges: list[Document], who: str, at: int, fault: Any, seconds: int) -> Any:
        body, key = {**self.body(data, charges), "expires_in_s": seconds}, self.key()
        receipt = self.ask(body, PEOPLE[who], key, at, fault)
        if receipt is None:
            return multiple()
        expires = datetime.fromisoformat(receipt["time"]) + timedelta(seconds=seconds)
        assert receipt["hold"]["expires"] == timestamp(expires)
        return (body, who, key, receipt)

    @rule(done=st.one_of(admitted, holds), at=which)
    def replay(self, done: Any, at: int) -> None:
        """The same entry, now and for ever, and nothing new."""
        body, who, key, receipt = done
        self.audit()
        count = sum(map(len, self.read.values()))
        accountant = self.accountants[at]
        verb = accountant.hold if "expires_in_s" in body else accountant.charge
        if receipt["sequence"] in self.auditor(self.stream(body)).settled:
            _, error = attempt(lambda: verb("d", body, key, PEOPLE[who]))
            assert isinstance(error, HoldSettled)  # nothing is held any more
            return
        again, replayed = verb("d", body, key, PEOPLE[who])
        assert replayed
        assert all(again.get(part) == receipt.get(part) for part in ("sequence", "hash", "time", "hold"))
        self.audit()
        assert sum(len(bodies) - len(self.synced(bodies)) for bodies in self.read.values()) <= count

    def synced(self, bodies: list[bytes]) -> list[bytes]:
        """What a shard says before it is asked anything: its budgets, and what is open under them."""
        return [body for body in bodies if b'"type":"synced"' in body or b'"type":"carried"' in body]

    @rule(done=st.one_of(admitted, holds), at=which)
    def another_charge_under_its_key(self, done: Any, at: int) -> None:
        body, who, key, _ = done
        other = {
            **body,
            "charges": [*body["charges"], {"mechanism": {"kind": "pure", "epsilon": 2.0}, "count": 7}],
        }
        accountant = self.accountants[at]
        verb = accountant.hold if "expires_in_s" in body else accountant.charge
        _, error = attempt(lambda: verb("d", other, key, PEOPLE[who]))
        assert isinstance(error, KeyReused)

    @rule(
        data=st.data(),
        done=holds,
        at=which,
        fault=faults,
        who=st.sampled_from([None, None, None, "root", "cy"]),
    )
    def settle(self, data: Any, done: Any, at: int, fault: Any, who: str | None) -> None:
        """Once, by its maker or an admin, in time, for no more than was held; the rest comes back exactly."""
        body, maker, _, receipt = done
        caller = PEOPLE[who or maker]
        stream, number = self.stream(body), receipt["sequence"]
        runs = body.get("group", {}).get("runs", 1)
        held = [one["count"] * runs for one in body["charges"]]
        used = [data.draw(st.sampled_from([0, 1, count, count + 1])) for count in held]
        auditor = self.auditor(stream)
        count = auditor.number
        due: type[OdometerError] | None = None
        if any(some > most for some, most in zip(used, held, strict=True)):
            due = InvalidRequest
        elif not caller.admin and caller.principal != maker:
            due = Forbidden
        elif number in auditor.settled:
            due = HoldSettled
        elif auditor.holds[number]["expires"] < max(auditor.time, self.clock(at)):
            due = HoldExpired
        call: Callable[[], Any] = lambda: self.accountants[at].settle(  # noqa: E731
            "d", receipt["hold"]["id"], {"used": used}, caller
        )
        done, error = self.through(at, fault, call)
        after_ = self.auditor(stream)
        settled = [json.loads(one) for one in self.read[stream]]
        same = [one["used"] for one in settled if one["type"] == "settled" and one["hold"] == number]
        if due is HoldSettled and same == [used]:
            assert done is not None
            assert done[1]
        elif due is not None:
            assert isinstance(error, due)
            assert len([one for one in settled if one["type"] not in ("synced", "carried")]) <= count
        else:
            assert error is None
            assert done[1] is (fault is after)
            assert same == [used]
            assert number in after_.settled

    # -- administering

    @rule(data=st.data(), at=which, fault=faults)
    def add_budget(self, data: Any, at: int, fault: Any) -> None:
        budget = {
            "name": data.draw(st.sampled_from(["b0", "b7", "b8"])),
            **data.draw(budgets(self.composition)),
        }
        auditor = self.auditor()
        _, error = self.through(at, fault, lambda: self.accountants[at].add_budget("d", budget, "root"))
        if auditor.closed:
            assert isinstance(error, DatasetClosed)
        elif fault is after and budget["name"] in self.auditor().budgets:
            assert error is None or isinstance(error, BudgetExists)
        elif budget.get("scope") == "partition/eu" and "eu" not in auditor.partitions:
            assert isinstance(error, InvalidRequest | BudgetExists)

    @rule(place=st.integers(0, 7), limit=limits, at=which)
    def change_limit(self, place: int, limit: float, at: int) -> None:
        auditor = self.auditor()
        if auditor.closed or not auditor.budgets:
            return
        name = sorted(auditor.budgets)[place % len(auditor.budgets)]
        entry = auditor.budgets[name]
        budget = text_to_floats(entry["budget"])
        parameter = next(part for part in ("rho", "mu", "epsilon") if part in budget)
        changed = {**budget, parameter: limit}
        self.accountants[at].change_budget("d", name, changed, f'"v{entry["version"]}"', "root")
        now = self.auditor().budgets[name]
        assert (now["version"], now["fixed"]) == (entry["version"] + 1, entry["fixed"])

    @rule(name=st.sampled_from(["eu", "us", "as"]), at=which)
    def add_partition(self, name: str, at: int) -> None:
        auditor = self.auditor()
        known = name in auditor.partitions
        wanted = {"partitions": [name]}
        _, error = attempt(lambda: self.accountants[at].add_partitions("d", wanted, "root"))
        if auditor.closed:
            assert isinstance(error, DatasetClosed)
        elif self.composition != "by_partition":
            assert isinstance(error, InvalidRequest)
        elif known:
            assert isinstance(error, PartitionExists)
        else:
            assert error is None
            assert name in self.auditor().partitions

    @rule(really=st.integers(0, 14), at=which)
    def close(self, really: int, at: int) -> None:
        if really == 0 and not self.auditor().closed:
            assert self.accountants[at].close_dataset("d", "root")["closed"]

    # -- time and crashes

    @rule(step=steps)
    def the_clock_steps(self, step: timedelta) -> None:
        self.now += step

    @rule(skew=st.integers(-7200, 7200), at=which)
    def a_clock_is_wrong(self, skew: int, at: int) -> None:
        self.skews[at] = timedelta(seconds=skew)

    @rule(window=st.sampled_from(["hour", "day"]), at=which)
    def just_before_a_window_ends(self, window: str, at: int) -> None:
        """The last microsecond of the ledger's own window, for one of the two."""
        self.now = max(self.now, datetime.fromisoformat(self.auditor().time))
        start = self.now.replace(minute=0, second=0, microsecond=0)
        if window == "day":
            start = start.replace(hour=23)
        self.now = start + timedelta(hours=1) - timedelta(microseconds=1)
        self.skews = [timedelta(), timedelta()]
        self.skews[at] = timedelta(microseconds=1)

    @rule(at=which)
    def restart(self, at: int) -> None:
        """A process ends, and another begins."""
        self.end(at)
        self.begin(at)

    # -- what must hold

    @rule(data=st.data(), charges=charge_lists, who=people, at=which)
    def check(self, data: Any, charges: list[Document], who: str, at: int) -> None:
        """Foretold as a charge is, and nothing changes."""
        body = self.body(data, charges)
        due, refusing, unsure = self.foretold(body, PEOPLE[who], at)
        count = sum(map(len, self.read.values()))
        found, error = attempt(lambda: self.accountants[at].check("d", body, PEOPLE[who]))
        if due is not None and due is not DatasetClosed:
            assert isinstance(error, due)
        elif due is None and not unsure:
            assert found["fits"] is not bool(refusing)
        self.audit()
        assert sum(map(len, self.read.values())) == count

    @rule(
        at=which,
        name=st.sampled_from(["principal/ada", "principal/cy", "team/red", "partition/eu", "unit/u1"]),
    )
    def odometer(self, at: int, name: str) -> None:
        """The count of a scope: never below what it spent, and what open holds of it come to."""
        scope, _, item = name.partition("/")
        auditor = self.auditor()
        if (self.composition == "by_unit") != (scope == "unit") or (
            scope == "partition" and item not in auditor.partitions
        ):
            return
        if scope == "unit":
            auditor = self.auditor(shard_stream("d", shard_of(item, SHARDS)))
        shown = self.accountants[at].odometer("d", scope=name)
        time = max(auditor.time, self.clock(at))
        for part, spent in (
            ("totals", auditor.spent(scope, item, None, time)),
            ("held", auditor.held(scope, item, time)),
        ):
            for coordinate, place in (
                ("pure", CURRENT_GRID.pure),
                ("rho", CURRENT_GRID.rho),
                ("delta", CURRENT_GRID.delta),
            ):
                exact, seen = spent.amount(place), shown[part][coordinate]
                assert (exact is None) is (seen is None)
                if exact is not None:
                    assert exact <= decimal(seen) <= exact * (1 + decimal(1e-12)), (part, coordinate)

    @invariant()
    def the_books_agree(self) -> None:
        """Every stored count, window and open hold is what the entries come to."""
        if not hasattr(self, "auditors"):
            return
        self.audit()
        store = self.stores[0].sound
        for stream, auditor in self.auditors.items():
            blobs = dict(store.blobs(stream, "", "", 10_000))
            losses = json.loads(blobs.get("lexicon", b'{"losses":[]}'))["losses"]
            for prefix, expected in (
                ("totals/", auditor.stored_totals()),
                ("window/", auditor.stored_windows()),
            ):
                stored = {
                    name.removeprefix(prefix): written_out(blob.decode(), losses)
                    for name, blob in blobs.items()
                    if name.startswith(prefix)
                }
                assert stored == expected
            kept = {int(number): end for number, end in json.loads(blobs["holds"]).items()}
            assert {n: end for n, end in kept.items() if end >= auditor.time} == auditor.open_holds(
                auditor.time
            )


class MemoryMachine(OrganisationMachine):
    """On a store in memory."""


class SqliteMachine(OrganisationMachine):
    """On a file, opened anew by every process."""

    def fresh(self) -> Callable[[], Store]:
        folder = self.folder.enter_context(tempfile.TemporaryDirectory(prefix="odometer-model-"))
        return lambda: open_store(f"sqlite:///{folder}/ledger.sqlite")


class RedisMachine(OrganisationMachine):
    """On a real server, under a prefix of its own."""

    url: ClassVar[str]
    examples: ClassVar[int] = 0

    def fresh(self) -> Callable[[], Store]:
        cls = type(self)
        cls.examples += 1
        url = f"{cls.url}?prefix=m{cls.examples}"
        return lambda: open_store(url)


def bounded(number: int) -> settings:
    return examples(
        number * FACTOR,
        stateful_step_count=25,
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(scope="module", autouse=True)
def _redis() -> Iterator[None]:
    with (
        tempfile.TemporaryDirectory(prefix="odometer-redis-") as folder,
        redis_server.server(Path(folder)) as server,
    ):
        RedisMachine.url = server.url
        yield


MemoryMachine.TestCase.settings = bounded(14)
SqliteMachine.TestCase.settings = bounded(5)
RedisMachine.TestCase.settings = bounded(5)
TestMemory = MemoryMachine.TestCase
TestSqlite = SqliteMachine.TestCase
TestRedis = RedisMachine.TestCase
