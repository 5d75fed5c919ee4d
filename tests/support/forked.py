"""`odometer serve` in a process of its own that has imported everything already: up at once."""

import contextlib
import multiprocessing
import os
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from multiprocessing.context import ForkServerProcess

WAIT_S = 60
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [
        "odometer_accountant.service.accountant",
        "odometer_accountant.stores.sqlite",
        "privacy_odometer.app",
        "privacy_odometer.cli",
        "uvicorn",
    ]
)


@dataclass(frozen=True)
class Forked:
    """A running service: where it is, and the admin key of a first start."""

    url: str
    admin_key: str | None
    process: ForkServerProcess

    def end(self, sign: int) -> int:
        """Send it a signal; returns its exit status (negative: the signal that ended it)."""
        assert self.process.pid is not None
        os.kill(self.process.pid, sign)
        self.process.join(WAIT_S)
        assert self.process.exitcode is not None, "it did not end"
        return self.process.exitcode


def start(store: str) -> tuple[ForkServerProcess, Pipe]:
    """The process, and what it says (both outputs)."""
    reading, writing = _context.Pipe(duplex=False)
    process = _context.Process(target=_run, args=(store, writing), daemon=True)
    process.start()
    writing.close()
    return process, reading


@contextlib.contextmanager
def serve(store: str) -> Iterator[Forked]:
    """A server until the end of the block, unless it was ended before."""
    process, said = start(store)
    with said:
        try:
            url, key = _until_ready(said)
            yield Forked(url, key, process)
        finally:
            if process.is_alive():
                assert process.pid is not None
                os.kill(process.pid, signal.SIGTERM)
                process.join(WAIT_S)
            process.close()


def _run(store: str, writing: Pipe) -> None:
    os.dup2(writing.fileno(), 1)
    os.dup2(writing.fileno(), 2)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.argv = ["odometer", "serve", "--port", "0", "--store", store, "--log-level", "critical"]

    from privacy_odometer import cli

    cli.main()


def _until_ready(said: Pipe) -> tuple[str, str | None]:
    text = ""
    while True:
        piece = os.read(said.fileno(), 65536).decode()
        text += piece
        if found := re.search(r"is serving on (http://\S+)\n", text):
            key = re.search(r"admin key \(shown once\): (\S+)", text)
            return found[1], key[1] if key else None
        if not piece:
            raise RuntimeError(f"the service did not come up:\n{text}")
