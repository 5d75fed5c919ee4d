"""What cannot be told in full is refused, or said to be unknown: never told as less."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from odometer_accountant.errors import InvalidRequest, LedgerRolledBack
from odometer_accountant.ledger.commands import Caller, FreezeCommand
from odometer_accountant.scopes import shard_stream
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.service.reader import BlockingReply
from odometer_accountant.stores import Head
from odometer_accountant.stores.memory import MemoryStore

OPENED = {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-6}
HALF = {"kind": "zcdp", "rho": 0.5}


def opened(*budgets: dict[str, Any], **more: Any) -> Accountant:
    accountant = Accountant(MemoryStore())
    accountant.create_dataset({**OPENED, "budgets": list(budgets), **more}, "root")
    return accountant


def rho(limit: float, scope: str = "dataset", **more: Any) -> dict[str, Any]:
    return {"name": "b", "kind": "zcdp", "rho": limit, "scope": scope, **more}


@pytest.mark.parametrize("scope", ["dataset/x", "dataset/", "mechanism/zcdp", "unit/x", "principal/"])
def test_a_scope_that_is_none_has_no_odometer(scope: str) -> None:
    """It would show nothing spent, whatever the dataset has spent."""
    with opened(rho(1)) as accountant:
        accountant.charge("d", {"mechanism": HALF, "count": 1}, "k", "p")
        with pytest.raises(InvalidRequest, match="scope: one of principal/…, team/…, group/…"):
            accountant.odometer("d", scope=scope)


def lower(accountant: Accountant, limit: float, scope: str, kind: str = "zcdp", **more: Any) -> None:
    limited = {"zcdp": {"rho": limit}, "pure": {"epsilon": limit}}[kind]
    accountant.change_budget("d", "b", {"kind": kind, **limited, "scope": scope, **more}, '"v1"', "root")


def limit(kind: str, most: float, scope: str = "dataset", **more: Any) -> dict[str, Any]:
    return rho(most, scope, **more) if kind == "zcdp" else {**PURE, "epsilon": most, "scope": scope, **more}


PURE = {"name": "b", "kind": "pure"}


def guarantee(accountant: Accountant, scope: str | None = None) -> Any:
    readings = accountant.odometer("d", scope=scope)["readings"]
    return next(reading for reading in readings if reading["budget"] == "b")


WAYS: dict[str, dict[str, Any]] = {
    "principal": {},
    "team": {},
    "group": {},
    "partition": {"composition": "by_partition", "partitions": ["one", "other"]},
    "unit": {"composition": "by_unit", "shards": 1},
}


@pytest.mark.parametrize("notion", ["pure", "zcdp"])
@pytest.mark.parametrize("kind", WAYS)
def test_a_limit_lowered_for_each_promises_no_less_than_one_of_them_has_spent(kind: str, notion: str) -> None:
    """The loss of 8 is out: no later limit on each makes it 5. Of ρ the promise stays the largest limit."""
    scope = f"{kind}/*"
    everybody = [] if kind in ("partition", "unit") else [{**limit(notion, 99), "name": "all"}]
    each = {"mechanism": {"kind": notion, ("rho" if notion == "zcdp" else "epsilon"): 0.5}}
    with opened(limit(notion, 10, scope), *everybody, **WAYS[kind]) as accountant:
        for name, count in (("one", 16), ("other", 2)):
            body: dict[str, Any] = {**each, "count": count}
            if kind in ("partition", "unit"):
                body[f"{kind}s"] = [name]
            if kind == "group":
                body["group"] = {"name": name, "runs": 1}
            accountant.charge("d", body, name, Caller(name, name))
        assert guarantee(accountant, f"{kind}/one")["value"] == 10
        lower(accountant, 5, scope, notion)
        one, other = (guarantee(accountant, f"{kind}/{name}") for name in ("one", "other"))
        assert (one["value"], other["value"]) == ((8, 5) if notion == "pure" else (10, 10))
        assert f"{kind} one" in one["holds"]
        if kind != "unit":
            everybody_ = guarantee(accountant)
            assert everybody_["value"] == (8 if (notion, kind) == ("pure", "partition") else 10)
        if kind not in ("unit", "partition") and notion == "pure":
            assert f"scope={kind}/" in everybody_["holds"]


@pytest.mark.parametrize("notion", ["pure", "zcdp"])
def test_a_limit_lowered_for_one_unit_promises_no_less_than_it_has_spent(notion: str) -> None:
    each = {**limit(notion, 99, "unit/*"), "name": "each"}
    with opened(limit(notion, 10, "unit/x"), each, composition="by_unit", shards=1) as accountant:
        for unit in ("x", "y"):
            accountant.charge(
                "d", {"mechanism": {"kind": "pure", "epsilon": 0.5}, "count": 16, "units": [unit]}, unit, "p"
            )
        lower(accountant, 5, "unit/x", notion)
        assert guarantee(accountant, "unit/x")["value"] == (8 if notion == "pure" else 10)
        assert guarantee(accountant, "unit/y")["value"] == 10


@pytest.mark.parametrize("notion", ["pure", "zcdp"])
def test_a_limit_lowered_for_each_day_promises_the_largest_of_all_days(notion: str) -> None:
    now = ["2026-01-01T12:00:00.000000Z"]
    accountant = Accountant(MemoryStore(), clock=lambda: now[0])
    with accountant:
        budgets = [limit(notion, 10, window="day"), {**limit(notion, 99), "name": "life"}]
        accountant.create_dataset({**OPENED, "budgets": budgets}, "root")
        accountant.charge("d", {"mechanism": {"kind": "pure", "epsilon": 0.5}, "count": 16}, "k", "p")
        now[0] = "2026-01-02T12:00:00.000000Z"
        assert guarantee(accountant)["value"] == 10
        lower(accountant, 5, "dataset", notion, window="day")
        found = guarantee(accountant)
        assert found["value"] == 10
        assert "within one day" in found["holds"]
        assert "largest limit" in found["holds"]


def units() -> Accountant:
    return opened(rho(99, "unit/*"), composition="by_unit", shards=1)


def about_x(count: int = 1, **more: Any) -> dict[str, Any]:
    return {"mechanism": HALF, "count": count, "units": ["x"], **more}


def freeze(accountant: Accountant, stream: str) -> None:
    """As when history that a process saw is gone."""
    waiter = BlockingReply()
    accountant.writer.submit(stream, FreezeCommand(Head(9, "gone")), waiter, None)
    waiter.wait()


ASKED: dict[str, Callable[[Accountant], Any]] = {
    "check": lambda it: it.check("d", about_x()),
    "holds": lambda it: it.holds("d"),
    "odometer": lambda it: it.odometer("d", scope="unit/x"),
}


@pytest.mark.parametrize("asked", ASKED)
def test_what_a_frozen_shard_counts_is_not_told(asked: str) -> None:
    """Also by a process that never saw what is gone; and a person can still decide to go on."""
    with units() as accountant:
        accountant.hold("d", about_x(expires_in_s=60), "k", "p")
        freeze(accountant, shard_stream("d", 0))
        for process in (accountant, Accountant(accountant.store)):
            with pytest.raises(LedgerRolledBack):
                ASKED[asked](process)
        accountant.unfreeze("d", {"reason": "a drill"}, "root")
        ASKED[asked](accountant)


@pytest.mark.parametrize("asked", ASKED)
def test_what_a_shard_that_lost_entries_counts_is_not_told(asked: str) -> None:
    with units() as accountant:
        accountant.rollback_monitor.close()
        store = accountant.store
        assert isinstance(store, MemoryStore)
        accountant.hold("d", about_x(expires_in_s=60), "k", "p")
        before = deepcopy(store._streams[shard_stream("d", 0)])
        accountant.hold("d", about_x(2, expires_in_s=60), "l", "p")
        store._streams[shard_stream("d", 0)] = before
        with pytest.raises(LedgerRolledBack):
            ASKED[asked](accountant)


@pytest.mark.parametrize("asked", ASKED)
def test_what_a_shard_that_is_gone_counts_is_not_told_as_nothing(asked: str) -> None:
    """Also by a process that never saw it."""
    with units() as accountant:
        accountant.hold("d", about_x(expires_in_s=60), "k", "p")
        store = accountant.store
        assert isinstance(store, MemoryStore)
        del store._streams[shard_stream("d", 0)]
        with pytest.raises(LedgerRolledBack):
            ASKED[asked](Accountant(store))


def test_by_unit_there_is_no_history_and_no_spend_as_a_whole() -> None:
    """They would say that nothing was spent."""
    with units() as accountant:
        accountant.charge("d", about_x(), "k", "p")
        for ask in (accountant.history, accountant.spend, accountant.odometer):
            with pytest.raises(InvalidRequest, match=r"ask for that of a unit, odometer\?scope=unit/…"):
                ask("d")


def test_by_unit_the_open_holds_are_not_counted_as_none() -> None:
    with units() as accountant:
        accountant.hold("d", about_x(expires_in_s=60), "k", "p")
        assert accountant.dataset("d")["open_holds"] is None
        assert len(accountant.holds("d")["items"]) == 1
