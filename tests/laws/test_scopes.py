"""Shares of teams, partitions, units, and charges on somebody's behalf: whose odometers a charge moves."""

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from amount import examples
from hypothesis import given
from hypothesis import strategies as st

from odometer_accountant.budgets import ANY_BUDGET
from odometer_accountant.errors import BudgetExceeded, DatasetClosed, Forbidden, InvalidRequest, KeyReused
from odometer_accountant.ledger.commands import (
    AddPartitionsCommand,
    Caller,
    ChargeCommand,
    SetBudgetCommand,
)
from odometer_accountant.ledger.decisions import Admitted, Refused
from odometer_accountant.scopes import shard_of, shard_stream
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores.memory import MemoryStore
from odometer_accountant.verify.walk import verify
from odometer_accountant.writer.batch import Submission
from odometer_accountant.writer.cache import StateCache
from odometer_accountant.writer.planner import BatchPlanner
from odometer_accountant.writer.stats import WriterStats
from odometer_accountant.writer.writer import utc_now

OPENED = {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-6}


def opened(*budgets: dict[str, Any], **more: Any) -> Accountant:
    accountant = Accountant(MemoryStore())
    accountant.create_dataset({**OPENED, "budgets": list(budgets), **more}, "root")
    return accountant


def pure(epsilon: float, **more: Any) -> dict[str, Any]:
    return {"mechanism": {"kind": "pure", "epsilon": epsilon}, "count": 1, **more}


def fits(accountant: Accountant, body: dict[str, Any], key: str, by: Caller | str) -> bool:
    try:
        accountant.charge("d", body, key, by)
    except BudgetExceeded:
        return False
    return True


# -- shares


TEAMS = ["red", "blue", "green", None]
SHARES = {"red": 0.5, "blue": 0.3}
LIMIT = 1000
"""In thousandths of epsilon."""


@examples(25)
@given(st.lists(st.tuples(st.sampled_from(TEAMS), st.integers(1, 250)), max_size=25))
def test_a_team_within_its_share_is_never_in_anybodys_way(asked: list[tuple[str | None, int]]) -> None:
    """Within its share it is admitted; beyond, exactly what leaves everybody else's share whole."""
    spent: Counter[str | None] = Counter()
    share = {team: int(Fraction(str(part)) * LIMIT) for team, part in SHARES.items()}
    budget = {"name": "b", "kind": "pure", "epsilon": LIMIT / 1000, "reserved": SHARES}
    with opened(budget) as accountant:
        for number, (team, cost) in enumerate(asked):
            then = spent + Counter({team: cost})
            kept = sum(max(0, most - then[one]) for one, most in share.items())
            room = sum(then.values()) + kept <= LIMIT
            done = fits(accountant, pure(cost / 1000), f"{number}", Caller("ada", team))
            assert done is room
            if team in share and then[team] <= share[team]:
                assert done
            if done:
                spent = then
        assert not any(verdict.findings for verdict in verify(accountant.store))


GAUSSIAN = {"kind": "gaussian", "noise_multiplier": 8.0}


@pytest.mark.parametrize("kind", ["approximate", "zcdp", "gdp", "renyi"])
def test_others_leave_a_share_of_any_kind_of_budget_whole(kind: str) -> None:
    """Others take what they can; the team then gets as many releases as it would have on its own."""
    limits: dict[str, Any] = {"approximate": {"epsilon": 3.0, "delta": 1e-6}, "zcdp": {"rho": 0.5}}
    limits |= {"gdp": {"mu": 1.0}, "renyi": {"order": 8, "epsilon": 1.0}}
    budget = {"name": "b", "kind": kind, **limits[kind], "reserved": {"red": 0.4, "blue": 0.3}}
    red, alone, others = Caller("ada", "red"), 0, 0
    one = {"mechanism": GAUSSIAN, "count": 1}
    with opened(budget) as accountant:
        state = accountant.state("d")
        (index, share), *_ = state.limits[0].shares["team/red"]
        cost = accountant.prepare("d", one).loss.values[index]
        alone = share // cost
        assert alone >= 1
        while fits(accountant, one, f"other-{others}", "eve"):
            others += 1
        assert others >= 1
        for number in range(alone):
            assert fits(accountant, one, f"red-{number}", red)
        assert not fits(accountant, {**one, "count": 2}, "too-much", red)
        assert fits(accountant, one, "blue", Caller("ben", "blue"))


def test_shares_are_at_most_the_whole() -> None:
    over = {"name": "b", "kind": "pure", "epsilon": 1, "reserved": {"red": 0.7, "blue": 0.30000001}}
    with pytest.raises(InvalidRequest, match="more than 1"):
        opened(over)


def test_when_all_is_reserved_nobody_else_gets_anything() -> None:
    whole = {"name": "b", "kind": "pure", "epsilon": 1, "reserved": {"red": 0.7, "blue": 0.3}}
    with opened(whole) as accountant:
        assert not fits(accountant, pure(1e-12), "k", "eve")
        assert not fits(accountant, pure(1e-12), "k", Caller("eve", "green"))
        assert fits(accountant, pure(0.7), "k", Caller("ada", "red"))
        assert not fits(accountant, pure(1e-12), "l", Caller("ada", "red"))
        assert fits(accountant, pure(0.3), "k", Caller("ben", "blue"))


# -- teams, groups, principals


@pytest.mark.parametrize(
    "scope", ["principal/*", "principal/ada", "team/*", "team/red", "group/*", "group/sweep"]
)
def test_each_scope_has_what_all_its_charges_come_to_and_no_others(scope: str) -> None:
    limited = {"name": "b", "kind": "pure", "epsilon": 1, "scope": scope}
    life = {"name": "life", "kind": "pure", "epsilon": 100}
    ada, eve = Caller("ada", "red"), Caller("eve", "blue")
    sweep = {"group": {"name": "sweep", "runs": 1}}
    with opened(life, limited) as accountant:
        assert fits(accountant, pure(0.6, **sweep), "1", ada)
        assert fits(accountant, pure(0.4, **sweep), "2", ada)
        assert not fits(accountant, pure(1e-12, **sweep), "3", ada)
        other = pure(0.6, group={"name": "another", "runs": 1})
        assert fits(accountant, other, "4", eve)


def test_runs_of_a_group_are_charged_all_at_once() -> None:
    with opened({"name": "life", "kind": "pure", "epsilon": 1}) as accountant:
        assert not fits(accountant, pure(0.3, group={"name": "sweep", "runs": 4}), "k", "ada")
        assert fits(accountant, pure(0.3, group={"name": "sweep", "runs": 3}), "k", "ada")
        assert accountant.odometer("d", scope="group/sweep")["totals"]["pure"] == 0.9


def test_two_charges_of_one_kind_of_mechanism_are_both_counted_for_it() -> None:
    with opened({"name": "life", "kind": "pure", "epsilon": 1}) as accountant:
        one, other = ({"mechanism": {"kind": "pure", "epsilon": e}, "count": 1} for e in (0.1, 0.2))
        accountant.charge("d", {"charges": [one, other]}, "k", "ada")
        names = ["totals/dataset", "totals/mechanism/pure", "totals/principal/ada"]
        _, blobs = accountant.store.load("d", names)
        assert len(blobs) == len(names)
        assert len(set(blobs.values())) == 1


# -- on behalf


def test_nobody_charges_on_behalf_of_another_without_being_allowed_to() -> None:
    with opened({"name": "life", "kind": "pure", "epsilon": 1}) as accountant:
        for by in ("svc", Caller("svc", None, frozenset({"ben"})), Caller("svc", admin=True)):
            with pytest.raises(Forbidden):
                accountant.charge("d", pure(0.1, principal="ada"), "k", by)
        assert accountant.store.load("d", [])[0].sequence == 1
        for by in (Caller("svc", None, frozenset({"ada"})), Caller("svc2", None, frozenset({"*"}))):
            assert accountant.charge("d", pure(0.1, principal="ada"), "k", by)[0]["principal"] == "ada"
        assert accountant.odometer("d", scope="principal/ada")["totals"]["pure"] == 0.2
        assert accountant.odometer("d", scope="principal/svc")["totals"]["pure"] == 0


def test_a_key_belongs_to_who_asks() -> None:
    """The same key of another asker is another key; for another principal, it is another charge."""
    svc = Caller("svc", None, frozenset({"*"}))
    with opened({"name": "life", "kind": "pure", "epsilon": 1}) as accountant:
        first, _ = accountant.charge("d", pure(0.1, principal="ada"), "k", svc)
        own, replayed = accountant.charge("d", pure(0.1), "k", "ada")
        assert not replayed
        assert own["sequence"] == first["sequence"] + 1
        again, replayed = accountant.charge("d", pure(0.1, principal="ada"), "k", svc)
        assert (again["sequence"], replayed) == (first["sequence"], True)
        for who in ("ben", "svc"):
            with pytest.raises(KeyReused):
                accountant.charge("d", pure(0.1, principal=who), "k", svc)


# -- partitions


def parted(*budgets: dict[str, Any], partitions: list[str] | None = None) -> Accountant:
    more = {} if partitions is None else {"partitions": partitions}
    return opened(*budgets, composition="by_partition", **more)


EACH = [{}, {"scope": "partition/*"}]


@pytest.mark.parametrize("scope", EACH, ids=["dataset", "partition/*"])
def test_a_budget_holds_for_each_partition_on_its_own(scope: dict[str, str]) -> None:
    with parted({"name": "b", "kind": "pure", "epsilon": 1, **scope}, partitions=["eu", "us"]) as accountant:
        assert fits(accountant, pure(0.7, partitions=["eu"]), "1", "ada")
        assert fits(accountant, pure(1.0, partitions=["us"]), "2", "ada")
        assert not fits(accountant, pure(0.3, partitions="all"), "3", "ada")
        assert not fits(accountant, pure(0.1, partitions=["eu", "us"]), "4", "ada")
        assert fits(accountant, pure(0.3, partitions=["eu"]), "5", "ada")


@pytest.mark.parametrize("scope", EACH, ids=["dataset", "partition/*"])
@pytest.mark.parametrize("first", [None, ["eu"]], ids=["before the first", "before another"])
def test_a_charge_on_all_counts_in_partitions_that_come_later(
    scope: dict[str, str], first: list[str] | None
) -> None:
    with parted({"name": "b", "kind": "pure", "epsilon": 1, **scope}, partitions=first) as accountant:
        assert fits(accountant, pure(0.6, partitions="all"), "1", "ada")
        assert not fits(accountant, pure(0.5, partitions="all"), "2", "ada")
        accountant.add_partitions("d", {"partitions": ["us"]}, "root")
        assert accountant.odometer("d", scope="partition/us")["totals"]["pure"] == 0.6
        assert not fits(accountant, pure(0.5, partitions=["us"]), "3", "ada")
        assert fits(accountant, pure(0.4, partitions=["us"]), "4", "ada")


def test_what_is_held_of_all_partitions_is_held_of_each() -> None:
    with parted({"name": "b", "kind": "pure", "epsilon": 1}, partitions=["eu", "us"]) as accountant:
        accountant.hold("d", pure(0.5, partitions="all", expires_in_s=60), "1", "ada")
        accountant.hold("d", pure(0.25, partitions=["us"], expires_in_s=60), "2", "ada")
        assert accountant.odometer("d", scope="partition/eu")["held"]["pure"] == 0.5
        assert accountant.odometer("d", scope="partition/us")["held"]["pure"] == 0.75


def test_an_unknown_partition_is_refused_and_never_made() -> None:
    with parted({"name": "b", "kind": "pure", "epsilon": 1}, partitions=["eu"]) as accountant:
        for body in (pure(0.1, partitions=["us"]), pure(0.1), pure(0.1, partitions=["eu", "us"])):
            with pytest.raises(InvalidRequest):
                accountant.charge("d", body, "k", "ada")
        assert accountant.dataset("d")["partitions"] == ["eu"]


# -- units


U0, U2 = [f"u{n}" for n in range(20) if shard_of(f"u{n}", 2) == 0][:2]
U1 = next(f"u{n}" for n in range(20) if shard_of(f"u{n}", 2) == 1)
UNIT = {"name": "b", "kind": "pure", "epsilon": 1, "scope": "unit/*"}
HOURLY = {"name": "hourly", "kind": "pure", "epsilon": 0.5, "scope": "unit/*", "window": "hour"}


def by_unit(*budgets: dict[str, Any]) -> Accountant:
    return opened(*budgets, composition="by_unit", shards=2)


def test_a_closed_dataset_takes_no_charge_of_a_shard_that_was_never_charged() -> None:
    with by_unit(UNIT) as accountant:
        accountant.charge("d", pure(0.1, units=[U0]), "1", "ada")
        accountant.close_dataset("d", "root")
        for unit in (U0, U1):
            with pytest.raises(DatasetClosed):
                accountant.charge("d", pure(0.1, units=[unit]), "2", "ada")
        assert accountant.store.streams("~units/d/0001", 10) == []
        assert accountant.store.load(shard_stream("d", 1), [])[0].sequence == 0


def test_a_unit_that_was_never_charged_has_an_odometer_under_every_budget() -> None:
    with by_unit(UNIT, HOURLY) as accountant:
        for unit in (U0, U1):
            assert accountant.odometer("d", scope=f"unit/{unit}")["totals"]["pure"] == 0
        accountant.charge("d", pure(0.1, units=[U0]), "1", "ada")
        accountant.add_budget("d", {**HOURLY, "name": "daily", "window": "day"}, "root")
        for unit, spent in ((U0, 0.1), (U2, 0)):
            assert accountant.odometer("d", scope=f"unit/{unit}")["totals"]["pure"] == spent


def test_a_changed_budget_is_in_force_in_every_shard_at_once() -> None:
    with by_unit(UNIT) as accountant:
        accountant.charge("d", pure(0.4, units=[U0]), "1", "ada")
        accountant.change_budget("d", "b", {**UNIT, "epsilon": 0.5}, '"v1"', "root")
        for unit, left in ((U0, 0.1), (U1, 0.5)):
            assert not fits(accountant, pure(left + 0.001, units=[unit]), "2", "ada")
            assert fits(accountant, pure(left, units=[unit]), "3", "ada")


def test_two_processes_keep_one_list_of_the_losses_that_totals_are_multiples_of() -> None:
    """What one has learned since, the other reads before it counts."""
    store = MemoryStore()
    one, other = Accountant(store), Accountant(store)
    one.create_dataset({**OPENED, "budgets": [UNIT], "composition": "by_unit", "shards": 1}, "root")
    spent: Counter[str] = Counter()
    for number, (accountant, thousandths, unit) in enumerate(
        [(other, 50, "a"), (one, 70, "b"), (one, 90, "c"), (other, 10, "c"), (other, 20, "d"), (one, 10, "d")]
    ):
        accountant.charge("d", pure(thousandths / 1000, units=[unit]), f"{number}", "ada")
        spent[unit] += thousandths
    for accountant in (one, other):
        for unit, thousandths in spent.items():
            shown = accountant.odometer("d", scope=f"unit/{unit}")["totals"]["pure"]
            assert shown == thousandths / 1000
    assert not any(verdict.findings for verdict in verify(store))
    one.close()
    other.close()


# -- decided together


BATCHES: dict[str, tuple[dict[str, Any], Any, dict[str, Any]]] = {
    "a window": (
        {},
        {"name": "daily", "kind": "pure", "epsilon": 1, "window": "day"},
        {},
    ),
    "a team's share": (
        {},
        {"name": "shared", "kind": "pure", "epsilon": 1, "reserved": {"red": 0.5}},
        {},
    ),
    "a partition, under a window": (
        {"composition": "by_partition", "partitions": ["eu"]},
        ("us",),
        {"partitions": "all"},
    ),
}


@pytest.mark.parametrize("name", BATCHES)
def test_what_was_set_a_moment_before_is_in_force_for_what_is_decided_together_with_it(name: str) -> None:
    """The counts that it needs are read too, though nobody needed them when the batch began."""
    more, change, where = BATCHES[name]
    budgets = [{"name": "life", "kind": "pure", "epsilon": 9}]
    budgets += [{"name": "hourly", "kind": "pure", "epsilon": 1, "window": "hour"}] if where else []
    with opened(*budgets, **more) as accountant:
        accountant.charge("d", pure(0.25, **where), "before", Caller("ada", "red"))
    store = accountant.store
    command: Any = (
        AddPartitionsCommand(change, "root")
        if where
        else SetBudgetCommand(ANY_BUDGET.validate_python(change), "root")
    )
    charges = [
        ChargeCommand(accountant.prepare("d", pure(0.4, **where)), "ben", f"k{number}") for number in range(2)
    ]
    reopened = MemoryStore()
    reopened.__dict__ |= {**store.__dict__, "_closed": False}
    planner = BatchPlanner(StateCache(reopened, WriterStats()))
    plan = planner.plan(
        "d", [Submission("d", each, Sinkless(), None) for each in (command, *charges)], utc_now()
    )
    assert plan is not None
    outcomes = [type(outcome) for _, outcome in plan.decisions]
    fitting = 1 if "reserved" in str(change) or where else 2
    assert outcomes == [Admitted, *[Admitted] * fitting, *[Refused] * (2 - fitting)]
    refused = [outcome.error for _, outcome in plan.decisions if isinstance(outcome, Refused)]
    assert all(isinstance(error, BudgetExceeded) for error in refused)


class Sinkless:
    """Where the answers of a plan that is not carried out go."""

    def deliver(self, answers: Any) -> None:
        raise AssertionError(f"nothing is answered here: {answers}")


# -- scopes that were never charged ------------------------------------------------------------------------


def said_of(accountant: Accountant, scope: str) -> tuple[bool, list[str]]:
    found = accountant.odometer("d", scope=scope)
    return found["known"], found.get("notes", [])


def test_a_scope_that_was_never_charged_says_so_and_names_the_nearest() -> None:
    """It reads zero, which is true, and may be a name with a fault in it."""
    with opened({"name": "b", "kind": "pure", "epsilon": 9}) as accountant:
        assert said_of(accountant, "group/swep") == (
            False,
            ["nothing was ever charged to group/swep: there is no charged group in d yet"],
        )
        body = pure(0.1, group={"name": "sweep", "runs": 1})
        accountant.charge("d", body, "1", Caller("ada", team="ads"))
        for scope, near in (
            ("group/swep", "did you mean sweep?"),
            ("team/adz", "did you mean ads?"),
            ("principal/bob", "there are ada"),
        ):
            assert said_of(accountant, scope) == (False, [f"nothing was ever charged to {scope}: {near}"])
            assert accountant.odometer("d", scope=scope)["totals"]["pure"] == 0
        for scope in ("group/sweep", "team/ads", "principal/ada", "dataset"):
            assert said_of(accountant, scope) == (True, [])


def test_of_many_names_none_of_which_is_near_the_list_is_named() -> None:
    with opened({"name": "b", "kind": "pure", "epsilon": 9}) as accountant:
        for number in range(6):
            accountant.charge("d", pure(0.1), str(number), f"person-{number}")
        (said,) = said_of(accountant, "principal/zz")[1]
        assert said.endswith("principal/zz: odometer scopes d --kind principal lists those that were")


def test_a_scope_that_a_budget_names_is_known_before_it_is_charged() -> None:
    """A budget of each names nobody."""
    with opened(
        {"name": "one", "kind": "pure", "epsilon": 9, "scope": "team/ads"},
        {"name": "each", "kind": "pure", "epsilon": 9, "scope": "team/*"},
        odometer_only=True,
    ) as accountant:
        assert said_of(accountant, "team/ads") == (True, [])
        assert not said_of(accountant, "team/adz")[0]


def test_a_partition_is_known_before_it_is_charged() -> None:
    with parted({"name": "b", "kind": "pure", "epsilon": 1}, partitions=["eu", "us"]) as accountant:
        assert said_of(accountant, "partition/eu") == (True, [])


def test_a_charge_of_no_loss_and_a_hold_that_came_back_are_known() -> None:
    with opened({"name": "b", "kind": "pure", "epsilon": 9}) as accountant:
        accountant.charge("d", pure(0.0, group={"name": "free", "runs": 1}), "1", "ada")
        held, _ = accountant.hold(
            "d", pure(1.0, group={"name": "back", "runs": 1}, expires_in_s=60), "2", "ada"
        )
        accountant.settle("d", str(held["hold"]["id"]), {"used": 0}, "ada")
        assert said_of(accountant, "group/free") == said_of(accountant, "group/back") == (True, [])


def test_a_unit_that_was_never_charged_says_so_and_names_no_other() -> None:
    """Units are not listed."""
    document = {"name": "d", "unit": "person", "adjacency": "replace_one", "delta": 1e-6, "shards": 1}
    each = {"name": "each", "kind": "pure", "epsilon": 9, "scope": "unit/*"}
    with Accountant.open("memory://") as accountant:
        accountant.create_dataset(document | {"composition": "by_unit", "budgets": [each]}, "root")
        accountant.charge("d", pure(0.1, units=["u1"]), "1", "ada")
        assert said_of(accountant, "unit/u1") == (True, [])
        assert said_of(accountant, "unit/u2") == (False, ["nothing was ever charged to unit/u2"])
