"""An interactive mechanism is charged as its public answers come: each step before it begins."""

import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from odometer_accountant.errors import (
    BudgetExceeded,
    DatasetClosed,
    Forbidden,
    IdempotencyKeyRequired,
    InvalidRequest,
    KeyReused,
    LedgerCorrupt,
    OdometerError,
    SessionClosed,
    SessionMovedOn,
    StoreUnavailable,
    TooManySessions,
    UnknownSession,
)
from odometer_accountant.ledger import session_state
from odometer_accountant.ledger.commands import Caller, EndCommand
from odometer_accountant.ledger.decisions import Admitted, Refused
from odometer_accountant.ledger.entries import canonical, entry_hash
from odometer_accountant.mechanisms.sessions import ANY_SESSION, Session
from odometer_accountant.requests.bodies import SessionAnswer
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores import Row, open_store
from odometer_accountant.verify.recount import Recount
from odometer_accountant.verify.walk import verify

SVT = {"kind": "sparse_vector", "epsilon_threshold": 0.1, "epsilon_answers": 0.2, "max_above": 3}
RUN = {"kind": "above_threshold", "epsilon_threshold": 0.1, "epsilon_answers": 0.2}
PATE = {
    "kind": "confident_gnmax",
    "noise_multiplier_check": 10.0,
    "noise_multiplier_answer": 5.0,
    "max_answers": 2,
}
CHECK, ANSWER = 1 / 200, 1 / 50  # rho of each


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'ledger.sqlite'}"


@pytest.fixture
def accountant(url: str) -> Iterator[Accountant]:
    with Accountant(open_store(url)) as one:
        yield one


def opened(accountant: Accountant, epsilon: float = 100.0, **more: Any) -> None:
    document = {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-6}
    budgets = [{"name": "life", "kind": "pure", "epsilon": epsilon}]
    accountant.create_dataset({**document, "budgets": budgets, **more}, "root")


def session(accountant: Accountant, kind: dict[str, Any] = SVT, key: str = "open", **more: Any) -> str:
    return str(accountant.open_session("d", {"session": kind, **more}, key, "ada")[0]["session"]["id"])


def answer(
    accountant: Accountant,
    one: str,
    above: bool,
    key: str | None = None,
    by: Caller | str = "ada",
    **more: Any,
) -> dict[str, Any]:
    return accountant.answer_session("d", one, {"above": above, **more}, key, by)[0]


def spent(accountant: Accountant, notion: str = "pure") -> float:
    return float(accountant.odometer("d")["totals"][notion])


def sequence(accountant: Accountant) -> int:
    return int(accountant.dataset("d")["sequence"])


def is_sound(accountant: Accountant) -> bool:
    return not any(verdict.findings for verdict in verify(accountant.store))


# -- sparse vector -----------------------------------------------------------------------------------------


def test_k_above_answers_cost_exactly_k_runs(accountant: Accountant) -> None:
    """The first is paid when it opens, the last answer costs nothing and closes it."""
    opened(accountant)
    one = session(accountant)
    costs = [spent(accountant)]
    for number in range(3):
        found = answer(accountant, one, True, f"a{number}")["session"]
        costs.append(spent(accountant))
        assert (found["open"], found["above_left"]) == (number < 2, 2 - number)
    assert costs == pytest.approx([0.3, 0.6, 0.9, 0.9])
    with Accountant(open_store("memory://")) as other:
        opened(other)
        for number in range(3):
            other.charge("d", {"mechanism": RUN, "count": 1}, f"k{number}", "ada")
        assert other.odometer("d")["totals"] == accountant.odometer("d")["totals"]
    assert is_sound(accountant)


def test_a_thousand_below_cost_what_one_does_and_write_nothing(accountant: Accountant) -> None:
    opened(accountant)
    one = session(accountant)
    before = spent(accountant), sequence(accountant), accountant.store.load("d", ["sessions"])
    for _ in range(1000):
        found = answer(accountant, one, False)
    assert (spent(accountant), sequence(accountant), accountant.store.load("d", ["sessions"])) == before
    assert found["receipt"] is None
    assert (found["session"]["open"], found["session"]["above"], found["session"]["above_left"]) == (
        True,
        0,
        3,
    )


def test_a_retry_is_answered_again_and_pays_once(accountant: Accountant) -> None:
    """Of the opening, of an above answer with and without its run, and of the last one, which is free."""
    opened(accountant)
    body = {"session": SVT}
    first, replayed = accountant.open_session("d", body, "open", "ada")
    again, replayed_again = accountant.open_session("d", body, "open", "ada")
    assert (replayed, replayed_again) == (False, True)
    assert again["session"] == first["session"]
    one = first["session"]["id"]
    forms: list[dict[str, Any]] = [{}, {"run": 2}, {"run": 3}]
    for number, more in enumerate(forms, 1):
        assert not answer(accountant, one, True, f"a{number}", **more)["replayed"]
        cost, at = spent(accountant), sequence(accountant)
        retries: list[dict[str, Any]] = [{}, {"run": number}]
        for form in retries:
            assert answer(accountant, one, True, f"a{number}", **form)["replayed"]
        assert (spent(accountant), sequence(accountant)) == (cost, at)


def test_a_refused_above_answer_changes_nothing_and_may_be_asked_again(accountant: Accountant) -> None:
    opened(accountant, 0.5)
    one = session(accountant)
    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            answer(accountant, one, True, "a1")
    assert (spent(accountant), sequence(accountant)) == (0.3, 2)
    assert accountant.session("d", one)["run"] == 1
    accountant.change_budget("d", "life", {"kind": "pure", "epsilon": 1.0}, '"v1"', "root")
    assert answer(accountant, one, True, "a1")["session"]["run"] == 2


def test_what_the_budget_refuses_is_not_opened(accountant: Accountant) -> None:
    opened(accountant, 0.25)
    with pytest.raises(BudgetExceeded):
        session(accountant)
    assert (accountant.sessions("d")["items"], spent(accountant)) == ([], 0)


def test_a_closed_session_takes_no_answer(accountant: Accountant) -> None:
    """Closed by a person or by its last answer; closing is answered again, and what was paid stays paid."""
    opened(accountant)
    by_hand = session(accountant)
    assert not accountant.close_session("d", by_hand, "ada")[0]["session"]["open"]
    assert accountant.close_session("d", by_hand, "ada")[1]
    by_itself = session(accountant, {**SVT, "max_above": 1}, "second")
    answer(accountant, by_itself, True, "a1")
    for one in (by_hand, by_itself):
        for above, key in ((False, None), (True, "a9")):
            with pytest.raises(SessionClosed):
                answer(accountant, one, above, key)
        assert not accountant.session("d", one)["open"]
    assert spent(accountant) == 0.6
    assert is_sound(accountant)


def test_only_its_opener_or_an_admin_answers_and_closes(accountant: Accountant) -> None:
    opened(accountant)
    one, admin = session(accountant), Caller("root", admin=True)
    for ask in (
        lambda: answer(accountant, one, False, by="ben"),
        lambda: answer(accountant, one, True, "a1", by="ben"),
        lambda: accountant.close_session("d", one, "ben"),
    ):
        with pytest.raises(Forbidden):
            ask()
    answer(accountant, one, True, "a1", by=admin)
    assert accountant.odometer("d", scope="principal/ada")["totals"]["pure"] == 0.6
    assert accountant.ledger("d", 2)["items"][0]["entry"]["by"] == "root"
    accountant.close_session("d", one, admin)


def test_an_above_answer_needs_a_key_and_a_free_one_none(accountant: Accountant) -> None:
    opened(accountant)
    one = session(accountant)
    with pytest.raises(IdempotencyKeyRequired):
        answer(accountant, one, True)
    answer(accountant, one, False)


def test_a_key_that_was_used_for_something_else_is_refused(accountant: Accountant) -> None:
    opened(accountant)
    one, other = session(accountant), session(accountant, key="other")
    answer(accountant, one, True, "a1")
    for ask in (
        lambda: answer(accountant, other, True, "a1"),
        lambda: answer(accountant, one, True, "a1", run=2),
        lambda: answer(accountant, one, True, "open"),
        lambda: accountant.charge("d", {"mechanism": RUN, "count": 1}, "a1", "ada"),
        lambda: session(accountant, key="a1"),
        lambda: session(accountant, {**SVT, "max_above": 4}),
    ):
        with pytest.raises(KeyReused):
            ask()


def test_the_key_of_a_last_answer_is_its_callers_alone(accountant: Accountant) -> None:
    """An admin and the opener use one key each: the second of them has answered nothing."""
    opened(accountant)
    one = session(accountant, {**SVT, "max_above": 1})
    admin = Caller("root", admin=True)
    answer(accountant, one, True, "k", by=admin)
    forms: list[dict[str, Any]] = [{}, {"run": 1}]
    for more in forms:
        with pytest.raises(SessionClosed):
            answer(accountant, one, True, "k", **more)
        assert answer(accountant, one, True, "k", by=admin, **more)["replayed"]


def test_of_two_callers_with_one_key_one_gives_the_last_answer(accountant: Accountant) -> None:
    """Both have read the session while it was open: the decision tells them apart."""
    opened(accountant)
    state, known = accountant._session("d", session(accountant, {**SVT, "max_above": 1}))
    wanted, outcomes = SessionAnswer(above=True), []
    callers = [Caller("ada"), Caller("root", admin=True)]
    for command in [known.answer(accountant.store, state, wanted, "k", caller) for caller in callers]:
        assert isinstance(command, EndCommand)
        outcomes.append(accountant._wait("d", command))
    assert isinstance(outcomes[0], Admitted)
    assert isinstance(outcomes[1], Refused)
    assert isinstance(outcomes[1].error, SessionClosed)


def test_an_answer_of_another_run_is_refused(accountant: Accountant) -> None:
    """Above or below: who answers for a run that is over has not heard of what followed."""
    opened(accountant)
    one = session(accountant)
    answer(accountant, one, True, "a1", run=1)
    for above, key in ((True, "a2"), (False, None)):
        with pytest.raises(SessionMovedOn) as refused:
            answer(accountant, one, above, key, run=1)
        assert refused.value.fields["run"] == 2


def test_of_two_answers_at_once_one_pays(accountant: Accountant) -> None:
    """With different keys, in the same run: the other is told that the session moved on."""
    opened(accountant, adjacency="add_remove")
    one = session(accountant, {**SVT, "max_above": 1000})

    def ask(key: str) -> str:
        try:
            answer(accountant, one, True, key, run=1)
        except OdometerError as error:
            return error.code
        return "paid"

    with ThreadPoolExecutor(8) as threads:
        found = sorted(threads.map(ask, [f"a{number}" for number in range(8)]))
    assert found == ["paid", *["session-moved-on"] * 7]
    assert spent(accountant) == 0.6


def test_two_processes_answer_one_run_once(tmp_path: Path) -> None:
    """Two accountants on one store, each with a state of its own."""
    url = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    with Accountant(open_store(url)) as first, Accountant(open_store(url)) as second:
        opened(first)
        one = session(first, {**SVT, "max_above": 1000})

        def ask(who: tuple[Accountant, str]) -> str:
            try:
                answer(who[0], one, True, who[1], run=1)
            except OdometerError as error:
                return error.code
            return "paid"

        with ThreadPoolExecutor(2) as threads:
            assert sorted(threads.map(ask, [(first, "a"), (second, "b")])) == ["paid", "session-moved-on"]
        assert answer(second, one, False)["session"]["run"] == 2


# -- Confident-GNMax ---------------------------------------------------------------------------------------


def test_a_refused_query_costs_the_check_alone(accountant: Accountant) -> None:
    """And an answered one the answer, and the next check unless none follows."""
    opened(accountant, budgets=[{"name": "life", "kind": "zcdp", "rho": 9.0}])
    one = session(accountant, PATE)
    costs = [spent(accountant, "rho")]
    for number, answered in enumerate([False, False, True, False, True]):
        found = answer(accountant, one, answered, f"q{number}", run=number + 1)
        costs.append(spent(accountant, "rho"))
    assert costs == pytest.approx(
        [
            CHECK,
            2 * CHECK,
            3 * CHECK,
            4 * CHECK + ANSWER,
            5 * CHECK + ANSWER,
            5 * CHECK + 2 * ANSWER,
        ]
    )
    assert not found["session"]["open"]
    assert answer(accountant, one, True, "q4")["replayed"]
    with pytest.raises(SessionClosed):
        answer(accountant, one, True, "q5")
    assert is_sound(accountant)


def test_a_below_answer_that_is_charged_needs_a_key(accountant: Accountant) -> None:
    opened(accountant, budgets=[{"name": "life", "kind": "zcdp", "rho": 9.0}])
    with pytest.raises(IdempotencyKeyRequired):
        answer(accountant, session(accountant, PATE), False)


# -- on any dataset ----------------------------------------------------------------------------------------


def test_every_step_is_charged_to_the_scopes_named_when_it_opened(accountant: Accountant) -> None:
    """Partitions, group, principal and team."""
    life = {"name": "life", "kind": "pure", "epsilon": 9.0, "scope": "partition/*"}
    opened(accountant, budgets=[life], composition="by_partition", partitions=["eu", "us"])
    service = Caller("svc", "red", frozenset({"ada"}))
    body = {
        "session": SVT,
        "principal": "ada",
        "partitions": ["eu"],
        "group": {"name": "sweep", "runs": 1},
    }
    one = accountant.open_session("d", body, "open", service)[0]["session"]["id"]
    answer(accountant, one, True, "a1", by=Caller("svc"))
    for scope in ("partition/eu", "group/sweep", "principal/ada", "team/red", "mechanism/above_threshold"):
        names = [item["scope"] for item in accountant.scopes("d", scope.split("/")[0])["items"]]
        assert scope in names
        if not scope.startswith("mechanism"):
            assert accountant.odometer("d", scope=scope)["totals"]["pure"] == 0.6
    assert accountant.odometer("d", scope="partition/us")["totals"]["pure"] == 0


def test_a_dataset_by_unit_has_no_sessions(accountant: Accountant) -> None:
    life = {"name": "life", "kind": "pure", "epsilon": 9.0, "scope": "unit/*"}
    opened(accountant, budgets=[life], composition="by_unit")
    for units in ({}, {"units": ["u1"]}):
        more: dict[str, Any] = units
        with pytest.raises(InvalidRequest, match=r"by_unit|units"):
            session(accountant, **more)
    assert sequence(accountant) == 1


def test_a_closed_dataset_pays_no_further_run(accountant: Accountant) -> None:
    """The run that was paid can be asked to its end, and the session be closed."""
    opened(accountant)
    one = session(accountant)
    accountant.close_dataset("d", "root")
    answer(accountant, one, False)
    with pytest.raises(DatasetClosed):
        answer(accountant, one, True, "a1")
    with pytest.raises(DatasetClosed):
        session(accountant, key="another")
    accountant.close_session("d", one, "ada")
    assert is_sound(accountant)


def test_a_lowered_budget_lets_what_was_paid_go_on_and_pays_no_further_run(accountant: Accountant) -> None:
    opened(accountant)
    one = session(accountant)
    accountant.change_budget("d", "life", {"kind": "pure", "epsilon": 0.1}, '"v1"', "root")
    answer(accountant, one, False)
    with pytest.raises(BudgetExceeded):
        answer(accountant, one, True, "a1")
    assert (accountant.session("d", one)["run"], spent(accountant)) == (1, 0.3)


def test_a_session_counts_in_every_window_until_it_is_closed() -> None:
    """A run that is paid on one day answers on the next: both days have it, and no wait is long enough."""
    time = ["2026-01-01T10:00:00.000000Z"]
    day = {"name": "day", "kind": "pure", "epsilon": 0.5, "window": "day"}
    with Accountant(open_store("memory://"), clock=lambda: time[0]) as accountant:
        opened(accountant, budgets=[{"name": "life", "kind": "pure", "epsilon": 9.0}, day])
        one = session(accountant)
        for now in ("2026-01-01T10:00:00.000000Z", "2026-01-02T10:00:00.000000Z"):
            time[0] = now
            with pytest.raises(BudgetExceeded) as refused:
                answer(accountant, one, True, "a1")
            assert "retry_after_s" not in refused.value.fields
        accountant.close_session("d", one, "ada")
        with pytest.raises(BudgetExceeded):
            session(accountant, key="two")  # it was open today
        time[0] = "2026-01-03T00:00:00.000000Z"
        session(accountant, key="two")
        time[0] = "2026-01-01T10:00:00.000000Z"
        with pytest.raises(BudgetExceeded):
            session(accountant, key="three")  # a clock that goes back reopens no day
        assert is_sound(accountant)


def test_open_sessions_have_a_bound(accountant: Accountant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odometer_accountant.ledger.sessions.SESSIONS_MAX", 2)
    assert session_state.SESSIONS_MAX == 100
    opened(accountant)
    one, _ = session(accountant), session(accountant, key="two")
    with pytest.raises(TooManySessions):
        session(accountant, key="three")
    assert spent(accountant) == 0.6
    accountant.close_session("d", one, "ada")
    session(accountant, key="three")


def test_one_opener_has_not_all_the_places(accountant: Accountant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who opens on others' behalf is the opener of all of them; what is closed is counted no more."""
    monkeypatch.setattr("odometer_accountant.ledger.sessions.SESSIONS_OF_ONE_MAX", 2)
    assert session_state.SESSIONS_OF_ONE_MAX == 20
    opened(accountant)
    proxy = Caller("proxy", acts_for=frozenset({"ada", "ben"}))
    one, _ = session(accountant), session(accountant, key="two")
    for who in ("ada", "ben"):
        accountant.open_session("d", {"session": SVT, "principal": who}, who, proxy)
    before = spent(accountant)
    for caller, more in (("ada", {}), (proxy, {"principal": "ben"})):
        with pytest.raises(
            TooManySessions, match=r"has 2 open sessions of dataset d.*close-session d SESSION"
        ):
            accountant.open_session("d", {"session": SVT, **more}, "three", caller)
    assert accountant.open_session("d", {"session": SVT}, "open", "ada")[1]  # a replay opens none
    assert spent(accountant) == before
    accountant.open_session("d", {"session": SVT}, "his", "ben")
    accountant.close_session("d", one, "ada")
    session(accountant, key="three")


PAPER = {
    "kind": "confident_gnmax",
    "standard_deviation_check": 150.0,
    "standard_deviation_answer": 40.0,
    "max_answers": 2,
}
"""With the paper's σ₁ and σ₂."""


def test_a_session_is_charged_at_the_papers_deviations_exactly(accountant: Accountant) -> None:
    """ρ = 1/(2σ₁²) a check and 1/σ₂² an answer, as the mechanisms with the same deviations."""
    opened(accountant, budgets=[{"name": "life", "kind": "zcdp", "rho": 9.0}])
    one = session(accountant, PAPER)
    check, given = 1 / (2 * 150.0**2), 1 / 40.0**2
    assert spent(accountant, "rho") == pytest.approx(check, rel=1e-4)
    answer(accountant, one, False, "a1")
    answer(accountant, one, True, "a2")
    answer(accountant, one, True, "a3")
    assert spent(accountant, "rho") == pytest.approx(3 * check + 2 * given, rel=1e-6)
    assert accountant.session("d", one)["session"] == PAPER
    with Accountant(open_store("memory://")) as other:
        opened(other, budgets=[{"name": "life", "kind": "zcdp", "rho": 9.0}])
        for number, mechanism in enumerate(
            [{"kind": "gaussian", "noise_multiplier": 150.0}] * 3
            + [{"kind": "pate_gnmax", "standard_deviation_of_counts": 40.0}] * 2
        ):
            other.charge("d", {"mechanism": mechanism, "count": 1}, f"k{number}", "ada")
        assert other.odometer("d")["totals"] == accountant.odometer("d")["totals"]
    assert is_sound(accountant)


@pytest.mark.parametrize("step", ["check", "answer"])
def test_exactly_one_of_each_pair_of_noises_is_given(accountant: Accountant, step: str) -> None:
    """One step's by its deviation and the other's by its multiplier is no mistake."""
    opened(accountant, budgets=[{"name": "life", "kind": "zcdp", "rho": 9.0}])
    multiplier, deviation = f"noise_multiplier_{step}", f"standard_deviation_{step}"
    for wrong in (PAPER | {multiplier: 28.0}, {name: PAPER[name] for name in PAPER if name != deviation}):
        with pytest.raises(InvalidRequest, match=f"exactly one of {deviation} and {multiplier}"):
            session(accountant, wrong)
    assert spent(accountant, "rho") == 0
    mixed = {name: PAPER[name] for name in PAPER if name != deviation} | {multiplier: 28.0}
    assert accountant.session("d", session(accountant, mixed))["session"] == mixed


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("standard_deviation_check", 0.009),
        ("standard_deviation_answer", 0.019),
        ("standard_deviation_answer", -1.0),
    ],
)
def test_deviations_have_the_ranges_of_what_they_are_charged_as(
    accountant: Accountant, name: str, wrong: float
) -> None:
    opened(accountant)
    with pytest.raises(InvalidRequest, match=name):
        session(accountant, PAPER | {name: wrong})


@pytest.mark.parametrize("wrong", ["1", "2", "2.00000000", "99.00000000", "0007-2.00000000", "x"])
def test_what_is_no_session_is_unknown(accountant: Accountant, wrong: str) -> None:
    opened(accountant)
    session(accountant)
    for ask in (
        lambda: answer(accountant, wrong, False),
        lambda: accountant.close_session("d", wrong, "ada"),
        lambda: accountant.session("d", wrong),
    ):
        with pytest.raises(UnknownSession):
            ask()


def test_a_charge_is_no_session(accountant: Accountant) -> None:
    opened(accountant)
    receipt, _ = accountant.charge("d", {"mechanism": RUN, "count": 1}, "k", "ada")
    with pytest.raises(UnknownSession):
        answer(accountant, f"{receipt['sequence']}.{receipt['hash'][:8]}", False)


def test_a_session_outlives_the_process(tmp_path: Path) -> None:
    """What was paid is paid, and the run that was paid goes on."""
    url = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    with Accountant(open_store(url)) as before:
        opened(before)
        one = session(before)
        answer(before, one, True, "a1")
    with Accountant(open_store(url)) as after:
        assert after.session("d", one)["run"] == 2
        assert answer(after, one, True, "a1")["replayed"]
        assert [answer(after, one, True, f"b{n}")["session"]["open"] for n in range(2)] == [True, False]
        assert spent(after) == pytest.approx(0.9)
        assert is_sound(after)


@pytest.mark.parametrize("kind", Session.registry)
def test_every_kind_of_session_states_its_facts_and_pays_before_each_step(kind: str) -> None:
    found = Session.registry[kind]
    assert all([found.title, found.purpose, found.source, found.examples])
    for example in found.examples:
        one = ANY_SESSION.validate_json(json.dumps(example))
        assert one.document() == example
        assert one.opening()
        assert one.above(last=False)[-len(one.opening()) :] == one.opening()
        assert one.most_above >= 1


# -- counted again ------------------------------------------------------------------------------------------


def found_in(accountant: Accountant, **changed: Any) -> list[str]:
    """What a recount says of the ledger when its last entry says something else, under a hash that fits."""
    rows = list(accountant.store.entries("d", 0, 1000))
    entry = json.loads(rows[-1].body)
    for name, value in changed.items():
        place = entry
        *path, last = name.split("__")
        for part in path:
            place = place[part]
        place[last] = value
    body = canonical(entry)
    findings: list[str] = []
    recount = Recount("d", lambda finding: findings.append(finding.what))
    for row in [*rows[:-1], Row(rows[-1].sequence, entry_hash(body), body)]:
        recount.take(row)
    return findings


@pytest.mark.parametrize(
    ("kind", "answers", "changed", "said"),
    [
        (SVT, [], {"command__session__open__epsilon_threshold": "0.2"}, "owes"),
        (SVT, [True], {"command__session__run": 2}, "is in run 1"),
        (SVT, [True], {"command__session__id": 7}, "not open"),
        (SVT, [True], {"command__session__last": True}, "not the last answer"),
        (SVT, [True, True, True], {"above": 2}, "there were 3"),
        (SVT, [True, True, True], {"run": 2}, "not the last answer"),
        (SVT, [True, True, True], {"session": 9}, "not open"),
        (PATE, [False], {"command__session__above": True}, "owes"),
        (PATE, [True, True], {"command__session__last": False}, "not the last answer"),
    ],
)
def test_a_step_that_no_session_takes_is_found(
    kind: dict[str, Any], answers: list[bool], changed: dict[str, Any], said: str
) -> None:
    with Accountant(open_store("memory://")) as accountant:
        opened(accountant, budgets=[{"name": "life", "kind": "zcdp", "rho": 9.0}])
        one = session(accountant, kind)
        for number, above in enumerate(answers):
            answer(accountant, one, above, f"a{number}")
        assert found_in(accountant) == []
        assert any(said in finding for finding in found_in(accountant, **changed))


def test_a_list_of_open_sessions_that_was_changed_is_found(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Accountant(open_store(f"sqlite:///{path}")) as accountant:
        opened(accountant)
        one = session(accountant)
        answer(accountant, one, True, "a1")
        assert is_sound(accountant)
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute("UPDATE blobs SET value='{}' WHERE name='sessions'").rowcount == 1
    with Accountant(open_store(f"sqlite:///{path}")) as accountant:
        assert not is_sound(accountant)
        with pytest.raises(LedgerCorrupt, match="sessions"):  # what is not known takes no answer
            answer(accountant, one, False)


def test_an_answer_whose_reply_was_lost_is_paid_once() -> None:
    """The store is unsure about an append that it made: 503, and the same key finds it."""
    store = open_store("memory://")
    with Accountant(store) as accountant:
        opened(accountant)
        one = session(accountant)
        append, failing = store.append, [True]

        def failing_once(writes: Any) -> Any:
            done = append(writes)
            if failing.pop() if failing else False:
                raise StoreUnavailable("the reply was lost")
            return done

        store.append = failing_once  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable):
            answer(accountant, one, True, "a1", run=1)
        assert answer(accountant, one, True, "a1", run=1)["replayed"]
        assert spent(accountant) == 0.6
