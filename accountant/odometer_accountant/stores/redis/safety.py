"""Checks that a Redis server keeps what it acknowledged. Runs on each new connection, before its first use.

A connection never outlives the server's process, so a server that restarted or was promoted is checked again
before its first append.
"""

from contextlib import suppress
from typing import Final

from redis.exceptions import NoPermissionError, ResponseError

from odometer_accountant.stores.redis.connection import Connection, ask
from odometer_accountant.stores.redis.errors import UnsafeServer

REQUIRED: Final = {
    "appendonly": "yes",
    "appendfsync": "always",
    # "yes" would stop all synchronisation during a rewrite of the log, whatever appendfsync says.
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
}
LINES: Final = "\n".join(f"  {name} {value}" for name, value in REQUIRED.items())
HOW: Final = (
    "If it holds anything, first tell it while it runs: CONFIG SET appendonly yes, and wait until "
    "INFO persistence says aof_rewrite_in_progress:0 and aof_rewrite_scheduled:0. A server that is started "
    "anew with appendonly yes only in its file comes up empty, whatever it held before. "
    f"Then put into its redis.conf\n{LINES}\nand start it again."
)
AS_CLUSTER: Final = "Name the store redis+cluster://host:port,host:port"
RIGHTS: Final = (
    "+ping +select +role +info +config|get +wait +cluster|slots +asking +eval +evalsha +exists +set "
    "+hset +hget +hmget +hlen +hexists +hdel +xadd +xlen +xrange +zadd +zcard +zrangebylex +bgrewriteaof"
)
"""The permissions that the store's user needs, as a Redis 7 ACL; on keys ~<prefix>:*."""
_INSTEAD: Final = "For tests only, --allow-volatile-store serves all the same."


def check_settings(connection: Connection, node: str) -> None:
    """Raise UnsafeServer unless the server writes each append to disk and evicts nothing."""
    try:
        found = {name: _setting(connection, name) for name in REQUIRED}
    except (NoPermissionError, ResponseError) as error:
        raise UnsafeServer(
            f"The Redis server {node} does not tell its settings, so nobody knows whether it keeps what it "
            f"acknowledged. CONFIG GET was answered: {str(error).strip()}\n"
            f"Let this user run CONFIG GET (all that a user of the store needs: {RIGHTS}). {HOW} {_INSTEAD}"
        ) from error
    if found != REQUIRED:
        listed = "\n".join(
            f"  {name} is {value or 'unknown'}"
            + ("" if value == REQUIRED[name] else f", not {REQUIRED[name]}")
            for name, value in found.items()
        )
        raise UnsafeServer(
            f"The Redis server {node} may lose what it acknowledged. There\n{listed}\n{HOW} {_INSTEAD}"
        )


def _setting(connection: Connection, name: str) -> str | None:
    # One name at a time: several in one CONFIG GET need Redis 7.
    answer = ask(connection, "CONFIG", "GET", name)
    return bytes(answer[1]).decode(errors="replace") if answer else None


def check_primary(connection: Connection, node: str) -> list[tuple[str, int]]:
    """Raise UnsafeServer unless the server takes writes. Returns the replicas that it reports."""
    with suppress(ResponseError):  # without the right to ask, a redirect shows it later
        if b"cluster_enabled:1" in ask(connection, "INFO", "cluster"):
            raise UnsafeServer(f"The Redis server {node} is a node of a cluster. {AS_CLUSTER}")
    try:
        role = ask(connection, "ROLE")
    except NoPermissionError as error:
        raise UnsafeServer(
            f"The Redis server {node} does not tell whether it is a primary. Let this user run ROLE; "
            f"all that a user of the store needs: {RIGHTS}"
        ) from error
    if role[0] != b"master":
        raise UnsafeServer(
            f"The Redis server {node} is a replica. Name its primary, or use redis+sentinel://"
        )
    return [(bytes(host).decode(), int(port)) for host, port, _ in role[2]]
