"""Readiness tries what a charge needs, and the log has the cause of every kind of 503, once a minute."""

import contextlib
import logging
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import redis
from faulty import FaultyStore, before
from redis_server import server as redis_server
from serving import ONE, Live, live

from odometer_accountant.errors import InternalError, LedgerCorrupt, StoreUnavailable, UnknownDataset
from privacy_odometer import readiness, refusal_log
from privacy_odometer.refusal_log import UnsureLog

MIB = 1024 * 1024


@contextlib.contextmanager
def served(store: str, log: Path) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """The real command on a store, as a process of its own, and a client with its admin key."""
    odometer = Path(sys.executable).parent / "odometer"
    command = [str(odometer), "serve", "--port", "0", "--store", store]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
    try:
        token, url = "", ""
        assert process.stdout is not None
        for line in process.stdout:
            token = line.split()[-1] if "po_" in line else token
            if "serving on" in line:
                url = line.split()[-1]
                break
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
            yield process, client
    finally:
        process.send_signal(signal.SIGTERM)
        log.write_text(process.communicate(timeout=30)[1])


def opened(client: httpx.Client) -> None:
    document = {"name": "d", "unit": "p", "adjacency": "add_remove", "delta": 1e-6, "odometer_only": True}
    assert client.post("/v1/datasets", json=document).status_code == 201


def charged(client: httpx.Client, key: str) -> int:
    return client.post("/v1/datasets/d/charges", json=ONE, headers={"Idempotency-Key": key}).status_code


def becomes(client: httpx.Client, status: int) -> httpx.Response:
    """Ask for readiness until it has a status."""
    deadline = time.monotonic() + 30
    while (reply := client.get("/readyz")).status_code != status:
        assert time.monotonic() < deadline, reply.text
        time.sleep(0.05)
    return reply


def warned(log: Path) -> list[str]:
    """The causes of 503 that were logged, without their times."""
    lines = re.findall(r"WARNING odometer.api (503 .*)", log.read_text())
    return [str(line) for line in lines]


def test_a_disk_without_room_is_not_ready(tmp_path: Path) -> None:
    """Charges are 503 and so is readiness; the log says why, in two lines and not in thirty."""
    log, path = tmp_path / "log", tmp_path / "ledger.sqlite"
    with served(f"sqlite:///{path}", log) as (process, client):
        opened(client)
        assert charged(client, "first") == 201
        becomes(client, 200)
        # From now on no file of the process may be written beyond its first byte: as on a full disk.
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        told = [charged(client, f"k{number}") for number in range(10)]
        assert told == [503] * 10
        reply = becomes(client, 503)
        assert reply.json()["type"] == "/problems/store-unavailable"
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        becomes(client, 200)
        assert charged(client, "last") == 201
    assert 1 <= len(warned(log)) <= 4, warned(log)
    assert any("disk" in line for line in warned(log)), warned(log)


def test_a_file_that_is_gone_is_not_ready(tmp_path: Path) -> None:
    """SQLite would go on with it, and what it commits is lost."""
    log, path = tmp_path / "log", tmp_path / "ledger.sqlite"
    with served(f"sqlite:///{path}", log) as (_, client):
        opened(client)
        becomes(client, 200)
        path.unlink()
        assert charged(client, "k") == 503
        becomes(client, 503)
    assert warned(log)


def test_a_redis_without_memory_is_not_ready(tmp_path: Path) -> None:
    """Reads are answered as ever: only a write finds it."""
    log = tmp_path / "log"
    with redis_server(tmp_path / "redis") as server, served(server.url, log) as (_, client):
        opened(client)
        becomes(client, 200)
        with redis.Redis.from_url(server.url) as asked:
            asked.config_set("maxmemory", 1)
            assert charged(client, "k") == 503
            becomes(client, 503)
            asked.config_set("maxmemory", 0)
        becomes(client, 200)
        assert charged(client, "k") == 201
    assert any("memory" in line.lower() for line in warned(log)), warned(log)


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore()


@pytest.fixture
def service(store: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    monkeypatch.setattr(readiness, "KEPT_S", 30.0)
    with live(store) as running:  # type: ignore[arg-type]
        yield running
        store.heal()


def test_asking_often_writes_once(service: Live, store: FaultyStore) -> None:
    """However many ask at a time, one finding is the answer to all."""
    wrote: list[int] = []

    def counted(verb: object, *arguments: object) -> object:
        wrote.append(1)
        return verb(*arguments)  # type: ignore[operator]

    store.fail(counted, "put_note")
    threads = [threading.Thread(target=httpx.get, args=(f"{service.url}/readyz",)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrote) == 1


def test_a_store_that_can_be_read_and_not_written_is_not_ready(service: Live, store: FaultyStore) -> None:
    """The fault of the write is the answer."""
    store.fail(before, "put_note", "append")
    reply = service.ask("GET", "/readyz", None)
    assert (reply.status_code, reply.json()["detail"]) == (503, "the store is away")


def test_each_kind_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What differs from one request to the next makes no other kind; how many came is said the next time."""
    said = UnsureLog()
    with caplog.at_level(logging.INFO, "odometer.api"):
        for number in range(50):
            said.tell(StoreUnavailable(f"Could not write d{number}: disk full"))
            said.tell(LedgerCorrupt(f"entry {number} of 'x{number}' is gone"))
            said.tell(InternalError("a fault"))
            said.tell(UnknownDataset("not of the service"))
        assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
        monkeypatch.setattr(refusal_log, "EVERY_S", 0.0)
        said.tell(StoreUnavailable("Could not write d1: disk full"))
    assert "(49 more since this was last logged)" in caplog.messages[-1]


def test_the_cause_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """Also where the answer itself does not name it."""
    try:
        try:
            raise OSError("no space left")
        except OSError as error:
            raise StoreUnavailable("the append failed") from error
    except StoreUnavailable as error:
        UnsureLog().tell(error)
    assert "OSError: no space left" in caplog.text


def test_kinds_without_end_are_one_kind_in_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """Neither the log nor the memory grows with them."""
    said = UnsureLog()
    for number in range(1000):
        said.tell(StoreUnavailable("fault " + "ab"[number % 2] * (number // 2)))
    assert len(caplog.records) <= 102
    assert len(said._said) <= 102
