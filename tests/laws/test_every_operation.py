"""What every route promises, whatever it does. A new operation is one more row of `EXAMPLES`."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx
import pytest
from openapi_spec_validator import validate
from serving import ONE, Live, dataset_document, live

from odometer_accountant.bounds import BODY_MAX
from odometer_accountant.errors import BodyTooLarge, registry
from odometer_accountant.ledger.commands import FreezeCommand
from odometer_accountant.service.api_keys import Role
from odometer_accountant.service.operations import OPERATIONS, Operation
from odometer_accountant.service.reader import BlockingReply
from odometer_accountant.stores import Head
from odometer_client.calls import request_of
from odometer_client.embedded import EmbeddedTransport
from odometer_client.operations import OPERATIONS as CLIENT_OPERATIONS
from privacy_odometer.raw_request import COOKIE
from privacy_odometer.routes.table import ROUTES

SESSION = {"kind": "sparse_vector", "epsilon_threshold": 0.1, "epsilon_answers": 0.2, "max_above": 3}
BUDGET = {"name": "more", "kind": "pure", "epsilon": 3.0}


@dataclass(frozen=True)
class Example:
    """A request that succeeds on a fresh dataset `{dataset}` with a budget `life` at version 1."""

    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)


EXAMPLES: dict[str, Example] = {
    "create_dataset": Example(dataset_document("{new}")),
    "datasets": Example(query={"limit": "2"}),
    "dataset": Example(),
    "close_dataset": Example({}),
    "add_partitions": Example({"partitions": ["eu"]}),
    "unfreeze": Example({"reason": "the lost charge never ran"}),
    "budgets": Example(),
    "add_budget": Example(BUDGET),
    "set_budget": Example({"kind": "zcdp", "rho": 9.0}, {"If-Match": '"v1"'}),
    "charge": Example(ONE, {"Idempotency-Key": "a-key"}),
    "check": Example(ONE),
    "hold": Example({**ONE, "expires_in_s": 60}, {"Idempotency-Key": "a-hold"}),
    "holds": Example(),
    "settle": Example({"used": 0}),
    "open_session": Example({"session": SESSION}, {"Idempotency-Key": "a-session"}),
    "sessions": Example(),
    "session": Example(),
    "answer_session": Example({"above": True}, {"Idempotency-Key": "an-answer"}),
    "close_session": Example({}),
    "derive": Example(
        {"parent": 2, "description": "a histogram of the answer"}, {"Idempotency-Key": "a-plot"}
    ),
    "lineage": Example(query={"entry": "2"}),
    "scopes": Example(query={"kind": "principal"}),
    "odometer": Example(query={"delta": "1e-7"}),
    "history": Example(query={"points": "5"}),
    "spend": Example(),
    "ledger": Example(query={"order": "desc"}),
    "mechanisms": Example(),
    "convert": Example({**ONE, "delta": 1e-6}),
    "dp_events": Example({"dp_event": {"class_name": "GaussianDpEvent", "noise_multiplier": 2.0}}),
    "keys": Example(),
    "create_key": Example({"role": "reader", "name": "job {new}"}),
    "revoke_key": Example(),
    "rotate_key": Example({"overlap_s": 60}),
    "principals": Example(),
    "create_principal": Example({"role": "charger", "name": "person {new}", "team": "ads"}),
    "principal": Example(),
    "set_principal": Example({"role": "charger", "team": None, "acts_for": ["alice"]}, {"If-Match": '"v1"'}),
    "erase_name": Example(),
    "principal_keys": Example(),
    "add_key": Example({"expires_in_s": 3600}),
    "me": Example(),
}

every = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda one: one.name)
with_a_body = pytest.mark.parametrize(
    "operation",
    [one for one in OPERATIONS.values() if one.body is not None],
    ids=lambda one: one.name,
)
on_a_dataset = pytest.mark.parametrize(
    "operation",
    [one for one in OPERATIONS.values() if "dataset" in one.names],
    ids=lambda one: one.name,
)
_number = count(1)


@pytest.fixture(scope="module")
def service() -> Iterator[Live]:
    with live() as running:
        yield running


def send(service: Live, operation: Operation, key: str | None = "admin", **more: Any) -> httpx.Response:
    """The operation's example, on a fresh dataset or the one named; `content` replaces its body."""
    example = EXAMPLES[operation.name]
    method, path = ROUTES[operation.name]
    dataset = more.pop("dataset", None)
    if "{dataset}" in path and dataset is None:
        dataset = _fresh(service, path)
    if "{key}" in path:
        path = path.replace("{key}", service.make_key("reader")["id"])
    if "{principal}" in path:
        path = path.replace("{principal}", service.make_key("reader")["principal"])
    if "{hold}" in path:
        path = path.replace("{hold}", _hold(service, dataset or "", key))
    if "{session}" in path:
        path = path.replace("{session}", _session(service, dataset or "", key))
    path = path.replace("{dataset}", dataset or "").replace("{budget}", "life")
    if "content" not in more and example.body is not None:
        more["content"] = json.dumps(example.body).replace("{new}", f"new-{next(_number)}")
    headers = {**example.headers, **more.pop("headers", {})}
    return service.ask(method, path, key, headers=headers, params=example.query, **more)


def _fresh(service: Live, path: str) -> str:
    """The name of a new dataset on which the example of a path can succeed."""
    name = f"d-{next(_number)}"
    service.open(name, **({"composition": "by_partition"} if path.endswith("/partitions") else {}))
    if path.endswith(("/derived", "/lineage")):
        _charge(service, name)
    if path.endswith("/unfreeze"):
        writer = service.app.state.accountant.writer
        frozen = BlockingReply()
        writer.submit(name, FreezeCommand(Head(9, "gone")), frozen, None)
        frozen.wait()
    return name


def _charge(service: Live, dataset: str) -> None:
    """The second entry of a fresh dataset."""
    headers = {"Idempotency-Key": "a-charge"}
    assert (
        service.ask("POST", f"/v1/datasets/{dataset}/charges", json=ONE, headers=headers).status_code == 201
    )


def _hold(service: Live, dataset: str, key: str | None) -> str:
    """A new hold of whoever is about to settle it, if they may make one."""
    maker = key if key in ("charger", "admin") else "admin"
    headers = {"Idempotency-Key": f"hold-{next(_number)}"}
    path, body = f"/v1/datasets/{dataset}/holds", {**ONE, "expires_in_s": 60}
    made = service.ask("POST", path, maker, headers=headers, json=body)
    return str(made.json()["hold"]["id"]) if made.status_code == 201 else "1"


def _session(service: Live, dataset: str, key: str | None) -> str:
    """A new session of whoever is about to answer or close it, if they may open one."""
    opener = key if key in ("charger", "admin") else "admin"
    headers = {"Idempotency-Key": f"session-{next(_number)}"}
    path = f"/v1/datasets/{dataset}/sessions"
    made = service.ask("POST", path, opener, headers=headers, json={"session": SESSION})
    return str(made.json()["session"]["id"]) if made.status_code == 201 else "1"


def is_problem(reply: httpx.Response, code: str) -> dict[str, Any]:
    """The reply's body, checked to be an RFC 9457 problem of that code."""
    assert reply.headers["content-type"] == "application/problem+json"
    assert_kept_by_nobody(reply)
    problem: dict[str, Any] = reply.json()
    kind = registry()[code]
    assert (problem["type"], problem["status"]) == (f"/problems/{code}", reply.status_code), problem
    assert (reply.status_code, problem["title"], problem["retryable"]) == (
        kind.status,
        kind.title,
        kind.retryable,
    )
    assert problem["detail"]
    assert ("retry-after" in reply.headers) == kind.retryable
    return problem


# The table: one row of an operation, one route, one line of the client's table


def test_every_operation_has_an_example() -> None:
    """One example, one route, and one line of the client's table, all in the same order."""
    assert list(EXAMPLES) == list(OPERATIONS) == list(ROUTES) == list(CLIENT_OPERATIONS)


@every
def test_the_client_asks_for_the_route_as_it_is(operation: Operation) -> None:
    """The client's generated table has the same method and path, and the row's word on repeats."""
    assert CLIENT_OPERATIONS[operation.name] == (*ROUTES[operation.name], operation.repeat)


@every
def test_a_path_has_a_place_for_each_name(operation: Operation) -> None:
    """No name is lost, and no place stays empty."""
    assert tuple(re.findall(r"{(\w+)}", ROUTES[operation.name].path)) == operation.names


@every
def test_only_what_is_safe_to_repeat_is_repeated(operation: Operation) -> None:
    """A key makes a repeat safe only where the service reads it; what only reads is safe; GET only reads."""
    assert (operation.repeat == "with key") == ("Idempotency-Key" in operation.headers)
    if ROUTES[operation.name].method == "GET":
        assert operation.repeat == "safe"
    if operation.status != 200:
        assert operation.repeat in ("with key", "never")


@every
def test_every_operation_runs_in_an_embedded_ledger_too(operation: Operation) -> None:
    """The transport of `Client("memory://")` runs the same row; only keys and principals are not there."""
    transport = EmbeddedTransport("memory://")
    try:
        names = dict.fromkeys(operation.names, "nowhere")
        body = json.loads(json.dumps(EXAMPLES[operation.name].body).replace("{new}", "new"))
        request = request_of(operation.name, names, query=EXAMPLES[operation.name].query, body=body, key="k")
        answer = transport.send(request)
    finally:
        transport.close()
    if operation.names or "principal" in operation.name or "key" in operation.name:
        assert answer.status == 404, answer
    else:
        assert answer.status == operation.status, answer
        assert operation.reply is not None
        shown = {**answer.document, "key": ""} if operation.name == "me" else answer.document  # it has no key
        operation.reply.model_validate(shown)


@every
def test_the_answer_is_of_the_declared_model(service: Live, operation: Operation) -> None:
    reply = send(service, operation)
    assert reply.status_code == operation.status, reply.text
    if operation.reply is None:
        assert reply.content == b""
    else:
        assert reply.headers["content-type"] == "application/json"
        operation.reply.model_validate_json(reply.content)


@every
def test_no_key_is_401(service: Live, operation: Operation) -> None:
    reply = send(service, operation, None)
    is_problem(reply, "unauthenticated")
    assert reply.headers["www-authenticate"] == "Bearer"


WRONG_KEYS = ["po_unknown", "po_unknown po_unknown", "x" * 4000]


@every
@pytest.mark.parametrize("token", WRONG_KEYS, ids=["unknown", "two", "long"])
def test_a_key_that_nobody_has_is_401(service: Live, operation: Operation, token: str) -> None:
    is_problem(send(service, operation, token), "unauthenticated")


@every
@pytest.mark.parametrize("scheme", ["Basic", "Bearer:"])
def test_another_scheme_is_401(service: Live, operation: Operation, scheme: str) -> None:
    headers = {"Authorization": f"{scheme} {service.admin}"}
    is_problem(send(service, operation, None, headers=headers), "unauthenticated")


@every
def test_a_revoked_key_is_401_at_once(service: Live, operation: Operation) -> None:
    made = service.make_key("admin")
    assert service.ask("GET", "/v1/me", made["token"]).status_code == 200
    assert service.ask("DELETE", f"/v1/keys/{made['id']}").status_code == 204
    is_problem(send(service, operation, made["token"]), "unauthenticated")


def assert_kept_by_nobody(reply: httpx.Response) -> None:
    """No cache keeps it, and no browser takes it for another type; said once each."""
    assert reply.headers.get_list("cache-control") == ["no-store"]
    assert reply.headers.get_list("x-content-type-options") == ["nosniff"]


@every
@pytest.mark.parametrize("role", list(Role))
def test_a_role_may_what_it_covers_and_nothing_else(service: Live, operation: Operation, role: Role) -> None:
    reply = send(service, operation, role.value)
    if role.covers(operation.role):
        assert reply.status_code == operation.status, reply.text
        assert_kept_by_nobody(reply)
    else:
        assert is_problem(reply, "forbidden")["role"] == operation.role.value


def signed_in(service: Live) -> str:
    """What a browser keeps of a sign-in with the admin's key."""
    ticket: str = service.app.state.sign_ins.open(service.admin)
    return ticket


@every
def test_the_cookie_opens_what_is_read_and_nothing_else(service: Live, operation: Operation) -> None:
    """A page of another site can make a browser send a cookie: it must not be able to charge with it."""
    reply = send(service, operation, None, headers={"Cookie": f"a=b; {COOKIE}={signed_in(service)}"})
    if ROUTES[operation.name].method == "GET":
        assert reply.status_code == 200
    else:
        is_problem(reply, "unauthenticated")


@every
def test_a_wrong_bearer_is_not_saved_by_a_right_cookie(service: Live, operation: Operation) -> None:
    headers = {"Cookie": f"{COOKIE}={signed_in(service)}"}
    is_problem(send(service, operation, "po_unknown", headers=headers), "unauthenticated")


# Which refusal comes first: 401, 403, 400, 404, 413, 422, 409


@with_a_body
@pytest.mark.parametrize(
    "body",
    [b'{"a": 1', b'{"zzz": 1}', b"[]", b"null", b" " * (BODY_MAX + 1)],
    ids=["malformed", "field", "list", "null", "large"],
)
def test_the_key_comes_before_the_body(service: Live, operation: Operation, body: bytes) -> None:
    """Nothing is read, and nothing computed, for whoever has no key, or one that may not do this."""
    is_problem(send(service, operation, None, content=body), "unauthenticated")
    is_problem(send(service, operation, "po_unknown", content=body), "unauthenticated")
    if operation.role is not Role.reader:
        is_problem(send(service, operation, "reader", content=body), "forbidden")


@with_a_body
def test_malformed_comes_before_the_dataset(service: Live, operation: Operation) -> None:
    more = {"dataset": "nowhere"} if "dataset" in operation.names else {}
    is_problem(send(service, operation, content=b'{"a": 1', **more), "malformed-body")


@on_a_dataset
def test_the_role_comes_before_the_dataset(service: Live, operation: Operation) -> None:
    expected = "unknown-dataset" if operation.role is Role.reader else "forbidden"
    is_problem(send(service, operation, "reader", dataset="nowhere"), expected)


@on_a_dataset
@pytest.mark.parametrize("body", [None, b'{"zzz": 1}', b" " * (BODY_MAX + 1)], ids=["good", "field", "large"])
def test_an_unknown_dataset_comes_before_its_body(
    service: Live, operation: Operation, body: bytes | None
) -> None:
    more = {} if body is None or operation.body is None else {"content": body}
    is_problem(send(service, operation, dataset="nowhere", **more), "unknown-dataset")
    is_problem(send(service, operation, dataset="No%00-Slug", **more), "unknown-dataset")


@with_a_body
@pytest.mark.parametrize("size", [BODY_MAX + 1, 10_000_000])
def test_a_large_body_comes_before_what_is_in_it(service: Live, operation: Operation, size: int) -> None:
    is_problem(send(service, operation, content=b'{"zzz": "' + b"x" * size), "body-too-large")


@with_a_body
def test_a_body_at_the_bound_is_read(service: Live, operation: Operation) -> None:
    example = json.dumps(EXAMPLES[operation.name].body)
    body = example.replace("{new}", f"new-{next(_number)}").encode()
    reply = send(service, operation, content=body + b" " * (BODY_MAX - len(body)))
    assert reply.status_code == operation.status, reply.text


@with_a_body
def test_an_unknown_field_is_422_and_named(service: Live, operation: Operation) -> None:
    example = EXAMPLES[operation.name].body
    reply = send(service, operation, content=json.dumps({**example, "zzz": 1}).encode())
    problem = is_problem(reply, "invalid-request")
    assert any(error["field"].endswith("zzz") for error in problem["errors"]), problem


@pytest.mark.parametrize(
    "operation",
    [one for one in OPERATIONS.values() if one.query is not None],
    ids=lambda one: one.name,
)
def test_an_unknown_query_is_422_and_named(service: Live, operation: Operation) -> None:
    name = service.open(f"d-{next(_number)}")["name"]
    needed = EXAMPLES[operation.name].query
    path = ROUTES[operation.name].path.replace("{dataset}", name)
    reply = service.ask("GET", path, params={**needed, "zzz": "1"})
    assert [error["field"] for error in is_problem(reply, "invalid-request")["errors"]] == ["zzz"]


@on_a_dataset
def test_a_closed_dataset_can_be_read_and_never_changes(service: Live, operation: Operation) -> None:
    name = service.open(f"d-{next(_number)}")["name"]
    _charge(service, name)
    assert service.ask("POST", f"/v1/datasets/{name}/closure", json={}).status_code == 200
    reply = send(service, operation, dataset=name)
    if operation.name == "derive":  # it changes no total: what came of what went out
        assert (reply.status_code, reply.json()["sequence"]) == (201, 4)
        return
    if "session" in operation.names:
        is_problem(reply, "unknown-session")
    elif operation.repeat == "safe":
        assert reply.status_code == 200, reply.text
    elif operation.name in ("unfreeze", "settle"):
        assert reply.status_code in (404, 409)  # it is not frozen, and has no hold
    else:
        is_problem(reply, "dataset-closed")
    assert service.ask("GET", f"/v1/datasets/{name}").json()["sequence"] == 3


@every
def test_another_method_is_a_problem_too(service: Live, operation: Operation) -> None:
    path = (
        ROUTES[operation.name]
        .path.replace("{dataset}", "d")
        .replace("{budget}", "b")
        .replace("{key}", "k")
        .replace("{principal}", "p")
        .replace("{hold}", "2")
    )
    reply = service.ask("PATCH", path)
    is_problem(reply, "method-not-allowed")
    assert ROUTES[operation.name].method in reply.headers["allow"]


# The description


@pytest.fixture(scope="module")
def described(service: Live) -> dict[str, Any]:
    reply = service.ask("GET", "/openapi.json", None)
    assert reply.status_code == 200
    document: dict[str, Any] = reply.json()
    return document


def test_the_description_is_valid_openapi(described: dict[str, Any]) -> None:
    validate(described)


def test_identifiers_are_unique(described: dict[str, Any]) -> None:
    names = [one["operationId"] for path in described["paths"].values() for one in path.values()]
    assert len(set(names)) == len(names) == len(OPERATIONS)


def described_operation(described: dict[str, Any], operation: Operation) -> dict[str, Any]:
    method, path = ROUTES[operation.name]
    found: dict[str, Any] = described["paths"][path][method.lower()]
    return found


@every
def test_every_error_of_the_operation_is_described(described: dict[str, Any], operation: Operation) -> None:
    found = described_operation(described, operation)["responses"]
    assert str(operation.status) in found
    for kind in operation.errors:
        assert kind.code in found[str(kind.status)]["description"]
        assert list(found[str(kind.status)]["content"]) == ["application/problem+json"]


@every
def test_what_it_takes_is_described(described: dict[str, Any], operation: Operation) -> None:
    one = described_operation(described, operation)
    example = EXAMPLES[operation.name]
    named = {(item["in"], item["name"]) for item in one["parameters"]}
    assert {("header", name) for name in example.headers} <= named
    assert {("query", name) for name in example.query} <= named
    assert {("path", name) for name in operation.names} <= named
    assert ("requestBody" in one) == (operation.body is not None)
    if operation.query is not None:
        needed = {item["name"] for item in one["parameters"] if item["in"] == "query" and item["required"]}
        assert needed == {name for name, item in operation.query.model_fields.items() if item.is_required()}
    assert all("pattern" in item["schema"] for item in one["parameters"] if item["in"] in ("path", "header"))
    assert all(item["description"] for item in one["parameters"])
    (tag,) = one["tags"]
    assert next(item["description"] for item in described["tags"] if item["name"] == tag) != tag
    words = set().union(*(item["schema"] for item in one["parameters"]))
    assert not words & {"ge", "gt", "le", "lt"}  # bounds in JSON Schema's own words


def test_every_kind_is_told_apart_by_its_kind(described: dict[str, Any]) -> None:
    """In each schema that is one of several, so that exactly one of them fits a document."""
    schemas = described["components"]["schemas"]

    def unions(part: Any) -> Iterator[dict[str, Any]]:
        if isinstance(part, dict):
            if "discriminator" in part:
                yield part
            for item in part.values():
                yield from unions(item)
        elif isinstance(part, list):
            for item in part:
                yield from unions(item)

    found = list(unions(described))
    assert len(found) >= 3  # mechanisms, budgets, sessions
    for union in found:
        kinds = [schemas[member["$ref"].rpartition("/")[2]] for member in union["oneOf"]]
        assert all("kind" in kind["required"] for kind in kinds)
        assert len({kind["properties"]["kind"]["const"] for kind in kinds}) == len(kinds)


def test_the_patterns_of_keys_and_names_are_those_of_the_service(described: dict[str, Any]) -> None:
    parameters = [
        item
        for path in described["paths"].values()
        for one in path.values()
        for item in one["parameters"]
        if "pattern" in item["schema"]
    ]
    fit = {
        "Idempotency-Key": (["a", "!" * 128, "~"], ["", "a b", "é", "a" * 129, "a\n"]),
        "If-Match": (['"v1"'], ["v1", "*", ""]),
        "dataset": (["a", "a" * 64, "0-_"], ["A", "", "-a", "a" * 65]),
        "hold": (["12.0a1b2c3d", "0007-12.0a1b2c3d"], ["12", "0.0a1b2c3d"]),
        "session": (["12.0a1b2c3d"], ["0007-12.0a1b2c3d"]),
    }
    for name, (good, bad) in fit.items():
        patterns = {item["schema"]["pattern"] for item in parameters if item["name"] == name}
        assert len(patterns) == 1
        pattern = re.compile(patterns.pop().removesuffix("$") + r"\Z")  # in JSON Schema, $ is the very end
        assert all(pattern.search(text) for text in good)
        assert not any(pattern.search(text) for text in bad)


def test_every_problem_type_can_be_looked_up(service: Live) -> None:
    for code, kind in registry().items():
        found = service.ask("GET", f"/problems/{code}", None).json()
        assert (found["type"], found["status"], found["title"]) == (
            f"/problems/{code}",
            kind.status,
            kind.title,
        )
    is_problem(service.ask("GET", "/problems/none", None), "not-found")


def test_a_path_that_is_not_there_is_a_problem(service: Live) -> None:
    is_problem(service.ask("GET", "/v2/datasets"), "not-found")
    is_problem(service.ask("GET", "/v1/datasets/a%2Fb"), "not-found")


def test_the_size_of_a_large_body_is_not_claimed(service: Live) -> None:
    """Only its beginning was read: nobody knows how large it is."""
    reply = service.ask("POST", "/v1/datasets", content=b"x" * 3_000_000)
    assert is_problem(reply, BodyTooLarge.code)["detail"].count(str(BODY_MAX)) == 1
