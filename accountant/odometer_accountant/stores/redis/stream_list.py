"""The sorted set of stream names: written before a stream's first append, read in pages."""

from collections.abc import Iterator
from typing import Final

from odometer_accountant.stores.redis.address import Node
from odometer_accountant.stores.redis.exchange import Command, Exchange
from odometer_accountant.stores.redis.keys import StreamKeys, streams_key

LISTED_MAX: Final = 100_000
"""Names remembered as listed. Above this the memory is cleared."""


class StreamList:
    """The list may name streams whose first append failed; it never lacks one that has entries."""

    def __init__(self, exchange: Exchange, prefix: str) -> None:
        self._exchange = exchange
        self._prefix = prefix
        self._key = streams_key(prefix)
        self._listed: set[str] = set()
        self._holder: Node | None = None

    def add(self, streams: Iterator[str]) -> None:
        """Add the names, before the first append to each of these streams.

        Once per stream and process, and again when another server holds the list: it may lack a name.
        """
        holder = self._exchange.topology.node_of(self._key)
        if holder != self._holder:
            self._listed, self._holder = set(), holder
        listed = self._listed  # another thread may start a new set meanwhile
        new = [stream for stream in streams if stream not in listed]
        if not new:
            return
        members = [argument for stream in new for argument in (0, stream.encode())]
        self._exchange.run([Command(self._key, ("ZADD", self._key, *members))], writes=True)
        if len(listed) + len(new) > LISTED_MAX:
            listed.clear()
        listed.update(new)

    def page(self, after: str, limit: int) -> list[str]:
        """At most `limit` names > `after` of streams that hold anything, in order."""
        found: list[str] = []
        while len(found) < limit:
            args = (
                "ZRANGEBYLEX", self._key, b"(" + after.encode(), b"+", "LIMIT", 0, limit - len(found)
            )  # fmt: skip
            (names,) = self._exchange.run([Command(self._key, args)])
            if not names:
                break
            listed = [bytes(name).decode() for name in names]
            keys = [StreamKeys.of(self._prefix, name) for name in listed]
            # A stream that lost only its head is still listed, so that its loss is found.
            there = self._exchange.run(
                [Command(one.head, ("EXISTS", one.head, one.entries, one.marks)) for one in keys]
            )
            found += [name for name, exists in zip(listed, there, strict=True) if exists]
            after = listed[-1]
        return found
