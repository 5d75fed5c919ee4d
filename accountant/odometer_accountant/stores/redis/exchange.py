"""Sends commands to the nodes that hold their keys, reads the replies, and follows redirects."""

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
"""How often one command is sent at most. It is sent again only if the server did not run it."""
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
        """The command as sent. `whole`: with the script's source, for a server that does not know it yet."""
        if self.script is None:
            return self.args
        name = ("EVAL", self.script.source) if whole else ("EVALSHA", self.script.sha)
        return (*name, len(self.keys), *self.keys, *self.args)


@dataclass(slots=True)
class _InFlight:
    """A command and its reply. `ask`: the node of an ASK redirect. `whole`: send the script's source."""

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

        An error reply is raised after all replies are read. A command is sent again only if the server proved
        that it did not run it: the slot is on another node, or the server does not know the script.
        """
        in_flight = [_InFlight(command) for command in commands]
        with self.nodes.call():
            pending = in_flight
            for _ in range(ROUNDS_MAX):
                pending = self._round(pending, writes=writes)
                if not pending:
                    return [sent.reply for sent in in_flight]
        self.topology.forget()
        raise StoreUnavailable(f"Redis redirect loop: gave up after {ROUNDS_MAX} rounds")

    def _round(self, in_flight: Sequence[_InFlight], *, writes: bool) -> list[_InFlight]:
        """Send each command once. Returns those that must be sent again."""
        groups: dict[Node, list[_InFlight]] = defaultdict(list)
        for sent in in_flight:
            groups[sent.ask or self.topology.node_of(sent.command.key)].append(sent)
        node = None
        try:
            with ExitStack() as stack:
                # All connections first: if one fails, nothing is sent.
                connections = {}
                for node in groups:
                    connections[node] = stack.enter_context(self.nodes.connection(node))
                for node, group in groups.items():
                    self._send(connections[node], group, writes=writes)
                again = []
                for node, group in groups.items():
                    again += self._read(connections[node], node, group, writes=writes)
                return again
        except (RedisError, OSError) as error:
            if (
                node is not None
                and isinstance(error, RedisTimeoutError)
                and not isinstance(error, NodeBackoff)
            ):
                self.nodes.back_off(node)
            self.topology.forget(node)
            self.nodes.drop(node)
            raise

    def _send(self, connection: Connection, group: Sequence[_InFlight], *, writes: bool) -> None:
        commands: list[Args] = []
        for sent in group:
            if sent.ask is not None:
                commands.append(("ASKING",))
            commands.append(sent.command.words(whole=sent.whole))
        if writes and self._address.replicas:
            # Last, on this connection: WAIT covers the writes of its own connection.
            commands.append(("WAIT", self._address.replicas, self._address.wait_ms))
        send(connection, commands)

    def _read(
        self, connection: Connection, node: Node, group: Sequence[_InFlight], *, writes: bool
    ) -> list[_InFlight]:
        for sent in group:
            if sent.ask is not None:
                reply(connection)
            sent.reply = reply(connection)
        acknowledged = reply(connection) if writes and self._address.replicas else None
        again = [sent for sent in group if self._goes_again(sent, node)]
        faults = [one for sent in group if sent not in again if isinstance(one := sent.reply, Exception)]
        if faults:
            raise faults[0]
        if acknowledged is not None and len(again) < len(group):
            self._check_replicas(acknowledged, node)
        return again

    def _goes_again(self, sent: _InFlight, node: Node) -> bool:
        answer = sent.reply
        if isinstance(answer, NoScriptError):
            sent.whole = True
            return True
        sent.ask = None
        if isinstance(answer, MovedError):  # before AskError, which is its base
            self.topology.moved(sent.command.key, _named(answer, node))
            return True
        if isinstance(answer, AskError):
            sent.ask = _named(answer, node)
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
    # No host means the host that replied (cluster-preferred-endpoint-type unknown-endpoint).
    return str(redirect.host) or asked[0], int(redirect.port)
