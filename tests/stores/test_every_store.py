"""What every store promises, whatever it is made of. A new back-end is one more row of `STORES`."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier
from typing import Any
from urllib.parse import urlencode

import pytest
import redis_server

from odometer_accountant.errors import StoreUnavailable
from odometer_accountant.stores import (
    EMPTY_HEAD,
    SCHEMES,
    Head,
    NewEntry,
    Note,
    Row,
    Store,
    Write,
    open_store,
)


@dataclass(frozen=True)
class Backend:
    """How to name a fresh store, and whether what one opening wrote is there for the next."""

    url: Callable[[Path], str]
    lasting: bool = True


SERVERS = ExitStack()


@pytest.fixture(scope="module", autouse=True)
def _servers() -> Iterator[None]:
    """What the tests of this file started ends with them."""
    with SERVERS:
        yield


@cache
def started(context: Callable[[Path], AbstractContextManager[Any]]) -> Any:
    """The servers of a back-end, once for all tests of this file; each test takes a prefix of its own."""
    folder = Path(SERVERS.enter_context(TemporaryDirectory(prefix="odometer-redis-")))
    return SERVERS.enter_context(context(folder))


def redis_url(context: Callable[[Path], AbstractContextManager[Any]], folder: Path, **options: int) -> str:
    """The same for the same folder, as a file's would be."""
    options_ = {"prefix": sha256(str(folder).encode()).hexdigest()[:16], **options}
    return f"{started(context).url}?{urlencode(options_)}"


STORES = {
    "sqlite": Backend(lambda folder: f"sqlite:///{folder}/ledger.sqlite"),
    "memory": Backend(lambda _folder: "memory://", lasting=False),
    "redis": Backend(partial(redis_url, redis_server.server)),
    "redis+sentinel": Backend(partial(redis_url, redis_server.sentinel_group, replicas=1, wait_ms=4000)),
    "redis+cluster": Backend(partial(redis_url, redis_server.cluster, replicas=1, wait_ms=4000)),
}
ELSEWHERE = {"rediss"}
"""Schemes that differ below the verbs only: test_redis.py has them."""
LASTING = [name for name, backend in STORES.items() if backend.lasting]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = open_store(STORES[request.param].url(tmp_path))
    yield opened
    opened.close()


def entry(number: int, key: str | None = None) -> NewEntry:
    return NewEntry(f"hash-{number}", f"body-{number}".encode(), key)


def write(stream: str, first: int, count: int, **blobs: bytes) -> Write:
    """Entries `first` and on, each under its own key, after the ones before."""
    expected = Head(first - 1, f"hash-{first - 1}") if first > 1 else EMPTY_HEAD
    return Write(stream, expected, [entry(n, f"key-{n}") for n in range(first, first + count)], blobs)


def row(number: int) -> Row:
    return Row(number, f"hash-{number}", f"body-{number}".encode())


def test_every_scheme_is_under_contract() -> None:
    """A scheme of `open_store` without a row in `STORES` would be untested."""
    assert set(STORES) | ELSEWHERE == set(SCHEMES)


# Appending and reading back


def test_an_unknown_stream_is_empty(store: Store) -> None:
    assert store.load("d", ["totals"]) == (EMPTY_HEAD, {})
    assert store.entries("d", 0, 10) == []
    assert store.find("d", ["key-1"]) == {}
    assert store.blobs("d", "", "", 10) == []
    assert store.streams("", 10) == []


def test_what_was_appended_is_read_back_exactly(store: Store) -> None:
    body = bytes(range(256)) * 40
    awkward = NewEntry("α" * 64, body, "principal:ключ \0 %_'\"")
    assert store.append([Write("d", EMPTY_HEAD, [awkward, entry(2)], {"totals": body})]) == [True]
    assert store.load("d", ["totals"]) == (Head(2, "hash-2"), {"totals": body})
    assert store.entries("d", 0, 10) == [Row(1, "α" * 64, body), row(2)]
    assert store.find("d", [awkward.key or ""]) == {awkward.key: Row(1, "α" * 64, body)}


def test_appends_continue_the_numbering(store: Store) -> None:
    store.append([write("d", 1, 3)])
    assert store.append([write("d", 4, 2)]) == [True]
    assert store.entries("d", 0, 10) == [row(n) for n in range(1, 6)]
    assert store.load("d", [])[0] == Head(5, "hash-5")


@pytest.mark.parametrize("expected", [EMPTY_HEAD, Head(1, "hash-1"), Head(2, "other"), Head(3, "hash-2")])
def test_a_stale_head_writes_nothing(store: Store, expected: Head) -> None:
    """Sequence and hash must both be the stream's, else no entry, key or blob of the write is kept."""
    store.append([write("d", 1, 2, totals=b"before")])
    assert store.append([Write("d", expected, [entry(9, "key-9")], {"totals": b"after"})]) == [False]
    assert store.load("d", ["totals"]) == (Head(2, "hash-2"), {"totals": b"before"})
    assert store.entries("d", 0, 10) == [row(1), row(2)]
    assert store.find("d", ["key-9"]) == {}


def test_a_stale_first_write_makes_no_stream(store: Store) -> None:
    assert store.append([Write("d", Head(1, "hash-1"), [entry(2)])]) == [False]
    assert store.streams("", 10) == []


def test_writes_of_one_append_stand_or_fall_by_their_own_head(store: Store) -> None:
    store.append([write("b", 1, 1)])
    assert store.append([write("a", 1, 1), write("b", 1, 1), write("c", 1, 2)]) == [True, False, True]
    assert [store.load(name, [])[0].sequence for name in "abc"] == [1, 1, 2]


def test_an_append_of_nothing_does_nothing(store: Store) -> None:
    assert store.append([]) == []
    assert store.streams("", 10) == []


def test_blobs_alone_move_no_head(store: Store) -> None:
    """Configuration may change without an entry; the stream exists from its first write."""
    assert store.append([Write("d", EMPTY_HEAD, [], {"config": b"1"})]) == [True]
    assert store.load("d", ["config"]) == (EMPTY_HEAD, {"config": b"1"})
    assert store.append([write("d", 1, 1), write("e", 1, 1)]) == [True, True]
    assert store.append([Write("d", Head(1, "hash-1"), [], {"config": b"2"})]) == [True]
    assert store.load("d", ["config"]) == (Head(1, "hash-1"), {"config": b"2"})
    assert store.streams("", 10) == ["d", "e"]


# Keys


def test_a_key_finds_its_entry(store: Store) -> None:
    """Any number of keys, known and unknown, some asked for twice; each answer is the key's own entry."""
    store.append([write("d", 1, 700)])
    asked = [f"key-{n}" for n in range(1, 900)] + ["key-5", "", "KEY-1"]
    assert store.find("d", asked) == {f"key-{n}": row(n) for n in range(1, 701)}
    assert store.find("d", []) == {}


def test_keys_belong_to_their_stream(store: Store) -> None:
    store.append([write("a", 1, 2), write("b", 1, 1)])
    assert store.find("b", ["key-1", "key-2"]) == {"key-1": row(1)}


@pytest.mark.parametrize("keys", [["new", "key-2"], ["new", "new"]], ids=["of an earlier entry", "twice"])
def test_a_key_taken_keeps_nothing_of_the_whole_append(store: Store, keys: list[str]) -> None:
    """The caller gets an error instead of answers, so no write of that call may have happened."""
    store.append([write("d", 1, 2, totals=b"before")])
    again = Write("d", Head(2, "hash-2"), [entry(3, keys[0]), entry(4, keys[1])], {"totals": b"after"})
    with pytest.raises(ValueError, match="key"):
        store.append([write("a", 1, 1), again, write("z", 1, 1)])
    assert store.load("d", ["totals"]) == (Head(2, "hash-2"), {"totals": b"before"})
    assert store.find("d", ["new"]) == {}
    assert store.streams("", 10) == ["d"]
    assert store.append([Write("d", Head(2, "hash-2"), [entry(3, "new")])]) == [True]


def test_a_key_taken_keeps_nothing_of_a_single_write(store: Store) -> None:
    store.append([write("d", 1, 2, totals=b"before")])
    with pytest.raises(ValueError, match="key"):
        store.append(
            [Write("d", Head(2, "hash-2"), [entry(3, "new"), entry(4, "key-1")], {"totals": b"after"})]
        )
    assert store.load("d", ["totals"]) == (Head(2, "hash-2"), {"totals": b"before"})
    assert store.find("d", ["new", "key-1"]) == {"key-1": row(1)}


def test_a_stale_write_is_stale_whatever_its_keys(store: Store) -> None:
    """Whoever was slower has to look again, and then finds the key."""
    store.append([write("d", 1, 2)])
    stale = Write("d", Head(1, "hash-1"), [entry(2, "key-1"), entry(3, "new"), entry(4, "new")])
    assert store.append([stale]) == [False]
    assert store.append([stale, write("e", 1, 1)]) == [False, True]


def test_one_append_takes_a_stream_once(store: Store) -> None:
    with pytest.raises(ValueError, match="two writes"):
        store.append([write("d", 1, 1), write("d", 2, 1)])
    assert store.streams("", 10) == []


# Pages


def test_entries_come_in_pages_of_one_stream(store: Store) -> None:
    store.append([write("a", 1, 3), write("b", 1, 5), write("c", 1, 3)])
    assert store.entries("b", 0, 2) == [row(1), row(2)]
    assert store.entries("b", 2, 2) == [row(3), row(4)]
    assert store.entries("b", 4, 2) == [row(5)]
    assert store.entries("b", 5, 2) == []
    assert store.entries("b", 10**18, 2) == []
    assert store.entries("b", 0, 0) == []


def test_blobs_are_listed_by_prefix_in_order(store: Store) -> None:
    names = ["a", "scope:", "scope:2", "scope:10", "scope:é", "scope:\U0010ffff", "scopf", "z"]
    store.append([Write("d", EMPTY_HEAD, [], {name: name.encode() for name in names})])
    store.append([Write("e", EMPTY_HEAD, [], {"scope:other": b""})])
    listed = ["scope:", "scope:10", "scope:2", "scope:é", "scope:\U0010ffff"]
    assert store.blobs("d", "scope:", "", 10) == [(name, name.encode()) for name in listed]
    assert [name for name, _ in store.blobs("d", "scope:", "scope:10", 2)] == listed[2:4]
    assert [name for name, _ in store.blobs("d", "", "", 100)] == sorted(names)
    assert store.blobs("d", "scope:", "", 0) == []


def test_streams_are_listed_in_order(store: Store) -> None:
    store.append([write(name, 1, 1) for name in ("c", "a", "b")])
    assert store.streams("", 2) == ["a", "b"]
    assert store.streams("b", 2) == ["c"]
    assert store.streams("", 0) == []


# Notes


def test_a_note_can_be_replaced_and_erased(store: Store) -> None:
    store.put_note("p1", Note("salt", "Ada"))
    store.put_note("p2", Note("salt", "Blaise"))
    store.put_note("p1", Note("new salt", "Ada L."))
    assert store.notes(["p1", "p2", "p3"]) == {"p1": Note("new salt", "Ada L."), "p2": Note("salt", "Blaise")}
    store.erase_note("p1")
    store.erase_note("p1")
    assert store.notes(["p1", "p2"]) == {"p2": Note("salt", "Blaise")}


# Threads, and the end


def test_of_racing_threads_one_wins_each_number(store: Store) -> None:
    """Eight threads append at one head: each number is given once, and every win is in the ledger."""
    start = Barrier(8)

    def charge(worker: int) -> list[str]:
        start.wait()
        won: list[str] = []
        while len(won) < 10:
            head, _ = store.load("d", [])
            mine = NewEntry(f"{worker}/{head.sequence}", b"", f"{worker}/{len(won)}")
            if store.append([Write("d", head, [mine], {"last": mine.hash.encode()})]) == [True]:
                won.append(mine.hash)
        return won

    with ThreadPoolExecutor(8) as threads:
        wins = [hash_ for won in threads.map(charge, range(8)) for hash_ in won]
    rows = store.entries("d", 0, 1000)
    assert [one.sequence for one in rows] == list(range(1, 81))
    assert sorted(one.hash for one in rows) == sorted(wins)
    assert store.load("d", ["last"]) == (Head(80, rows[-1].hash), {"last": rows[-1].hash.encode()})


def test_a_head_and_its_blobs_are_of_one_moment(store: Store) -> None:
    """While another thread appends, the blob read with a head is the one that was written with it."""
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(
            lambda: [store.append([write("d", n, 1, n=b"%d" % n)]) for n in range(1, 200)]
        )
        while not writing.done():
            head, blobs = store.load("d", ["n"])
            assert blobs == ({"n": b"%d" % head.sequence} if head.sequence else {})
        assert writing.result() == [[True]] * 199


def test_a_store_answers_a_ping(store: Store) -> None:
    store.ping()


CALLS: dict[str, Callable[[Store], object]] = {
    "load": lambda store: store.load("d", []),
    "append": lambda store: store.append([write("d", 2, 1)]),
    "entries": lambda store: store.entries("d", 0, 10),
    "find": lambda store: store.find("d", ["key-1"]),
    "blobs": lambda store: store.blobs("d", "", "", 10),
    "streams": lambda store: store.streams("", 10),
    "put_note": lambda store: store.put_note("p1", Note("salt", "Ada")),
    "notes": lambda store: store.notes(["p1"]),
    "erase_note": lambda store: store.erase_note("p1"),
    "ping": lambda store: store.ping(),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_closed_store_is_unavailable(store: Store, call: str) -> None:
    """Closed is not empty: every verb raises."""
    store.append([write("d", 1, 1)])
    store.close()
    store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        CALLS[call](store)


@pytest.mark.parametrize("name", LASTING)
def test_what_was_written_is_there_when_opened_again(name: str, tmp_path: Path) -> None:
    url = STORES[name].url(tmp_path)
    first = open_store(url)
    first.append([write("d", 1, 3, totals=b"t")])
    first.put_note("p1", Note("salt", "Ada"))
    first.close()
    second = open_store(url)
    assert second.load("d", ["totals"]) == (Head(3, "hash-3"), {"totals": b"t"})
    assert second.entries("d", 0, 10) == [row(1), row(2), row(3)]
    assert second.find("d", ["key-2"]) == {"key-2": row(2)}
    assert second.notes(["p1"]) == {"p1": Note("salt", "Ada")}
    second.close()


@pytest.mark.parametrize("name", LASTING)
def test_two_openings_see_each_other(name: str, tmp_path: Path) -> None:
    url = STORES[name].url(tmp_path)
    one, other = open_store(url), open_store(url)
    assert one.append([write("d", 1, 1)]) == [True]
    assert other.load("d", [])[0] == Head(1, "hash-1")
    assert other.append([write("d", 1, 1)]) == [False]
    assert other.append([write("d", 2, 1)]) == [True]
    assert one.entries("d", 0, 10) == [row(1), row(2)]
    one.close()
    other.close()


# URLs


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ledger.sqlite",
        "postgres://host/ledger",
        "sqlite:/ledger.sqlite",
        "sqlite://",
        "sqlite:///",
        "sqlite://host/ledger.sqlite",
        "sqlite:///folder/",
        "sqlite:///:memory:",
        "sqlite:///ledger.sqlite?mode=memory",
        "memory://name",
    ],
)
def test_a_url_that_names_no_store_is_refused_with_what_would_work(url: str) -> None:
    with pytest.raises(ValueError, match=r"(sqlite:///|memory://)"):
        open_store(url)


def test_a_refused_url_does_not_show_its_password() -> None:
    with pytest.raises(ValueError, match="postgres") as caught:
        open_store("postgres://user:hunter2@host/ledger")
    assert "hunter2" not in str(caught.value)
