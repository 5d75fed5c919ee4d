"""A session has one runner: two objects of it never give out two answers for one payment."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odometer_client import BudgetExceeded, Client, OutcomeUnknown, Session
from odometer_client.calls import Answer, Request, TransportFailure
from odometer_client.errors import NotTheRunner, SessionClosed, SessionMovedOn
from odometer_client.testing import Service

SVT = {"kind": "sparse_vector", "epsilon_threshold": 0.1, "epsilon_answers": 0.2, "max_above": 2}
VOTES = {
    "kind": "confident_gnmax",
    "noise_multiplier_check": 10.0,
    "noise_multiplier_answer": 5.0,
    "max_answers": 2,
}
Opened = Callable[..., str]
JOB = """
import sys
from odometer_client import Client
from odometer_client.errors import OdometerError

with Client(*sys.argv[1:3]) as client:
    session = client.open_session(sys.argv[3], {session}, key="job-7")
    try:
        session.answer(True)
        print("above")
    except OdometerError as error:
        print(type(error).__name__)
"""


def spent(client: Client, dataset: str) -> float:
    return float(client.dataset(dataset).budgets[0]["spent"])


class Losing:
    """A transport that does what it is asked and loses the next so many replies."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.losses = 0

    def send(self, request: Request) -> Answer:
        answer: Answer = self._transport.send(request)
        if self.losses:
            self.losses -= 1
            raise TransportFailure("the reply was lost", may_have_arrived=True)
        return answer


@pytest.fixture
def losing(both: Client, monkeypatch: pytest.MonkeyPatch) -> Losing:
    """On the way of `both`, which tries twice and does not wait."""
    lost = Losing(both._transport)
    monkeypatch.setattr(both, "_transport", lost)
    monkeypatch.setattr(both, "_attempts", 2)
    monkeypatch.setattr(both, "_sleep", lambda _: None)
    return lost


@pytest.fixture
def two(running: Service) -> Iterator[tuple[Client, Client]]:
    """Two clients of one live service, with one key."""
    with Client(running.url, running.admin_key) as one, Client(running.url, running.admin_key) as other:
        yield one, other


def dataset_of(client: Client, name: str) -> str:
    life = {"name": "life", "kind": "zcdp", "rho": 100.0}
    client.create_dataset(name, unit="person", adjacency="add_remove", delta=1e-6, budgets=[life])
    return name


@pytest.mark.parametrize("kind", [SVT, VOTES], ids=lambda kind: str(kind["kind"]))
@pytest.mark.parametrize("above", [True, False])
def test_a_key_of_two_clients_gives_one_runner(
    two: tuple[Client, Client], kind: dict[str, Any], above: bool
) -> None:
    """Answers below are free and the service does not count them: the second may not give these either."""
    one, other = two
    dataset = dataset_of(one, f"two-{kind['kind'][0]}-{above}".lower())
    first = one.open_session(dataset, kind, key="job-7")
    second = other.open_session(dataset, kind, key="job-7")
    before = spent(one, dataset)
    with pytest.raises(NotTheRunner, match=r"under the same key.*close_session.*Open another one"):
        second.answer(above)
    assert spent(one, dataset) == before
    first.answer(True)
    with pytest.raises(NotTheRunner):
        second.answer(above)
    first.answer(above)


def test_a_script_that_is_started_again_answers_nothing(running: Service, two: tuple[Client, Client]) -> None:
    dataset = dataset_of(two[0], "again")
    script = JOB.replace("{session}", repr(SVT))
    command = [sys.executable, "-c", script, running.url, str(running.admin_key), dataset]
    said = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert said == ["above\n", "NotTheRunner\n"]


def test_two_runners_of_one_session_are_paid_for_once_each_or_refused(two: tuple[Client, Client]) -> None:
    """Were there two all the same, the second's answer would not be taken for a retry of the first's."""
    one, other = two
    dataset = dataset_of(one, "forced")
    first = one.open_session(dataset, SVT)
    second = Session(dict(first), other, runner=True)
    first.answer(True)
    for above in (True, False):
        with pytest.raises(SessionMovedOn, match="is in run 2: nothing was charged"):
            second.answer(above)
    first.answer(True)  # the last one, which is free
    with pytest.raises(SessionClosed):
        second.answer(True)


def test_a_session_that_is_looked_up_is_closed_and_not_answered(both: Client, opened: Opened) -> None:
    dataset = opened()
    session = both.open_session(dataset, SVT)
    for other in (both.session(dataset, session.id), both.sessions(dataset)[0]):
        for above in (True, False):
            with pytest.raises(NotTheRunner, match="was looked up"):
                other.answer(above)
    other.close()
    assert both.sessions(dataset) == []


def test_a_fork_does_not_answer(both: Client, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    session = both.open_session(opened(), SVT)
    process = os.getpid()
    with monkeypatch.context() as forked:
        forked.setattr("odometer_client.sessions.os.getpid", lambda: process + 1)
        with pytest.raises(NotTheRunner, match="fork"):
            session.check_runner()
    session.answer(True)


def test_it_is_not_copied(both: Client, opened: Opened) -> None:
    with pytest.raises(TypeError, match="not copied or stored"):
        pickle.dumps(both.open_session(opened(), SVT))


@pytest.mark.parametrize("losses", [1, 2, 4], ids=["retried", "asked again", "asked again twice"])
def test_an_answer_after_lost_replies_pays_once(
    both: Client, opened: Opened, losing: Losing, losses: int
) -> None:
    """Retried by the client itself, and by its caller after an unknown outcome: the same key."""
    dataset = opened()
    session = both.open_session(dataset, SVT)
    losing.losses = losses
    for _ in range(losses // 2):
        with pytest.raises(OutcomeUnknown):
            session.answer(True)
    session.answer(True)
    assert session.run == 2
    assert spent(both, dataset) == pytest.approx(0.6)
    session.answer(True)  # of another run: not that answer again
    assert not session.open


def test_after_a_lost_above_the_other_answer_is_refused(both: Client, opened: Opened, losing: Losing) -> None:
    dataset = opened()
    session = both.open_session(dataset, SVT)
    losing.losses = 2
    with pytest.raises(OutcomeUnknown):
        session.answer(True)
    with pytest.raises(SessionMovedOn):
        session.answer(False)
    session.answer(True)
    assert spent(both, dataset) == pytest.approx(0.6)


@pytest.mark.parametrize("losses", [1, 2, 4], ids=["retried", "asked again", "asked again twice"])
def test_an_opening_after_lost_replies_is_its_own(
    both: Client, opened: Opened, losing: Losing, losses: int
) -> None:
    """Under a key that the client made; once it came, the key gives no second runner."""
    dataset, key = opened(), None
    losing.losses = losses
    for _ in range(losses // 2):
        with pytest.raises(OutcomeUnknown) as unknown:
            both.open_session(dataset, SVT, key=key)
        key = unknown.value.key
    session = both.open_session(dataset, SVT, key=key)
    assert session.receipt is not None
    assert session.receipt.replayed
    session.answer(False)
    if key is not None:
        with pytest.raises(NotTheRunner):
            both.open_session(dataset, SVT, key=key).answer(False)
    assert spent(both, dataset) == 0.3


def test_another_process_that_has_a_clients_key_is_no_runner(
    two: tuple[Client, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two
    dataset = dataset_of(one, "told")
    lost = Losing(one._transport)
    monkeypatch.setattr(one, "_transport", lost)
    monkeypatch.setattr(one, "_attempts", 1)
    lost.losses = 1
    with pytest.raises(OutcomeUnknown) as unknown:
        one.open_session(dataset, SVT)
    with pytest.raises(NotTheRunner):
        other.open_session(dataset, SVT, key=unknown.value.key).answer(True)


def test_a_retry_under_a_key_that_others_may_have_is_no_runner(
    both: Client, opened: Opened, losing: Losing
) -> None:
    """The reply that was lost may have been a replay of another process's opening."""
    dataset = opened()
    both.open_session(dataset, SVT, key="job-7")
    losing.losses = 1
    with pytest.raises(NotTheRunner):
        both.open_session(dataset, SVT, key="job-7").answer(False)


def test_a_refused_opening_may_be_asked_again_with_its_key(both: Client, opened: Opened) -> None:
    dataset = opened({"name": "small", "kind": "pure", "epsilon": 0.2})
    with pytest.raises(BudgetExceeded):
        both.open_session(dataset, SVT, key="job-7")
    more = {"name": "small", "kind": "pure", "epsilon": 1.0}
    both.set_budget(dataset, "small", more, etag=both.dataset(dataset).budgets[0]["etag"])
    both.open_session(dataset, SVT, key="job-7").answer(True)
