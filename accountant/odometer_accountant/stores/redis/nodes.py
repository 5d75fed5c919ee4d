"""A bounded pool of checked connections for each node."""

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
"""Simultaneous calls; each uses at most one connection to a node."""
IDLE_MAX: Final = 16
"""Idle connections kept for each node."""
BACKOFF_S: Final = 2.0
"""Seconds for which a cluster node is skipped after a time-out, so that calls to other nodes go on."""
PROBE_S: Final = 0.5
"""Time-out, in seconds, of the PING that ends the back-off."""


class NodeBackoff(RedisTimeoutError):
    """The node timed out a moment ago; this call was not sent to it."""


class Nodes:
    """Connections by node. Safe to use from several threads."""

    def __init__(self, address: Address, *, allow_volatile: bool) -> None:
        self._address = address
        self._checks_settings = not allow_volatile
        self._lock = Lock()
        self._idle: dict[Node, list[Connection]] = {}
        self._backoff_until: dict[Node, float] = {}
        """Monotonic time until which a node is skipped."""
        self._calls = BoundedSemaphore(CALLS_MAX)
        self._closed = False
        self._process = os.getpid()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count one call. Raises StoreUnavailable when the store is closed or CALLS_MAX calls are waiting."""
        self.check_open()
        if not self._calls.acquire(timeout=self._address.timeout_s):
            raise StoreUnavailable(f"{CALLS_MAX} calls are waiting for Redis, and none finished in time")
        try:
            yield
        finally:
            self._calls.release()

    def check_open(self) -> None:
        """Raise StoreUnavailable once the store is closed, and in a forked child."""
        if self._closed:
            raise StoreUnavailable("The store was closed. Open it again.")
        if os.getpid() != self._process:  # both processes would read from the same connections
            raise StoreUnavailable("The Redis store was opened before a fork. Open it again in the child.")

    @contextmanager
    def connection(self, node: Node) -> Iterator[Connection]:
        """A connection to `node`. After any error it is closed, never reused."""
        self._check_answers(node)
        connection = self._take(node) or self._open(node)
        try:
            yield connection
        except BaseException:
            connection.disconnect()
            raise
        self._give_back(node, connection)

    def back_off(self, node: Node) -> None:
        """Skip `node` for BACKOFF_S seconds after a time-out, if it belongs to a cluster.

        Without this the one writing thread would wait for it again and again, and so delay datasets on other
        nodes. A single primary holds everything, so it is never skipped.
        """
        if self._address.kind == "cluster":
            with self._lock:
                self._backoff_until[node] = monotonic() + BACKOFF_S

    def _check_answers(self, node: Node) -> None:
        with self._lock:
            until = self._backoff_until.get(node)
            if until is None:
                return
            if monotonic() < until:
                raise NodeBackoff(f"{shown(node)} has not answered; retry in {BACKOFF_S:g} s")
            self._backoff_until[node] = monotonic() + BACKOFF_S  # one caller probes, the others do not wait
        brief = replace(self._address, timeout_s=min(PROBE_S, self._address.timeout_s))
        connection = open_connection(node, brief)
        try:
            ask(connection, "PING")
        finally:
            connection.disconnect()
        with self._lock:
            self._backoff_until.pop(node, None)

    def drop(self, node: Node | None = None) -> None:
        """Close the idle connections to `node`, or all of them. New ones are checked again."""
        with self._lock:
            if node is None:
                dropped = [connection for idle in self._idle.values() for connection in idle]
                self._idle.clear()
            else:
                dropped = self._idle.pop(node, [])
        for connection in dropped:
            connection.disconnect()

    def check_replica(self, node: Node) -> None:
        """Check the settings of a reachable replica, which may become the primary."""
        if not self._checks_settings:
            return
        with suppress(RedisError, OSError):  # unreachable: checked when it becomes the primary
            connection = open_connection(node, self._address)
            try:
                check_settings(connection, shown(node))
            finally:
                connection.disconnect()

    def recheck(self, node: Node, connection: Connection) -> list[Node]:
        """Check that the server is a primary with safe settings. Returns the replicas that it reports."""
        replicas = [] if self._address.kind == "cluster" else check_primary(connection, shown(node))
        if self._checks_settings:
            check_settings(connection, shown(node))
        return replicas

    def close(self) -> None:
        """Close idle connections now and the others when they are given back."""
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
                if not connection.can_read():  # readable without a request: the server closed it
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
