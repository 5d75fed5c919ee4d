"""How a charge is counted is said by whatever answers it: a receipt, a hold's, a check, a refusal."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from command_line import runner
from serving import Live, live

SHUFFLED = {"kind": "shuffled", "epsilon0": 1.0, "population": 100, "delta": 1e-6}
"""Out of the theorem's range: its local ε0 is charged."""
SVT = {"kind": "sparse_vector", "epsilon_threshold": 0.1, "epsilon_answers": 0.2, "max_above": 3}


@pytest.fixture(scope="module")
def service() -> Iterator[Live]:
    with live() as running:
        for name, epsilon in (("large", 9.0), ("small", 0.4)):
            budget = {"name": "life", "kind": "pure", "epsilon": epsilon}
            running.open(name, adjacency="replace_one", budgets=[budget])
        yield running


def post(service: Live, name: str, what: str, body: dict[str, Any]) -> httpx.Response:
    path = f"/v1/datasets/{name}/{what}"
    return service.ask("POST", path, "charger", json=body, headers={"Idempotency-Key": what})


@pytest.mark.parametrize("what", ["charges", "holds", "checks"])
def test_a_refusal_has_the_notes_of_a_receipt(service: Live, what: str) -> None:
    body = {"mechanism": SHUFFLED, "count": 1, **({"expires_in_s": 60} if what == "holds" else {})}
    taken, refused = (post(service, name, what, body) for name in ("large", "small"))
    assert refused.status_code == (200 if what == "checks" else 409)
    assert refused.json()["notes"] == taken.json()["notes"]
    assert "with 100 reports and δ = 1e-06 shuffling is known to help for no ε0" in refused.json()["notes"][0]


def test_refused_steps_of_a_session_have_notes_too(service: Live) -> None:
    """Their mechanisms have nothing to say today: the list is empty, and it is there."""
    opened = post(service, "small", "sessions", {"session": SVT})
    answers = f"sessions/{opened.json()['session']['id']}/answers"
    refused = post(service, "small", answers, {"above": True})
    assert (refused.status_code, refused.json()["notes"]) == (409, [])
    body = {"session": SVT | {"epsilon_threshold": 1.0}}
    headers = {"Idempotency-Key": "another"}
    refused = service.ask("POST", "/v1/datasets/small/sessions", "charger", json=body, headers=headers)
    assert (refused.status_code, refused.json()["notes"]) == (409, [])


def test_the_command_line_shows_them(service: Live) -> None:
    run = runner(ODOMETER_URL=service.url, ODOMETER_KEY=service.keys["charger"])
    shuffled = ("shuffled", "epsilon0=1", "population=100", "delta=1e-6")
    told = "Note: with 100 reports and δ = 1e-06 shuffling is known to help for no ε0"
    assert told in run("charge", "large", *shuffled).stdout
    assert told in run("check", "large", *shuffled).stdout
    assert told in run("check", "small", *shuffled, status=1).stdout
    assert told in run("charge", "small", *shuffled, status=1).stderr
    assert told in run("convert", *shuffled, "--delta", "1e-5").stdout
