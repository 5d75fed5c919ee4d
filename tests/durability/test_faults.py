"""The store fails, lies or hangs: 503, never "charged", never "empty, full budget"."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pytest
from faulty import READS, FaultyStore, after, before, stale
from serving import ONE, Live, dataset_document, live

import privacy_odometer.app
from odometer_accountant.stores import Row

SLOW_AFTER_S = 1.0


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore()


@pytest.fixture
def service(store: FaultyStore) -> Iterator[Live]:
    """With a dataset `d` that holds four charges of `ONE`, of which one is there."""
    with live(store, slow_after_s=SLOW_AFTER_S) as running:  # type: ignore[arg-type]
        running.open("d", rho=2.0)
        assert running.charge("d", "first").status_code == 201
        try:
            yield running
        finally:
            store.heal()


def unsure(reply: httpx.Response, code: str = "store-unavailable") -> None:
    assert (reply.status_code, reply.json()["type"]) == (503, f"/problems/{code}"), reply.text
    assert "sequence" not in reply.json() or code == "ledger-rolled-back"


def for_certain(service: Live, dataset: str, key: str) -> httpx.Response:
    """A charge, asked again with its key while the service is unsure: it may be catching up."""
    replies = (service.charge(dataset, key) for _ in range(60))
    return next(reply for reply in replies if reply.status_code != 503)


def ready(service: Live) -> int:
    return service.ask("GET", "/readyz", None).status_code


def sequence(store: FaultyStore) -> int:
    return store.sound.load("d", [])[0].sequence


# Appending


def test_an_append_that_fails_charges_nothing(service: Live, store: FaultyStore) -> None:
    store.fail(before, "append")
    unsure(service.charge("d", "k"))
    assert sequence(store) == 2
    store.heal()
    assert service.charge("d", "k").json()["sequence"] == 3


def test_an_append_whose_answer_is_lost_is_found_by_its_key(service: Live, store: FaultyStore) -> None:
    """It happened. The caller is not told so, asks again with its key, and is charged once."""
    store.fail(after, "append")
    unsure(service.charge("d", "k"))
    store.heal()
    again = service.charge("d", "k")
    assert (again.status_code, again.json()["sequence"], again.json()["replayed"]) == (200, 3, True)
    assert sequence(store) == 3


def test_a_lost_answer_is_in_the_totals_that_are_decided_on(service: Live, store: FaultyStore) -> None:
    """Four fit, two of them unacknowledged: what was never said to be charged is counted all the same."""
    store.fail(after, "append")
    for key in ("a", "b"):
        unsure(service.charge("d", key))
    store.heal()
    assert [service.charge("d", key).status_code for key in ("c", "d")] == [201, 409]


def test_a_store_that_is_always_ahead_is_given_up_with_a_bound(service: Live, store: FaultyStore) -> None:
    store.fail(stale, "append")
    unsure(service.charge("d", "k"))
    store.heal()
    assert service.charge("d", "k").status_code == 201


@pytest.mark.parametrize("fault", [before, stale], ids=["away", "stale"])
def test_a_failing_append_also_fails_what_admins_ask(
    service: Live, store: FaultyStore, fault: Callable[..., Any]
) -> None:
    store.fail(fault, "append")
    unsure(service.ask("POST", "/v1/datasets", json=dataset_document("new")))
    unsure(service.ask("POST", "/v1/datasets/d/budgets", json={"name": "b", "kind": "pure", "epsilon": 1}))
    unsure(service.ask("POST", "/v1/datasets/d/closure", json={}))
    unsure(service.ask("POST", "/v1/keys", json={"role": "reader"}))
    store.heal()
    assert service.ask("GET", "/v1/datasets/new").status_code == 404
    assert service.ask("GET", "/v1/datasets/d").json()["closed"] is False


def test_an_append_that_hangs_is_503_for_all_that_wait(service: Live, store: FaultyStore) -> None:
    """The one in flight, those queued behind it and later ones; then each was charged once."""
    service.open("wide", rho=1e6)
    store.fail(store.hang, "append")
    keys = [f"k{number}" for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda key: service.charge("wide", key), keys))
    for reply in replies:
        unsure(reply)
    assert ready(service) == 503
    unsure(service.charge("wide", "late"))
    assert service.ask("GET", "/healthz", None).status_code == 200
    store.heal()
    again = [for_certain(service, "wide", key) for key in [*keys, "late"]]
    assert {reply.status_code for reply in again} <= {200, 201}
    assert sorted(reply.json()["sequence"] for reply in again) == list(range(2, 11))
    assert ready(service) == 200


# Reading


@pytest.mark.parametrize("fault", [before, "hang"], ids=["away", "hanging"])
def test_a_store_that_cannot_be_read_answers_nothing(
    service: Live, store: FaultyStore, fault: Callable[..., Any] | str
) -> None:
    """Not 404, not an empty list, not a full budget; and what hangs does not hold its caller."""
    store.fail(store.hang if isinstance(fault, str) else fault, "append", *READS)
    paths = ("", "/d", "/d/odometer", "/d/ledger", "/d/spend", "/d/history", "/d/budgets", "/nowhere")
    asked: list[Callable[[], httpx.Response]] = [
        *(partial(service.ask, "GET", f"/v1/datasets{path}") for path in paths),
        partial(service.ask, "POST", "/v1/datasets/d/checks", json=ONE),
        partial(service.charge, "d", "k"),
        partial(service.charge, "nowhere", "k"),
        partial(service.ask, "GET", "/v1/keys"),
    ]
    with ThreadPoolExecutor(60) as pool:  # more callers than there are worker threads
        for reply in pool.map(lambda ask: ask(), asked * 5):
            unsure(reply)
    assert ready(service) == 503
    store.heal()
    assert for_certain(service, "d", "k").json()["sequence"] == 3


@pytest.mark.parametrize("verb", ["load", "entries"])
def test_a_charge_is_not_decided_on_what_cannot_be_read(service: Live, store: FaultyStore, verb: str) -> None:
    service.open("other", rho=1.0)
    service.app.state.accountant.writer._cache.forget("other")
    store.fail(before, verb)
    unsure(service.charge("other", "k"))
    store.heal()
    assert service.charge("other", "k").json()["sequence"] == 2


def test_a_key_that_cannot_be_looked_up_charges_nothing(service: Live, store: FaultyStore) -> None:
    """Without `find` nobody knows whether this is a retry."""
    store.fail(before, "find")
    unsure(service.charge("d", "first"))
    store.heal()
    assert (service.charge("d", "first").status_code, sequence(store)) == (200, 2)


# History that changed


def lose_last(rows: list[Row]) -> None:
    """Rolled back, as after a failover to a replica that lagged."""
    rows.pop()


def lose_all(rows: list[Row]) -> None:
    rows.clear()


def change_last(rows: list[Row]) -> None:
    rows[-1] = other(rows[-1].sequence)


def change_and_go_on(rows: list[Row]) -> None:
    """Rolled back, and others have appended past the lost entry since."""
    rows[-1:] = [other(rows[-1].sequence), other(rows[-1].sequence + 1), other(rows[-1].sequence + 2)]


def other(number: int) -> Row:
    body = b'{"time":"2020-01-01T00:00:00.000000Z","seq":%d}' % number
    return Row(number, hashlib.sha256(body).hexdigest(), body)


@pytest.mark.parametrize("tamper", [lose_last, lose_all, change_last, change_and_go_on])
def test_a_history_that_changed_freezes_the_dataset(
    service: Live, store: FaultyStore, tamper: Callable[[list[Row]], None]
) -> None:
    service.open("other")
    tamper(store.sound._streams["d"].rows)
    for _ in range(2):  # it stays frozen
        unsure(service.charge("d", "k"), "ledger-rolled-back")
        unsure(service.charge("d", "first"), "ledger-rolled-back")
        unsure(service.ask("POST", "/v1/datasets", json=dataset_document("d")), "ledger-rolled-back")
        unsure(service.ask("POST", "/v1/datasets/d/checks", json=ONE), "ledger-rolled-back")
        for path in ("", "/odometer", "/budgets", "/history", "/spend", "/holds"):
            unsure(service.ask("GET", f"/v1/datasets/d{path}"), "ledger-rolled-back")
    assert service.charge("other", "k").status_code == 201
    assert ready(service) == 200


def test_keys_that_vanished_let_nobody_in(service: Live, store: FaultyStore) -> None:
    """A revocation might be among what is gone."""
    store.sound._streams["~keys"].rows.pop()
    unsure(service.ask("POST", "/v1/keys", json={"role": "reader"}), "ledger-corrupt")
    unsure(service.ask("GET", "/v1/keys"), "ledger-corrupt")


def test_totals_that_are_gone_are_not_zero(service: Live, store: FaultyStore) -> None:
    service.open("spent", rho=0.5)
    assert service.charge("spent", "k").status_code == 201
    service.app.state.accountant.writer._cache.forget("spent")
    del store.sound._streams["spent"].blobs["totals/dataset"]
    unsure(service.charge("spent", "again"), "ledger-corrupt")
    unsure(service.ask("GET", "/v1/datasets/spent/odometer"), "ledger-corrupt")


# The writer dies


class Killed(BaseException):
    """Nothing catches this."""


def test_a_dead_writer_fails_all_waiters_and_ends_the_process(
    service: Live, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    monkeypatch.setattr(privacy_odometer.app.os, "kill", lambda *_: ended.set())

    def die(_verb: Callable[..., Any], *_: Any) -> Any:
        assert store.go.wait(30)
        raise Killed

    service.open("wide")
    store.fail(die, "append")
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(service.charge, "wide", f"k{number}") for number in range(8)]
        assert store.called.wait(10)
        store.go.set()
        for reply in waiting:
            unsure(reply.result())
    assert ended.wait(10)
    assert service.app.state.writer_died
    assert ready(service) == 503
    unsure(service.charge("wide", "later"))
    unsure(service.ask("POST", "/v1/datasets", json=dataset_document("later")))
    assert store.sound.load("wide", [])[0].sequence == 1
