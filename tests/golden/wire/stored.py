"""What lies in a store, as lines of text: the rows of an SQLite file, the keys of a Redis."""

import contextlib
import hashlib
import itertools
import json
import sqlite3
from collections.abc import Iterator
from typing import Any

import redis

PRAGMAS = ("application_id", "user_version", "page_size", "encoding")


def line(*parts: Any) -> str:
    return " ".join(one if isinstance(one, str) else json.dumps(one, sort_keys=True) for one in parts)


def schema(path: str) -> Iterator[str]:
    """The settings and the tables of an SQLite file."""
    with contextlib.closing(sqlite3.connect(path)) as base:
        yield line({name: base.execute(f"PRAGMA {name}").fetchone()[0] for name in PRAGMAS})
        tables = base.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name")
        yield from (line(kind, name, " ".join((sql or "").split())) for kind, name, sql in tables)


def rows(path: str) -> Iterator[str]:
    """Every row of an SQLite file, by table."""
    with contextlib.closing(sqlite3.connect(path)) as base:
        tables = base.execute("SELECT name FROM sqlite_master WHERE type='table' ORDER BY name").fetchall()
        for (name,) in tables:
            for row in sorted(map(text, base.execute(f'SELECT * FROM "{name}"'))):
                yield f"{name} {row}"


def keys(url: str) -> Iterator[str]:
    """Every key of a Redis, with its type and its value."""
    client = redis.Redis.from_url(url)
    for key in sorted(client.keys()):
        kind = client.type(key).decode()
        if kind == "hash":
            value: Any = sorted(text(pair) for pair in client.hgetall(key).items())
        elif kind == "zset":
            value = [text(pair) for pair in client.zrange(key, 0, -1, withscores=True)]
        elif kind == "stream":
            value = [text([name, *itertools.chain(*body.items())]) for name, body in client.xrange(key)]
        elif kind == "list":
            value = [text([one]) for one in client.lrange(key, 0, -1)]
        else:
            value = [text([client.get(key)])]
        for one in value:
            yield f"{kind} {text([key])} {one}"
    client.close()


def text(row: Any) -> str:
    return json.dumps([short(one.decode("latin-1") if isinstance(one, bytes) else one) for one in row])


def short(value: Any) -> Any:
    """A long text by its start and its SHA-256; other golden files have the bytes themselves."""
    if not isinstance(value, str) or len(value) <= 100:
        return value
    return f"{value[:60]}… {len(value)} {hashlib.sha256(value.encode('latin-1')).hexdigest()}"
