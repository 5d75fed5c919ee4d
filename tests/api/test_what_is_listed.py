"""What lists say of datasets that cannot be read, of scopes, and of open holds."""

from collections.abc import Iterator
from typing import Any

import pytest
from serving import ONE, Live, live

from odometer_accountant.ledger.commands import FreezeCommand
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.service.reader import BlockingReply
from odometer_accountant.stores import Head


@pytest.fixture
def service() -> Iterator[Live]:
    with live() as running:
        yield running


def _accountant(service: Live) -> Accountant:
    found: Accountant = service.app.state.accountant
    return found


def freeze(service: Live, stream: str) -> None:
    """As when history that a process saw is gone."""
    waiter = BlockingReply()
    _accountant(service).writer.submit(stream, FreezeCommand(Head(9, "gone")), waiter, None)
    waiter.wait()


def _get(service: Live, path: str) -> dict[str, Any]:
    reply = service.ask("GET", path, "reader")
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def test_a_frozen_dataset_is_listed_with_its_problem_among_the_others(service: Live) -> None:
    for name in ("a", "b", "c"):
        service.open(name)
    freeze(service, "b")
    alone = service.ask("GET", "/v1/datasets/b", "reader")
    assert alone.status_code == 503
    items = _get(service, "/v1/datasets")["items"]
    assert [one["name"] for one in items] == ["a", "b", "c"]
    assert ["problem" in one for one in items] == [False, True, False]
    assert items[1]["problem"] == {part: alone.json()[part] for part in ("type", "title", "detail")}
    assert items[1]["problem"]["type"] == "/problems/ledger-rolled-back"


def test_of_a_frozen_dataset_the_entries_are_shown_and_nothing_else(service: Live) -> None:
    service.open("b")
    freeze(service, "b")
    assert _get(service, "/v1/datasets/b/ledger?order=desc")["items"][0]["entry"]["type"] == "frozen"
    for path in ("", "/odometer", "/history", "/spend", "/budgets", "/holds", "/scopes?kind=principal"):
        reply = service.ask("GET", f"/v1/datasets/b{path}", "reader")
        assert (reply.status_code, reply.json()["type"]) == (503, "/problems/ledger-rolled-back"), path


def test_a_ledger_that_is_gone_altogether_is_still_listed(service: Live) -> None:
    for name in ("a", "b"):
        service.open(name)
    store = _accountant(service).store
    del store._streams["a"]  # type: ignore[attr-defined]
    items = _get(service, "/v1/datasets?limit=1")
    assert (items["items"][0]["name"], items["next"]) == ("a", "a")
    assert items["items"][0]["problem"]["type"] == "/problems/ledger-rolled-back"
    assert [one["name"] for one in _get(service, "/v1/datasets?after=a")["items"]] == ["b"]


def test_a_frozen_shard_shows_on_its_dataset(service: Live) -> None:
    service.open("local", composition="by_unit", shards=2, budgets=[_zcdp("each", 1, scope="unit/*")])
    assert service.charge("local", "one", {**ONE, "units": ["u1"]}).status_code == 201
    (shard,) = [one for one in _accountant(service).writer.streams() if one.startswith("~units/local/")]
    freeze(service, shard)
    assert _get(service, "/v1/datasets/local")["frozen_shards"] == [int(shard[-4:], 16)]
    lost = service.ask("GET", "/v1/datasets/local/odometer?scope=unit/u1", "reader")
    assert (lost.status_code, lost.json()["type"]) == (503, "/problems/ledger-rolled-back")
    assert service.ask("POST", "/v1/datasets/local/unfreeze", json={"reason": "a drill"}).status_code == 200
    assert _get(service, "/v1/datasets/local")["frozen_shards"] == []


def test_every_scope_says_which_of_its_budgets_is_tightest(service: Live) -> None:
    budgets = [
        _zcdp("life", 100),
        _zcdp("each", 4, scope="principal/*"),
        _zcdp("day", 2, "day", "principal/*"),
    ]
    service.open("d", budgets=budgets)
    service.charge("d", "one")
    (scope,) = _get(service, "/v1/datasets/d/scopes?kind=principal")["items"]
    assert (scope["budgets"], scope["tightest"]["budget"]) == (2, "day")
    assert (scope["tightest"]["spent"], scope["tightest"]["used"]) == (0.5, 0.25)
    own = _get(service, f"/v1/datasets/d/odometer?scope={scope['scope']}")["left"]
    assert [(one["budget"], one["left"]) for one in own] == [("day", 1.5), ("each", 3.5)]
    (kind,) = _get(service, "/v1/datasets/d/scopes?kind=mechanism")["items"]
    assert (kind["budgets"], kind["tightest"]) == (0, None)


def test_a_partition_is_limited_by_the_budgets_of_the_whole_dataset_too(service: Live) -> None:
    service.open("parts", rho=10, composition="by_partition", partitions=["eu", "us"])
    service.charge("parts", "all", {**ONE, "partitions": "all"})
    service.charge("parts", "eu", {**ONE, "partitions": ["eu"]})
    eu, us = _get(service, "/v1/datasets/parts/scopes?kind=partition")["items"]
    assert (eu["tightest"]["spent"], us["tightest"]["spent"]) == (1.0, 0.5)


def test_a_budget_says_how_much_of_it_is_held(service: Live) -> None:
    service.open("d", rho=10)
    service.charge("d", "one")
    body = {**ONE, "count": 4, "expires_in_s": 600}
    path = "/v1/datasets/d/holds"
    assert (
        service.ask("POST", path, "charger", json=body, headers={"Idempotency-Key": "h"}).status_code == 201
    )
    (budget,) = _get(service, "/v1/datasets/d/odometer")["budgets"]
    assert (budget["spent"], budget["held"]) == (2.5, 2.0)


def test_of_a_window_that_is_over_nothing_is_spent(service: Live) -> None:
    accountant = _accountant(service)
    accountant.clock = lambda: "2020-01-01T00:00:00.000000Z"
    accountant.writer._clock = accountant.clock  # type: ignore[attr-defined]
    service.open("d", budgets=[_zcdp("life", 10), _zcdp("day", 1, "day")])
    service.charge("d", "one")
    day, _ = _get(service, "/v1/datasets/d")["budgets"]
    assert (day["spent"], day["renews"]) == (0.5, "2020-01-02T00:00:00.000000Z")
    accountant.clock = lambda: "2020-01-05T08:00:00.000000Z"
    day, _ = _get(service, "/v1/datasets/d")["budgets"]
    assert (day["spent"], day["renews"]) == (0.0, "2020-01-06T00:00:00.000000Z")


def _zcdp(name: str, rho: float, window: str | None = None, scope: str = "dataset") -> dict[str, Any]:
    budget = {"name": name, "kind": "zcdp", "rho": rho, "scope": scope}
    return budget if window is None else {**budget, "window": window}
