"""The end of a window under many callers and clocks that jump: never more than one budget in one window."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Barrier, Lock
from unittest import mock

import pytest
from auditor import start_of
from raw import Connection, Reply
from serving import ONE, Live, dataset_document, live

import privacy_odometer.app
from odometer_accountant.errors import BudgetExceeded
from odometer_accountant.ledger.entries import timestamp
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores import Store, open_store
from odometer_accountant.verify.walk import verify
from odometer_client.keys import new_key

CALLERS = 32
ROUNDS = 4
FITTING = 3
"""How many times `ONE` fits into one window."""
COST = 0.5
"""rho of `ONE`."""
HOURLY = {"name": "hourly", "kind": "zcdp", "rho": FITTING * COST, "window": "hour"}


class JumpingClock:
    """A clock that goes on by some minutes with every look, and is up to two hours wrong each time."""

    def __init__(self, seed: int, step: timedelta, skew: timedelta = timedelta()) -> None:
        self._now = datetime(2026, 12, 31, 20, tzinfo=UTC) + skew
        self._random, self._lock, self._step = random.Random(seed), Lock(), step

    def __call__(self) -> str:
        with self._lock:
            self._now += self._step
            return timestamp(self._now + timedelta(seconds=self._random.uniform(-7200, 7200)))


def in_each_hour(store: Store, dataset: str) -> Counter[datetime]:
    """How many charges each hour of the ledger's time has."""
    entries = [json.loads(row.body) for row in store.entries(dataset, 0, 10_000)]
    times = [entry["time"] for entry in entries]
    assert times == sorted(times)
    return Counter(start_of("hour", entry["time"]) for entry in entries if entry["type"] == "charged")


def is_sound(store: Store, admitted: int) -> None:
    """No hour has more than fits, there were several hours, and all that was answered is there."""
    hours = in_each_hour(store, "d")
    assert max(hours.values()) == FITTING
    assert len(hours) > 2
    assert sum(hours.values()) == admitted
    assert not any(verdict.findings for verdict in verify(store, ["d"]))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Live]:
    ticking = partial(Accountant, clock=JumpingClock(1, timedelta(minutes=2)))
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    with mock.patch.object(privacy_odometer.app, "Accountant", ticking), live(url) as running:
        yield running


def together(job: Callable[[int], list[bool]]) -> int:
    """How many charges of all callers, started at once, were admitted."""
    start = Barrier(CALLERS)

    def run(number: int) -> list[bool]:
        start.wait(30)
        return job(number)

    with ThreadPoolExecutor(CALLERS) as pool:
        return sum(sum(done) for done in pool.map(run, range(CALLERS)))


def test_many_callers_of_a_service_whose_clock_jumps(service: Live) -> None:
    document = dataset_document("d")
    service.open("d", budgets=[*document["budgets"], HOURLY])

    def judged(reply: Reply) -> bool:
        assert reply.status in (201, 409)
        if reply.status == 409:
            assert [refusal["budget"] for refusal in reply.document["refusals"]] == ["hourly"]
            assert reply.document["retryable"]
            # To the end of the ledger's hour, by a clock that may be two hours behind one two hours ahead.
            assert 1 <= reply.document["retry_after_s"] <= 5 * 3600
        return reply.status == 201

    def job(_: int) -> list[bool]:
        with closing(Connection(service.url, service.keys["charger"])) as connection:
            return [judged(connection.charge_for_certain("d", new_key(), ONE)) for _ in range(ROUNDS)]

    admitted = together(job)
    store: Store = service.app.state.accountant.store
    is_sound(store, admitted)


def test_a_refusal_by_a_window_says_when_to_come_again(service: Live) -> None:
    service.open("d", budgets=[*dataset_document("d")["budgets"], {**HOURLY, "rho": 0.1}])
    reply = service.charge("d", "k", {"mechanism": {"kind": "zcdp", "rho": 0.1}, "count": 1})
    assert reply.status_code == 201
    for number in range(20):  # its clock may have gone into the next hour
        reply = service.charge("d", f"k{number}", {"mechanism": {"kind": "zcdp", "rho": 0.1}, "count": 1})
        if reply.status_code == 409:
            break
    assert reply.status_code == 409
    assert int(reply.headers["Retry-After"]) == reply.json()["retry_after_s"]


def test_two_processes_with_different_clocks_on_one_file(tmp_path: Path) -> None:
    """One is an hour and a half ahead; both jump."""
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    clocks = [
        JumpingClock(2, timedelta(minutes=2)),
        JumpingClock(3, timedelta(minutes=2), timedelta(minutes=90)),
    ]
    accountants = [Accountant(open_store(url), clock) for clock in clocks]
    accountants[0].create_dataset(
        {**dataset_document("d"), "budgets": [*dataset_document("d")["budgets"], HOURLY]}, "root"
    )

    def once(accountant: Accountant) -> bool:
        try:
            accountant.charge("d", ONE, new_key(), "ada")
        except BudgetExceeded as refusal:
            return not refusal.fields["retryable"]
        return True

    admitted = together(lambda number: [once(accountants[number % 2]) for _ in range(ROUNDS)])
    is_sound(accountants[0].store, admitted)
    for accountant in accountants:
        accountant.close()
