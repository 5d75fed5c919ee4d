"""Whatever JSON comes, the answer is a success or a 4xx problem: never a fault, never a slow one."""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from amount import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from serving import ONE, Live, dataset_document, live

from odometer_accountant.mechanisms import Mechanism

NUMBERS = st.one_of(
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, 1, -1, 2**63, 10**15, 10**400, 0.0, -0.0, 5e-324, 1e-300, 1e-9, 0.5, 1e9, 1e308]),
)
LEAVES = st.one_of(
    st.none(), st.booleans(), NUMBERS, st.text(max_size=8), st.sampled_from(list(Mechanism.registry))
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)

EXAMPLES = [example for kind in Mechanism.registry.values() for example in kind.examples]
CHARGES: list[Any] = [
    *({"mechanism": example, "count": 2} for example in EXAMPLES),
    {"charges": [ONE, ONE], "adjacency": "add_remove"},
]
BODIES: dict[str, list[Any]] = {
    "/v1/datasets/d/charges": CHARGES,
    "/v1/datasets/d/checks": CHARGES,
    "/v1/convert": [{**charge, "delta": 1e-6} for charge in CHARGES] + [{**ONE, "epsilon": 1.0}],
    "/v1/datasets/d/budgets": [
        {"name": "b", "kind": "pure", "epsilon": 1.0},
        {"name": "b", "kind": "renyi", "order": 8, "epsilon": 1.0},
        {"name": "b", "kind": "gdp", "mu": 1.0},
        {"name": "b", "kind": "approximate", "epsilon": 1.0, "delta": 1e-6, "workload": [ONE]},
    ],
    "/v1/datasets": [{**dataset_document("d"), "workload": [ONE], "delta_add": 1e-8}],
    "/v1/keys": [{"role": "reader", "name": "n"}],
}
_number = count()


@pytest.fixture(scope="module")
def service() -> Iterator[Live]:
    with live() as running:
        running.open("d")
        yield running


def places(document: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of everything in a document, itself included."""
    found = [here]
    if isinstance(document, dict):
        for key, value in document.items():
            found += places(value, (*here, key))
    if isinstance(document, list):
        for index, value in enumerate(document):
            found += places(value, (*here, index))
    return found


def replaced(document: Any, place: tuple[Any, ...], by: Any) -> Any:
    """The document with something else in one place."""
    if not place:
        return by
    copy = json.loads(json.dumps(document))
    inner = copy
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = by
    return copy


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, Any]:
    """A request that works, with one or two places overwritten by anything."""
    path = draw(st.sampled_from(sorted(BODIES)))
    body = draw(st.sampled_from(BODIES[path]))
    for _ in range(draw(st.integers(1, 2))):
        body = replaced(body, draw(st.sampled_from(places(body))), draw(TREES))
    return path, body


@examples(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests())
def test_any_json_is_answered(service: Live, request: tuple[str, Any]) -> None:
    path, body = request
    headers = {"Idempotency-Key": f"k{next(_number)}"}
    reply = service.ask("POST", path, content=json.dumps(body), headers=headers)
    assert reply.status_code < 500, reply.text
    assert reply.elapsed.total_seconds() < 10
    if reply.status_code >= 400:
        problem = reply.json()
        assert problem["status"] == reply.status_code
        assert problem["detail"]
    else:
        json.dumps(reply.json(), allow_nan=False)
    assert service.ask("GET", "/v1/datasets/d/odometer").status_code == 200


@examples(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(BODIES)), st.binary(max_size=200))
def test_any_bytes_are_answered(service: Live, path: str, body: bytes) -> None:
    reply = service.ask("POST", path, content=body, headers={"Idempotency-Key": "bytes"})
    assert 400 <= reply.status_code < 500
    assert reply.headers["content-type"] == "application/problem+json"
