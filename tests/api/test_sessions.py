"""Sessions over HTTP: what each answer's status is, and that nobody else's can be asked about in vain."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from serving import Live, live

SVT = {"kind": "sparse_vector", "epsilon_threshold": 0.1, "epsilon_answers": 0.2, "max_above": 3}


@pytest.fixture(scope="module")
def service() -> Iterator[Live]:
    with live() as running:
        yield running


def opened(service: Live, name: str, epsilon: float = 9.0) -> str:
    """A session of the charger's on a new dataset: its path."""
    service.open(name, budgets=[{"name": "life", "kind": "pure", "epsilon": epsilon}])
    made = post(service, f"/v1/datasets/{name}/sessions", {"session": SVT}, "open")
    assert made.status_code == 201, made.text
    return f"/v1/datasets/{name}/sessions/{made.json()['session']['id']}"


def post(
    service: Live, path: str, body: dict[str, Any], key: str | None = None, role: str = "charger"
) -> httpx.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return service.ask("POST", path, role, json=body, headers=headers)


def problem(reply: httpx.Response) -> tuple[int, str]:
    return reply.status_code, reply.json()["type"].removeprefix("/problems/")


def test_opened_once_it_is_answered_again(service: Live) -> None:
    path = opened(service, "again")
    again = post(service, path.rsplit("/", 1)[0], {"session": SVT}, "open")
    assert (again.status_code, again.json()["replayed"]) == (200, True)
    assert again.json()["session"]["id"] == path.rsplit("/", 1)[1]


def test_answers_and_what_they_say(service: Live) -> None:
    """A free one needs no key; one that pays has a receipt; a retry is answered again."""
    path = opened(service, "said")
    below = post(service, f"{path}/answers", {"above": False})
    assert (below.status_code, below.json()["receipt"], below.json()["replayed"]) == (200, None, False)
    assert below.json()["session"] == service.ask("GET", path).json()
    assert problem(post(service, f"{path}/answers", {"above": True})) == (400, "idempotency-key-required")
    above = post(service, f"{path}/answers", {"above": True}, "a1").json()
    assert (above["session"]["above"], above["session"]["run"], above["session"]["above_left"]) == (1, 2, 2)
    assert above["receipt"]["left"][0]["spent"] == 0.6
    assert post(service, f"{path}/answers", {"above": True}, "a1").json() == {
        **above,
        "replayed": True,
        "receipt": {**above["receipt"], "replayed": True},
    }
    assert service.ask("GET", path.rsplit("/", 1)[0]).json()["items"] == [above["session"]]


def test_what_is_refused_says_why(service: Live) -> None:
    path = opened(service, "refused", 0.5)
    refused = post(service, f"{path}/answers", {"above": True}, "a1")
    assert problem(refused) == (409, "budget-exceeded")
    assert refused.json()["refusals"][0]["budget"] == "life"
    assert problem(post(service, f"{path}/answers", {"above": False, "run": 2})) == (409, "session-moved-on")
    assert post(service, f"{path}/answers", {"above": False}, role="admin").status_code == 200
    assert problem(post(service, f"{path}/answers", {"above": "no"})) == (422, "invalid-request")
    assert problem(post(service, f"{path}/answers", {"above": False}, role="reader")) == (403, "forbidden")
    token = service.make_key("charger")["token"]
    assert problem(post(service, f"{path}/answers", {"above": False}, role=token)) == (403, "forbidden")
    assert post(service, f"{path}/close", {}).json()["session"]["open"] is False
    assert post(service, f"{path}/close", {}).status_code == 200
    assert problem(post(service, f"{path}/answers", {"above": False})) == (409, "session-closed")
    other = f"{path.rsplit('/', 1)[0]}/2.00000000/answers"
    assert problem(post(service, other, {"above": False})) == (404, "unknown-session")


def test_a_by_unit_dataset_says_that_it_has_none(service: Live) -> None:
    life = {"name": "life", "kind": "pure", "epsilon": 9.0, "scope": "unit/*"}
    service.open("units", budgets=[life], composition="by_unit")
    refused = post(service, "/v1/datasets/units/sessions", {"session": SVT}, "open")
    assert problem(refused) == (422, "invalid-request")
    assert "by_unit" in refused.json()["detail"]
