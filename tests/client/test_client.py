"""The HTTP face: what goes over the wire, against a transport that answers in this process."""

import copy
import json
import pickle
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

import odometer_client
from odometer_client import BudgetExceeded, Client, OutcomeUnknown
from odometer_client.errors import InvalidRequest, StoreUnavailable, UnexpectedAnswer, Unreachable
from odometer_client.mechanisms import Gaussian, PoissonSubsampled, Pure

Handler = Callable[[httpx.Request], httpx.Response]
RECEIPT = {
    "dataset": "d",
    "sequence": 7,
    "hash": "ab",
    "replayed": False,
    "loss": {"pure": None, "rho": 0.5, "mu": 1.0, "delta": 0.0},
    "left": [{"budget": "life", "left": 0.25}],
}


def client_of(handler: Handler, **options: Any) -> Client:
    client = Client("http://test", "po_key", http_transport=httpx.MockTransport(handler), **options)
    client._sleep = [].append
    return client


def recording(*answers: httpx.Response | Exception) -> tuple[Handler, list[httpx.Request]]:
    """A handler that gives the answers in turn, the last one for ever."""
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        answer = answers[min(len(seen), len(answers) - 1)]
        seen.append(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return handler, seen


def problem(code: str, status: int, **fields: Any) -> httpx.Response:
    body = {"type": f"/problems/{code}", "title": code, "status": status, "detail": code, **fields}
    return httpx.Response(status, json=body, headers={"Content-Type": "application/problem+json"})


def test_a_charge_sends_mechanism_count_key_and_token() -> None:
    handler, seen = recording(httpx.Response(201, json=RECEIPT))
    step = PoissonSubsampled(base=Gaussian(noise_multiplier=1.1), sampling_rate=0.01)
    receipt = client_of(handler).charge("d", step, 100, key="k", adjacency="add_remove")
    assert seen[0].method == "POST"
    assert seen[0].url.path == "/v1/datasets/d/charges"
    assert seen[0].headers["Idempotency-Key"] == "k"
    assert seen[0].headers["Authorization"] == "Bearer po_key"
    assert json.loads(seen[0].content) == {
        "mechanism": {
            "kind": "poisson_subsampled",
            "base": {"kind": "gaussian", "noise_multiplier": 1.1},
            "sampling_rate": 0.01,
        },
        "count": 100,
        "adjacency": "add_remove",
    }
    assert (receipt.sequence, receipt.replayed, receipt.left[0]["left"]) == (7, False, 0.25)


def test_a_list_is_one_request() -> None:
    handler, seen = recording(httpx.Response(201, json=RECEIPT))
    client_of(handler).charge("d", [(Pure(epsilon=0.1), 2), ({"kind": "zcdp", "rho": 0.5}, 1)])
    assert json.loads(seen[0].content) == {
        "charges": [
            {"mechanism": {"kind": "pure", "epsilon": 0.1}, "count": 2},
            {"mechanism": {"kind": "zcdp", "rho": 0.5}, "count": 1},
        ]
    }


def test_a_list_takes_no_count_beside_it() -> None:
    handler, seen = recording(httpx.Response(201, json=RECEIPT))
    with pytest.raises(ValueError, match="leave `count` out"):
        client_of(handler).charge("d", [(Pure(epsilon=0.1), 2)], 3)
    assert not seen


def test_floats_arrive_as_they_are() -> None:
    handler, seen = recording(httpx.Response(201, json=RECEIPT))
    epsilon = 0.500000004656613
    client_of(handler).charge("d", Pure(epsilon=epsilon))
    assert json.loads(seen[0].content)["mechanism"]["epsilon"] == epsilon


@pytest.mark.parametrize(
    "document",
    [{}, [], "ok", RECEIPT | {"dataset": "e"}, RECEIPT | {"sequence": "7"}, RECEIPT | {"hash": None}],
)
def test_an_answer_that_is_no_receipt_is_not_taken_for_one(document: Any) -> None:
    handler, _ = recording(httpx.Response(200, json=document))
    with pytest.raises(UnexpectedAnswer, match="Release nothing"):
        client_of(handler).charge("d", Pure(epsilon=0.1))


@pytest.mark.parametrize("epsilon", [float("nan"), float("inf"), 1j])
def test_what_json_cannot_hold_is_not_sent(epsilon: Any) -> None:
    handler, seen = recording(httpx.Response(201, json=RECEIPT))
    with pytest.raises(ValueError, match="nothing was sent"):
        client_of(handler).charge("d", Pure(epsilon=epsilon))
    assert not seen


def test_every_charge_has_a_key_of_its_own() -> None:
    handler, seen = recording(httpx.Response(201, json=RECEIPT))
    client = client_of(handler)
    for _ in range(3):
        client.charge("d", Pure(epsilon=0.1))
    assert len({request.headers["Idempotency-Key"] for request in seen}) == 3


@pytest.mark.parametrize(
    "lost",
    [
        httpx.ReadTimeout("slow"),
        httpx.RemoteProtocolError("gone"),
        problem("overloaded", 503, retryable=True),
    ],
)
def test_a_lost_answer_is_asked_for_again_with_the_same_key(lost: httpx.Response | Exception) -> None:
    handler, seen = recording(lost, httpx.Response(200, json=RECEIPT | {"replayed": True}))
    receipt = client_of(handler).charge("d", Pure(epsilon=0.1))
    assert len(seen) == 2
    assert seen[0].headers["Idempotency-Key"] == seen[1].headers["Idempotency-Key"]
    assert seen[0].content == seen[1].content
    assert receipt.replayed
    assert receipt.retried


def test_tries_are_bounded_and_the_outcome_is_then_unknown() -> None:
    handler, seen = recording(httpx.ReadTimeout("slow"))
    with pytest.raises(OutcomeUnknown) as raised:
        client_of(handler, attempts=4).charge("d", Pure(epsilon=0.1), key="mine")
    assert len(seen) == 4
    assert raised.value.key == "mine"


def test_a_refused_connection_is_known_to_charge_nothing() -> None:
    handler, seen = recording(httpx.ConnectError("refused"))
    with pytest.raises(Unreachable):
        client_of(handler, attempts=2).charge("d", Pure(epsilon=0.1))
    assert len(seen) == 2


def test_a_refusal_is_not_asked_again_and_says_what_would_fit() -> None:
    refusals = [{"budget": "life", "short_by": 0.5}]
    would_fit = {"largest_count": 3, "least_noise": None, "leading_items": None}
    handler, seen = recording(problem("budget-exceeded", 409, refusals=refusals, would_fit=would_fit))
    with pytest.raises(BudgetExceeded) as raised:
        client_of(handler).charge("d", Pure(epsilon=0.1), 5)
    assert len(seen) == 1
    assert raised.value.refusals == refusals
    assert raised.value.would_fit["largest_count"] == 3


def test_a_wrong_field_is_named() -> None:
    handler, _ = recording(
        problem("invalid-request", 422, errors=[{"field": "count", "message": "too many"}])
    )
    with pytest.raises(InvalidRequest) as raised:
        client_of(handler).charge("d", Pure(epsilon=0.1), 10**15)
    assert raised.value.errors[0]["field"] == "count"


@pytest.mark.parametrize(
    ("name", "path"),
    [("a/b", "a%2Fb"), ("..", "%2E%2E"), ("", "%00"), ("x?y#z", "x%3Fy%23z"), ("ü", "%C3%BC")],
)
def test_a_name_is_one_segment_of_the_path(name: str, path: str) -> None:
    handler, seen = recording(httpx.Response(200, json={"name": name}))
    client_of(handler).dataset(name)
    assert seen[0].url.raw_path == f"/v1/datasets/{path}".encode()


def test_a_dataset_is_created_once_only() -> None:
    handler, seen = recording(httpx.ReadTimeout("slow"))
    with pytest.raises(OutcomeUnknown):
        client_of(handler).create_dataset("d", unit="person", adjacency="add_remove", delta=1e-6)
    assert len(seen) == 1


def test_lists_are_read_page_by_page() -> None:
    handler, seen = recording(
        httpx.Response(200, json={"items": [{"entry": 1}, {"entry": 2}], "next": 2}),
        httpx.Response(200, json={"items": [{"entry": 3}], "next": None}),
    )
    assert [item["entry"] for item in client_of(handler).ledger("d", limit=2)] == [1, 2, 3]
    assert [dict(request.url.params) for request in seen] == [
        {"after": "0", "limit": "2"},
        {"after": "2", "limit": "2"},
    ]


def test_a_key_is_revoked_without_a_body() -> None:
    handler, seen = recording(httpx.Response(204))
    client_of(handler).revoke_key("k1")
    assert (seen[0].method, seen[0].url.path) == ("DELETE", "/v1/keys/k1")


def test_a_redirect_is_not_followed_with_the_key() -> None:
    handler, seen = recording(httpx.Response(307, headers={"Location": "http://elsewhere/"}))
    with pytest.raises(Exception, match="HTTP 307"):
        client_of(handler).me()
    assert len(seen) == 1


def test_one_client_serves_many_threads() -> None:
    handler, seen = recording(httpx.Response(201, json=RECEIPT))
    client = client_of(handler)
    threads = [
        threading.Thread(target=lambda: [client.charge("d", Pure(epsilon=0.1)) for _ in range(20)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({request.headers["Idempotency-Key"] for request in seen}) == 160


def test_a_deep_copy_is_the_client_itself() -> None:
    client = client_of(recording(httpx.Response(204))[0])
    assert copy.deepcopy({"client": client})["client"] is client


def test_a_client_is_not_pickled_and_says_what_to_do() -> None:
    with pytest.raises(TypeError, match="Make one in each process"):
        pickle.dumps(client_of(recording(httpx.Response(204))[0]))


def test_a_client_never_prints_its_key() -> None:
    assert "po_key" not in repr(client_of(recording(httpx.Response(204))[0]))


@pytest.mark.parametrize("url", ["", "localhost:8790", "ftp://x", "postgres://x"])
def test_another_url_is_refused_with_what_works(url: str) -> None:
    with pytest.raises(ValueError, match="sqlite:///"):
        Client(url)


@pytest.mark.parametrize("options", [{"attempts": 0}, {"timeout_s": 0.0}, {"timeout_s": float("nan")}])
def test_bounds_are_bounds(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="give"):
        Client("http://test", **options)


@pytest.mark.parametrize(
    "error", [OutcomeUnknown("lost", "k"), BudgetExceeded({"detail": "no", "refusals": [1]})]
)
def test_errors_travel_between_processes(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert vars(again) == vars(error)


HOLD = {**RECEIPT, "hold": {"id": "7", "expires": "2030-01-01T00:00:00.000000Z"}}
SETTLED = {**RECEIPT, "hold": "7", "used": [3], "held": [5]}


def test_a_hold_says_when_it_expires_and_settles_itself() -> None:
    handler, seen = recording(httpx.Response(201, json=HOLD), httpx.Response(200, json=SETTLED))
    hold = client_of(handler).hold("d", Pure(epsilon=0.1), 5, expires_in_s=60, key="k", group=("lr", 2))
    assert (hold.id, hold.expires[:4]) == ("7", "2030")
    assert hold.settle(3).used == [3]
    assert json.loads(seen[0].content) == {
        "mechanism": {"kind": "pure", "epsilon": 0.1},
        "count": 5,
        "group": {"name": "lr", "runs": 2},
        "expires_in_s": 60,
    }
    assert (seen[0].url.path, seen[0].headers["Idempotency-Key"]) == ("/v1/datasets/d/holds", "k")
    assert (seen[1].url.path, json.loads(seen[1].content)) == (
        "/v1/datasets/d/holds/7/settlement",
        {"used": 3},
    )


@pytest.mark.parametrize("answer", [RECEIPT, {**RECEIPT, "hold": {}}, {**RECEIPT, "hold": "7"}])
def test_a_receipt_without_its_hold_is_no_hold(answer: dict[str, Any]) -> None:
    handler, _ = recording(httpx.Response(201, json=answer))
    with pytest.raises(UnexpectedAnswer, match="Release nothing"):
        client_of(handler).hold("d", Pure(epsilon=0.1), 5, expires_in_s=60)


def test_a_settlement_is_asked_again_after_a_lost_answer() -> None:
    """Doing it twice is the same as once."""
    handler, seen = recording(httpx.ReadTimeout("slow"), httpx.Response(200, json=SETTLED))
    assert client_of(handler).settle("d", "7", 3).held == [5]
    assert len({request.content for request in seen}) == 1
    handler, _ = recording(httpx.ReadTimeout("slow"))
    with pytest.raises(OutcomeUnknown, match="Ask again"):
        client_of(handler).settle("d", "7", 3)


def test_a_refusal_is_not_asked_again_though_it_will_pass_one_day() -> None:
    handler, seen = recording(problem("budget-exceeded", 409, retryable=True, retry_after_s=3600))
    with pytest.raises(BudgetExceeded):
        client_of(handler).charge("d", Pure(epsilon=0.1))
    assert len(seen) == 1


@pytest.mark.parametrize("url", ["redis://user:swordfish@127.0.0.1:1/0", "mysql://u:swordfish@host"])
def test_a_password_is_not_shown(url: str) -> None:
    with pytest.raises((ValueError, Unreachable, StoreUnavailable)) as raised:
        Client(url)
    assert "swordfish" not in str(raised.value)


def test_the_former_name_of_a_reply_still_works() -> None:
    """Code that imports `Document` gets the class `Reply`."""
    assert odometer_client.Document is odometer_client.Reply
