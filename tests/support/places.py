"""What a ledger keeps, place by place, beside the store that keeps it: rows of a file, fields of a Redis."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from accountant.stores.redis.address import Address, parse
from accountant.stores.redis.keys import StreamKeys
from accountant.stores.redis.wire import Wire, ask, open_wire

SEAL = b"\x02"
"""What a configuration starts with where blobs have marks."""


def sqlite_without_marks(path: Path) -> None:
    """Make a ledger file what an earlier version would have written."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TABLE marks")
        connection.execute("UPDATE blobs SET value = CAST(substr(value, 2) AS BLOB) WHERE name = 'config'")
        connection.execute("PRAGMA user_version = 1")


@contextmanager
def redis_wire(url: str) -> Iterator[tuple[Wire, Address]]:
    """A connection to the server that a store's URL names."""
    address = parse(url)
    wire = open_wire(address.nodes[0], address)
    try:
        yield wire, address
    finally:
        wire.disconnect()


def redis_without_marks(url: str, streams: list[str]) -> None:
    """Make the streams of a Redis what an earlier version would have written."""
    with redis_wire(url) as (wire, address):
        for stream in streams:
            keys = StreamKeys.of(address.prefix, stream)
            ask(wire, "DEL", keys.marks)
            config: Any = ask(wire, "HGET", keys.blobs, "config")
            if config is not None:
                ask(wire, "HSET", keys.blobs, "config", bytes(config).removeprefix(SEAL))
