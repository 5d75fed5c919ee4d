"""One typed connection to one Redis server, without retries."""

from collections.abc import Sequence
from typing import Any, Protocol, cast

import redis
from redis.exceptions import ResponseError

from odometer_accountant.stores.redis.address import Address, Node

Argument = str | bytes | int
Args = Sequence[Argument]


class Connection(Protocol):
    """The methods of redis-py's connection that this package uses."""

    def connect(self) -> None: ...
    def disconnect(self) -> None: ...
    def can_read(self, timeout: float = 0) -> bool: ...
    def pack_commands(self, commands: Sequence[Args]) -> list[bytes]: ...
    def send_packed_command(self, command: list[bytes]) -> None: ...
    def read_response(self) -> Any: ...


def open_connection(node: Node, address: Address, *, sentinel: bool = False) -> Connection:
    """A new connection, logged in. For a Sentinel: without login and database."""
    kind = redis.SSLConnection if address.tls else redis.Connection
    # No retries by default: a write that may have been sent is never sent again.
    options: dict[str, Any] = {
        "host": node[0],
        "port": node[1],
        "socket_timeout": address.timeout_s,
        "socket_connect_timeout": address.timeout_s,
        "socket_keepalive": True,
        "protocol": 2,
    }
    if not sentinel:
        options |= {"db": address.db, "username": address.username, "password": address.password}
    connection = cast(Connection, kind(**options))
    connection.connect()
    return connection


def send(connection: Connection, commands: Sequence[Args]) -> None:
    """Send the commands together. The caller must read one reply for each."""
    connection.send_packed_command(connection.pack_commands(commands))


def reply(connection: Connection) -> Any:
    """The next reply. An error reply is returned, not raised, so that the caller can read those after it."""
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


def ask(connection: Connection, *command: Argument) -> Any:
    """Send one command and return its reply. An error reply is raised."""
    send(connection, [command])
    return connection.read_response()


def shown(node: Node) -> str:
    """The node as `host:port`, with IPv6 in brackets."""
    host, port = node
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
