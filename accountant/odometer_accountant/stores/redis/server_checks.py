"""Checks all servers of a store: when it is opened, and again on `ping`."""

from redis.exceptions import RedisError

from odometer_accountant.stores.redis.connection import ask
from odometer_accountant.stores.redis.errors import UnsafeServer
from odometer_accountant.stores.redis.exchange import Command, Exchange
from odometer_accountant.stores.redis.keys import streams_key


def check_all(exchange: Exchange, prefix: str) -> None:
    """Connect to every primary and check it and its replicas. Raises UnsafeServer or an error of redis-py."""
    nodes, topology = exchange.nodes, exchange.topology
    for primary in topology.primaries():
        with nodes.connection(primary):  # a new connection is checked
            pass
    for replica in topology.replicas():
        nodes.check_replica(replica)
    # A cluster's server under redis:// passes every check but this one.
    key = streams_key(prefix)
    exchange.run([Command(key, ("ZCARD", key))])


def ping_all(exchange: Exchange) -> None:
    """Send PING to every primary. Forgets the first that fails, and raises its error."""
    nodes, topology = exchange.nodes, exchange.topology
    for primary in topology.primaries():
        try:
            with nodes.connection(primary) as connection:
                ask(connection, "PING")
        except (RedisError, OSError):
            topology.forget(primary)
            nodes.drop(primary)
            raise


def recheck(exchange: Exchange) -> None:
    """Check every primary's role and settings again. Forgets the first that fails, and raises its error."""
    nodes, topology = exchange.nodes, exchange.topology
    topology.forget()  # a server that was replaced may still answer
    for primary in topology.primaries():
        try:
            with nodes.connection(primary) as connection:
                nodes.recheck(primary, connection)
        except (RedisError, OSError, UnsafeServer):
            topology.forget(primary)
            nodes.drop(primary)  # no append goes on with a server found unsafe
            raise
