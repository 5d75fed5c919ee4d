"""RedisStore: the verbs of a store, each a few commands through an `Exchange`."""

import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, Final

from redis.exceptions import RedisError

from odometer_accountant.errors import LedgerCorrupt, StoreUnavailable
from odometer_accountant.stores.base import EMPTY_HEAD, Examined, Head, Note, Row, View, Write
from odometer_accountant.stores.marks import (
    ADVICE,
    HEAD,
    check_key,
    examined,
    head_mark,
    key_mark,
    mark_of,
    sealed,
    unsealed,
)
from odometer_accountant.stores.redis import parsing, scripts
from odometer_accountant.stores.redis.address import Address, Node
from odometer_accountant.stores.redis.connection import Argument, ask
from odometer_accountant.stores.redis.exchange import Command, Exchange
from odometer_accountant.stores.redis.faults import UnsafeServer, certain
from odometer_accountant.stores.redis.keys import StreamKeys, names_between, notes_key, streams_key
from odometer_accountant.stores.redis.scripts import Script

log = logging.getLogger("odometer.stores.redis")

KEYS_PER_SCRIPT: Final = 256
ROWS_PER_SCRIPT: Final = 1000
"""These bound how long one step keeps the server from others."""
LISTED_MAX: Final = 100_000
"""How many stream names a store remembers to have listed; beyond, it starts to remember anew."""
RECHECK_S: Final = 2.0
_NUMBER_MAX: Final = 1 << 62


class RedisStore:
    """A ledger in Redis. Every method raises StoreUnavailable, or LedgerCorrupt when it is damaged."""

    def __init__(self, address: Address, *, allow_volatile: bool = False) -> None:
        """Connect, and check every server that may hold data.

        ValueError: one may lose what it acknowledged. `allow_volatile`: warn instead.
        """
        self._address = address
        self._exchange = Exchange(address, allow_volatile=allow_volatile)
        self._listed: set[str] = set()
        self._list_holder: Node | None = None
        self._checked_at = time.monotonic()
        if allow_volatile:
            log.warning(
                "the settings of the Redis servers are not checked (allow_volatile): "
                "what they acknowledge may be lost, and with it the record of a loss of privacy"
            )
        try:
            with certain("open the Redis store", unsafe_is_usage=True):
                self._check_all()
        except BaseException:
            self._exchange.nodes.close()
            raise

    def load(self, stream: str, names: Sequence[str]) -> tuple[Head, dict[str, bytes]]:
        with self._doing(f"read the stream {stream!r}"):
            (answer,) = self._exchange.run([self._load(stream, names)])
        return _loaded(stream, names, answer)

    def view(self, stream: str, names: Sequence[str], after: int, limit: int, keys: Sequence[str]) -> View:
        first, limit = max(after, 0) + 1, min(limit, ROWS_PER_SCRIPT)
        chunks = _chunks(keys)
        with self._doing(f"look at the stream {stream!r}"):
            load = self._load(stream, names)
            entries = self._command(scripts.ENTRIES, stream, f"{first}-0", limit)
            loaded, page, *answers = self._exchange.run([load, entries, *self._finds(stream, chunks)])
        head, blobs = _loaded(stream, names, loaded)
        return View(head, blobs, _rows(stream, first, limit, page), self._found(stream, chunks, answers))

    def _load(self, stream: str, names: Sequence[str]) -> Command:
        return self._command(scripts.LOAD, stream, *(name.encode() for name in names))

    def append(self, writes: Sequence[Write]) -> list[bool]:
        """Append each write with a script of its own, on disk when this returns. False: stale head.

        ValueError (a key is already in its stream, a stream stands in two writes) is certain: nothing of any
        of the writes was kept. A stale write's keys are not looked at.
        """
        if len({write.stream for write in writes}) < len(writes):
            raise ValueError("A stream stands in two writes of one append: make them one write")
        with self._doing("append to the ledger"):
            fresh = self._look_first(writes) if _needs_look(writes) else [True] * len(writes)
            self._list(write.stream for write, current in zip(writes, fresh, strict=True) if current)
            todo = [write for write, current in zip(writes, fresh, strict=True) if current]
            commands = [self._command(scripts.APPEND, write.stream, *_arguments(write)) for write in todo]
            replies = iter(self._exchange.run(commands, writes=True))
            results = [next(replies) if current else scripts.STALE for current in fresh]
        if scripts.KEY_TAKEN in results:
            if len(writes) > 1:  # it was free when looked at, at this same head: that cannot be
                raise StoreUnavailable(
                    "A key came into a stream whose head did not move: unsure what was kept"
                )
            _refuse_keys(writes[results.index(scripts.KEY_TAKEN)].stream)
        return [result == scripts.DONE for result in results]

    def entries(self, stream: str, after: int, limit: int) -> list[Row]:
        rows: list[Row] = []
        first = max(after, 0) + 1
        with self._doing(f"read the entries of {stream!r}"):
            while len(rows) < limit and first < _NUMBER_MAX:
                size = min(limit - len(rows), ROWS_PER_SCRIPT)
                page = self._page(stream, first, size)
                rows += page
                first += len(page)
                if len(page) < size:
                    break
        return rows

    def _page(self, stream: str, first: int, limit: int) -> list[Row]:
        return _rows(stream, first, limit, self._script(scripts.ENTRIES, stream, f"{first}-0", limit))

    def find(self, stream: str, keys: Sequence[str]) -> dict[str, Row]:
        chunks = _chunks(keys)
        with self._doing(f"look for keys of {stream!r}"):
            replies = self._exchange.run(self._finds(stream, chunks))
        return self._found(stream, chunks, replies)

    def _finds(self, stream: str, chunks: Sequence[Sequence[str]]) -> list[Command]:
        return [self._command(scripts.FIND, stream, *(key.encode() for key in chunk)) for chunk in chunks]

    def _found(self, stream: str, chunks: Sequence[Sequence[str]], replies: Sequence[Any]) -> dict[str, Row]:
        found: dict[str, Row] = {}
        for chunk, answers in zip(chunks, replies, strict=True):
            for key, mark, answer in zip(chunk, answers[::2], answers[1::2], strict=True):
                if answer is None:
                    check_key(stream, key, None, mark)
                    continue
                sequence, entries = answer
                check_key(stream, key, parsing.number(stream, sequence), mark)
                if not entries:
                    gone = parsing.number(stream, sequence)
                    raise LedgerCorrupt(f"Entry {gone} of {stream!r} is gone, but its key is there")
                found[key] = parsing.row(stream, entries[0])
        if found and self._address.replicas:
            self._confirm(stream)
        return found

    def examine(self, stream: str, names: Sequence[str]) -> Examined:
        with self._doing(f"examine the stream {stream!r}"):
            (answer,) = self._exchange.run([self._load(stream, names)])
        sequence, hash_, mark, *found = answer
        head, fault = parsing.examined(stream, sequence, hash_, mark)
        blobs, faults = {}, {HEAD: fault} if fault else {}
        for name, stored, one in zip(names, found[::2], found[1::2], strict=True):
            value, fault = examined(stream, name, stored, one, marked=head.marked)
            if value is not None:
                blobs[name] = value
            if fault:
                faults[name] = fault
        return Examined(head, blobs, faults)

    def blobs(self, stream: str, prefix: str, after: str, limit: int) -> list[tuple[str, bytes]]:
        names, (sequence, hash_, mark), stored, marks = self._page_of_blobs(stream, prefix, after, limit)
        if None in stored:
            raise LedgerCorrupt(f"A blob of {stream!r} is gone, but its name is there")
        marked = parsing.checked(stream, sequence, hash_, mark).marked
        return list(_unsealed(stream, names, stored, marks, marked=marked).items())

    def names(self, stream: str, prefix: str, after: str, limit: int) -> list[str]:
        return self._page_of_blobs(stream, prefix, after, limit)[0]

    def _page_of_blobs(
        self, stream: str, prefix: str, after: str, limit: int
    ) -> tuple[list[str], Any, Any, Any]:
        """The names, head and mark of the end, what is stored under the names, and their marks."""
        with self._doing(f"list the blobs of {stream!r}"):
            bounds = names_between(prefix, after)
            sequence, hash_, mark, *found = self._script(scripts.BLOBS, stream, *bounds, max(limit, 0))
            names = [bytes(name).decode() for name in found[::3]]
        return names, (sequence, hash_, mark), found[1::3], found[2::3]

    def streams(self, after: str, limit: int) -> list[str]:
        found: list[str] = []
        with self._doing("list the streams"):
            key = streams_key(self._address.prefix)
            while len(found) < limit:
                args = ("ZRANGEBYLEX", key, b"(" + after.encode(), b"+", "LIMIT", 0, limit - len(found))
                (names,) = self._exchange.run([Command(key, args)])
                if not names:
                    break
                listed = [bytes(name).decode() for name in names]
                keys = [self._keys(name) for name in listed]
                # One of which the head alone was lost is not to be passed over.
                there = self._exchange.run(
                    [Command(one.head, ("EXISTS", one.head, one.entries, one.marks)) for one in keys]
                )
                found += [name for name, exists in zip(listed, there, strict=True) if exists]
                after = listed[-1]
        return found

    def put_note(self, name: str, note: Note) -> None:
        with self._doing("write a note"):
            key = notes_key(self._address.prefix)
            value = json.dumps([note.salt, note.text])
            self._exchange.run([Command(key, ("HSET", key, name.encode(), value))], writes=True)

    def notes(self, names: Sequence[str]) -> dict[str, Note]:
        with self._doing("read the notes"):
            if not names:
                return {}
            key = notes_key(self._address.prefix)
            (values,) = self._exchange.run([Command(key, ("HMGET", key, *(name.encode() for name in names)))])
        return {
            name: parsing.note(name, value)
            for name, value in zip(names, values, strict=True)
            if value is not None
        }

    def erase_note(self, name: str) -> None:
        """Forget the note; no matter if there is none.

        Its text is in the server's append-only file until that is rewritten: the server is asked to do so
        now, and does it by itself later if this user may not ask.
        """
        with self._doing("erase a note"):
            key = notes_key(self._address.prefix)
            (erased,) = self._exchange.run([Command(key, ("HDEL", key, name.encode()))], writes=True)
            if erased:
                with suppress(RedisError, OSError, StoreUnavailable):
                    self._exchange.run([Command(key, ("BGREWRITEAOF",))])

    def check(self) -> list[str]:
        """Nothing that its streams do not show."""
        return []

    def ping(self) -> None:
        """Ask every primary; every 2 seconds also whether it still writes all to disk."""
        with self._doing("reach the Redis servers"), self._exchange.nodes.call():
            now = time.monotonic()
            if now - self._checked_at < RECHECK_S:
                self._ping_all()
            else:
                self._recheck()
                self._checked_at = now

    def close(self) -> None:
        """Let go of the connections. Safe to call twice; afterwards every method raises StoreUnavailable."""
        self._exchange.nodes.close()

    def _check_all(self) -> None:
        nodes, topology = self._exchange.nodes, self._exchange.topology
        for primary in topology.primaries():
            with nodes.connection(primary):  # a new connection is checked
                pass
        for replica in topology.replicas():
            nodes.check_replica(replica)
        # A server of a cluster under redis:// answers all but this.
        key = streams_key(self._address.prefix)
        self._exchange.run([Command(key, ("ZCARD", key))])

    def _ping_all(self) -> None:
        nodes, topology = self._exchange.nodes, self._exchange.topology
        for primary in topology.primaries():
            try:
                with nodes.connection(primary) as connection:
                    ask(connection, "PING")
            except (RedisError, OSError):
                topology.forget(primary)
                nodes.drop(primary)
                raise

    def _recheck(self) -> None:
        nodes, topology = self._exchange.nodes, self._exchange.topology
        topology.forget()  # a server that was replaced may still answer
        for primary in topology.primaries():
            try:
                with nodes.connection(primary) as connection:
                    nodes.recheck(primary, connection)
            except (RedisError, OSError, UnsafeServer):
                topology.forget(primary)
                nodes.drop(primary)  # so that an append does not go on with a server found unsafe
                raise

    @contextmanager
    def _doing(self, what: str) -> Iterator[None]:
        self._exchange.nodes.check_open()
        with certain(what):
            yield

    def _keys(self, stream: str) -> StreamKeys:
        return StreamKeys.of(self._address.prefix, stream)

    def _command(self, script: Script, stream: str, *args: Argument) -> Command:
        keys = self._keys(stream)
        return Command(keys.head, args, script, keys.six())

    def _script(self, script: Script, stream: str, *args: Argument) -> Any:
        (answer,) = self._exchange.run([self._command(script, stream, *args)])
        return answer

    def _look_first(self, writes: Sequence[Write]) -> list[bool]:
        """Which writes are fresh. ValueError when a fresh one has a key that is taken.

        A key comes into a stream only with entries, which move the head. So what is free here at a head is
        free when the script finds that same head: of several writes none is done when one has a taken key.
        """
        commands = []
        for write in writes:
            keys = self._keys(write.stream)
            # The keys before the head: the answer must not be older than the head it goes with.
            named = [entry.key.encode() for entry in write.entries if entry.key is not None]
            taken: list[Argument] = ["HMGET", keys.keys, "", *named]
            commands += [
                Command(keys.head, taken),
                Command(keys.head, ("HMGET", keys.head, "sequence", "hash")),
            ]
        replies = self._exchange.run(commands)
        fresh = []
        for write, known, (sequence, hash_) in zip(writes, replies[::2], replies[1::2], strict=True):
            head = EMPTY_HEAD if sequence is None else parsing.head(write.stream, sequence, hash_)
            fresh.append(head == write.expected)
            if fresh[-1] and (_has_key_twice(write) or any(value is not None for value in known[1:])):
                _refuse_keys(write.stream)
        return fresh

    def _confirm(self, stream: str) -> None:
        """Wait until the replicas have all that the stream holds now.

        An entry found may be of an append that failed for want of replicas: it is not to be relied on yet.
        """
        key = self._keys(stream).confirmed
        with self._doing(f"have what was found in {stream!r} confirmed by the replicas"):
            self._exchange.run([Command(key, ("SET", key, ""))], writes=True)

    def _list(self, streams: Iterator[str]) -> None:
        """Put the names into the list of streams, before their first append: the list may hold too many.

        Once for each stream and process, and again when another server holds the list: it may lack a name.
        """
        key = streams_key(self._address.prefix)
        holder = self._exchange.topology.node_of(key)
        if holder != self._list_holder:
            self._listed, self._list_holder = set(), holder
        listed = self._listed  # another thread may begin a new one meanwhile
        new = [stream for stream in streams if stream not in listed]
        if not new:
            return
        members = [argument for stream in new for argument in (0, stream.encode())]
        self._exchange.run([Command(key, ("ZADD", key, *members))], writes=True)
        if len(listed) + len(new) > LISTED_MAX:
            listed.clear()
        listed.update(new)


def _chunks(keys: Sequence[str]) -> list[Sequence[str]]:
    return [keys[start : start + KEYS_PER_SCRIPT] for start in range(0, len(keys), KEYS_PER_SCRIPT)]


def _loaded(stream: str, names: Sequence[str], answer: Sequence[Any]) -> tuple[Head, dict[str, bytes]]:
    """From what LOAD answered."""
    sequence, hash_, mark, *found = answer
    head = parsing.checked(stream, sequence, hash_, mark)
    return head, _unsealed(stream, names, found[::2], found[1::2], marked=head.marked)


def _unsealed(
    stream: str, names: Sequence[str], stored: Sequence[Any], marks: Sequence[Any], *, marked: bool
) -> dict[str, bytes]:
    """The blobs that are there, each as its mark says."""
    blobs = {}
    for name, value, mark in zip(names, stored, marks, strict=True):
        given = unsealed(stream, name, value, mark, marked=marked)
        if given is not None:
            blobs[name] = given
    return blobs


def _rows(stream: str, first: int, limit: int, answer: Sequence[Any]) -> list[Row]:
    """From what ENTRIES answered."""
    sequence, found = answer
    rows = [parsing.row(stream, entry) for entry in found]
    end = parsing.number(stream, sequence)
    if [row.sequence for row in rows] != list(range(first, min(end, first - 1 + limit) + 1)):
        raise LedgerCorrupt(
            f"The stream {stream!r} has {end} entries, but not all from {first} on are there, or too many"
        )
    return rows


def _needs_look(writes: Sequence[Write]) -> bool:
    """Several writes stand or fall by their keys together; a script sees no key that comes twice in it."""
    if len(writes) == 1:
        return _has_key_twice(writes[0])
    return any(entry.key is not None for write in writes for entry in write.entries)


def _has_key_twice(write: Write) -> bool:
    keys = [entry.key for entry in write.entries if entry.key is not None]
    return len(set(keys)) < len(keys)


def _refuse_keys(stream: str) -> None:
    raise ValueError(f"A key is already in the stream {stream!r}: nothing was appended")


def _arguments(write: Write) -> list[Argument]:
    """What the script APPEND wants."""
    expected, entries = write.expected, write.entries
    last = Head(expected.sequence + len(entries), entries[-1].hash) if entries else expected
    numbered = list(zip(count(expected.sequence + 1), entries, strict=False))
    rows: list[Argument] = []
    for sequence, entry in numbered:
        rows += (f"{sequence}-0", entry.hash.encode(), entry.body)
    keys: list[Argument] = []
    for sequence, entry in numbered:
        if entry.key is not None:
            keys += (entry.key.encode(), sequence, key_mark(write.stream, entry.key, sequence))
    blobs: list[Argument] = []
    for name, value in write.blobs.items():
        mark = b"" if name in ADVICE else mark_of(write.stream, name, value)
        blobs += (name.encode(), sealed(name, value), mark)
    start = 9 + len(rows)  # the eight before them, counted from 1
    heads: list[Argument] = [expected.sequence, expected.hash.encode(), last.sequence, last.hash.encode()]
    marks: list[Argument] = [head_mark(0, last), int(write.adopts)]
    return [*heads, start, start + len(keys), *marks, *rows, *keys, *blobs]
