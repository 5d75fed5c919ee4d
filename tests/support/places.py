"""What a ledger keeps, place by place, beside the store that keeps it: rows of a file, fields of a Redis."""

import contextlib
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from odometer_accountant.stores.redis.address import Address, parse
from odometer_accountant.stores.redis.connection import Connection, ask, open_connection, reply, send
from odometer_accountant.stores.redis.keys import StreamKeys, streams_key

SEAL = b"\x02"
"""What a configuration starts with where blobs have marks."""


def sqlite_without_marks(path: Path) -> None:
    """Make a ledger file what an earlier version would have written."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TABLE marks")
        connection.execute("UPDATE blobs SET value = CAST(substr(value, 2) AS BLOB) WHERE name = 'config'")
        connection.execute("PRAGMA user_version = 1")


@contextmanager
def redis_wire(url: str) -> Iterator[tuple[Connection, Address]]:
    """A connection to the server that a store's URL names."""
    address = parse(url)
    wire = open_connection(address.nodes[0], address)
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


Place = tuple[str, str, str]
"""Table, stream and name. An entry's and a head's name are its number and ""."""
TABLES: Final = ("head", "blob", "mark", "key", "entry")
_KINDS: Final = ("totals", "window", "config", "holds", "sessions", "lexicon")
PAGE: Final = 4096


def kind_of(place: Place) -> str:
    """What a fault is of: the kind of blob, or the table."""
    table, _, name = place
    return name.partition("/")[0] if table == "blob" else table


KINDS: Final = (*_KINDS, "head", "mark", "key", "entry")


@dataclass
class FilePlaces:
    """The rows of a ledger file, as it was `halfway` and in the `end`; `fresh` makes a copy to damage."""

    folder: Path
    made: int = 0

    def url(self) -> str:
        """Where the story is written."""
        return f"sqlite:///{self.folder}/told.sqlite"

    def halfway(self) -> None:
        self._copy("half.sqlite")

    def ended(self) -> None:
        self._copy("end.sqlite")
        self.older = self._read(self.folder / "half.sqlite")
        self.last = self._read(self.folder / "end.sqlite")

    def _copy(self, name: str) -> None:
        told, copied = (sqlite3.connect(self.folder / file) for file in ("told.sqlite", name))
        with closing(told) as source, closing(copied) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, without a log beside it

    def _read(self, path: Path) -> dict[Place, tuple[bytes, ...]]:
        found: dict[Place, tuple[bytes, ...]] = {}
        with closing(sqlite3.connect(path)) as connection:
            names = dict(connection.execute("SELECT id, name FROM streams"))
            for name, sequence, digest in connection.execute("SELECT name, sequence, hash FROM streams"):
                found["head", name, ""] = (str(sequence).encode(), digest.encode())
            for number, name, value in connection.execute("SELECT stream, name, value FROM blobs"):
                found["blob", names[number], name] = (value,)
            for number, name, mark in connection.execute("SELECT stream, name, mark FROM marks"):
                whose = name if number == 0 else names[abs(number)]
                what = "" if number == 0 else f"key {name}" if number < 0 else name
                found["mark", whose, what] = (mark.encode() if isinstance(mark, str) else mark,)
            for number, key, sequence in connection.execute("SELECT stream, key, sequence FROM keys"):
                found["key", names[number], key] = (str(sequence).encode(),)
            for number, digest, text in connection.execute("SELECT id, hash, body FROM entries"):
                place = ("entry", names[number >> 40], str(number & ((1 << 40) - 1)))
                found[place] = (digest.encode(), bytes(text))
        self.numbers = {name: number for number, name in names.items()}
        return found

    def fresh(self) -> str:
        self.made += 1
        self.path = self.folder / f"copy{self.made}.sqlite"
        shutil.copyfile(self.folder / "end.sqlite", self.path)
        return f"sqlite:///{self.path}"

    def drop(self) -> None:
        for path in self.folder.glob(f"copy{self.made}.sqlite*"):
            path.unlink()

    def put(self, place: Place, value: tuple[bytes, ...] | None) -> None:
        """Write a row's values, or delete it for None."""
        table, stream, name = place
        number = self.numbers[stream]
        entry = (number << 40) + int(name) if table == "entry" else 0
        mark = {"": (0, stream), "key": (-number, name[4:])}.get(name.partition(" ")[0], (number, name))
        where, at = {
            "head": ("streams SET sequence=CAST(? AS INTEGER), hash=CAST(? AS TEXT) WHERE id=?", (number,)),
            "blob": ("blobs SET value=? WHERE stream=? AND name=?", (number, name)),
            "mark": ("marks SET mark=? WHERE stream=? AND name=?", mark),
            "key": ("keys SET sequence=CAST(? AS INTEGER) WHERE stream=? AND key=?", (number, name)),
            "entry": ("entries SET hash=CAST(? AS TEXT), body=? WHERE id=?", (entry,)),
        }[table]
        statement = f"UPDATE {where}"
        if value is None:
            statement = f"DELETE FROM {where.partition(' SET ')[0]} WHERE {where.partition(' WHERE ')[2]}"
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            assert connection.execute(statement, (*(value or ()), *at)).rowcount == 1, place

    # -- pages

    def pages(self) -> list[int]:
        """Those that hold something else than halfway, but the first, which names the tables."""
        half, end = ((self.folder / name).read_bytes() for name in ("half.sqlite", "end.sqlite"))
        count = len(end) // PAGE
        return [page for page in range(1, count) if _page(half, page) != _page(end, page)]

    def put_page(self, page: int, how: str, other: int, chance: random.Random) -> None:
        """Damage a page of the copy: `how` as for places."""
        half, end = ((self.folder / name).read_bytes() for name in ("half.sqlite", "end.sqlite"))
        old, new = _page(half, page).ljust(PAGE, b"\0"), _page(end, page)
        cut = chance.randrange(1, PAGE)
        writes = {
            "deleted": [(page, bytes(PAGE))],
            "older": [(page, old)],
            "torn": [(page, new[:cut] + (old[cut:] if old[cut:] != new[cut:] else bytes(PAGE - cut)))],
            "swapped": [(page, _page(end, other)), (other, new)],
        }[how]
        with contextlib.suppress(sqlite3.Error), closing(sqlite3.connect(self.path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with self.path.open("r+b") as file:
            for number, content in writes:
                file.seek(number * PAGE)
                file.write(content)


def _page(content: bytes, number: int) -> bytes:
    return content[number * PAGE : (number + 1) * PAGE]


@dataclass
class RedisPlaces:
    """The fields of the keys of a Redis, as `FilePlaces` has the rows of a file."""

    server_url: str
    name: str
    made: int = 0
    dumps: dict[str, dict[bytes, bytes]] = field(default_factory=dict)

    def url(self) -> str:
        return f"{self.server_url}?prefix={self.name}told"

    def halfway(self) -> None:
        self.older = self._read("half")

    def ended(self) -> None:
        self.last = self._read("end")

    def _read(self, when: str) -> dict[Place, tuple[bytes, ...]]:
        found: dict[Place, tuple[bytes, ...]] = {}
        with redis_wire(self.url()) as (wire, address):
            names: list[bytes] = list(ask(wire, "KEYS", f"{address.prefix}:*"))
            self.dumps[when] = {name[len(address.prefix) :]: ask(wire, "DUMP", name) for name in names}
            self.streams = [
                bytes(name).decode() for name in ask(wire, "ZRANGE", streams_key(address.prefix), 0, -1)
            ]
            for stream in self.streams:
                keys = StreamKeys.of(address.prefix, stream)
                found["head", stream, ""] = tuple(ask(wire, "HMGET", keys.head, "sequence", "hash"))
                for table, key in (("blob", keys.blobs), ("mark", keys.marks), ("key", keys.keys)):
                    flat = ask(wire, "HGETALL", key)
                    for field_, value in zip(flat[::2], flat[1::2], strict=True):
                        found[table, stream, bytes(field_).decode()] = (bytes(value),)
                for number, (_, digest, _, text) in ask(wire, "XRANGE", keys.entries, "-", "+"):
                    found["entry", stream, bytes(number).decode().partition("-")[0]] = (digest, text)
        return found

    def fresh(self) -> str:
        self.made += 1
        self.prefix = f"{self.name}{self.made}"
        with redis_wire(self.server_url) as (wire, _):
            commands = [
                ("RESTORE", self.prefix.encode() + name, 0, dump) for name, dump in self.dumps["end"].items()
            ]
            send(wire, commands)
            assert all(reply(wire) == b"OK" for _ in commands)
        return f"{self.server_url}?prefix={self.prefix}"

    def drop(self) -> None:
        with redis_wire(self.server_url) as (wire, _):
            names = ask(wire, "KEYS", f"{self.prefix}:*")
            ask(wire, "DEL", *names)

    def put(self, place: Place, value: tuple[bytes, ...] | None) -> None:
        table, stream, name = place
        keys = StreamKeys.of(self.prefix, stream)
        with redis_wire(self.server_url) as (wire, _):
            if table == "entry":
                self._put_entry(wire, keys, name, value)
            elif table == "head" and value is None:
                ask(wire, "DEL", keys.head)
            elif table == "head" and value is not None:
                ask(wire, "HSET", keys.head, "sequence", value[0], "hash", value[1])
            else:
                key = {"blob": keys.blobs, "mark": keys.marks, "key": keys.keys}[table]
                if value is None:
                    assert ask(wire, "HDEL", key, name) == 1
                else:
                    assert ask(wire, "HSET", key, name, value[0]) == 0

    def _put_entry(
        self, wire: Connection, keys: StreamKeys, name: str, value: tuple[bytes, ...] | None
    ) -> None:
        """A Redis Stream takes no entry between others: it is written anew."""
        rows = ask(wire, "XRANGE", keys.entries, "-", "+")
        ask(wire, "DEL", keys.entries)
        for number, fields in rows:
            here = bytes(number).decode() == f"{name}-0"
            if here and value is None:
                continue
            ask(
                wire,
                "XADD",
                keys.entries,
                number,
                *(("h", value[0], "b", value[1]) if here and value else fields),
            )

    # -- whole keys, which are to a Redis what pages are to a file

    def pages(self) -> list[int]:
        half, end = self.dumps["half"], self.dumps["end"]
        self.wholes = sorted(name for name, dump in end.items() if half.get(name) != dump and b"{" in name)
        return list(range(len(self.wholes)))

    def put_page(self, page: int, how: str, other: int, chance: random.Random) -> None:
        name, another = self.wholes[page], self.wholes[other]
        half, end = self.dumps["half"], self.dumps["end"]
        with redis_wire(self.server_url) as (wire, _):
            key, there = self.prefix.encode() + name, self.prefix.encode() + another
            ask(wire, "DEL", key)
            if how == "older" and name in half:
                ask(wire, "RESTORE", key, 0, half[name])
            elif how == "torn":  # half of its fields; a key of another type is gone
                ask(wire, "RESTORE", key, 0, end[name])
                _tear(wire, key, chance)
            elif how == "swapped":
                ask(wire, "DEL", there)
                ask(wire, "RESTORE", key, 0, end[another])
                ask(wire, "RESTORE", there, 0, end[name])


def _tear(wire: Connection, key: bytes, chance: random.Random) -> None:
    """Take every other element out of a key."""
    kind = bytes(ask(wire, "TYPE", key))
    if kind == b"hash":
        names = sorted(ask(wire, "HKEYS", key))
        ask(wire, "HDEL", key, *chance.sample(names, (len(names) + 1) // 2))
    elif kind == b"zset":
        ask(wire, "ZREMRANGEBYRANK", key, 0, 0)
    else:
        rows = ask(wire, "XRANGE", key, "-", "+")
        ask(wire, "XDEL", key, *(number for number, _ in rows[len(rows) // 2 :]))
