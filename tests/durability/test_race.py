"""Sixty-four callers at once: what fits is admitted, to the last charge, and nothing more."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from raw import Connection, Reply
from serving import ONE, Live, live

from odometer_accountant.ledger.blobs import scope_blob
from odometer_accountant.ledger.fold import fold
from odometer_accountant.stores import Store
from odometer_client.keys import new_key

CALLERS = 64
COST = 0.5
"""rho of `ONE`."""

Job = Callable[[Connection, int], list[Reply]]


@pytest.fixture(params=["memory", "sqlite"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Live]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/ledger.sqlite"
    with live(url) as running:
        yield running


def race(service: Live, job: Job, callers: int = CALLERS) -> list[Reply]:
    """All replies of `callers` that run `job` with a connection each, started together."""
    start = Barrier(callers)

    def run(number: int) -> list[Reply]:
        connection = Connection(service.url, service.keys["charger"])
        try:
            start.wait(30)
            return job(connection, number)
        finally:
            connection.close()

    with ThreadPoolExecutor(callers) as pool:
        return [reply for replies in pool.map(run, range(callers)) for reply in replies]


def admitted(replies: list[Reply]) -> list[Reply]:
    assert {reply.status for reply in replies} <= {200, 201, 409}, {reply.status for reply in replies}
    return [reply for reply in replies if reply.status == 201]


def charges(replies: list[Reply]) -> int:
    """How many releases of `ONE` were admitted."""
    return sum(item["count"] for reply in replies for item in reply.document["charges"])


def is_sound(service: Live, dataset: str) -> dict[str, Any]:
    """The entries fold to exactly what the store keeps beside them; returns the dataset's document."""
    store: Store = service.app.state.accountant.store
    rows = store.entries(dataset, 0, 100_000)
    state = fold((row.hash, row.body) for row in rows)
    assert state is not None
    head, blobs = store.load(dataset, [scope_blob(scope) for scope in state.totals.life])
    assert state.head == head
    assert {scope_blob(scope): loss.encode().encode() for scope, loss in state.totals.life.items()} == blobs
    document: dict[str, Any] = service.ask("GET", f"/v1/datasets/{dataset}").json()
    return document


@pytest.mark.parametrize("fitting", [1, 64, 100])
def test_exactly_what_fits_is_admitted(service: Live, fitting: int) -> None:
    service.open("d", rho=COST * fitting)
    replies = race(service, lambda one, _: [one.charge("d", new_key(), ONE) for _ in range(3)])
    good = admitted(replies)
    assert len(good) == fitting
    assert sorted(reply.document["sequence"] for reply in good) == list(range(2, fitting + 2))
    assert {reply.document["type"] for reply in replies if reply.status == 409} == {
        "/problems/budget-exceeded"
    }
    budget = is_sound(service, "d")["budgets"][0]
    assert (budget["spent"], budget["left"]) == (COST * fitting, 0)


@pytest.mark.parametrize("fitting", [7, 101])
def test_lists_are_all_or_nothing_and_leave_no_gap(service: Live, fitting: int) -> None:
    """Lists of two to five race with counts and single charges; singles fill what lists leave."""
    service.open("d", rho=COST * fitting)

    def job(one: Connection, number: int) -> list[Reply]:
        size = 2 + number % 4
        bodies = [{"charges": [ONE] * size}, {**ONE, "count": size}, ONE, ONE]
        return [one.charge("d", new_key(), body) for body in bodies]

    good = admitted(race(service, job))
    assert charges(good) == fitting
    assert is_sound(service, "d")["budgets"][0]["left"] == 0


def test_each_dataset_has_its_own_budget(service: Live) -> None:
    """Two datasets in the same batches: one does not take from the other, nor wait for its refusals."""
    service.open("a", rho=COST * 40)
    service.open("b", rho=COST * 90)

    def job(one: Connection, number: int) -> list[Reply]:
        names = ("a", "b") if number % 2 else ("b", "a")
        return [one.charge(name, new_key(), ONE) for name in names * 2]

    good = admitted(race(service, job))
    by_name = {name: [one for one in good if one.document["dataset"] == name] for name in "ab"}
    assert {name: len(found) for name, found in by_name.items()} == {"a": 40, "b": 90}
    assert is_sound(service, "a")["sequence"] == 41
    assert is_sound(service, "b")["sequence"] == 91


def test_one_key_from_everywhere_at_once_is_one_charge(service: Live) -> None:
    service.open("d", rho=COST * 2)
    keys = [new_key() for _ in range(3)]
    replies = race(service, lambda one, _: [one.charge("d", key, ONE) for key in keys])
    by_key = [replies[place :: len(keys)] for place in range(len(keys))]
    for same in by_key[:2]:
        assert [reply.status for reply in same].count(201) == 1
        assert len({(reply.document["sequence"], reply.document["hash"]) for reply in same}) == 1
        assert all(reply.document["replayed"] == (reply.status == 200) for reply in same)
    assert {reply.status for reply in by_key[2]} == {409}
    assert is_sound(service, "d")["sequence"] == 3


def test_one_key_for_two_things_is_one_of_them(service: Live) -> None:
    """Half of the callers ask for something else under the same key: 422, and no second charge."""
    service.open("d")
    key = new_key()
    replies = race(service, lambda one, number: [one.charge("d", key, {**ONE, "count": 1 + number % 2})])
    statuses = [reply.status for reply in replies]
    assert (statuses.count(201), statuses.count(200), statuses.count(422)) == (1, 31, 32)
    assert is_sound(service, "d")["sequence"] == 2


def test_one_name_is_opened_once(service: Live) -> None:
    def open_it(_: int) -> int:
        return service.ask("POST", "/v1/datasets", json={**OPEN, "name": "same"}).status_code

    with ThreadPoolExecutor(CALLERS) as pool:
        statuses = list(pool.map(open_it, range(CALLERS)))
    assert (statuses.count(201), statuses.count(409)) == (1, CALLERS - 1)


OPEN = {"unit": "person", "adjacency": "add_remove", "delta": 1e-6, "odometer_only": True}


def test_a_budget_lowered_in_the_middle_holds_from_then_on(service: Live) -> None:
    """Charges race with the change. Those numbered after it fit the new limit, whoever came first."""
    service.open("d", rho=1e6)

    def job(one: Connection, number: int) -> list[Reply]:
        if number == 0:
            for _ in range(3):
                one.charge("d", new_key(), ONE)
            change = {"kind": "zcdp", "rho": COST * 60}
            headers = {"If-Match": '"v1"'}
            reply = service.ask("PUT", "/v1/datasets/d/budgets/life", json=change, headers=headers)
            assert reply.status_code == 200
        return [one.charge("d", new_key(), ONE) for _ in range(4)]

    race(service, job)
    store: Store = service.app.state.accountant.store
    entries = service.ask("GET", "/v1/datasets/d/ledger?limit=1000").json()["items"]
    changed = next(item["sequence"] for item in entries if item["entry"]["type"] == "budget_set")
    last = entries[-1]["sequence"]
    assert last == changed or last - 2 <= 60, (changed, last)
    assert is_sound(service, "d")["sequence"] == store.load("d", [])[0].sequence
