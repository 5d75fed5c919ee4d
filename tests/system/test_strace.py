"""Durability is seen: the system calls of the real server, between a request's arrival and its receipt."""

import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from raw import Connection
from serving import ONE, dataset_document

from odometer_client import testing
from odometer_client.keys import new_key

CALLERS, EACH = 8, 6
CALLS = "read,readv,recvfrom,recvmsg,write,writev,sendto,sendmsg,fdatasync,fsync"


@dataclass(frozen=True)
class Event:
    """Something in the trace, at a line: `arrived`, `synchronising`, `synchronised` or `replied`."""

    line: int
    what: str
    where: str


@pytest.fixture
def folder() -> Iterator[Path]:
    """Beside the sources, which lie on a disk; what is temporary may lie in memory."""
    with tempfile.TemporaryDirectory(prefix=".traced-", dir=Path(__file__).parent) as path:
        yield Path(path)


def traced(folder: Path, program: Sequence[str]) -> list[Event]:
    """The events of `CALLERS` connections that charge at once, `EACH` times, all admitted."""
    strace, trace = shutil.which("strace"), folder / "trace"
    assert strace, "strace is not here. On Debian: apt-get install strace"
    # -y: file descriptors with what they are.
    command = [strace, "-f", "-y", "-s", "64", "-o", str(trace), "-e", f"trace={CALLS}", *program]
    with testing.serve(f"sqlite:///{folder}/ledger.sqlite", command=command) as service:
        admin = service.admin_key or ""
        headers = {"Authorization": f"Bearer {admin}"}
        reply = httpx.post(f"{service.url}/v1/datasets", json=dataset_document("d"), headers=headers)
        assert reply.status_code == 201

        def run(_: int) -> list[int]:
            connection = Connection(service.url, admin)
            statuses = [connection.charge("d", new_key(), ONE).status for _ in range(EACH)]
            connection.close()
            return statuses

        with ThreadPoolExecutor(CALLERS) as pool:
            statuses = [status for some in pool.map(run, range(CALLERS)) for status in some]
        # Told to end, strace would leave the server behind. Each line starts with its number; strace follows.
        os.kill(int(trace.read_text(errors="replace").split(maxsplit=1)[0]), signal.SIGTERM)
        service.process.wait(30)
    assert statuses == [201] * CALLERS * EACH
    return list(events(trace.read_text(errors="replace").splitlines()))


def events(lines: Sequence[str]) -> Iterator[Event]:
    """What matters in a trace. A call may be cut in two lines, with other threads' calls between them."""
    begun: dict[str, str] = {}
    for number, line in enumerate(lines):
        thread, _, call = line.partition(" ")
        call = call.strip()
        if call.endswith("<unfinished ...>"):
            begun[thread] = call.removesuffix("<unfinished ...>")
            if re.match(r"(fdatasync|fsync)\(\d+<[^>]*-wal>", call):
                yield Event(number, "synchronising", thread)
            elif reply := re.match(r'(?:write|send)\w*\((\d+)<\S*>.*"HTTP/1.1 201', call):
                yield Event(number, "replied", reply[1])  # may be on its way from here on
            continue
        if resumed := re.match(r"<\.\.\. \w+ resumed>(.*)", call):
            whole, cut = begun.pop(thread, "") + resumed[1], True
        else:
            whole, cut = call, False
        if re.match(r"(fdatasync|fsync)\(\d+<[^>]*-wal>\s*\)\s+= 0", whole):
            if not cut:
                yield Event(number, "synchronising", thread)
            yield Event(number, "synchronised", thread)
        elif arrived := re.match(r'(?:read|recv)\w*\((\d+)<\S*>.*"POST /v1/datasets/d/charges', whole):
            yield Event(number, "arrived", arrived[1])
        elif not cut and (reply := re.match(r'(?:write|send)\w*\((\d+)<\S*>.*"HTTP/1.1 201', whole)):
            yield Event(number, "replied", reply[1])


def unproved(found: Sequence[Event]) -> tuple[int, int]:
    """(receipts, those without a synchronisation of the log that began and ended since the request)."""
    arrived: dict[str, int] = {}
    receipts = without = 0
    for place, event in enumerate(found):
        if event.what == "arrived":
            arrived[event.where] = place
        elif event.what == "replied" and event.where in arrived:
            between = found[arrived.pop(event.where) : place]
            began = [one.where for one in between if one.what == "synchronising"]
            ended = [
                one
                for at, one in enumerate(between)
                if one.what == "synchronised"
                and any(other.what == "synchronising" and other.where == one.where for other in between[:at])
            ]
            receipts += 1
            without += not (began and ended)
    return receipts, without


def test_the_log_is_on_the_disk_before_each_receipt(folder: Path) -> None:
    found = traced(folder, [testing._odometer()])
    receipts, without = unproved(found)
    synchronised = sum(event.what == "synchronised" for event in found)
    print(
        f"{receipts} receipts, {synchronised} synchronisations of the log, {without} receipts before theirs"
    )
    assert receipts == CALLERS * EACH
    assert without == 0
    assert synchronised < receipts  # one for each batch, not one for each charge


CARELESS = """
import sys
from odometer_accountant.stores.sqlite_file import LedgerFile
opened = LedgerFile._open_writer
def careless(self):
    writer = opened(self)
    writer.execute("PRAGMA synchronous=OFF")
    return writer
LedgerFile._open_writer = careless
sys.argv[0] = "odometer"
from privacy_odometer import cli
cli.main()
"""


def test_a_server_that_does_not_wait_for_the_disk_would_be_found(folder: Path) -> None:
    """So that the test above can fail."""
    receipts, without = unproved(traced(folder, [sys.executable, "-c", CARELESS]))
    assert receipts == CALLERS * EACH
    assert without == receipts
