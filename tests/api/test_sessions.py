"""Sessions over HTTP: what each answer's status is, and that nobody else's can be asked about in vain."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from command_line import runner
from serving import ONE, Live, live

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


def test_errors_call_a_session_by_its_id(service: Live) -> None:
    """The id that one sends, so that one of several runners finds its own."""
    path = opened(service, "called")
    called = f"session {path.rsplit('/', 1)[1]} of dataset called"
    other = service.make_key("charger")["token"]
    faults = [post(service, f"{path}/answers", {"above": False}, role=other)]
    faults.append(post(service, f"{path}/answers", {"above": True, "run": 2}, "moved"))
    post(service, f"{path}/close", {})
    faults.append(post(service, f"{path}/answers", {"above": False}))
    faults.append(post(service, f"{path}/answers", {"above": True}, "closed"))
    assert [fault.status_code for fault in faults] == [403, 409, 409, 409]
    for fault in faults:
        assert called in fault.json()["detail"]


def test_a_closed_session_says_how_many_answers_were_above(service: Live) -> None:
    """Closed by hand, by its last above answer for nothing, or by one that was charged."""
    by_hand = opened(service, "by-hand")
    post(service, f"{by_hand}/answers", {"above": True}, "a1")
    closed = post(service, f"{by_hand}/close", {}).json()["session"]
    assert (closed["open"], closed["above"], closed["run"], closed["above_left"]) == (False, 1, None, 0)
    assert service.ask("GET", by_hand).json() == closed
    by_last = opened(service, "by-last")
    for number in range(3):
        last = post(service, f"{by_last}/answers", {"above": True}, f"a{number}").json()["session"]
    assert (last["open"], last["above"], last["run"]) == (False, 3, None)
    assert service.ask("GET", by_last).json() == last
    service.open("votes", adjacency="replace_one")
    votes = {"kind": "confident_gnmax", "noise_multiplier_check": 9.0, "noise_multiplier_answer": 9.0}
    made = post(service, "/v1/datasets/votes/sessions", {"session": votes | {"max_answers": 2}}, "open")
    path = f"/v1/datasets/votes/sessions/{made.json()['session']['id']}"
    for number, above in enumerate((True, False, True)):
        last = post(service, f"{path}/answers", {"above": above}, f"a{number}").json()["session"]
    assert (last["open"], last["above"], last["run"]) == (False, 2, None)
    assert service.ask("GET", path).json() == last


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'{"above": 1}',
        b'{"above": "true"}',
        b'{"above": true, "above": false}',
        b'{"above": true, "run": 0}',
        b'{"above": true, "run": 1.0}',
        b'{"above": true, "run": NaN}',
        b'{"above": true, "run": 9007199254740992}',
        b'{"above": true, "last": true}',
        b'{"above": true, "charges": []}',
        b'{"above": true, "principal": "somebody"}',
        b'{"above": true, "x": "' + b"x" * 300_000 + b'"}',
        b"[" * 100_000,
    ],
    ids=lambda body: body[:32].decode(),
)
def test_what_is_no_answer_changes_nothing(service: Live, hostile: str, body: bytes) -> None:
    headers = {"Idempotency-Key": "hostile"}
    reply = service.ask("POST", f"{hostile}/answers", "charger", content=body, headers=headers)
    assert reply.status_code in (400, 413, 422), reply.text
    found = service.ask("GET", hostile).json()
    assert (found["open"], found["run"], found["above"]) == (True, 1, 0)


@pytest.fixture(scope="module")
def hostile(service: Live) -> str:
    return opened(service, "hostile")


@pytest.mark.parametrize(
    "change", ["0{}", "-{}", "{}0", "{}%0a", "{}%00", "0000-{}", "%D9%A2.{}", "1.{}", "{}.."]
)
def test_an_id_that_was_tampered_with_is_of_no_session(service: Live, hostile: str, change: str) -> None:
    folder, _, name = hostile.rpartition("/")
    wrong = change.format(name if change[0] not in "1%" else name.partition(".")[2])
    for verb, body in (("answers", {"above": False}), ("close", {})):
        reply = post(service, f"{folder}/{wrong}/{verb}", body)
        assert problem(reply) == (404, "unknown-session"), reply.text
    assert service.ask("GET", hostile).json()["open"]


def test_a_charge_and_a_hold_take_no_part_of_a_session(service: Live, hostile: str) -> None:
    """Only an answer moves a session, and only with what it owes."""
    dataset = hostile.partition("/sessions")[0]
    step = {"id": 2, "above": True, "run": 1, "last": False}
    for path, more in (("charges", {}), ("holds", {"expires_in_s": 60})):
        body = {**ONE, **more, "session": step}
        assert problem(post(service, f"{dataset}/{path}", body, "step")) == (422, "invalid-request")


def test_of_a_revoked_key_an_admin_closes_the_session(service: Live) -> None:
    """It answers no more at once where it was revoked; nobody else gets the session."""
    service.open("revoked", budgets=[{"name": "life", "kind": "pure", "epsilon": 9.0}])
    made = service.make_key("charger")
    first = post(service, "/v1/datasets/revoked/sessions", {"session": SVT}, "open", made["token"])
    path = f"/v1/datasets/revoked/sessions/{first.json()['session']['id']}"
    assert service.ask("DELETE", f"/v1/keys/{made['id']}").status_code == 204
    for body, key in (({"above": False}, None), ({"above": True}, "a1")):
        refused = post(service, f"{path}/answers", body, key, made["token"])
        assert problem(refused) == (401, "unauthenticated")
    assert problem(post(service, f"{path}/answers", {"above": True}, "a1")) == (403, "forbidden")
    closed = post(service, f"{path}/close", {}, role="admin").json()["session"]
    assert (closed["open"], closed["above"]) == (False, 0)


def test_the_command_line_says_steps_in_the_words_of_their_kind(service: Live) -> None:
    """A query on votes is answered or is without consensus; a sparse vector's is above its threshold."""
    run = runner(ODOMETER_URL=service.url, ODOMETER_KEY=service.keys["charger"], COLUMNS="200")
    service.open("words", adjacency="replace_one")
    votes = {"kind": "confident_gnmax", "noise_multiplier_check": 9.0, "noise_multiplier_answer": 9.0}
    made = post(service, "/v1/datasets/words/sessions", {"session": votes | {"max_answers": 3}}, "open")
    number = made.json()["session"]["id"]
    path = f"/v1/datasets/words/sessions/{number}"
    for place, above in enumerate((True, False)):
        post(service, f"{path}/answers", {"above": above}, f"a{place}")
    assert "query 3, 1 answered so far, 2 more may be" in run("sessions", "words").stdout
    assert "1 above its threshold in all" in run("close-session", "words", number).stdout
    ledger = run("ledger", "words").stdout
    assert "query 1 answered: charged" in ledger
    assert "query 2 without consensus, not answered: charged" in ledger
    path = opened(service, "runs")
    post(service, f"{path}/answers", {"above": True}, "a1")
    assert "run 2, 1 above so far, 2 more may come" in run("sessions", "runs").stdout
    assert "above in run 1: charged" in run("ledger", "runs").stdout
