"""`odometer serve` on a shared store, in a process of its own that is killed, paused and started again."""

import contextlib
import os
import signal
import threading
import time
from multiprocessing.connection import Connection as Pipe
from multiprocessing.context import ForkServerProcess

import forked

START_S = 120.0


class Service:
    """One API process. `url` changes with every start; it is None while there is none."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._process: ForkServerProcess | None = None
        self._said: Pipe | None = None
        self.url: str | None = None
        self.starts = 0

    def start(self) -> str | None:
        """Start, as often as it takes while the store is away. Returns the admin key of a first start."""
        end = time.monotonic() + START_S
        while True:
            process, said = forked.start(self._store)
            try:
                url, admin_key = forked._until_ready(said)
            except RuntimeError:
                said.close()
                process.join()
                process.close()
                if time.monotonic() > end:
                    raise
                threading.Event().wait(0.1)  # the store is away: nothing tells when it is back
                continue
            self._process, self._said, self.url = process, said, url
            self.starts += 1
            return admin_key

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. Nothing happens to one that is gone already."""
        self.url = None
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
            self._process = None
        if self._said is not None:
            self._said.close()
            self._said = None

    def pause(self) -> None:
        """SIGSTOP: its connections stay open, and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
