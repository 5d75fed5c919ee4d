"""Sends commands to the nodes that hold their keys, and reads the replies: the one place that repeats any."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from redis.exceptions import AskError, MovedError, NoScriptError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from odometer_accountant.errors import StoreUnavailable
from odometer_accountant.stores.redis.address import Address, Node
from odometer_accountant.stores.redis.connection import Args, Connection, reply, send, shown
from odometer_accountant.stores.redis.nodes import NodeBackoff, Nodes
from odometer_accountant.stores.redis.scripts import Script
from odometer_accountant.stores.redis.topology import (
    ClusterTopology,
    PlainTopology,
    SentinelTopology,
    Topology,
)

ROUNDS_MAX: Final = 4
"""How often one command is sent at most: once, and again where the server said that it did not run it."""
_TOPOLOGIES: Final[dict[str, Callable[[Address, Nodes], Topology]]] = {
    "plain": PlainTopology,
    "sentinel": SentinelTopology,
    "cluster": ClusterTopology,
}


@dataclass(frozen=True, slots=True)
class Command:
    """A plain command, or a script with its keys and arguments. `key` decides where it goes."""

    key: bytes
    args: Args
    script: Script | None = None
    keys: tuple[bytes, ...] = ()

    def words(self, *, whole: bool) -> Args:
        """What is sent. `whole`: with the script's source, for a server that does not know it yet."""
        if self.script is None:
            return self.args
        name = ("EVAL", self.script.source) if whole else ("EVALSHA", self.script.sha)
        return (*name, len(self.keys), *self.keys, *self.args)


@dataclass(slots=True)
class _Errand:
    """A command on its way: where a server redirected it, and whether the script must go along."""

    command: Command
    ask: Node | None = None
    whole: bool = False
    reply: Any = None


class Exchange:
    """Commands in, replies out. Raises redis-py's errors, UnsafeServer and StoreUnavailable."""

    def __init__(self, address: Address, *, allow_volatile: bool) -> None:
        self._address = address
        self.nodes = Nodes(address, allow_volatile=allow_volatile)
        self.topology: Topology = _TOPOLOGIES[address.kind](address, self.nodes)

    def run(self, commands: Sequence[Command], *, writes: bool = False) -> list[Any]:
        """The replies, in order. `writes`: the replicas that the address asks for must have them too.

        An error reply is raised, once all that was sent is answered. A command is sent again only where the
        server proved that it did not run it: the slot is elsewhere, or the script is unknown there.
        """
        errands = [_Errand(command) for command in commands]
        with self.nodes.call():
            pending = errands
            for _ in range(ROUNDS_MAX):
                pending = self._round(pending, writes=writes)
                if not pending:
                    return [errand.reply for errand in errands]
        self.topology.forget()
        raise StoreUnavailable("The Redis servers sent a command from one to the other and back")

    def _round(self, errands: Sequence[_Errand], *, writes: bool) -> list[_Errand]:
        """Send each errand once. Returns those that have to go again."""
        groups: dict[Node, list[_Errand]] = defaultdict(list)
        for errand in errands:
            groups[errand.ask or self.topology.node_of(errand.command.key)].append(errand)
        node = None
        try:
            with ExitStack() as stack:
                # All connections first: as long as one cannot be had, nothing is sent.
                wires = {}
                for node in groups:
                    wires[node] = stack.enter_context(self.nodes.connection(node))
                for node, group in groups.items():
                    self._send(wires[node], group, writes=writes)
                again = []
                for node, group in groups.items():
                    again += self._read(wires[node], node, group, writes=writes)
                return again
        except (RedisError, OSError) as error:
            if (
                node is not None
                and isinstance(error, RedisTimeoutError)
                and not isinstance(error, NodeBackoff)
            ):
                self.nodes.rest(node)
            self.topology.forget(node)
            self.nodes.drop(node)
            raise

    def _send(self, connection: Connection, group: Sequence[_Errand], *, writes: bool) -> None:
        commands: list[Args] = []
        for errand in group:
            if errand.ask is not None:
                commands.append(("ASKING",))
            commands.append(errand.command.words(whole=errand.whole))
        if writes and self._address.replicas:
            # On this connection and last: it waits for what was written through this connection.
            commands.append(("WAIT", self._address.replicas, self._address.wait_ms))
        send(connection, commands)

    def _read(
        self, connection: Connection, node: Node, group: Sequence[_Errand], *, writes: bool
    ) -> list[_Errand]:
        for errand in group:
            if errand.ask is not None:
                reply(connection)
            errand.reply = reply(connection)
        acknowledged = reply(connection) if writes and self._address.replicas else None
        again = [errand for errand in group if self._goes_again(errand, node)]
        faults = [
            one for errand in group if errand not in again if isinstance(one := errand.reply, Exception)
        ]
        if faults:
            raise faults[0]
        if acknowledged is not None and len(again) < len(group):
            self._check_replicas(acknowledged, node)
        return again

    def _goes_again(self, errand: _Errand, node: Node) -> bool:
        answer = errand.reply
        if isinstance(answer, NoScriptError):
            errand.whole = True
            return True
        errand.ask = None
        if isinstance(answer, MovedError):  # before AskError, which is its base
            self.topology.moved(errand.command.key, _named(answer, node))
            return True
        if isinstance(answer, AskError):
            errand.ask = _named(answer, node)
            return True
        return False

    def _check_replicas(self, acknowledged: Any, node: Node) -> None:
        if isinstance(acknowledged, Exception):
            raise acknowledged
        if acknowledged < self._address.replicas:
            raise RedisConnectionError(
                f"{acknowledged} of the {self._address.replicas} replicas that the URL asks for (replicas=) "
                f"have the write of {shown(node)} after {self._address.wait_ms} ms (wait_ms=)"
            )


def _named(redirect: AskError, asked: Node) -> Node:
    # Without a host it is the host that was asked (cluster-preferred-endpoint-type unknown-endpoint).
    return str(redirect.host) or asked[0], int(redirect.port)
