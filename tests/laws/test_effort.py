"""What a request may ask to be computed has a bound, which is known before anything of it is computed."""

import json
import random
import time
from typing import Any

import pytest
from serving import GAUSSIAN, Live, live

from odometer_accountant.errors import InvalidRequest, TooMuchToCompute
from odometer_accountant.mechanisms import ANY_MECHANISM, Mechanism
from odometer_accountant.numerics.grid import CURRENT_GRID
from odometer_accountant.queries import advice
from odometer_accountant.requests.effort import (
    EFFORT_MAX,
    QUICK_MAX,
    TakesLongError,
    at_most,
    check_effort,
    effort,
)
from odometer_accountant.service.accountant import Accountant

Document = dict[str, Any]
LEAF = [dict(example) for kind in Mechanism.registry.values() for example in kind.examples]
ALLOWANCE_MS, FACTOR = 60.0, 4.0
"""Tables are made once, and this machine may be slower than the one that the estimate is of."""


def composed(parts: list[Document]) -> Document:
    return {"kind": "composed", "mechanisms": parts}


def costly(inner: int = 16) -> Document:
    """A charge that asks for many times the bound: a group of many different Gaussians, many times."""
    noises = iter(range(1, 100_000))
    parts = [{"kind": "gaussian", "noise_multiplier": 3 + next(noises) / 7} for _ in range(inner)]
    return {"kind": "grouped", "group_size": 3, "base": composed([composed(parts)] * 16)}


def around(draw: random.Random, base: Document) -> Document:
    """One more mechanism around another; not always one that is valid."""
    return draw.choice(
        [
            {"kind": "poisson_subsampled", "base": base, "sampling_rate": draw.choice([1e-5, 0.01, 0.3162])},
            {"kind": "sampled_without_replacement", "base": base, "batch_size": 100, "population": 100_003},
            {"kind": "grouped", "base": base, "group_size": draw.choice([2, 3, 17, 1000])},
            {"kind": "tuned", "base": base, "repeats": {"distribution": "geometric", "gamma": 0.1}},
            {"kind": "tuned", "base": base, "repeats": {"distribution": "poisson", "mean": 1e6}},
            composed([base] * draw.choice([2, 16])),
            composed([base, *draw.sample(LEAF, 3)]),
        ]
    )


def drawn(seed: int) -> Mechanism | None:
    """A mechanism within others, at most four deep and within the bound; None when it is not valid."""
    draw = random.Random(seed)
    document = draw.choice(LEAF)
    for _ in range(draw.choice([1, 1, 2, 3])):
        document = around(draw, document)
    if effort(document) > EFFORT_MAX:
        return None
    try:
        return ANY_MECHANISM.validate_python(json.loads(json.dumps(document)))
    except ValueError:
        return None


def test_no_accepted_mechanism_takes_much_longer_than_estimated() -> None:
    """Of a few hundred nested at random, each curve takes about what its document was said to ask for."""
    tried = 0
    for seed in range(400):
        mechanism = drawn(seed)
        if mechanism is None:
            continue
        tried += 1
        started = time.thread_time()
        mechanism.curve(CURRENT_GRID)
        took_ms = (time.thread_time() - started) * 1e3
        assert took_ms <= ALLOWANCE_MS + FACTOR * effort(mechanism.document()), mechanism
    assert tried > 100


@pytest.mark.parametrize("kind", sorted(Mechanism.registry))
def test_every_example_is_quick(kind: str) -> None:
    """What people charge step by step never waits among what takes long."""
    assert all(effort(dict(example)) <= QUICK_MAX for example in Mechanism.registry[kind].examples)


@pytest.mark.parametrize("kind", [*sorted(Mechanism.registry), "no_such_kind"])
def test_a_kind_costs_what_its_class_says(kind: str) -> None:
    """A curve costs at least the figure of its class; an unknown kind costs the default."""
    expected = Mechanism.registry.get(kind, Mechanism).curve_ms
    assert expected <= effort({"kind": kind}) <= expected + 0.1


def test_a_list_of_sampled_gaussians_as_long_as_a_list_may_be_is_taken() -> None:
    """The longest list of what is charged most."""
    step = {"kind": "poisson_subsampled", "base": GAUSSIAN, "sampling_rate": 0.01}
    check_effort({"charges": [{"mechanism": step, "count": 1}] * 256})


def test_an_estimate_counts_what_stands_anywhere() -> None:
    """Two of the same cost twice as much, under whatever name they are found."""
    one = effort({"x": costly(2)})
    assert effort({"a": costly(2), "b": [{"c": costly(2)}]}) == pytest.approx(2 * one, rel=0.01)


@pytest.mark.parametrize("document", [None, 1, "x", [], {}, {"kind": 3}, {"kind": "composed"}, {"base": 1}])
def test_any_document_has_an_estimate(document: Any) -> None:
    """Also one that is no request at all: what is wrong with it is said by its form."""
    assert 0 <= effort(document) < QUICK_MAX


def test_work_that_takes_long_is_not_begun_where_only_quick_work_is_done() -> None:
    """And is done where anything may be."""
    document = composed([composed([dict(GAUSSIAN)] * 16)] * 16)
    assert QUICK_MAX < effort(document) < EFFORT_MAX
    with at_most(QUICK_MAX), pytest.raises(TakesLongError):
        check_effort(document)
    check_effort(document)


@pytest.fixture(scope="module")
def service() -> Any:
    with live() as running:
        running.open("d")
        yield running


@pytest.mark.parametrize("path", ["charges", "checks", "holds"])
def test_too_much_is_refused_at_once_with_what_would_work(service: Live, path: str) -> None:
    """It is 422, nothing of it is computed, and nothing changes."""
    body = {"mechanism": costly(), "count": 1, **({"expires_in_s": 60} if path == "holds" else {})}
    before = service.ask("GET", "/v1/datasets/d").json()["sequence"]
    reply = service.ask("POST", f"/v1/datasets/d/{path}", json=body, headers={"Idempotency-Key": f"k-{path}"})
    assert (reply.status_code, reply.json()["type"]) == (422, "/problems/too-much-to-compute")
    assert reply.json()["most_ms"] == EFFORT_MAX < reply.json()["asked_ms"]
    assert "several requests" in reply.json()["detail"]
    assert service.ask("GET", "/v1/datasets/d").json()["sequence"] == before


def test_too_much_is_refused_in_conversions_and_workloads(service: Live) -> None:
    """Wherever mechanisms stand in a request."""
    convert = {"mechanism": costly(), "count": 1, "delta": 1e-6}
    assert service.ask("POST", "/v1/convert", json=convert).status_code == 422
    budget = {"name": "b", "kind": "approximate", "epsilon": 1.0, "delta": 1e-6}
    more = {**budget, "workload": [{"mechanism": costly(), "count": 1}]}
    reply = service.ask("POST", "/v1/datasets/d/budgets", json=more)
    assert reply.json()["type"] == "/problems/too-much-to-compute"


def test_an_unknown_dataset_comes_before_too_much(service: Live) -> None:
    """404 before 422, as everywhere."""
    assert service.charge("nowhere", "k", {"mechanism": costly(), "count": 1}).status_code == 404


def test_what_was_charged_before_there_was_a_bound_is_answered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reply was lost, and its key is sent again: it is a replay, and no other key is let through."""
    body = {"mechanism": {"kind": "grouped", "group_size": 2, "base": dict(GAUSSIAN)}, "count": 1}
    with Accountant.open("memory://") as accountant:
        accountant.create_dataset(
            {"name": "d", "unit": "p", "adjacency": "add_remove", "delta": 1e-6, "odometer_only": True}, "p"
        )
        first, _ = accountant.charge("d", body, "k", "ann")
        monkeypatch.setattr("odometer_accountant.requests.effort.EFFORT_MAX", 1.0)
        with at_most(1.0):
            again, replayed = accountant.charge("d", body, "k", "ann")
            assert replayed
            assert again["sequence"] == first["sequence"]
            for key, who in (("other", "ann"), ("k", "ben")):
                with pytest.raises(TooMuchToCompute):
                    accountant.charge("d", body, key, who)


def test_advice_that_takes_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would fit is then null, a note says so, and the answer is the same in all else."""
    monkeypatch.setattr(advice, "ADVICE_S", -1.0)
    one = {"mechanism": dict(GAUSSIAN), "count": 3}
    with Accountant.open("memory://") as accountant:
        budget = {"name": "b", "kind": "zcdp", "rho": 1.0}
        document = {"name": "d", "unit": "p", "adjacency": "add_remove", "delta": 1e-6, "budgets": [budget]}
        accountant.create_dataset(document, "p")
        found = accountant.check("d", one)
    assert (found["fits"], len(found["refusals"])) == (False, 1)
    assert set(found["would_fit"].values()) == {None}
    assert found["notes"] == [advice.UNFINISHED]


def test_too_many_values_are_refused_before_they_are_read(service: Live) -> None:
    """A body within its size that has more objects than any request needs."""
    body = b'{"charges":[' + b",".join([b"{}"] * 60_000) + b"]}"
    reply = service.ask("POST", "/v1/datasets/d/checks", content=body)
    assert (reply.status_code, reply.json()["type"]) == (400, "/problems/malformed-body")


def test_a_body_of_many_faults_is_refused_in_little_time() -> None:
    """Of thousands of unknown fields twenty are put into words."""
    fields = ",".join(f'"k{number}":1' for number in range(20_000))
    body = f'{{"count":1,"mechanism":{{"kind":"gaussian",{fields}}}}}'.encode()
    with Accountant.open("memory://") as accountant:
        accountant.create_dataset(
            {"name": "d", "unit": "p", "adjacency": "add_remove", "delta": 1e-6, "odometer_only": True}, "p"
        )
        started = time.thread_time()
        with pytest.raises(InvalidRequest) as refused:
            accountant.check("d", body)
        assert time.thread_time() - started < 1.0
    assert len(refused.value.fields["errors"]) == 20
    assert refused.value.detail.endswith("(and 20000 more)")
