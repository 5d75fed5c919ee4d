"""RedisStore: implements a store's methods with a few commands each."""

import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from redis.exceptions import RedisError

from odometer_accountant.errors import LedgerCorrupt, StoreUnavailable
from odometer_accountant.stores.base import EMPTY_HEAD, Examined, Head, Note, Row, View, Write
from odometer_accountant.stores.marks import (
    HEAD,
    check_key,
    examined,
)
from odometer_accountant.stores.redis import parsing, scripts, server_checks
from odometer_accountant.stores.redis.address import Address
from odometer_accountant.stores.redis.append_command import (
    append_arguments,
    has_duplicate_key,
    needs_key_check,
    refuse_keys,
)
from odometer_accountant.stores.redis.connection import Argument
from odometer_accountant.stores.redis.errors import translate_errors
from odometer_accountant.stores.redis.exchange import Command, Exchange
from odometer_accountant.stores.redis.keys import StreamKeys, names_between, notes_key
from odometer_accountant.stores.redis.scripts import Script
from odometer_accountant.stores.redis.stream_list import StreamList

log = logging.getLogger("odometer.stores.redis")

KEYS_PER_SCRIPT: Final = 256
ROWS_PER_SCRIPT: Final = 1000
"""These bound how long one script blocks the server."""
RECHECK_S: Final = 2.0
_NUMBER_MAX: Final = 1 << 62


class RedisStore:
    """A ledger in Redis. Every method raises StoreUnavailable, or LedgerCorrupt when it is damaged."""

    def __init__(self, address: Address, *, allow_volatile: bool = False) -> None:
        """Connect, and check every server that may hold data.

        ValueError: a server may lose acknowledged writes. `allow_volatile`: log a warning instead.
        """
        self._address = address
        self._exchange = Exchange(address, allow_volatile=allow_volatile)
        self._streams = StreamList(self._exchange, address.prefix)
        self._checked_at = time.monotonic()
        if allow_volatile:
            log.warning(
                "the settings of the Redis servers are not checked (allow_volatile): "
                "what they acknowledge may be lost, and with it the record of a loss of privacy"
            )
        try:
            with translate_errors("open the Redis store", unsafe_is_usage=True):
                server_checks.check_all(self._exchange, self._address.prefix)
        except BaseException:
            self._exchange.nodes.close()
            raise

    def load(self, stream: str, names: Sequence[str]) -> tuple[Head, dict[str, bytes]]:
        with self._doing(f"read the stream {stream!r}"):
            (answer,) = self._exchange.run([self._load(stream, names)])
        return parsing.loaded(stream, names, answer)

    def view(self, stream: str, names: Sequence[str], after: int, limit: int, keys: Sequence[str]) -> View:
        first, limit = max(after, 0) + 1, min(limit, ROWS_PER_SCRIPT)
        chunks = _chunks(keys)
        with self._doing(f"look at the stream {stream!r}"):
            load = self._load(stream, names)
            entries = self._command(scripts.ENTRIES, stream, f"{first}-0", limit)
            loaded, page, *answers = self._exchange.run([load, entries, *self._finds(stream, chunks)])
        head, blobs = parsing.loaded(stream, names, loaded)
        return View(
            head, blobs, parsing.rows(stream, first, limit, page), self._found(stream, chunks, answers)
        )

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
            fresh = self._check_keys(writes) if needs_key_check(writes) else [True] * len(writes)
            self._streams.add(write.stream for write, current in zip(writes, fresh, strict=True) if current)
            todo = [write for write, current in zip(writes, fresh, strict=True) if current]
            commands = [
                self._command(scripts.APPEND, write.stream, *append_arguments(write)) for write in todo
            ]
            replies = iter(self._exchange.run(commands, writes=True))
            results = [next(replies) if current else scripts.STALE for current in fresh]
        if scripts.KEY_TAKEN in results:
            if len(writes) > 1:  # impossible: it was free at this same head
                raise StoreUnavailable(
                    "A key came into a stream whose head did not move: unsure what was kept"
                )
            refuse_keys(writes[results.index(scripts.KEY_TAKEN)].stream)
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
        return parsing.rows(stream, first, limit, self._script(scripts.ENTRIES, stream, f"{first}-0", limit))

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
        return list(parsing.unsealed_blobs(stream, names, stored, marks, marked=marked).items())

    def names(self, stream: str, prefix: str, after: str, limit: int) -> list[str]:
        return self._page_of_blobs(stream, prefix, after, limit)[0]

    def _page_of_blobs(
        self, stream: str, prefix: str, after: str, limit: int
    ) -> tuple[list[str], Any, Any, Any]:
        """The names; sequence, hash and mark of the head; the stored values; the marks of the names."""
        with self._doing(f"list the blobs of {stream!r}"):
            bounds = names_between(prefix, after)
            sequence, hash_, mark, *found = self._script(scripts.BLOBS, stream, *bounds, max(limit, 0))
            names = [bytes(name).decode() for name in found[::3]]
        return names, (sequence, hash_, mark), found[1::3], found[2::3]

    def streams(self, after: str, limit: int) -> list[str]:
        with self._doing("list the streams"):
            return self._streams.page(after, limit)

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

        Its text stays in the server's append-only file until a rewrite. The server is asked to rewrite
        now; if this user has no right to ask, it does so later.
        """
        with self._doing("erase a note"):
            key = notes_key(self._address.prefix)
            (erased,) = self._exchange.run([Command(key, ("HDEL", key, name.encode()))], writes=True)
            if erased:
                with suppress(RedisError, OSError, StoreUnavailable):
                    self._exchange.run([Command(key, ("BGREWRITEAOF",))])

    def check(self) -> list[str]:
        """Always empty: reading the streams shows every fault."""
        return []

    def ping(self) -> None:
        """Ping every primary; every RECHECK_S seconds check its role and settings too."""
        with self._doing("reach the Redis servers"), self._exchange.nodes.call():
            now = time.monotonic()
            if now - self._checked_at < RECHECK_S:
                server_checks.ping_all(self._exchange)
            else:
                server_checks.recheck(self._exchange)
                self._checked_at = now

    def close(self) -> None:
        """Close the connections. Safe to call twice; afterwards every method raises StoreUnavailable."""
        self._exchange.nodes.close()

    @contextmanager
    def _doing(self, what: str) -> Iterator[None]:
        self._exchange.nodes.check_open()
        with translate_errors(what):
            yield

    def _keys(self, stream: str) -> StreamKeys:
        return StreamKeys.of(self._address.prefix, stream)

    def _command(self, script: Script, stream: str, *args: Argument) -> Command:
        keys = self._keys(stream)
        return Command(keys.head, args, script, keys.six())

    def _script(self, script: Script, stream: str, *args: Argument) -> Any:
        (answer,) = self._exchange.run([self._command(script, stream, *args)])
        return answer

    def _check_keys(self, writes: Sequence[Write]) -> list[bool]:
        """Whether each write's head is current. ValueError if such a write has a taken key.

        A key enters a stream only with entries, which move the head. So a key that is free at a head is still
        free when the script finds that same head, and no write is done when one of them has a taken key.
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
            if fresh[-1] and (has_duplicate_key(write) or any(value is not None for value in known[1:])):
                refuse_keys(write.stream)
        return fresh

    def _confirm(self, stream: str) -> None:
        """Wait until the replicas have everything that the stream holds now.

        A found entry may belong to an append that failed for lack of replicas; it is not safe until then.
        """
        key = self._keys(stream).confirmed
        with self._doing(f"have what was found in {stream!r} confirmed by the replicas"):
            self._exchange.run([Command(key, ("SET", key, ""))], writes=True)


def _chunks(keys: Sequence[str]) -> list[Sequence[str]]:
    return [keys[start : start + KEYS_PER_SCRIPT] for start in range(0, len(keys), KEYS_PER_SCRIPT)]
