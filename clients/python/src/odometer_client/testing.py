"""A real service for your own tests: a process of its own, on a store that goes away with it.

    with service() as client:
        client.create_dataset("d", unit="person", adjacency="add_remove", delta=1e-6,
                              budgets=[{"name": "life", "kind": "zcdp", "rho": 0.1}])
        run_my_job(client)

Needs the distribution `privacy-odometer`, whose command `odometer` it starts; it never imports the service.
"""

import contextlib
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from odometer_client.client import Client

READY_TIMEOUT_S = 60.0
_READY = re.compile(r"is serving on (http://\S+)")
_KEY = re.compile(r"admin key \(shown once\): (\S+)")


@dataclass(frozen=True)
class Service:
    """A running service: where it is, an admin key (None on a store that had one), its process."""

    url: str
    admin_key: str | None
    process: subprocess.Popen[str]


@contextlib.contextmanager
def service(store: str = "memory://", *, timeout_s: float = READY_TIMEOUT_S) -> Iterator[Client]:
    """A client with an admin key of a fresh service on `store`; both end with the block."""
    with serve(store, timeout_s=timeout_s) as running, Client(running.url, running.admin_key) as client:
        yield client


@contextlib.contextmanager
def temporary_sqlite() -> Iterator[str]:
    """The URL of a SQLite ledger in a folder that goes away with the block."""
    with tempfile.TemporaryDirectory(prefix="odometer-") as folder:
        yield f"sqlite:///{Path(folder) / 'ledger.sqlite'}"


@contextlib.contextmanager
def serve(
    store: str = "memory://",
    *,
    port: int = 0,
    timeout_s: float = READY_TIMEOUT_S,
    command: Sequence[str] | None = None,
) -> Iterator[Service]:
    """Start `odometer serve` on 127.0.0.1 and wait until it says that it is ready; stop it at the end.

    Args:
        store: `memory://`, or `sqlite:///path` to keep the ledger.
        port: 0 takes a free one.
        timeout_s: longest wait for readiness, in seconds.
        command: what to run instead of the `odometer` of this environment.

    Raises RuntimeError with the service's own words when it does not come up.
    """
    arguments = [*(command or [_odometer()]), "serve", "--store", store]
    arguments += ["--host", "127.0.0.1", "--port", str(port)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ODOMETER_")}
    environment |= {"PYTHONUNBUFFERED": "1", "ODOMETER_WITNESS": "none"}  # a ledger that goes away with it
    process = subprocess.Popen(  # noqa: S603
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    try:
        url, key = _until_ready(process, timeout_s)
        yield Service(url, key, process)
    finally:
        _stop(process)


def _odometer() -> str:
    """The command of this environment: beside its Python, else on the path."""
    beside = Path(sys.executable).parent / "odometer"
    found = str(beside) if beside.is_file() else shutil.which("odometer")
    if found is None:
        raise RuntimeError("There is no `odometer` command here: pip install privacy-odometer")
    return found


def _until_ready(process: subprocess.Popen[str], timeout_s: float) -> tuple[str, str | None]:
    assert process.stdout is not None  # noqa: S101
    lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_drain, args=(process.stdout, lines), daemon=True).start()
    said: list[str] = []
    key: str | None = None
    while True:
        try:
            line = lines.get(timeout=timeout_s)
        except queue.Empty:
            raise RuntimeError(
                f"`odometer serve` was not ready within {timeout_s} s:\n{''.join(said)}"
            ) from None
        if line is None:
            raise RuntimeError(f"`odometer serve` ended with status {process.wait()}:\n{''.join(said)}")
        said.append(line)
        if found := _KEY.search(line):
            key = found[1]
        if found := _READY.search(line):
            return found[1], key


def _drain(stream: IO[str], lines: "queue.Queue[str | None]") -> None:
    """Read to the end, so that a talkative service never blocks on a full pipe."""
    with stream:
        for line in stream:
            lines.put(line)
    lines.put(None)


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
