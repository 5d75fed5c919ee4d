"""Any sequence of commands against a naive auditor that knows the entries alone and recomputes everything.

The auditor adds fractions and judges by the promises; it uses no loss, rule, state or mixture of ours. Curves
of single releases are taken as they are: tests/laws holds them to the truth.
"""

import itertools
import json
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from amount import examples
from auditor import Document, Sum, allows
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from odometer_accountant.errors import (
    BudgetExceeded,
    BudgetExists,
    DatasetClosed,
    EditConflict,
    KeyReused,
    NotValidUnderAdjacency,
    OdometerError,
)
from odometer_accountant.ledger.blobs import scope_blob
from odometer_accountant.ledger.entries import canonical, entry_hash
from odometer_accountant.ledger.fold import fold
from odometer_accountant.ledger.snapshot import load_state
from odometer_accountant.mechanisms import ANY_MECHANISM
from odometer_accountant.model import text_to_floats
from odometer_accountant.numerics.grid import CURRENT_GRID
from odometer_accountant.numerics.rounding import decimal
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores.memory import MemoryStore

# -- the auditor ------------------------------------------------------------------------------------------


class Auditor:
    """What a ledger's entries come to."""

    def __init__(self, bodies: list[bytes]) -> None:
        self.sums: defaultdict[str, Sum] = defaultdict(Sum)
        self.budgets: dict[str, Document] = {}
        self.closed, self.adjacency = False, ""
        entries = [json.loads(body) for body in bodies]
        for entry in entries:
            self._take(entry)
        self.count = len(entries)
        self.times = [entry["time"] for entry in entries]

    def _take(self, entry: Document) -> None:
        if entry["type"] == "opened":
            self.adjacency = entry["dataset"]["adjacency"]
            self.budgets = dict(entry["budgets"])
        elif entry["type"] == "budget_set":
            self.budgets[entry["name"]] = entry["entry"]
        elif entry["type"] == "closed":
            self.closed = True
        else:
            for item in entry["command"]["charges"]:
                kind = item["mechanism"]["kind"]
                for scope in ("dataset", f"principal/{entry['principal']}", f"mechanism/{kind}"):
                    self.sums[scope].add(text_to_floats(item["mechanism"]), item["count"])

    def after(self, charges: list[Document]) -> Sum:
        spent = Sum()
        spent.units, spent.unbounded = list(self.sums["dataset"].units), list(self.sums["dataset"].unbounded)
        for charge in charges:
            spent.add(charge["mechanism"], charge["count"])
        return spent

    def refusing(self, charges: list[Document]) -> tuple[set[str], set[str]]:
        """The budgets that must refuse, and those too near to tell."""
        after = self.after(charges)
        verdicts = {name: allows(entry, after) for name, entry in self.budgets.items()}
        return (
            {name for name, verdict in verdicts.items() if verdict is False},
            {name for name, verdict in verdicts.items() if verdict is None},
        )


# -- what can be asked -----------------------------------------------------------------------------------


def kind(name: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Document]:
    return st.fixed_dictionaries({"kind": st.just(name), **fields})


small = st.sampled_from([1e-12, 0.001, 0.01, 0.05, 0.1, 0.25, 1 / 3, 0.5])
noise = st.sampled_from([0.0, 0.7, 1.0, 3.0, 10.0, 1000.0])
mechanisms = st.one_of(
    kind("pure", epsilon=small),
    kind("zcdp", rho=small),
    kind("gdp", mu=small),
    kind("gaussian", noise_multiplier=noise),
    kind("laplace", scale_over_sensitivity=st.sampled_from([1.0, 4.0, 30.0])),
    kind("randomized_response", k=st.integers(2, 5), epsilon=small),
    kind("approximate", epsilon=small, delta=st.sampled_from([0.0, 1e-18, 1e-9, 5e-7])),
    kind("renyi_curve", orders=st.just([2.0, 9.5]), epsilons=st.tuples(small, small).map(sorted)),
    kind(
        "poisson_subsampled",
        base=kind("gaussian", noise_multiplier=noise),
        sampling_rate=st.sampled_from([0.0, 0.01, 1.0]),
    ),
    kind("non_private", what=st.just("raw data")),
)
charge_lists = st.lists(
    st.fixed_dictionaries({"mechanism": mechanisms, "count": st.integers(1, 5)}), min_size=1, max_size=3
)
limits = st.sampled_from([0.1, 0.3, 1.0, 2.5, 10.0])
budget_documents = st.one_of(
    kind("pure", epsilon=limits),
    kind("zcdp", rho=limits),
    kind("gdp", mu=limits),
    kind("renyi", order=st.sampled_from([2.0, 7.9, 32.0]), epsilon=limits),
    kind("approximate", epsilon=limits, delta=st.sampled_from([1e-5, 1e-9])),
    kind("approximate", epsilon=limits, delta=st.just(1e-5), delta_add=st.sampled_from([0.0, 1e-6])),
)
people = st.sampled_from(["ada", "job:7"])


def attempt(call: Callable[[], Any]) -> tuple[Any, OdometerError | None]:
    """What a call returns, or the error that it raises."""
    try:
        return call(), None
    except OdometerError as error:
        return None, error


class LedgerMachine(RuleBasedStateMachine):
    """Commands through the service, each foretold by the auditor."""

    admitted = Bundle("admitted")
    refused_keys = Bundle("refused_keys")

    @initialize(
        budgets=st.lists(budget_documents, max_size=3),
        adjacency=st.sampled_from(["add_remove", "replace_one", "zero_out"]),
    )
    def open(self, budgets: list[Document], adjacency: str) -> None:
        self.store = MemoryStore()
        self.ticks = itertools.count()
        self.accountant = Accountant(self.store, self.clock)
        self.keys = (f"key-{n}" for n in itertools.count())
        named = [{"name": f"b{n}", **budget} for n, budget in enumerate(budgets)]
        limited: Document = {"budgets": named} if named else {"odometer_only": True}
        document = {"name": "d", "unit": "person", "adjacency": adjacency, "delta": 1e-6, **limited}
        self.accountant.create_dataset(document, "ada")

    def clock(self) -> str:
        """A clock that steps back now and then: every third reading lies before the one before it."""
        tick = next(self.ticks)
        return f"2026-01-01T00:{(tick - 2 * (tick % 3 == 2)) % 3600 // 60:02}:{tick % 60:02}.000000Z"

    def teardown(self) -> None:
        if hasattr(self, "accountant"):
            self.accountant.close()

    def bodies(self) -> list[bytes]:
        return [row.body for row in self.store.entries("d", 0, 10_000)]

    def ask(self, charges: list[Document], person: str, key: str) -> Any:
        """Charge; the outcome, or its error, is what the auditor foretold."""
        auditor = Auditor(self.bodies())
        wrong = [
            charge
            for charge in charges
            if auditor.adjacency
            not in [a.value for a in ANY_MECHANISM.validate_python(charge["mechanism"]).adjacencies]
        ]
        refusing, unsure = auditor.refusing(charges)
        done, error = attempt(lambda: self.accountant.charge("d", {"charges": charges}, key, person))
        if auditor.closed:
            assert isinstance(error, DatasetClosed)
        elif wrong:
            assert isinstance(error, NotValidUnderAdjacency)
        elif error is not None:
            assert isinstance(error, BudgetExceeded)
            named = {refusal["budget"] for refusal in error.fields["refusals"]}
            assert refusing <= named <= refusing | unsure
        if done is None:
            assert len(self.bodies()) == auditor.count
            return None
        receipt, replayed = done
        assert not refusing
        assert not replayed
        assert receipt["sequence"] == auditor.count + 1
        return (key, person, charges, receipt)

    @rule(target=admitted, charges=charge_lists, person=people)
    def charge(self, charges: list[Document], person: str) -> Any:
        found = self.ask(charges, person, next(self.keys))
        return multiple() if found is None else found

    @rule(
        target=admitted,
        place=st.integers(0, 5),
        more=st.sampled_from([-1, 0, 1, 10**18, 10**27]),
        person=people,
    )
    def ask_for_all_that_is_left(self, place: int, more: int, person: str) -> Any:
        """Up to the limit of one budget, a unit more, some, or a thousandth: as near as a float comes."""
        auditor = Auditor(self.bodies())
        exact = {"pure": CURRENT_GRID.pure, "zcdp": CURRENT_GRID.rho}
        limited = [b["budget"] for b in auditor.budgets.values() if b["budget"]["kind"] in exact]
        if not limited:
            return multiple()
        budget = limited[place % len(limited)]
        kind, name = budget["kind"], "epsilon" if budget["kind"] == "pure" else "rho"
        unit = CURRENT_GRID.units[exact[kind]]
        left = Fraction(budget[name]) / unit - auditor.sums["dataset"].units[exact[kind]] + more
        charge = {"mechanism": {"kind": kind, name: float(max(left, Fraction(1)) * unit)}, "count": 1}
        found = self.ask([charge], person, next(self.keys))
        return multiple() if found is None else found

    @rule(target=refused_keys, person=people)
    def ask_too_much(self, person: str) -> Any:
        """Raw data fits no budget; with none, it is counted."""
        key = next(self.keys)
        charges = [{"mechanism": {"kind": "non_private", "what": "raw data"}, "count": 1}]
        return (key, person) if self.ask(charges, person, key) is None else multiple()

    @rule(target=admitted, asked=consumes(refused_keys), charges=charge_lists)
    def ask_again_under_a_refused_key(self, asked: Any, charges: list[Document]) -> Any:
        """A refusal is not remembered."""
        found = self.ask(charges, asked[1], asked[0])
        return multiple() if found is None else found

    @rule(done=admitted)
    def replay(self, done: Any) -> None:
        """The same entry, now and after closing, and nothing new."""
        key, person, charges, receipt = done
        before = self.bodies()
        again, replayed = self.accountant.charge("d", {"charges": charges}, key, person)
        assert replayed
        assert all(again[part] == receipt[part] for part in ("sequence", "hash", "time", "charges", "loss"))
        assert self.bodies() == before

    @rule(done=admitted, charges=charge_lists)
    def reuse_a_key(self, done: Any, charges: list[Document]) -> None:
        """Another charge under it is refused; another person's key of the same name is another key."""
        key, person, first, _ = done
        if json.dumps(charges) == json.dumps(first):
            return
        before = self.bodies()
        _, error = attempt(lambda: self.accountant.charge("d", {"charges": charges}, key, person))
        assert isinstance(error, KeyReused)
        assert self.bodies() == before

    @rule(charges=charge_lists)
    def check(self, charges: list[Document]) -> None:
        """Foretold as a charge is, and nothing changes."""
        before, auditor = self.bodies(), Auditor(self.bodies())
        refusing, unsure = auditor.refusing(charges)
        found, error = attempt(lambda: self.accountant.check("d", {"charges": charges}))
        if error is not None:
            assert isinstance(error, NotValidUnderAdjacency)
        elif not unsure:
            assert found["fits"] is (not refusing and not auditor.closed)
        assert self.bodies() == before

    @rule(budget=budget_documents, name=st.sampled_from(["b0", "b5", "a"]))
    def add_budget(self, budget: Document, name: str) -> None:
        auditor = Auditor(self.bodies())
        _, error = attempt(lambda: self.accountant.add_budget("d", {"name": name, **budget}, "ada"))
        if auditor.closed:
            assert isinstance(error, DatasetClosed)
        elif name in auditor.budgets:
            assert isinstance(error, BudgetExists)
        else:
            since = Auditor(self.bodies()).budgets[name]["since"]
            spent = auditor.sums["dataset"]
            assert since == (auditor.count + 1 if any(spent.units) or any(spent.unbounded) else 0)

    @rule(place=st.integers(0, 5), budget=budget_documents, stale=st.booleans())
    def change_budget(self, place: int, budget: Document, stale: bool) -> None:
        """Only from the version that was read; another limit alone keeps what was fixed."""
        auditor = Auditor(self.bodies())
        if not auditor.budgets:
            return
        name = sorted(auditor.budgets)[place % len(auditor.budgets)]
        before = auditor.budgets[name]
        etag = f'"v{before["version"] - int(stale)}"'
        _, error = attempt(lambda: self.accountant.change_budget("d", name, budget, etag, "ada"))
        if auditor.closed or stale:
            assert isinstance(error, DatasetClosed if auditor.closed else EditConflict)
            return
        after = Auditor(self.bodies()).budgets[name]
        assert after["version"] == before["version"] + 1
        limit = next(part for part in ("rho", "mu", "epsilon") if part in budget)
        unchanged = {**before["budget"], limit: None} == {**after["budget"], limit: None}
        if unchanged:
            assert (after["fixed"], after["since"]) == (before["fixed"], before["since"])

    @rule(really=st.integers(0, 9))
    def close(self, really: int) -> None:
        if really == 0 and not Auditor(self.bodies()).closed:
            assert self.accountant.close_dataset("d", "ada")["closed"]

    @rule()
    def restart(self) -> None:
        """Another process: nothing but the store is left."""
        self.accountant.writer.close()
        self.accountant = Accountant(self.store, self.clock)

    @invariant()
    def the_books_agree(self) -> None:
        """Live state, folded entries and the auditor: every scope, budget and head."""
        if not hasattr(self, "store"):
            return
        rows = self.store.entries("d", 0, 10_000)
        auditor = Auditor([row.body for row in rows])
        scopes = ["dataset", *(scope for scope in auditor.sums if scope != "dataset")]
        live = load_state(self.store, "d", [scope_blob(scope) for scope in scopes])
        folded = fold((row.hash, row.body) for row in rows)
        assert live is not None
        assert folded is not None
        for scope in scopes:
            assert (
                live.totals.of(scope).encode()
                == folded.totals.of(scope).encode()
                == auditor.sums[scope].encoded()
            )
        assert (live.head, live.time, live.dataset, live.closed) == (
            folded.head,
            folded.time,
            folded.dataset,
            auditor.closed,
        )
        assert live.config() == folded.config()
        assert {name: entry.document() for name, entry in live.budgets.items()} == auditor.budgets
        assert auditor.times == sorted(auditor.times)
        for row in rows:
            assert canonical(json.loads(row.body)) == row.body
            assert entry_hash(row.body) == row.hash

    @invariant()
    def what_is_shown_is_on_the_safe_side(self) -> None:
        """Spent is not below the exact sum, left not above what the exact limit leaves."""
        if not hasattr(self, "store"):
            return
        spent = Auditor(self.bodies()).sums["dataset"]
        places = {"pure": CURRENT_GRID.pure, "zcdp": CURRENT_GRID.rho}
        for budget in self.accountant.budgets("d")["items"]:
            place = places.get(budget["kind"])
            if place is None or budget["spent"] is None:
                continue
            exact = spent.units[place] * CURRENT_GRID.units[place]
            assert decimal(budget["spent"]) >= exact
            assert decimal(budget["left"]) <= max(Fraction(0), decimal(budget["limit"]) - exact)


LedgerMachine.TestCase.settings = examples(30, stateful_step_count=20)
TestLedger = LedgerMachine.TestCase
