"""The writer and its callers: everyone who asks is answered exactly once, whatever ends."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from faulty import FaultyStore, before
from serving import ONE, dataset_document

from odometer_accountant.errors import (
    BudgetExceeded,
    InternalError,
    OdometerError,
    Overloaded,
    StoreUnavailable,
)
from odometer_accountant.ledger.commands import ChargeCommand
from odometer_accountant.ledger.decisions import Admitted, Refused, Replayed
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.service.request_checks import prepared_charge
from odometer_accountant.writer.batch import Outcome
from odometer_accountant.writer.writer import WAITING_MAX
from odometer_client.keys import new_key

PREPARED = prepared_charge(ONE)


class Answers:
    """A sink that counts."""

    def __init__(self) -> None:
        self.got: dict[Any, list[Outcome]] = {}
        self.batches = 0
        self._changed = threading.Condition()

    def deliver(self, answers: Sequence[tuple[Any, Outcome]]) -> None:
        with self._changed:
            self.batches += 1
            for token, outcome in answers:
                self.got.setdefault(token, []).append(outcome)
            self._changed.notify_all()

    def wait(self, count: int) -> dict[Any, list[Outcome]]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.got) >= count, 30)
        return self.got


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore()


@pytest.fixture
def accountant(store: FaultyStore) -> Any:
    with Accountant(store) as opened:  # type: ignore[arg-type]
        opened.create_dataset(dataset_document("d", rho=1e6), "p")
        yield opened
        store.heal()


def submit(accountant: Accountant, sink: Answers, token: Any, key: str | None = None) -> None:
    accountant.writer.submit("d", ChargeCommand(PREPARED, "p", key or new_key()), sink, token)


def test_what_queues_during_an_append_shares_the_next_one(accountant: Accountant, store: FaultyStore) -> None:
    """Group commit: two appends for a hundred charges, one wake-up each."""
    sink, appends = Answers(), []

    def counted(verb: Any, writes: Any) -> Any:
        appends.append(len(writes[0].entries))
        return store.hang(verb, writes)

    store.fail(counted, "append")
    submit(accountant, sink, 0)
    assert store.called.wait(10)
    for token in range(1, 100):
        submit(accountant, sink, token)
    store.go.set()
    got = sink.wait(100)
    assert all(len(outcomes) == 1 and isinstance(outcomes[0], Admitted) for outcomes in got.values())
    assert (appends, sink.batches) == ([1, 99], 2)


def test_the_same_key_twice_in_one_batch_is_one_charge(accountant: Accountant, store: FaultyStore) -> None:
    sink = Answers()
    store.fail(store.hang, "append")
    submit(accountant, sink, "first")
    assert store.called.wait(10)
    for token in ("a", "b", "c"):
        submit(accountant, sink, token, "same")
    store.go.set()
    got = sink.wait(4)
    assert [type(got[token][0]) for token in ("a", "b", "c")] == [Admitted, Replayed, Replayed]
    assert store.sound.load("d", [])[0].sequence == 3


def test_a_replay_is_not_answered_before_its_entry_is_there(
    accountant: Accountant, store: FaultyStore
) -> None:
    """Both ask in one batch, and the append fails: the second may not be told that the first one did it."""
    sink = Answers()
    store.fail(store.hang, "append")
    submit(accountant, sink, "first")
    assert store.called.wait(10)
    for token in ("a", "b"):
        submit(accountant, sink, token, "same")
    store.fail(before, "append")
    store.go.set()
    got = sink.wait(3)
    assert [type(got[token][0]) for token in ("a", "b")] == [StoreUnavailable, StoreUnavailable]


def test_a_refusal_in_a_batch_leaves_room_for_the_smaller_one_behind(store: FaultyStore) -> None:
    """Large, small, large, small in one batch: the small ones pass, the large ones leave nothing behind."""
    with Accountant(store) as accountant:  # type: ignore[arg-type]
        accountant.create_dataset(dataset_document("d", rho=1.5), "p")
        sink, large = Answers(), prepared_charge({**ONE, "count": 3})
        store.fail(store.hang, "append")
        submit(accountant, sink, "first")
        assert store.called.wait(10)
        for token in range(4):
            prepared = PREPARED if token % 2 else large
            accountant.writer.submit("d", ChargeCommand(prepared, "p", new_key()), sink, token)
        store.go.set()
        got = sink.wait(5)
    assert [type(got[token][0]) for token in range(4)] == [Refused, Admitted, Refused, Admitted]
    refused = got[0][0]
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, BudgetExceeded)


def test_too_many_waiting_are_told_at_once(accountant: Accountant, store: FaultyStore) -> None:
    sink = Answers()
    store.fail(store.hang, "append")
    submit(accountant, sink, "first")
    assert store.called.wait(10)
    for token in range(WAITING_MAX):
        submit(accountant, sink, token, f"k{token}")
    with pytest.raises(Overloaded, match="same idempotency key"):
        submit(accountant, sink, "one too many")
    store.fail(before, "append")  # fail them fast
    store.go.set()
    assert len(sink.wait(WAITING_MAX + 1)) == WAITING_MAX + 1


def test_closing_answers_what_waits(accountant: Accountant, store: FaultyStore) -> None:
    sink = Answers()
    for token in range(500):
        submit(accountant, sink, token)
    accountant.close()
    assert all(isinstance(outcome[0], Admitted) for outcome in sink.wait(500).values())


def test_after_the_end_everyone_is_told(accountant: Accountant) -> None:
    """Many threads at once, on a writer that is gone: each is answered, none waits for another's job."""
    accountant.writer.close()
    sink = Answers()
    with ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda token: submit(accountant, sink, token), range(2000)))
    got = sink.wait(2000)
    assert all(len(found) == 1 and isinstance(found[0], StoreUnavailable) for found in got.values())


def test_a_decision_that_fails_charges_nothing_and_kills_nobody(
    accountant: Accountant, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr("odometer_accountant.writer.planner.decide", broken)
        with pytest.raises(OdometerError, match="nothing was charged"):
            accountant.charge("d", ONE, "k", "p")
    assert accountant.charge("d", ONE, "k", "p")[0]["sequence"] == 2


def test_a_dataset_that_cannot_be_planned_stops_no_other(
    accountant: Accountant, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a damaged ledger makes of the reading, the thread lives, and others are charged as before."""
    accountant.create_dataset(dataset_document("damaged"), "p")
    real = accountant.writer._planner.plan

    def broken(stream: str, *arguments: Any) -> Any:
        if stream == "damaged":
            raise AttributeError("a list has no items")
        return real(stream, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(accountant.writer._planner, "plan", broken)
        with pytest.raises(InternalError, match="nothing was charged"):
            accountant.charge("damaged", ONE, "k", "p")
        assert accountant.charge("d", ONE, "k", "p")[0]["sequence"] == 2
    assert accountant.writer.alive
    assert accountant.charge("damaged", ONE, "k", "p")[0]["sequence"] == 2
