"""The connections to each node: opened and checked when needed, kept for the next call, bounded."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import BoundedSemaphore, Lock
from typing import Final

from redis.exceptions import RedisError

from accountant.errors import StoreUnavailable
from accountant.stores.redis.address import Address, Node
from accountant.stores.redis.safety import check_primary, check_settings
from accountant.stores.redis.wire import Wire, open_wire, shown

CALLS_MAX: Final = 64
"""Calls under way at once; each uses at most one connection to a node."""
IDLE_MAX: Final = 16
"""Connections kept for each node while nobody uses them."""


class Nodes:
    """Connections by node. Safe to use from several threads."""

    def __init__(self, address: Address, *, allow_volatile: bool) -> None:
        self._address = address
        self._checks_settings = not allow_volatile
        self._lock = Lock()
        self._idle: dict[Node, list[Wire]] = {}
        self._calls = BoundedSemaphore(CALLS_MAX)
        self._closed = False
        self._process = os.getpid()

    @contextmanager
    def call(self) -> Iterator[None]:
        """One call of the store: counted, and refused once the store is closed."""
        self.check_open()
        if not self._calls.acquire(timeout=self._address.timeout_s):
            raise StoreUnavailable(f"{CALLS_MAX} calls are waiting for Redis, and none came back in time")
        try:
            yield
        finally:
            self._calls.release()

    def check_open(self) -> None:
        """Raise StoreUnavailable once the store is closed, and in a forked child."""
        if self._closed:
            raise StoreUnavailable("The store was closed. Open it again.")
        if os.getpid() != self._process:  # both would read the replies of the same connections
            raise StoreUnavailable("The Redis store was opened before a fork. Open it again in the child.")

    @contextmanager
    def wire(self, node: Node) -> Iterator[Wire]:
        """A connection to `node`. One on which anything went wrong is not used again."""
        wire = self._take(node) or self._open(node)
        try:
            yield wire
        except BaseException:
            wire.disconnect()
            raise
        self._give_back(node, wire)

    def drop(self, node: Node | None = None) -> None:
        """Close the idle connections to `node`, or all: the next ones are made and checked anew."""
        with self._lock:
            if node is None:
                dropped = [wire for idle in self._idle.values() for wire in idle]
                self._idle.clear()
            else:
                dropped = self._idle.pop(node, [])
        for wire in dropped:
            wire.disconnect()

    def check_replica(self, node: Node) -> None:
        """Check the settings of a replica that can be reached. It may be the primary tomorrow."""
        if not self._checks_settings:
            return
        with suppress(RedisError, OSError):  # away: it is checked when it takes over
            wire = open_wire(node, self._address)
            try:
                check_settings(wire, shown(node))
            finally:
                wire.disconnect()

    def recheck(self, node: Node, wire: Wire) -> list[Node]:
        """Check that the server is a primary with safe settings. Returns its replicas, as it knows them."""
        replicas = [] if self._address.kind == "cluster" else check_primary(wire, shown(node))
        if self._checks_settings:
            check_settings(wire, shown(node))
        return replicas

    def close(self) -> None:
        """Close what is idle; what is in use is closed when it is given back."""
        with self._lock:
            self._closed = True
        self.drop()

    def _take(self, node: Node) -> Wire | None:
        while True:
            with self._lock:
                idle = self._idle.get(node)
                if not idle:
                    return None
                wire = idle.pop()
            with suppress(RedisError, OSError):
                if not wire.can_read():  # nothing was asked: what is there to read is the end
                    return wire
            wire.disconnect()

    def _open(self, node: Node) -> Wire:
        wire = open_wire(node, self._address)
        try:
            self.recheck(node, wire)
        except BaseException:
            wire.disconnect()
            raise
        return wire

    def _give_back(self, node: Node, wire: Wire) -> None:
        with self._lock:
            idle = self._idle.setdefault(node, [])
            if not self._closed and len(idle) < IDLE_MAX:
                idle.append(wire)
                return
        wire.disconnect()
