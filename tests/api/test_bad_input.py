"""Bad input: a 4xx problem that names the field, and nothing has changed."""

import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from serving import ONE, Live, dataset_document, live

from odometer_accountant.stores import Store


@pytest.fixture(scope="module")
def service() -> Iterator[Live]:
    with live() as running:
        running.open("d")
        assert running.charge("d", "before").status_code == 201
        yield running


@pytest.fixture
def unchanged(service: Live) -> Iterator[None]:
    """Whatever the test sends: heads, totals, budgets, datasets and API keys stay as they were."""
    store: Store = service.app.state.accountant.store

    def snapshot() -> list[Any]:
        streams = store.streams("", 1000)
        return [(stream, store.load(stream, []), store.blobs(stream, "", "", 1000)) for stream in streams]

    before = snapshot()
    yield
    assert snapshot() == before


def refused(reply: httpx.Response, status: int, *fields: str) -> dict[str, Any]:
    """The problem, checked: of that status, and naming a field that ends with one of `fields`."""
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = reply.json()
    assert {"type", "title", "status", "detail"} <= set(problem)
    if fields:
        named = [error["field"] for error in problem["errors"]]
        assert any(name.endswith(fields) for name in named), named
        assert all(error["message"] for error in problem["errors"])
        assert problem["detail"].startswith(named[0])
    return problem


def post(service: Live, path: str, body: str | bytes) -> httpx.Response:
    content = body.encode() if isinstance(body, str) else body
    return service.ask("POST", path, content=content, headers={"Idempotency-Key": "bad"})


CHARGES = "/v1/datasets/d/charges"
CHECKS = "/v1/datasets/d/checks"
BUDGETS = "/v1/datasets/d/budgets"


@pytest.mark.parametrize(
    ("path", "document", "message"),
    [
        (CHARGES, {"mechanism": {"kind": "gausian"}, "count": 1}, "did you mean gaussian?"),
        (CHECKS, ONE | {"cuont": 1}, "did you mean count?"),
        (BUDGETS, {"name": "b", "kind": "zcpd", "rho": 1.0}, "did you mean zcdp?"),
        ("/v1/dp-events", {"dp_event": {"class_name": "GausianDpEvent"}}, "did you mean GaussianDpEvent?"),
    ],
)
def test_a_name_that_does_not_exist_comes_with_the_nearest(
    service: Live, unchanged: None, path: str, document: dict[str, Any], message: str
) -> None:
    assert message in refused(post(service, path, json.dumps(document)), 422, "")["detail"]


# Each JSON text stands where a number should be. True where it is not even JSON.
NOT_NUMBERS = {
    "NaN": True,
    "Infinity": True,
    "-Infinity": True,
    "nan": True,
    "0x10": True,
    "01": True,
    "1.": True,
    "+1": True,
    "1_000": True,
    ",": True,
    "1" * 5000: True,  # Python reads no whole number of so many digits
    "-0.0": False,
    "1e308": False,
    "1e999": False,
    "-1e999": False,
    "-1": False,
    "1" + "0" * 400: False,
    '"1"': False,
    '"NaN"': False,
    "true": False,
    "false": False,
    "[]": False,
    "[1]": False,
    "{}": False,
}
NUMBERS = [
    (CHARGES, '{"mechanism":{"kind":"gaussian","noise_multiplier":%s},"count":1}', "noise_multiplier"),
    (CHARGES, '{"mechanism":{"kind":"pure","epsilon":%s},"count":1}', "epsilon"),
    (CHARGES, '{"mechanism":{"kind":"zcdp","rho":%s},"count":1}', "rho"),
    (CHARGES, '{"charges":[{"mechanism":{"kind":"gdp","mu":%s},"count":1}]}', "mu"),
    (CHARGES, '{"mechanism":{"kind":"approximate","epsilon":1,"delta":%s},"count":1}', "delta"),
    (
        CHARGES,
        '{"mechanism":{"kind":"laplace","scale_over_sensitivity":%s},"count":1}',
        "scale_over_sensitivity",
    ),
    (
        CHARGES,
        """{"mechanism":{"kind":"poisson_subsampled","base":{"kind":"gaussian","noise_multiplier":1},
            "sampling_rate":%s},"count":1}""",
        "sampling_rate",
    ),
    (CHARGES, '{"mechanism":{"kind":"renyi_curve","orders":[2],"epsilons":[%s]},"count":1}', "epsilons.0"),
    (CHECKS, '{"mechanism":{"kind":"gaussian","noise_multiplier":%s},"count":1}', "noise_multiplier"),
    (BUDGETS, '{"name":"b","kind":"pure","epsilon":%s}', "epsilon"),
    (BUDGETS, '{"name":"b","kind":"approximate","epsilon":1,"delta":%s}', "delta"),
    (BUDGETS, '{"name":"b","kind":"renyi","order":%s,"epsilon":1}', "order"),
    (
        "/v1/datasets",
        '{"name":"n","unit":"person","adjacency":"add_remove","delta":%s,"odometer_only":true}',
        "delta",
    ),
    ("/v1/convert", '{"mechanism":{"kind":"gaussian","noise_multiplier":1},"count":1,"delta":%s}', "delta"),
]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("text", NOT_NUMBERS, ids=lambda text: text[:12])
@pytest.mark.parametrize(("path", "template", "name"), NUMBERS, ids=lambda part: part[-30:].strip('%s{}",'))
def test_what_is_no_number_in_range(service: Live, path: str, template: str, name: str, text: str) -> None:
    reply = post(service, path, template % text)
    if NOT_NUMBERS[text]:
        assert refused(reply, 400)["type"] == "/problems/malformed-body"
    else:
        refused(reply, 422, name)


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("text", ["1e-400", "0.1000000000000000000000001", "0.10000000000000001"])
@pytest.mark.parametrize(("path", "template", "name"), NUMBERS, ids=lambda part: part[-30:].strip('%s{}",'))
def test_what_a_float_cannot_hold(service: Live, path: str, template: str, name: str, text: str) -> None:
    """A number that would be read as another one is refused: the field is named, and nothing is charged."""
    refused(post(service, path, template % text), 422, name)


@pytest.mark.usefixtures("unchanged")
def test_a_query_that_a_float_cannot_hold(service: Live) -> None:
    for text in ("1e-400", "0.10000000000000001"):
        refused(service.ask("GET", f"/v1/datasets/d/odometer?delta={text}"), 422, "delta")


@pytest.mark.usefixtures("unchanged")
def test_a_query_that_says_a_thing_twice(service: Live) -> None:
    """One of the two would not count: neither is taken."""
    refused(service.ask("GET", "/v1/datasets/d/odometer?delta=1e-6&delta=1e-7"), 422, "delta")
    assert service.ask("GET", "/v1/datasets/nowhere/odometer?delta=1&delta=1").status_code == 404


@pytest.mark.usefixtures("unchanged")
def test_a_number_of_thousands_of_digits_is_told_in_words_of_the_service(service: Live) -> None:
    body = '{"mechanism": {"kind": "pure", "epsilon": 1}, "count": %s}' % ("1" * 5000)
    reply = post(service, "/v1/datasets/d/charges", body)
    assert reply.status_code == 400
    assert "5000 digits; at most 1000 are read" in reply.json()["detail"]


COUNTS = ["0", "-1", "1000000001", "1e15", "1" + "0" * 15, str(2**63), "1" + "0" * 400]
COUNTS += ["1.5", "1.0", "1e0", '"1"', "true", "null", "[1]", "-0", "-0.0", "1e999"]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("count", COUNTS, ids=lambda text: text[:16])
def test_a_count_that_is_none(service: Live, count: str) -> None:
    mechanism = '{"kind":"gaussian","noise_multiplier":1}'
    refused(post(service, CHARGES, f'{{"mechanism":{mechanism},"count":{count}}}'), 422, "count")
    refused(
        post(service, CHECKS, f'{{"charges":[{{"mechanism":{mechanism},"count":{count}}}]}}'),
        422,
        "charges.0.count",
    )


def with_mechanism(**mechanism: Any) -> dict[str, Any]:
    return {"mechanism": mechanism, "count": 1}


GAUSSIAN = {"kind": "gaussian", "noise_multiplier": 1.0}
CHARGE_FAULTS: list[tuple[Any, str]] = [
    ({}, "mechanism"),
    ({"count": 1}, "mechanism"),
    ({"mechanism": GAUSSIAN}, "count"),
    ({"mechanism": None, "count": 1}, "mechanism"),
    ({"mechanism": "gaussian", "count": 1}, "mechanism"),
    ({"mechanism": [], "count": 1}, "mechanism"),
    ({**ONE, "charges": [ONE]}, "mechanism"),
    ({**ONE, "adjacency": "both"}, "adjacency"),
    ({**ONE, "Count": 1}, "Count"),
    ({"charges": []}, "charges"),
    ({"charges": {}}, "charges"),
    ({"charges": None}, "charges"),
    ({"charges": [ONE] * 257}, "charges"),
    ({"charges": [[ONE]]}, "charges.0"),
    ({"charges": [ONE, {**ONE, "adjacency": "add_remove"}]}, "charges.1.adjacency"),
    (with_mechanism(), "mechanism"),
    (with_mechanism(kind="unheard_of"), "mechanism"),
    (with_mechanism(kind=["gaussian"]), "mechanism"),
    (with_mechanism(kind="GAUSSIAN", noise_multiplier=1), "mechanism"),
    (with_mechanism(kind="gaussian"), "noise_multiplier"),
    (with_mechanism(kind="gaussian", noise_multiplier=None), "noise_multiplier"),
    (with_mechanism(kind="pure", epsilon=None), "epsilon"),
    (with_mechanism(kind="gaussian", sigma=1), "sigma"),
    (with_mechanism(**GAUSSIAN, extra=1), "extra"),
    (with_mechanism(kind="gaussian", noise_multiplier=0.001), "noise_multiplier"),
    (with_mechanism(kind="gaussian", noise_multiplier=5e-324), "noise_multiplier"),
    (with_mechanism(kind="poisson_subsampled", base=GAUSSIAN), "sampling_rate"),
    (with_mechanism(kind="poisson_subsampled", base=GAUSSIAN, sampling_rate=1.0000001), "sampling_rate"),
    (with_mechanism(kind="poisson_subsampled", sampling_rate=0.1), "base"),
    (
        with_mechanism(kind="poisson_subsampled", base={"kind": "laplace", "epsilon": -1}, sampling_rate=0.1),
        "base.epsilon",
    ),
    (with_mechanism(kind="non_private", what="in red: \u009b31m"), "what"),
    (with_mechanism(kind="non_private", what="turned \u202e"), "what"),
    (with_mechanism(kind="approximate", epsilon=1, delta=1), "delta"),
    (with_mechanism(kind="approximate", epsilon=1, delta=-1e-9), "delta"),
    (with_mechanism(kind="randomized_response", k=1, epsilon=1), "k"),
    (with_mechanism(kind="randomized_response", k=2.5, epsilon=1), "k"),
    (with_mechanism(kind="randomized_response", k=2**63, epsilon=1), "k"),
    (with_mechanism(kind="randomized_response", k=2, probability_of_truth=1.5), "probability_of_truth"),
    (with_mechanism(kind="renyi_curve", orders=[], epsilons=[]), "orders"),
    (with_mechanism(kind="renyi_curve", orders=[1], epsilons=[1]), "orders.0"),
    (with_mechanism(kind="renyi_curve", orders=["2"], epsilons=[1]), "orders.0"),
]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(("body", "name"), CHARGE_FAULTS, ids=lambda part: json.dumps(part)[:60])
def test_a_charge_that_is_none(service: Live, body: Any, name: str) -> None:
    for path in (CHARGES, CHECKS):
        refused(post(service, path, json.dumps(body)), 422, name)


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    "mechanism",
    [
        {"kind": "laplace"},
        {"kind": "laplace", "epsilon": 1, "scale_over_sensitivity": 1},
        {"kind": "randomized_response", "k": 2},
        {"kind": "randomized_response", "k": 2, "epsilon": 1, "probability_of_truth": 0.9},
        {"kind": "renyi_curve", "orders": [2, 3], "epsilons": [1]},
        {"kind": "renyi_curve", "orders": [3, 2], "epsilons": [1, 2]},
        {"kind": "renyi_curve", "orders": [2, 2], "epsilons": [1, 2]},
        {"kind": "renyi_curve", "orders": [2, 3], "epsilons": [2, 1]},
    ],
    ids=json.dumps,
)
def test_parameters_that_contradict_each_other(service: Live, mechanism: dict[str, Any]) -> None:
    problem = refused(
        post(service, CHARGES, json.dumps({"mechanism": mechanism, "count": 1})), 422, "mechanism"
    )
    assert any(word in problem["detail"] for word in (*mechanism, "epsilon")), problem["detail"]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("adjacency", ["replace_one", "zero_out"])
def test_another_adjacency_than_the_dataset(service: Live, adjacency: str) -> None:
    problem = refused(post(service, CHARGES, json.dumps({**ONE, "adjacency": adjacency})), 422)
    assert problem["type"] == "/problems/not-valid-under-adjacency"
    assert problem["adjacency"] == "add_remove"


# Bodies that are not one JSON document

NOT_JSON = {
    "nothing": b"",
    "blank": b" \n",
    "cut off": b'{"mechanism": {"kind": "gau',
    "two documents": b"{} {}",
    "not UTF-8": b'{"mechanism": "\xff"}',
    "UTF-16": json.dumps(ONE).encode("utf-16"),
    "with a byte order mark": b"\xef\xbb\xbf" + json.dumps(ONE).encode(),
    "a key twice": b'{"count": 1, "mechanism": {"kind": "gaussian", "noise_multiplier": 1}, "count": 2}',
    "a deep key twice": b'{"count": 1, "mechanism": {"kind": "pure", "epsilon": 1, "kind": "pure"}}',
    "deep lists": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 40 + b"1" + b"}" * 40,
    "deep and cut off": b"[" * 200_000,
    "a form": b"mechanism=gaussian&count=1",
    "XML": b"<mechanism/>",
    "gzip": bytes.fromhex("1f8b0800000000000003ab5602004306a3f802000000"),
    "a control character in a text": b'{"a": "\x01"}',
    "single quotes": b"{'count': 1}",
    "a comment": b'{"count": 1} // one',
}


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("path", [CHARGES, CHECKS, BUDGETS, "/v1/datasets", "/v1/convert", "/v1/keys"])
@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON)
def test_a_body_that_is_not_json(service: Live, path: str, body: bytes) -> None:
    assert refused(post(service, path, body), 400)["type"] == "/problems/malformed-body"


@pytest.mark.usefixtures("unchanged")
def test_a_key_that_stands_twice_is_named(service: Live) -> None:
    assert "'count'" in refused(post(service, CHARGES, NOT_JSON["a key twice"]), 400)["detail"]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("text", ["null", "[]", '"a"', "1", "true", "[{}]"])
@pytest.mark.parametrize("path", [CHARGES, CHECKS, BUDGETS, "/v1/datasets", "/v1/convert", "/v1/keys"])
def test_a_body_that_is_no_object(service: Live, path: str, text: str) -> None:
    refused(post(service, path, text), 422, "")


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    "form",
    [{"data": {"count": "1"}}, {"files": {"charge": b"{}"}}],
    ids=["urlencoded", "multipart"],
)
def test_a_form_is_not_taken(service: Live, form: dict[str, Any]) -> None:
    refused(service.ask("POST", CHARGES, headers={"Idempotency-Key": "form"}, **form), 400)


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("path", [CHARGES, CHECKS, BUDGETS, "/v1/datasets", "/v1/convert", "/v1/keys"])
@pytest.mark.parametrize("sized", [True, False], ids=["with its length", "in chunks"])
def test_a_large_body_is_refused_before_all_of_it_was_sent(service: Live, path: str, sized: bool) -> None:
    """The reply comes while most of 1 GB is still to be sent."""
    size = 10**9
    host = urlsplit(service.url)
    with socket.create_connection((host.hostname or "", host.port or 0), timeout=30) as connection:
        length = f"Content-Length: {size}" if sized else "Transfer-Encoding: chunked"
        connection.sendall(
            f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.admin}\r\n"
            f"Idempotency-Key: large\r\n{length}\r\n\r\n".encode()
        )
        piece = b" " * 65536
        for _ in range(5):
            connection.sendall(piece if sized else b"10000\r\n" + piece + b"\r\n")
        assert connection.recv(12) == b"HTTP/1.1 413"


# Names


NAMES = [
    "",
    "A",
    "a b",
    "a/b",
    "../a",
    ".",
    "..",
    "a.b",
    "%2e",
    "a\n",
    "a\x00",
    "\u202ea",
    "é",
    "ａ",
    "-a",
    "_a",
]
NAMES += ["a" * 65, "a\u0301", "~keys", " a", "a ", "a'b", 'a"b', "a;--", "🦆"]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_name_that_is_no_slug(service: Live, name: str) -> None:
    refused(service.ask("POST", "/v1/datasets", json=dataset_document(name)), 422, "name")
    budget = {"name": name, "kind": "pure", "epsilon": 1}
    refused(service.ask("POST", BUDGETS, json=budget), 422, "name")


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("name", [1, None, True, ["a"], {"a": 1}], ids=repr)
def test_a_name_that_is_no_text(service: Live, name: Any) -> None:
    refused(service.ask("POST", "/v1/datasets", json={**dataset_document("x"), "name": name}), 422, "name")


PATHS = [
    "%2e%2e",
    "%2e",
    "A",
    "a%20b",
    "%00",
    "%0a",
    "%c3%a9",
    "%ff",
    "a" * 65,
    "~keys",
    "d%0a",
    "D",
    "%64%00",
]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("tail", ["", "/odometer", "/ledger", "/charges", "/checks", "/closure", "/budgets"])
def test_a_path_to_no_dataset(service: Live, name: str, tail: str) -> None:
    method, body = (
        ("POST", {"content": b"{}"}) if tail in ("/charges", "/checks", "/closure") else ("GET", {})
    )
    headers = {"Idempotency-Key": "path"}
    reply = service.ask(method, f"/v1/datasets/{name}{tail}", headers=headers, **body)
    assert refused(reply, 404)["type"] == "/problems/unknown-dataset"


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("unit", ["", "a" * 65, "a\nb", "\x00", "\x7f", 1, None, ["person"]], ids=ascii)
def test_a_unit_that_is_none(service: Live, unit: Any) -> None:
    refused(service.ask("POST", "/v1/datasets", json={**dataset_document("x"), "unit": unit}), 422, "unit")


DATASET_FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"adjacency": "neighbours"}, "adjacency"),
    ({"adjacency": None}, "adjacency"),
    ({"delta": 0}, "delta"),
    ({"delta": 5e-324}, "delta"),
    ({"unit": "per\u009b31mson"}, "unit"),
    ({"unit": "per\u202eson"}, "unit"),
    ({"delta": 1}, "delta"),
    ({"delta": 1.5}, "delta"),
    ({"delta_add": 1}, "delta_add"),
    ({"delta_add": -1e-9}, "delta_add"),
    ({"delta_add": 1.1e-6}, "body"),
    ({"budgets": []}, "body"),
    ({"odometer_only": True}, "body"),
    ({"odometer_only": "yes"}, "odometer_only"),
    ({"odometer_only": 1}, "odometer_only"),
    ({"budgets": dataset_document("x")["budgets"] * 2}, "body"),
    ({"budgets": [{"name": f"b{n}", "kind": "zcdp", "rho": 1} for n in range(33)]}, "budgets"),
    ({"budgets": [{"name": "b", "kind": "made_up", "rho": 1}]}, "budgets.0"),
    ({"budgets": [{"name": "b", "kind": "pure", "rho": 1}]}, "rho"),
    ({"budgets": [{"name": "b", "kind": "zcdp", "rho": -1}]}, "rho"),
    ({"budgets": [{"name": "b", "kind": "renyi", "order": 1, "epsilon": 1}]}, "order"),
    ({"budgets": [{"name": "b", "kind": "renyi", "order": 8193, "epsilon": 1}]}, "order"),
    ({"budgets": [{"name": "b", "kind": "approximate", "epsilon": 0, "delta": 1e-6}]}, "epsilon"),
    ({"budgets": [{"name": "b", "kind": "approximate", "epsilon": 1, "delta": 1}]}, "delta"),
    ({"budgets": [{"name": "b", "kind": "approximate", "epsilon": 1, "delta": 0}]}, "delta"),
    ({"workload": []}, "workload"),
    ({"workload": [{"mechanism": GAUSSIAN, "count": 0}]}, "workload.0.count"),
]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(("change", "name"), DATASET_FAULTS, ids=lambda part: json.dumps(part)[:60])
def test_a_dataset_that_is_none(service: Live, change: dict[str, Any], name: str) -> None:
    refused(service.ask("POST", "/v1/datasets", json={**dataset_document("x"), **change}), 422, name)


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("name", ["name", "unit", "adjacency", "delta"])
def test_what_a_dataset_never_defaults(service: Live, name: str) -> None:
    document = dataset_document("x")
    del document[name]
    refused(service.ask("POST", "/v1/datasets", json=document), 422, name)


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("role", ["root", "", None, 1, ["admin"], "Admin"], ids=repr)
def test_a_role_that_is_none(service: Live, role: Any) -> None:
    refused(service.ask("POST", "/v1/keys", json={"role": role}), 422, "role")


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("name", ["k_0", "%2e%2e", "%00", "a" * 4000])
def test_a_key_that_is_not_there(service: Live, name: str) -> None:
    assert refused(service.ask("DELETE", f"/v1/keys/{name}"), 404)["type"] == "/problems/unknown-key"


# Headers and queries


BAD_KEYS = [b"", b"a b", b"a" * 129, "é".encode(), b"\xff", b"a\tb"]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("key", [None, *BAD_KEYS], ids=repr)
def test_an_idempotency_key_that_is_none(service: Live, key: bytes | None) -> None:
    headers: dict[Any, Any] = {} if key is None else {b"Idempotency-Key": key}
    problem = refused(service.ask("POST", CHARGES, content=json.dumps(ONE), headers=headers), 400)
    assert problem["type"] == "/problems/idempotency-key-required"
    assert "Idempotency-Key" in problem["detail"]


@pytest.mark.usefixtures("unchanged")
def test_two_idempotency_keys_are_none(service: Live) -> None:
    """A proxy that repeats the header: which one the client retries with is anyone's guess."""
    headers = [
        ("Authorization", f"Bearer {service.admin}"),
        ("Idempotency-Key", "a"),
        ("Idempotency-Key", "b"),
    ]
    reply = service.http.post(service.url + CHARGES, content=json.dumps(ONE), headers=headers)
    assert refused(reply, 400)["type"] == "/problems/idempotency-key-required"


QUERIES = [
    (
        "/v1/datasets/d/odometer?delta={}",
        "delta",
        ["0", "1", "5e-324", "-0.1", "nan", "inf", "1e999", "x", "", "true"],
    ),
    ("/v1/datasets/d/ledger?limit={}", "limit", ["0", "1001", "-1", "x", "1.5", "", str(2**63), "9" * 400]),
    ("/v1/datasets/d/ledger?after={}", "after", ["-1", "x", "1.5", str(2**63), "9" * 400]),
    ("/v1/datasets/d/ledger?order=desc&before={}", "before", ["0", "-1", "x", str(2**63)]),
    ("/v1/datasets/d/ledger?order={}", "order", ["up", "", "DESC"]),
    ("/v1/datasets/d/history?points={}", "points", ["0", "1", "1001", "x"]),
    ("/v1/datasets?limit={}", "limit", ["0", "101", "x"]),
    ("/v1/datasets?after={}", "after", ["a" * 65]),
]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    ("path", "name", "value"),
    [(path, name, value) for path, name, values in QUERIES for value in values],
    ids=lambda part: part[:20],
)
def test_a_query_that_is_none(service: Live, path: str, name: str, value: str) -> None:
    refused(service.ask("GET", path.format(value)), 422, name)


@pytest.mark.usefixtures("unchanged")
def test_a_list_with_one_wrong_item_charges_nothing(service: Live) -> None:
    items = [ONE] * 255 + [{"mechanism": GAUSSIAN, "count": 0}]
    refused(post(service, CHARGES, json.dumps({"charges": items})), 422, "charges.255.count")


@pytest.mark.usefixtures("unchanged")
def test_many_faults_are_listed_with_a_bound(service: Live) -> None:
    problem = refused(post(service, CHARGES, json.dumps({"charges": [{}] * 256})), 422, "charges.0.mechanism")
    assert len(problem["errors"]) == 20
    assert "and 511 more" in problem["detail"]


def test_what_stands_at_the_edge_is_taken(service: Live) -> None:
    """So that the tests above refuse for the reason they say."""
    service.open("edge", rho=1e6)
    edge = [
        {"mechanism": {"kind": "gaussian", "noise_multiplier": 1e9}, "count": 1_000_000_000},
        {"mechanism": {"kind": "approximate", "epsilon": 0, "delta": 0}, "count": 1},
        {"mechanism": {"kind": "poisson_subsampled", "base": GAUSSIAN, "sampling_rate": 1}, "count": 1},
        {"mechanism": {"kind": "poisson_subsampled", "base": GAUSSIAN, "sampling_rate": 0}, "count": 1},
    ]
    reply = service.charge("edge", "~" * 128, {"charges": edge + [ONE] * 252})
    assert reply.status_code == 201, reply.text
    assert service.open("a" * 64)["name"] == "a" * 64


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"partitions": 7}, "partitions"),
        ({"partitions": ["a b"]}, "partitions.0"),
        ({"mechanism": {"kind": "zcdp", "rho": "1"}}, "mechanism.rho"),
        ({"mechanism": {"kind": "zcdp"}}, "mechanism.rho"),
        ({"group": {"name": "g", "runs": 0}}, "group.runs"),
    ],
)
def test_a_field_is_named_as_the_body_names_it(service: Live, body: dict[str, Any], field: str) -> None:
    """Without what the service calls the possibilities that the field has."""
    problem = refused(post(service, CHARGES, json.dumps({**ONE, **body})), 422)
    found = {error["field"] for error in problem["errors"]}
    assert field in found
    assert found <= {field, field.rpartition(".")[0]}  # the list itself may also be called wrong


def test_what_was_used_is_named_as_the_body_names_it(service: Live) -> None:
    held = service.ask(
        "POST", "/v1/datasets/d/holds", json={**ONE, "expires_in_s": 60}, headers={"Idempotency-Key": "h"}
    ).json()
    path = f"/v1/datasets/d/holds/{held['hold']['id']}/settlement"
    for used, field in (("1", "used"), ([True], "used.0"), (None, "used")):
        problem = refused(service.ask("POST", path, "admin", json={"used": used}), 422)
        assert field in {error["field"] for error in problem["errors"]}
        assert {error["field"].split(".")[0] for error in problem["errors"]} == {"used"}
        assert all("[" not in error["field"] and "-" not in error["field"] for error in problem["errors"])


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        (CHARGES, with_mechanism(kind="grouped", base="gaussian", group_size=2), "must be an object"),
        (
            CHARGES,
            with_mechanism(kind="tuned", base=GAUSSIAN, repeats={"distribution": "uniform"}),
            "must be 'geometric', 'negative_binomial', 'logarithmic' or 'poisson'",
        ),
        (CHARGES, {"charges": {}}, "must be a list"),
        ("/v1/datasets/d/derived", {"parent": 2, "description": ""}, "needs at least 1 character(s)"),
        ("/v1/datasets/d/derived", {"parent": 2, "description": "a\nb"}, "must be one line"),
    ],
)
def test_faults_are_said_in_words_of_the_service(service: Live, path: str, body: Any, said: str) -> None:
    """Neither the words of the library that reads JSON nor its regular expressions reach a person."""
    assert said in refused(post(service, path, json.dumps(body)), 422)["detail"]


@pytest.mark.usefixtures("unchanged")
def test_an_empty_body_is_said_to_be_empty(service: Live) -> None:
    assert "the body is empty" in refused(post(service, CHARGES, ""), 400)["detail"]
