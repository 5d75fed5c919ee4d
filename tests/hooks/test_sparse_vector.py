"""The sparse vector runner on a real table, against a real service: what it pays, draws and gives out."""

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import opendp.prelude as dp
import pytest
from sklearn.datasets import load_diabetes

from odometer_client import BudgetExceeded, Client, Session
from odometer_client.errors import NotTheRunner, SessionClosed, Unreachable
from odometer_client.queries.sparse_vector import SparseVector
from odometer_client.testing import Service

dp.enable_features("contrib")
NewDataset = Callable[..., str]
PLAN: dict[str, Any] = {
    "threshold": 200.0,
    "sensitivity": 1,
    "epsilon_threshold": 1.0,
    "epsilon_answers": 2.0,
}
FAR = 1e6
"""So far from the threshold that noise decides nothing."""


@pytest.fixture(scope="session")
def ages() -> list[int]:
    """The ages of 442 people with diabetes."""
    return [int(age) for age in load_diabetes(scaled=False).data[:, 0]]


def spent(client: Client, dataset: str) -> float:
    return float(client.dataset(dataset).budgets[0]["spent"])


def at(svt: SparseVector, value: float) -> bool:
    return svt.above(PLAN["threshold"] + value)


def test_the_first_age_with_half_the_people_at_or_below_it(
    client: Client, new_dataset: NewDataset, ages: list[int]
) -> None:
    """Counts are monotone; some 60 candidates cost one run."""
    dataset = new_dataset(kind="pure", epsilon=3.0)
    with SparseVector(client, dataset, **{**PLAN, "threshold": 221}, max_above=1, monotone=True) as svt:
        found = next(age for age in range(19, 80) if svt.above(sum(one <= age for one in ages)))
    assert abs(found - sorted(ages)[221]) <= 5
    assert spent(client, dataset) == 3.0
    with pytest.raises(SessionClosed):
        svt.above(0)


def test_k_above_answers_cost_k_runs_however_many_are_below(client: Client, new_dataset: NewDataset) -> None:
    dataset = new_dataset(kind="pure", epsilon=100.0)
    with SparseVector(client, dataset, **PLAN, max_above=3) as svt:
        costs = []
        for value in (-FAR, -FAR, FAR, -FAR, FAR, -FAR, FAR):
            assert at(svt, value) == (value > 0)
            costs.append(spent(client, dataset))
    assert costs == [3, 3, 6, 6, 9, 9, 9]


def test_it_stops_on_a_refusal_and_gives_out_what_was_paid(client: Client, new_dataset: NewDataset) -> None:
    """The run that the above answer ends was paid; the next is not, so nothing is asked in it."""
    dataset = new_dataset(kind="pure", epsilon=4.0)
    svt = SparseVector(client, dataset, **PLAN, max_above=3)
    assert at(svt, FAR) is True
    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            at(svt, -FAR)
    assert client.sessions(dataset) == []
    assert spent(client, dataset) == 3.0


def test_what_is_refused_at_the_opening_draws_nothing(client: Client, new_dataset: NewDataset) -> None:
    with pytest.raises(BudgetExceeded):
        SparseVector(client, new_dataset(kind="pure", epsilon=2.5), **PLAN, max_above=3)


def test_an_answer_that_could_not_be_paid_for_certain_never_goes_out(
    client: Client, new_dataset: NewDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is anything more asked: an error only after above would tell that it was."""
    svt = SparseVector(client, new_dataset(kind="pure", epsilon=100.0), **PLAN, max_above=3)

    def away(*_: Any, **__: Any) -> None:
        raise Unreachable("the service is away")

    with monkeypatch.context() as patched:
        patched.setattr(svt.session, "_client", away)
        patched.setattr(type(svt.session), "answer", away)
        with pytest.raises(Unreachable):
            at(svt, -FAR)
    with pytest.raises(Unreachable):
        at(svt, -FAR)


class Counted:
    """Noise that counts how often it was drawn, and remembers for what."""

    def __init__(self, noise: Any) -> None:
        self.noise = noise
        self.drawn: list[float] = []

    def __call__(self, value: float) -> float:
        self.drawn.append(value)
        return float(self.noise(value))


def test_wrong_by_habit_one_threshold_for_all_runs(client: Client, new_dataset: NewDataset) -> None:
    """Each run has a threshold of its own, drawn when it is paid and none before."""
    svt = SparseVector(client, new_dataset(kind="pure", epsilon=100.0), **PLAN, max_above=3)
    svt._on_threshold = counted = Counted(svt._on_threshold)
    seen = [svt._noisy]
    for value in (-FAR, FAR, -FAR, FAR, FAR):
        at(svt, value)
        seen.append(svt._noisy)
    assert seen[0] == seen[1] != seen[2] == seen[3] != seen[4] == seen[5]
    assert len(counted.drawn) == 2  # the last above answer is followed by no run


def test_wrong_by_habit_no_noise_on_queries(client: Client, new_dataset: NewDataset) -> None:
    """Variants 5 of Lyu, Su, Li 2017: every query has noise of its own, also the same one again."""
    svt = SparseVector(client, new_dataset(kind="pure", epsilon=100.0), **PLAN, max_above=100)
    svt._on_query = counted = Counted(svt._on_query)
    answers = [at(svt, 0.0) for _ in range(60)]
    assert len(counted.drawn) == 60
    assert {True, False} == set(answers)


def test_wrong_by_habit_the_noisy_value_goes_out(client: Client, new_dataset: NewDataset) -> None:
    """Variant 3: an answer is a bool and nothing more."""
    svt = SparseVector(client, new_dataset(kind="pure", epsilon=100.0), **PLAN, max_above=3)
    assert [at(svt, -FAR), at(svt, FAR)] == [False, True]
    assert all(type(at(svt, value)) is bool for value in (-FAR, FAR))


@pytest.mark.parametrize(("monotone", "times"), [(False, 2), (True, 1)])
def test_wrong_by_habit_too_little_noise_on_queries(
    client: Client, new_dataset: NewDataset, monotone: bool, times: int
) -> None:
    """Variant 4: by OpenDP's own maps a run costs what is charged for it, and hardly less."""
    dataset = new_dataset(kind="pure", epsilon=100.0)
    plan = {**PLAN, "sensitivity": 2.5}
    svt = SparseVector(client, dataset, **plan, max_above=3, monotone=monotone)
    for noise, moves, epsilon in ((svt._on_threshold, 1, 1.0), (svt._on_query, times, 2.0)):
        cost = moves * float(noise.map(2.5))
        assert epsilon * (1 - 1e-9) <= cost <= epsilon


def test_wrong_by_habit_monotone_where_a_unit_is_replaced(client: Client, new_dataset: NewDataset) -> None:
    """Two counts, of which a replaced unit raises one and lowers the other, need the whole noise."""
    dataset = new_dataset("replace_one", kind="pure", epsilon=100.0)
    with pytest.raises(ValueError, match=r"replace_one.*none count as monotone.*monotone=False works"):
        SparseVector(client, dataset, **PLAN, max_above=3, monotone=True)
    assert (spent(client, dataset), client.sessions(dataset)) == (0.0, [])
    svt = SparseVector(client, dataset, **PLAN, max_above=3)
    assert float(svt._on_query.map(1.0)) == pytest.approx(1.0)  # twice that is epsilon_answers


@pytest.mark.parametrize(
    ("adjacency", "taken"), [("replace_one", False), ("add_remove", True), ("zero_out", True)]
)
def test_an_embedded_ledger_is_asked_for_its_adjacency_too(adjacency: str, taken: bool) -> None:
    with Client("memory://") as client:
        client.create_dataset(
            "d",
            unit="person",
            adjacency=adjacency,
            delta=1e-6,
            budgets=[{"name": "life", "kind": "pure", "epsilon": 100.0}],
        )
        with nullcontext() if taken else pytest.raises(ValueError, match="none count as monotone"):
            SparseVector(client, "d", **PLAN, max_above=3, monotone=True)
        assert spent(client, "d") == (3.0 if taken else 0.0)


def test_wrong_by_habit_a_run_gone_on_with_elsewhere(client: Client, new_dataset: NewDataset) -> None:
    """The threshold is in one process: it is not copied, and a crashed one's run is not taken up."""
    svt = SparseVector(client, new_dataset(kind="pure", epsilon=100.0), **PLAN, max_above=3)
    for clone in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="one paid run"):
            clone(svt)


def test_wrong_by_habit_one_key_for_a_job_that_starts_again(
    client: Client, service: Service, new_dataset: NewDataset
) -> None:
    """The second runner draws no threshold: the run that was paid has one, in the first."""
    dataset = new_dataset(kind="pure", epsilon=100.0)
    plan: dict[str, Any] = PLAN | {"max_above": 3, "key": "job-7"}
    first = SparseVector(client, dataset, **plan)
    with Client(service.url, service.admin_key) as other, pytest.raises(NotTheRunner, match="Open another"):
        SparseVector(other, dataset, **plan)
    assert [at(first, -FAR), at(first, FAR)] == [False, True]
    assert spent(client, dataset) == 6.0


def test_wrong_by_habit_two_threads_and_one_threshold(
    client: Client, new_dataset: NewDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question is drawn after the one before it was paid: never under a threshold whose run is over."""
    svt = SparseVector(client, new_dataset(kind="pure", epsilon=1000.0), **PLAN, max_above=100)
    noise, pay, seen = svt._on_query, Session.answer, list[str]()

    def drawn(value: float) -> float:
        seen.append("drawn")
        return float(noise(value))

    def paid(session: Session, above: bool) -> None:
        pay(session, above)
        seen.append("paid")

    svt._on_query = drawn
    monkeypatch.setattr(Session, "answer", paid)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda _: at(svt, FAR), range(20)))
    assert seen == ["drawn", "paid"] * 20


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_is_no_number_is_not_asked(client: Client, new_dataset: NewDataset, wrong: float) -> None:
    svt = SparseVector(client, new_dataset(kind="pure", epsilon=100.0), **PLAN, max_above=3)
    with pytest.raises(ValueError, match="finite"):
        svt.above(wrong)
    assert svt.above(-FAR) is False
