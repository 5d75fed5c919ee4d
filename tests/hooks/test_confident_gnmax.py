"""The Confident-GNMax runner against a real service: what it pays, draws and gives out, and what it keeps."""

import copy
import math
import pickle
import statistics
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import httpx
import opendp.prelude as dp
import pytest

from odometer_client import BudgetExceeded, Client
from odometer_client.errors import NotTheRunner, SessionClosed, Unreachable
from odometer_client.queries.confident_gnmax import ConfidentGnmax
from odometer_client.testing import Service

dp.enable_features("contrib")
NewDataset = Callable[..., str]
PLAN: dict[str, Any] = {
    "classes": 3,
    "threshold": 700.0,
    "standard_deviation_check": 20.0,
    "standard_deviation_answer": 10.0,
    "max_answers": 3,
}
CHECK, ANSWER = 1 / (2 * 20.0**2), 1 / 10.0**2
"""ρ of one check and of one answer: 1/(2σ₁²), 1/σ₂²."""
AGREED, SPLIT = [20, 960, 20], [340, 330, 330]
"""So far from the threshold that noise decides nothing."""


class Recording(httpx.HTTPTransport):
    """Keeps what is sent on its way to the service: the bodies, and all of it as text."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[bytes] = []
        self.everything = ""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(request.read())
        self.everything += f"{request.url} {request.headers.raw!r} {self.bodies[-1]!r}\n"
        return super().handle_request(request)


@pytest.fixture
def wire(service: Service) -> Iterator[tuple[Client, Recording]]:
    recording = Recording()
    with Client(service.url, service.admin_key, http_transport=recording) as client:
        yield client, recording


def spent(client: Client, dataset: str) -> float:
    return float(client.dataset(dataset).budgets[0]["spent"])


def wide(new_dataset: NewDataset) -> str:
    return new_dataset(kind="zcdp", rho=1000.0)


def test_a_check_is_paid_ahead_and_an_answer_when_it_is_given(
    client: Client, new_dataset: NewDataset
) -> None:
    """After the last answer no check follows, so none is paid."""
    dataset = wide(new_dataset)
    checks, answers = 1, 0
    with ConfidentGnmax(client, dataset, **PLAN) as teachers:
        assert spent(client, dataset) == pytest.approx(CHECK)
        for votes in (SPLIT, AGREED, SPLIT, SPLIT, AGREED, AGREED):
            label = teachers.label(votes)
            assert label == (1 if votes is AGREED else None)
            answers += label is not None
            checks += answers < 3
            assert spent(client, dataset) == pytest.approx(checks * CHECK + answers * ANSWER)
        assert not teachers.session.open
        with pytest.raises(SessionClosed):
            teachers.label(AGREED)


def test_the_answer_is_asked_for_before_it_is_drawn(client: Client, new_dataset: NewDataset) -> None:
    dataset = wide(new_dataset)
    teachers = ConfidentGnmax(client, dataset, **PLAN)
    noise, seen = teachers._on_counts, []

    def drawn(counts: list[float]) -> Any:
        seen.append(spent(client, dataset))
        return noise(counts)

    teachers._on_counts = drawn
    teachers.label(SPLIT)
    teachers.label(AGREED)
    assert seen == [pytest.approx(3 * CHECK + ANSWER)]


def test_an_answer_that_does_not_fit_is_not_drawn(client: Client, new_dataset: NewDataset) -> None:
    """Refused in the middle: nothing is given out, nothing is charged, and the session is over."""
    dataset = new_dataset(kind="zcdp", rho=2.5 * CHECK + ANSWER)
    teachers = ConfidentGnmax(client, dataset, **PLAN)
    assert teachers.label(AGREED) == 1
    teachers._on_counts = None  # would fail if it were drawn from
    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            teachers.label(AGREED)
    assert client.sessions(dataset) == []
    assert spent(client, dataset) == pytest.approx(2 * CHECK + ANSWER)


def test_a_none_whose_check_was_paid_is_given_out_before_it_ends(
    client: Client, new_dataset: NewDataset
) -> None:
    dataset = new_dataset(kind="zcdp", rho=1.5 * CHECK)
    teachers = ConfidentGnmax(client, dataset, **PLAN)
    assert teachers.label(SPLIT) is None
    teachers._on_largest = None  # no check is paid any more
    with pytest.raises(BudgetExceeded):
        teachers.label(SPLIT)
    assert client.sessions(dataset) == []
    assert spent(client, dataset) == pytest.approx(CHECK)


def test_what_is_refused_at_the_opening_draws_nothing(client: Client, new_dataset: NewDataset) -> None:
    dataset = new_dataset(kind="zcdp", rho=CHECK / 2)
    with pytest.raises(BudgetExceeded):
        ConfidentGnmax(client, dataset, **PLAN)
    assert client.sessions(dataset) == []


@pytest.mark.parametrize("votes", [SPLIT, AGREED], ids=["split", "agreed"])
def test_what_could_not_be_paid_for_certain_never_goes_out(
    client: Client, new_dataset: NewDataset, monkeypatch: pytest.MonkeyPatch, votes: list[int]
) -> None:
    """Nor is anything more asked: the check that was paid is used."""
    teachers = ConfidentGnmax(client, wide(new_dataset), **PLAN)

    def away(*_: Any, **__: Any) -> None:
        raise Unreachable("the service is away")

    with monkeypatch.context() as patched:
        patched.setattr(type(teachers.session), "answer", away)
        with pytest.raises(Unreachable):
            teachers.label(votes)
    with pytest.raises(Unreachable):
        teachers.label(votes)


def test_no_vote_leaves_the_process(
    wire: tuple[Client, Recording], new_dataset: NewDataset, capfd: pytest.CaptureFixture[str]
) -> None:
    """The bodies are the same, byte for byte, for any votes with the same answers."""
    client, recording = wire
    bodies = []
    for votes in ([83719, 0, 0], [0, 46351, 12877]):
        with ConfidentGnmax(client, wide(new_dataset), **PLAN) as teachers:
            assert teachers.label(votes) is not None
        assert not any(str(vote) in recording.everything for vote in votes if vote)
        bodies.append(recording.bodies.copy())
        recording.bodies.clear()
    assert bodies[0] == bodies[1]
    assert [b"above" in body for body in bodies[0]] == [False, True, False]  # opened, answered, closed
    assert capfd.readouterr() == ("", "")


DRAWS = 3000
"""The standard deviation of so many draws is within 1.3 % of theirs, once; of the tests, 6 times that."""


def near(drawn: list[float], deviation: float) -> bool:
    """A missing or an added √2 (41 %), and a mean that is not 0, are seen."""
    centred = abs(statistics.fmean(drawn)) < 6 * deviation / math.sqrt(DRAWS)
    return centred and abs(statistics.pstdev(drawn) / deviation - 1) < 6 / math.sqrt(2 * DRAWS)


def test_the_noise_has_the_standard_deviations_that_were_asked_for(
    client: Client, new_dataset: NewDataset
) -> None:
    """σ₁ on the largest count; σ₂ on each count, drawn for each by itself."""
    teachers = ConfidentGnmax(client, wide(new_dataset), **PLAN)
    assert near([float(teachers._on_largest(500.0)) - 500 for _ in range(DRAWS)], 20.0)
    rows = [teachers._on_counts([100.0, 0.0, 50.0]) for _ in range(DRAWS)]
    for place, count in enumerate((100, 0, 50)):
        assert near([row[place] - count for row in rows], 10.0)
    assert near([row[0] - row[1] - 100 for row in rows], 10.0 * math.sqrt(2))


def test_its_check_passes_as_often_as_its_noise_says(client: Client, new_dataset: NewDataset) -> None:
    """One σ₁ below the threshold: 15.9 % of checks. Without noise none pass, with σ₂ for σ₁ 2.3 % do."""
    plan = PLAN | {"max_answers": 1000}
    with ConfidentGnmax(client, wide(new_dataset), **plan) as teachers:
        passed = sum(teachers.label([680, 0, 0]) is not None for _ in range(400))
    assert abs(passed / 400 - 0.1587) < 6 * math.sqrt(0.1587 * 0.8413 / 400)
    assert passed > 0.05 * 400


def test_its_label_is_wrong_as_often_as_its_noise_says(client: Client, new_dataset: NewDataset) -> None:
    """A lead of σ₂·√2 is lost 15.9 % of times. Two counts of one draw would never lose it."""
    plan = PLAN | {"max_answers": 1000, "classes": 2, "threshold": 0.0}
    with ConfidentGnmax(client, wide(new_dataset), **plan) as teachers:
        labels = [teachers.label([1000, 986]) for _ in range(400)]
    assert abs(labels.count(1) / 400 - 0.1611) < 6 * math.sqrt(0.1611 * 0.8389 / 400)
    assert set(labels) == {0, 1}


@pytest.mark.parametrize("deviation", [0.3, 1.0, 40.0, 100.1, 1e6 / 3])
def test_what_is_drawn_costs_at_most_what_is_charged(
    client: Client, new_dataset: NewDataset, deviation: float
) -> None:
    """By OpenDP's own maps, and hardly less: ρ = 1/(2σ₁²) of a check, 1/σ₂² of an answer that moves by √2."""
    plan = PLAN | {"standard_deviation_check": deviation, "standard_deviation_answer": deviation}
    teachers = ConfidentGnmax(client, wide(new_dataset), **plan)
    charged = teachers.session["session"]
    assert {name: charged.get(name) for name in charged if "noise" in name or "deviation" in name} == {
        "standard_deviation_check": deviation,
        "standard_deviation_answer": deviation,
    }
    squared = Fraction(repr(deviation)) ** 2
    check, answer = (Fraction(noise.map(1.0)) for noise in (teachers._on_largest, teachers._on_counts))
    assert 1 - 1e-9 <= 2 * squared * check <= 1
    assert 1 - 1e-9 <= squared * 2 * answer <= 1  # twice that of one count: it is quadratic in the L2 norm
    assert Fraction(teachers._on_counts.map(math.sqrt(2))) * squared == pytest.approx(1)


@pytest.mark.parametrize(
    "votes",
    [
        [1, 2],
        [1, 2, 3, 4],
        [1, 2, -3],
        [1, 2, 0.5],
        [1, 2, math.nan],
        [1, 2, math.inf],
        [1, 2, "x77"],
        [1, 2, None],
    ],
    ids=str,
)
def test_what_are_no_votes_is_not_asked_and_not_repeated(
    client: Client, new_dataset: NewDataset, votes: list[Any]
) -> None:
    teachers = ConfidentGnmax(client, wide(new_dataset), **PLAN)
    with pytest.raises(ValueError, match=r"^votes: ") as caught:
        teachers.label(votes)
    assert not any(text in str(caught.value) for text in ("nan", "inf", "77", "-3", "0.5", "None"))
    assert teachers.label(AGREED) == 1


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("classes", 1),
        ("threshold", math.nan),
        ("standard_deviation_check", 0),
        ("standard_deviation_answer", -1.0),
    ],
)
def test_a_plan_that_makes_no_sense_is_not_opened(
    client: Client, new_dataset: NewDataset, name: str, wrong: float
) -> None:
    dataset = wide(new_dataset)
    with pytest.raises(ValueError, match=name):
        ConfidentGnmax(client, dataset, **PLAN | {name: wrong})
    assert client.sessions(dataset) == []


def test_a_job_that_starts_again_with_its_key_makes_no_check(
    client: Client, service: Service, new_dataset: NewDataset
) -> None:
    """The check that was paid is made in the first process."""
    dataset = wide(new_dataset)
    plan = PLAN | {"key": "job-7"}
    first = ConfidentGnmax(client, dataset, **plan)
    with Client(service.url, service.admin_key) as other, pytest.raises(NotTheRunner, match="Open another"):
        ConfidentGnmax(other, dataset, **plan)
    assert first.label(AGREED) == 1


def test_it_is_not_copied(client: Client, new_dataset: NewDataset) -> None:
    teachers = ConfidentGnmax(client, wide(new_dataset), **PLAN)
    for clone in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="one paid check"):
            clone(teachers)
