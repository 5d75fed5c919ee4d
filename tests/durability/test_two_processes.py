"""Two servers on one ledger file: they see each other's changes, and together admit what fits."""

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier
from typing import Any

import forked
import httpx
import pytest
from raw import Connection, Reply
from serving import ONE, dataset_document

from odometer_accountant.ledger.fold import fold
from odometer_accountant.stores import open_store
from odometer_client.keys import new_key

CALLERS = 32
COST = 0.5
"""rho of `ONE`."""


@dataclass(frozen=True)
class Two:
    """Two processes on one file, and an admin key that both know."""

    urls: tuple[str, str]
    key: str
    store: str

    def ask(self, which: int, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.key}", **more.pop("headers", {})}
        return httpx.request(method, self.urls[which] + path, headers=headers, timeout=60, **more)

    def charge(self, which: int, dataset: str, key: str, body: Any = ONE) -> Reply:
        with closing(Connection(self.urls[which], self.key)) as connection:
            return connection.charge_for_certain(dataset, key, body)

    def open(self, which: int, name: str, rho: float) -> None:
        assert self.ask(which, "POST", "/v1/datasets", json=dataset_document(name, rho)).status_code == 201


@pytest.fixture(scope="module")
def two() -> Iterator[Two]:
    with tempfile.TemporaryDirectory(prefix=".two-", dir=Path(__file__).parent) as folder:
        store = f"sqlite:///{folder}/ledger.sqlite"
        with forked.serve(store) as first, forked.serve(store) as second:
            assert first.admin_key is not None
            assert second.admin_key is None
            yield Two((first.url, second.url), first.admin_key, store)


@pytest.mark.parametrize("fitting", [5, 50, 90])
def test_together_they_admit_exactly_what_fits(two: Two, fitting: int) -> None:
    """Each caller charges three times, half at one process, half at the other."""
    name = f"race-{fitting}"
    two.open(0, name, COST * fitting)
    start = Barrier(CALLERS)

    def run(number: int) -> list[Reply]:
        with closing(Connection(two.urls[number % 2], two.key)) as connection:
            start.wait(30)
            return [connection.charge_for_certain(name, new_key(), ONE) for _ in range(3)]

    with ThreadPoolExecutor(CALLERS) as pool:
        replies = [reply for some in pool.map(run, range(CALLERS)) for reply in some]
    assert sorted({reply.status for reply in replies}) == [201, 409]
    assert sum(reply.status == 201 for reply in replies) == fitting
    with closing(open_store(two.store)) as store:
        state = fold((row.hash, row.body) for row in store.entries(name, 0, 1000))
    assert state is not None
    assert (state.head.sequence, state.charges) == (fitting + 1, fitting)


def test_one_key_at_both_is_one_charge(two: Two) -> None:
    two.open(0, "same-key", COST * 100)
    keys = [new_key() for _ in range(10)]
    with ThreadPoolExecutor(CALLERS) as pool:
        calls = [pool.submit(two.charge, number % 2, "same-key", key) for key in keys for number in range(8)]
        replies = [call.result() for call in calls]
    by_key = [replies[place : place + 8] for place in range(0, len(replies), 8)]
    for same in by_key:
        assert sorted({reply.status for reply in same}) in ([200, 201], [201])
        assert [reply.status for reply in same].count(201) == 1
        assert len({reply.document["hash"] for reply in same}) == 1
    assert two.ask(0, "GET", "/v1/datasets/same-key").json()["sequence"] == len(keys) + 1


def test_a_key_charged_at_one_is_known_at_the_other(two: Two) -> None:
    two.open(0, "retry", COST)
    first = two.charge(0, "retry", "k")
    again = two.charge(1, "retry", "k")
    assert (first.status, again.status) == (201, 200)
    assert first.document["hash"] == again.document["hash"]
    assert two.charge(1, "retry", "k", {**ONE, "count": 2}).status == 422


def test_a_dataset_opened_at_one_is_there_at_the_other(two: Two) -> None:
    assert two.charge(1, "late", "k0").status == 404
    two.open(0, "late", COST)
    assert two.charge(1, "late", "k").status == 201
    assert two.ask(0, "GET", "/v1/datasets/late").json()["budgets"][0]["left"] == 0


def test_a_budget_changed_at_one_holds_at_the_other(two: Two) -> None:
    """Raised, lowered, closed: the other has the old state in its memory each time."""
    two.open(0, "changed", COST)
    assert [two.charge(1, "changed", key).status for key in ("a", "b")] == [201, 409]

    def change(rho: float, etag: str) -> None:
        body, headers = {"kind": "zcdp", "rho": rho}, {"If-Match": etag}
        reply = two.ask(0, "PUT", "/v1/datasets/changed/budgets/life", json=body, headers=headers)
        assert reply.status_code == 200, reply.text

    change(COST * 3, '"v1"')
    assert two.charge(1, "changed", "b").status == 201
    change(COST, '"v2"')
    assert two.charge(1, "changed", "c").status == 409
    change(COST * 9, '"v3"')
    assert two.ask(0, "POST", "/v1/datasets/changed/closure", json={}).status_code == 200
    closed = two.charge(1, "changed", "d")
    assert (closed.status, closed.document["type"]) == (409, "/problems/dataset-closed")


def test_an_api_key_of_one_is_known_at_the_other_and_ends_there(two: Two) -> None:
    """Within the time that a key is cached, a second."""
    made = two.ask(0, "POST", "/v1/keys", json={"role": "reader"}).json()
    asked = {"headers": {"Authorization": f"Bearer {made['token']}"}}
    deadline = time.monotonic() + 30
    while two.ask(1, "GET", "/v1/me", **asked).status_code == 401:
        assert time.monotonic() < deadline
    assert two.ask(0, "DELETE", f"/v1/keys/{made['id']}").status_code == 204
    while two.ask(1, "GET", "/v1/me", **asked).status_code == 200:
        assert time.monotonic() < deadline
