"""The connections to each node: opened and checked when needed, kept for the next call, bounded."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import BoundedSemaphore, Lock
from time import monotonic
from typing import Final

from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from odometer_accountant.errors import StoreUnavailable
from odometer_accountant.stores.redis.address import Address, Node
from odometer_accountant.stores.redis.connection import Connection, ask, open_connection, shown
from odometer_accountant.stores.redis.safety import check_primary, check_settings

CALLS_MAX: Final = 64
"""Calls under way at once; each uses at most one connection to a node."""
IDLE_MAX: Final = 16
"""Connections kept for each node while nobody uses them."""
REST_S: Final = 2.0
"""For how long a node of a cluster is not asked after it let a call wait in vain: others go on meanwhile."""
PROBE_S: Final = 0.5
"""How long it is then waited for, before it is asked again as any other."""


class NodeBackoff(RedisTimeoutError):
    """The node let a call wait in vain a moment ago: it was not asked."""


class Nodes:
    """Connections by node. Safe to use from several threads."""

    def __init__(self, address: Address, *, allow_volatile: bool) -> None:
        self._address = address
        self._checks_settings = not allow_volatile
        self._lock = Lock()
        self._idle: dict[Node, list[Connection]] = {}
        self._rests: dict[Node, float] = {}
        """Until when a node is not asked."""
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
    def connection(self, node: Node) -> Iterator[Connection]:
        """A connection to `node`. One on which anything went wrong is not used again."""
        self._check_answers(node)
        connection = self._take(node) or self._open(node)
        try:
            yield connection
        except BaseException:
            connection.disconnect()
            raise
        self._give_back(node, connection)

    def rest(self, node: Node) -> None:
        """A call has waited in vain for `node`. One of a cluster is left alone for a while.

        The others hold the streams of other datasets, and the one thread that writes would wait for it
        again and again. A single primary holds everything: nobody gains when it is not asked.
        """
        if self._address.kind == "cluster":
            with self._lock:
                self._rests[node] = monotonic() + REST_S

    def _check_answers(self, node: Node) -> None:
        with self._lock:
            until = self._rests.get(node)
            if until is None:
                return
            if monotonic() < until:
                raise NodeBackoff(f"{shown(node)} has not answered: it is asked again within {REST_S:g} s")
            self._rests[node] = monotonic() + REST_S  # one caller finds out, the others do not wait for it
        brief = replace(self._address, timeout_s=min(PROBE_S, self._address.timeout_s))
        connection = open_connection(node, brief)
        try:
            ask(connection, "PING")
        finally:
            connection.disconnect()
        with self._lock:
            self._rests.pop(node, None)

    def drop(self, node: Node | None = None) -> None:
        """Close the idle connections to `node`, or all: the next ones are made and checked anew."""
        with self._lock:
            if node is None:
                dropped = [connection for idle in self._idle.values() for connection in idle]
                self._idle.clear()
            else:
                dropped = self._idle.pop(node, [])
        for connection in dropped:
            connection.disconnect()

    def check_replica(self, node: Node) -> None:
        """Check the settings of a replica that can be reached. It may be the primary tomorrow."""
        if not self._checks_settings:
            return
        with suppress(RedisError, OSError):  # away: it is checked when it takes over
            connection = open_connection(node, self._address)
            try:
                check_settings(connection, shown(node))
            finally:
                connection.disconnect()

    def recheck(self, node: Node, connection: Connection) -> list[Node]:
        """Check that the server is a primary with safe settings. Returns its replicas, as it knows them."""
        replicas = [] if self._address.kind == "cluster" else check_primary(connection, shown(node))
        if self._checks_settings:
            check_settings(connection, shown(node))
        return replicas

    def close(self) -> None:
        """Close what is idle; what is in use is closed when it is given back."""
        with self._lock:
            self._closed = True
        self.drop()

    def _take(self, node: Node) -> Connection | None:
        while True:
            with self._lock:
                idle = self._idle.get(node)
                if not idle:
                    return None
                connection = idle.pop()
            with suppress(RedisError, OSError):
                if not connection.can_read():  # nothing was asked: what is there to read is the end
                    return connection
            connection.disconnect()

    def _open(self, node: Node) -> Connection:
        connection = open_connection(node, self._address)
        try:
            self.recheck(node, connection)
        except BaseException:
            connection.disconnect()
            raise
        return connection

    def _give_back(self, node: Node, connection: Connection) -> None:
        with self._lock:
            idle = self._idle.setdefault(node, [])
            if not self._closed and len(idle) < IDLE_MAX:
                idle.append(connection)
                return
        connection.disconnect()
