"""One connection to one Redis server, as the rest of the store sees it: typed, and without retries."""

from collections.abc import Sequence
from typing import Any, Protocol, cast

import redis
from redis.exceptions import ResponseError

from odometer_accountant.stores.redis.address import Address, Node

Argument = str | bytes | int
Args = Sequence[Argument]


class Connection(Protocol):
    """The part of redis-py's connection that is used here."""

    def connect(self) -> None: ...
    def disconnect(self) -> None: ...
    def can_read(self, timeout: float = 0) -> bool: ...
    def pack_commands(self, commands: Sequence[Args]) -> list[bytes]: ...
    def send_packed_command(self, command: list[bytes]) -> None: ...
    def read_response(self) -> Any: ...


def open_connection(node: Node, address: Address, *, sentinel: bool = False) -> Connection:
    """A new connection, logged in. A Sentinel is asked without a login and without a database."""
    kind = redis.SSLConnection if address.tls else redis.Connection
    # By default the connection itself repeats nothing: a write that may have been sent is never sent again.
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
    """Send the commands in one go; as many replies have to be read."""
    connection.send_packed_command(connection.pack_commands(commands))


def reply(connection: Connection) -> Any:
    """The next reply. An error reply is returned, not raised: the ones behind it must be read too."""
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


def ask(connection: Connection, *command: Argument) -> Any:
    """One command and its reply; an error reply is raised."""
    send(connection, [command])
    return connection.read_response()


def shown(node: Node) -> str:
    """The node as people write it."""
    host, port = node
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
