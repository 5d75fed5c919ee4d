"""Writes the golden files beside this one: everything that others read of the service, without its prose.

`python -m tests.golden.wire.drive` writes them on the version checked out. They change only on purpose:
others rely on each path, field, problem code, exit status, metric, setting, option, table and key.
"""

import contextlib
import io
import itertools
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import redis_server
import typer.main
from serving import ONE, Live, live

from odometer_accountant.errors import registry
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores import Store, open_store
from odometer_accountant.stores.memory import MemoryStore
from odometer_accountant.transfer.export import export
from privacy_odometer.cli import app
from privacy_odometer.cli import errors as cli_errors
from privacy_odometer.settings import Settings
from tests.golden.ledger.drive import Clock, dump, run
from tests.golden.wire import stored
from tests.golden.wire.stored import line, short
from tests.laws import test_every_operation as operations

HERE = Path(__file__).parent
PROSE = ("title", "detail", "description", "summary")
HEADERS = ("content-type", "cache-control", "etag", "location", "retry-after", "www-authenticate", "allow")
CREATED = "2026-03-03T00:00:00.000000Z"
MASKS = (
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "<time>"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "<hash>"),
    (re.compile(r"\bpo_[\w-]{20,}"), "<token>"),
    (re.compile(r"\b([pkn])_[0-9a-f]{8,}"), r"<\1>"),
    (re.compile(r"^(\d+)\.[0-9a-f]{8}$"), r"\1.<id>"),
    (re.compile(r"^(?=.{30})\S+ .* \S+$", re.DOTALL), "<prose>"),
)


def normal(value: Any) -> Any:
    """Without what differs between two runs: times, hashes, random ids; floats to nine digits."""
    if isinstance(value, dict):
        return {name: normal(one) for name, one in sorted(value.items())}
    if isinstance(value, list):
        return [normal(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, str):
        for pattern, mask in MASKS:
            value = pattern.sub(mask, value)
    return value


def answers() -> Iterator[str]:
    """Each operation's example with its answer."""
    with mock.patch.object(operations, "_number", itertools.count(1)), live() as service:
        for name, operation in operations.OPERATIONS.items():
            method, path = operations.ROUTES[name]
            reply = operations.send(service, operation)
            headers = {name: reply.headers[name] for name in HEADERS if name in reply.headers}
            body = reply.json() if reply.content else None
            if path == "/v1/mechanisms":
                body = sorted(item["kind"] for item in body["items"])
            yield line(method, path, str(reply.status_code), normal(headers), normal(body))


def _refused(service: Live) -> Iterator[tuple[str, Any]]:
    ask, charge = service.ask, service.charge
    service.open("d", 1.0)
    day = {"name": "day", "kind": "zcdp", "rho": 0.5, "window": "day"}
    service.open("w", budgets=[{"name": "life", "kind": "zcdp", "rho": 9}, day])
    charge("d", "used")
    charge("w", "used")
    yield "no key", ask("GET", "/v1/datasets", None)
    yield "role", ask("POST", "/v1/datasets", "reader", json={})
    yield "no path", ask("GET", "/v1/nothing")
    yield "method", ask("PATCH", "/v1/datasets")
    yield "malformed", ask("POST", "/v1/datasets", content=b"{")
    yield "field", ask("POST", "/v1/datasets", json={"zzz": 1})
    yield "dataset", ask("GET", "/v1/datasets/none")
    yield "budget", ask("PUT", "/v1/datasets/d/budgets/none", json={"kind": "pure", "epsilon": 1})
    yield "exists", ask("POST", "/v1/datasets", json={**operations.dataset_document("d"), "name": "d"})
    yield "no idempotency key", ask("POST", "/v1/datasets/d/charges", json=ONE)
    yield "key reused", charge("d", "used", {**ONE, "count": 2})
    yield "over", charge("d", "more", {**ONE, "count": 2})
    yield "over a window", charge("w", "more")
    yield "adjacency", charge("d", "adjacency", {**ONE, "adjacency": "replace_one"})
    yield "no if-match", ask("PUT", "/v1/datasets/d/budgets/life", json={"kind": "zcdp", "rho": 2})
    yield (
        "edit conflict",
        ask(
            "PUT",
            "/v1/datasets/d/budgets/life",
            json={"kind": "zcdp", "rho": 2},
            headers={"If-Match": '"v9"'},
        ),
    )
    yield "hold", ask("POST", "/v1/datasets/d/holds/99/settlement", json={"used": 1})
    yield "session", ask("GET", "/v1/datasets/d/sessions/99")
    yield "not frozen", ask("POST", "/v1/datasets/d/unfreeze", json={"reason": "none"})
    yield "api key", ask("DELETE", "/v1/keys/k_0000000000000000")
    yield "principal", ask("GET", "/v1/principals/p_0000000000000000")
    yield "too large", ask("POST", "/v1/datasets", content=b" " * 2_000_000)
    yield "check over", ask("POST", "/v1/datasets/d/checks", json={**ONE, "count": 9})
    ask("POST", "/v1/datasets/d/closure", json={})
    yield "closed", charge("d", "closed")


def problems() -> Iterator[str]:
    """Every problem's code, status and whether a retry helps; then what real refusals hold."""
    for code, kind in sorted(registry().items()):
        yield line(code, str(kind.status), "retryable" if kind.retryable else "final")
    with live() as service:
        for name, reply in _refused(service):
            body = {key: one for key, one in reply.json().items() if key not in PROSE}
            headers = sorted(set(HEADERS) & set(reply.headers))
            yield line(f"{name}:", str(reply.status_code), headers, normal(_shape(body)))


def _shape(body: dict[str, Any]) -> dict[str, Any]:
    """A problem: its strings and numbers as they are, of what is deeper the names and types."""

    def deep(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: deep(one) for name, one in value.items()}
        if isinstance(value, list):
            return [deep(one) for one in value[:1]]
        return type(value).__name__

    plain = ("type", "status", "retryable")
    return {name: one if name in plain else deep(one) for name, one in body.items()}


def openapi() -> Iterator[str]:
    """The description without its prose: a line for each operation and each schema."""
    with live() as service:
        document = service.http.get(f"{service.url}/openapi.json").json()
    for path, methods in sorted(document.pop("paths").items()):
        for method, one in sorted(methods.items()):
            yield line("path", method.upper(), path, _bare(one))
    for kind, found in sorted(document.pop("components").items()):
        for name, one in sorted(found.items()):
            yield line(kind, name, _bare(one))
    document.pop("info")
    yield line("rest", _bare(document))


def _bare(value: Any, *, names: bool = False) -> Any:
    """Without descriptions, summaries, titles. Under `properties` and the like, keys are names and stay."""
    if isinstance(value, dict):
        kept = {
            key: one for key, one in value.items() if names or key not in PROSE or not isinstance(one, str)
        }
        inside = ("properties", "schemas", "$defs", "patternProperties", "responses", "example", "examples")
        return {key: _bare(one, names=key in inside and not names) for key, one in sorted(kept.items())}
    if isinstance(value, list):
        return [_bare(one) for one in value]
    return value


@contextlib.contextmanager
def _driven(store: Store) -> Iterator[list[str]]:
    """The golden ledger's calls on a store, which is open within the block; what each call says."""
    clock = Clock()
    with Accountant(store, clock) as accountant:
        yield list(run(accountant, clock, refused=True))


def ledger() -> Iterator[str]:
    """The calls of the golden ledger on this version: what each says, the entries, the blobs."""
    store = MemoryStore()
    with _driven(store) as calls:
        yield from (f"call {one}" for one in calls)
        yield from dump(store)


def exported() -> Iterator[str]:
    """The export of that ledger, line by line."""
    store, file = MemoryStore(), io.BytesIO()
    with _driven(store):
        export(store, file, CREATED)
    yield from (short(one) for one in file.getvalue().decode("latin-1").splitlines())


def sqlite() -> Iterator[str]:
    """The schema and every row of that ledger in SQLite."""
    with tempfile.TemporaryDirectory() as folder:
        with _driven(open_store(f"sqlite:///{folder}/ledger.sqlite")):
            pass
        yield from stored.schema(f"{folder}/ledger.sqlite")
        yield from stored.rows(f"{folder}/ledger.sqlite")


def in_redis() -> Iterator[str]:
    """Every key of that ledger in Redis, with its type and its value."""
    with tempfile.TemporaryDirectory() as folder, redis_server.server(Path(folder)) as server:
        with _driven(open_store(server.url)):
            pass
        yield from stored.keys(server.url)


def names() -> Iterator[str]:
    """Metrics with types and labels, settings with defaults, exit statuses, commands with options."""
    with live() as service:
        service.open("d")
        service.charge("d", "one")
        page = service.http.get(f"{service.url}/metrics").text
    types = sorted(one.removeprefix("# TYPE ") for one in page.splitlines() if one.startswith("# TYPE "))
    yield from (f"metric {one}" for one in types if " python_" not in f" {one}")
    samples = {re.sub(r'="[^"]*"', "", one.rpartition(" ")[0]) for one in page.splitlines() if one[:1] != "#"}
    yield from (f"sample {one}" for one in sorted(samples) if one.startswith("odometer"))
    for name, setting in sorted(Settings.model_fields.items()):
        yield line("setting", f"ODOMETER_{name.upper()}", repr(setting.default))
    for code, kind in sorted(registry().items()):
        yield line("exit", code, str(cli_errors.status(_problem(kind))))
    yield from _commands("odometer", typer.main.get_command(app))


def _problem(kind: Any) -> Any:
    from odometer_client.errors import BY_CODE, ProblemError

    body = {"type": f"/problems/{kind.code}", "title": "t", "status": kind.status, "detail": "d"}
    return BY_CODE.get(kind.code, ProblemError)({**body, "retryable": kind.retryable})


def _commands(name: str, command: Any) -> Iterator[str]:
    options = sorted("/".join(sorted([*one.opts, *one.secondary_opts])) for one in command.params)
    yield line("command", name, options)
    for below, one in sorted(getattr(command, "commands", {}).items()):
        yield from _commands(f"{name} {below}", one)


FILES = {
    "answers.txt": answers,
    "problems.txt": problems,
    "openapi.txt": openapi,
    "ledger.txt": ledger,
    "export.ndjson": exported,
    "sqlite.txt": sqlite,
    "redis.txt": in_redis,
    "names.txt": names,
}


def written(name: str) -> list[str]:
    """The lines of a golden file as this version makes them; "\\n" in none of them."""
    return [one.replace("\n", "\\n") for one in FILES[name]()]


def main() -> None:
    """Write all files."""
    for name in FILES:
        (HERE / name).write_text("\n".join(written(name)) + "\n", "utf-8")


if __name__ == "__main__":
    main()
