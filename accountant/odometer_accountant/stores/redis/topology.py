"""Finds the node that holds a key: one server, the primary of a Sentinel service, or a cluster's slot map."""

from bisect import bisect_right
from threading import Lock
from typing import Any, Protocol

from redis.crc import key_slot
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from odometer_accountant.stores.redis.address import Address, Node
from odometer_accountant.stores.redis.connection import ask, open_connection, shown
from odometer_accountant.stores.redis.nodes import Nodes
from odometer_accountant.stores.redis.safety import AS_CLUSTER


class Topology(Protocol):
    """Caches the answers until `forget` is called."""

    def node_of(self, key: bytes) -> Node:
        """The primary that holds `key`."""
        ...

    def primaries(self) -> list[Node]:
        """Every primary."""
        ...

    def replicas(self) -> list[Node]:
        """Every known replica."""
        ...

    def moved(self, key: bytes, node: Node) -> None:
        """Record that `node` now holds the slot of `key`."""
        ...

    def forget(self, suspect: Node | None = None) -> None:
        """Discard the cache; `suspect` gave the last error."""
        ...


class _OnePrimary:
    """Base of the topologies in which one primary holds all keys."""

    def __init__(self, address: Address, nodes: Nodes) -> None:
        self._address = address
        self._nodes = nodes

    def _primary(self) -> Node:
        return self._address.nodes[0]

    def node_of(self, key: bytes) -> Node:  # noqa: ARG002
        return self._primary()

    def primaries(self) -> list[Node]:
        return [self._primary()]

    def replicas(self) -> list[Node]:
        primary = self._primary()
        with self._nodes.connection(primary) as connection:
            return self._nodes.recheck(primary, connection)

    def moved(self, key: bytes, node: Node) -> None:
        del key, node
        raise RedisConnectionError(f"the server is a node of a cluster. {AS_CLUSTER}")

    def forget(self, suspect: Node | None = None) -> None:
        pass


class PlainTopology(_OnePrimary):
    """One server, always the same."""


class SentinelTopology(_OnePrimary):
    """The primary of a service, as the first Sentinel that knows one reports it."""

    def __init__(self, address: Address, nodes: Nodes) -> None:
        super().__init__(address, nodes)
        self._lock = Lock()
        self._sentinels = list(address.nodes)
        self._known: Node | None = None

    def _primary(self) -> Node:
        known = self._known
        if known is None:
            with self._lock:
                known = self._known = self._known or self._discover()
        return known

    def forget(self, suspect: Node | None = None) -> None:
        del suspect
        self._known = None

    def _discover(self) -> Node:
        faults = []
        for sentinel in list(self._sentinels):
            try:
                connection = open_connection(sentinel, self._address, sentinel=True)
                try:
                    found = ask(connection, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._address.service)
                finally:
                    connection.disconnect()
            except (RedisError, OSError) as error:
                faults.append(f"{shown(sentinel)}: {error}")
                continue
            if found is not None:
                self._sentinels.remove(sentinel)
                self._sentinels.insert(0, sentinel)
                return bytes(found[0]).decode(), int(found[1])
            faults.append(f"{shown(sentinel)}: it does not watch that service")
        raise RedisConnectionError(
            f"no Sentinel named a primary for {self._address.service!r} ({'; '.join(faults)})"
        )


class ClusterTopology:
    """The slots of a cluster, as one of its nodes reports them."""

    def __init__(self, address: Address, nodes: Nodes) -> None:
        self._seeds = address.nodes
        self._nodes = nodes
        self._lock = Lock()
        self._suspect: Node | None = None
        self._map: _SlotMap | None = None

    def node_of(self, key: bytes) -> Node:
        return self._current().node_of(key_slot(key))

    def primaries(self) -> list[Node]:
        return self._current().primaries()

    def replicas(self) -> list[Node]:
        return self._current().replicas

    def moved(self, key: bytes, node: Node) -> None:
        with self._lock:
            if self._map is not None:
                self._map.corrections[key_slot(key)] = node
                if len(self._map.corrections) > 64:  # many slots moved: reload the map
                    self._map.stale = True

    def forget(self, suspect: Node | None = None) -> None:
        with self._lock:
            self._suspect = suspect
            if self._map is not None:
                self._map.stale = True

    def _current(self) -> "_SlotMap":
        known = self._map
        if known is not None and not known.stale:
            return known
        with self._lock:
            if self._map is None or self._map.stale:
                self._map = self._discover()
            return self._map

    def _discover(self) -> "_SlotMap":
        known = self._map
        candidates = dict.fromkeys([*(known.primaries() if known else ()), *self._seeds])
        faults = []
        # The suspect last: if it is paused, it costs the whole time-out.
        for node in sorted(candidates, key=lambda candidate: candidate == self._suspect):
            try:
                with self._nodes.connection(node) as connection:
                    return _SlotMap(ask(connection, "CLUSTER", "SLOTS"), node)
            except (RedisError, OSError) as error:
                faults.append(f"{shown(node)}: {error}")
        raise RedisConnectionError(f"no node of the cluster told its slots ({'; '.join(faults)})")


class _SlotMap:
    """The reply of CLUSTER SLOTS: ranges of slots, each with its primary first and then its replicas."""

    def __init__(self, ranges: list[list[Any]], asked: Node) -> None:
        parsed = []
        self.replicas: list[Node] = []
        for first, last, *holders in ranges:
            # An empty host means the node that replied.
            named = [(bytes(host).decode() if host else asked[0], int(port)) for host, port, *_ in holders]
            parsed.append((int(first), int(last), named[0]))
            self.replicas += [node for node in named[1:] if node not in self.replicas]
        self._ranges = sorted(parsed)
        self._firsts = [first for first, _, _ in self._ranges]
        self.corrections: dict[int, Node] = {}
        self.stale = False

    def node_of(self, slot: int) -> Node:
        if slot in self.corrections:
            return self.corrections[slot]
        place = bisect_right(self._firsts, slot) - 1
        if place < 0 or slot > self._ranges[place][1]:
            self.stale = True  # a cluster that is being created or repaired
            raise RedisConnectionError(f"no node of the cluster holds slot {slot}")
        return self._ranges[place][2]

    def primaries(self) -> list[Node]:
        return list(dict.fromkeys([*(node for _, _, node in self._ranges), *self.corrections.values()]))
