"""Golden lines of what the golden ledger's own calls do not write: ledgers taken over, keys, the witness.

`python -m tests.golden.wire.later` writes the files on the version checked out. They change only on purpose.
"""

import itertools
import json
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import redis_server
from places import sqlite_without_marks
from serving import ONE, Live, live

from odometer_accountant.ledger.commands import FreezeCommand
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores import Head, open_store
from odometer_accountant.stores.memory import MemoryStore
from odometer_accountant.writer.witness import FileWitness
from tests.golden.ledger import drive_keys
from tests.golden.ledger.drive import ADA, BOB, GAUSSIAN, Clock, dump
from tests.golden.ledger.opened import lines, restore
from tests.golden.wire import stored
from tests.golden.wire.drive import _shape, normal
from tests.golden.wire.stored import line
from tests.laws import test_every_operation as operations

HERE = Path(__file__).parent
OLD = "format_3.txt"
MONOTONE = {"mechanism": {"kind": "exponential", "epsilon": 0.5, "monotone": True}, "count": 1}
ANSWER = {"kind": "randomized_response", "epsilon": 0.5, "k": 2}


def adopted() -> Iterator[str]:
    """What this version adds to a ledger of format 3 that has no marks: `recounted`, `carried`, charges."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/ledger.sqlite"
        restore(OLD, open_store(url)).close()
        sqlite_without_marks(Path(folder, "ledger.sqlite"))
        clock = Clock("2026-03-02T09:00:00.000000Z")
        with Accountant(open_store(url), clock) as accountant:
            accountant.charge("plain", {"mechanism": GAUSSIAN, "count": 1}, "n1", ADA)
            accountant.settle("plain", accountant.holds("plain")["items"][0]["id"], {"used": 1}, ADA)
            session = accountant.sessions("plain")["items"][0]["id"]
            accountant.answer_session("plain", session, {"above": True}, "n2", ADA)
            accountant.close_session("plain", session, ADA)
            accountant.charge("counted", MONOTONE, "n3", BOB)
            accountant.hold("counted", {**MONOTONE, "expires_in_s": 3600}, "n4", BOB)
            accountant.charge("phones", {"mechanism": ANSWER, "count": 1, "units": ["phone-1"]}, "n5", ADA)
            tag = accountant.budgets("phones")["items"][0]["etag"]
            lower = {"name": "each", "kind": "pure", "epsilon": 3.5, "scope": "unit/*"}
            accountant.change_budget("phones", "each", lower, tag, "root")
            accountant.charge("phones", {"mechanism": ANSWER, "count": 1, "units": ["phone-1"]}, "n6", ADA)
            accountant._wait("strict", FreezeCommand(Head(99, "cd" * 32)))
        with closing(open_store(url)) as store:
            before = {one for one in lines(OLD) if not one.startswith("stream ")}
            yield from (one for one in dump(store) if one not in before)


def turns() -> Iterator[str]:
    """Names of the blobs that two writers leave; of the list of writers, the length of each name."""
    store, clock = MemoryStore(), Clock()
    with Accountant(store, clock) as one, Accountant(store, clock) as other:
        one.create_dataset(operations.dataset_document("d"), "root")
        for number in range(4):
            (one, other)[number % 2].charge("d", ONE, f"k{number}", ADA)
        for name, blob in store.blobs("d", "", "", 100):
            writers = [len(who) for who in blob.decode("ascii").split()] if name == "turn" else []
            yield line("blob", name, writers)


def key_rows() -> Iterator[str]:
    """The golden stream of keys, with its notes, in SQLite and in Redis."""
    with tempfile.TemporaryDirectory() as folder, redis_server.server(Path(folder, "redis")) as server:
        file = f"{folder}/ledger.sqlite"
        for url in (f"sqlite:///{file}", server.url):
            with mock.patch.object(drive_keys.Wall, "minute", 0), closing(open_store(url)) as store:
                drive_keys.run(store)
        yield from (f"sqlite {one}" for one in stored.rows(file))
        yield from (f"redis {one}" for one in stored.keys(server.url))


def witness() -> Iterator[str]:
    """The lines of the witness: their names and the types of what they say."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "elsewhere", "witness.jsonl")
        with live(f"sqlite:///{folder}/ledger.sqlite", witness=str(path)) as service:
            service.open("d")
            service.charge("d", "one")
        FileWitness(path, "file:/x").accept("d", "restored from a backup", "2026-03-03T00:00:00.000000Z")
        said = [json.loads(one) for one in path.read_text("ascii").splitlines()]
    yield from sorted({line([[name, type(value).__name__] for name, value in one.items()]) for one in said})


def _refused(service: Live) -> Iterator[tuple[str, Any]]:
    ask, charge = service.ask, service.charge
    path = "/v1/datasets/d"
    service.open("d", 50.0, composition="by_partition", partitions=["eu"])
    service.open("u", composition="by_unit", shards=2, unit="device", adjacency="replace_one", budgets=[
        {"name": "each", "kind": "pure", "epsilon": 9, "scope": "unit/*"}])  # fmt: skip
    yield "budget exists", ask("POST", f"{path}/budgets", json={"name": "life", "kind": "pure", "epsilon": 1})
    yield "partition exists", ask("POST", f"{path}/partitions", json={"partitions": ["eu"]})
    yield "no partition", charge("d", "none", ONE)
    yield "unknown partition", charge("d", "none", {**ONE, "partitions": ["us"]})
    units = [f"phone-{number}" for number in range(40)]
    yield "several shards", charge("u", "units", {"mechanism": ANSWER, "count": 1, "units": units})
    service.open("p")
    hold = operations._hold(service, "p", "admin")
    for name in ("", "hold settled"):
        used = {"used": 0 if name else 1}
        reply = ask("POST", f"/v1/datasets/p/holds/{hold}/settlement", json=used)
        if name:
            yield name, reply
    session = f"/v1/datasets/p/sessions/{operations._session(service, 'p', 'admin')}"
    ask("POST", f"{session}/close", json={})
    again = {"Idempotency-Key": "again"}
    yield "session closed", ask("POST", f"{session}/answers", json={"above": True}, headers=again)
    for name in ("", "name taken"):
        reply = ask("POST", "/v1/principals", json={"role": "reader", "name": "ann"})
        if name:
            yield name, reply
    key = service.make_key("reader")["id"]
    ask("DELETE", f"/v1/keys/{key}")
    yield "key ended", ask("POST", f"/v1/keys/{key}/rotation", json={"overlap_s": 60})
    many = {"charges": [{"mechanism": {"kind": "pure", "epsilon": 1}, "count": 1}] * 2000}
    yield "many items", charge("p", "many", many)
    yield "wrong types", ask("POST", "/v1/datasets", json={"name": 1, "budgets": [{"kind": "none"}]})
    page = service.http.get(f"{service.url}/metrics").text
    yield (
        "metrics",
        sorted(
            one.rpartition(" ")[0] for one in page.splitlines() if one.startswith("odometer_refusals_total{")
        ),
    )


def refusals() -> Iterator[str]:
    """Further refusals as the problems that they are; then how the metrics call all of these."""
    with mock.patch.object(operations, "_number", itertools.count(1)), live() as service:
        for name, reply in _refused(service):
            if isinstance(reply, list):
                yield from (f"{name}: {one}" for one in reply)
                continue
            body = {part: one for part, one in reply.json().items() if part not in ("title", "detail")}
            yield line(f"{name}:", str(reply.status_code), normal(_shape(body)))


FILES = {
    "adopted.txt": adopted,
    "turns.txt": turns,
    "keys.txt": key_rows,
    "witness.txt": witness,
    "refusals.txt": refusals,
}


def main() -> None:
    """Write all files."""
    for name, made in FILES.items():
        (HERE / name).write_text("\n".join(made()) + "\n", "utf-8")


if __name__ == "__main__":
    main()
