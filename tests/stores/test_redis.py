"""The Redis store alone: servers that forget, die, hang or lie. Each of them is a real one."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import redis_server
from redis.crc import key_slot
from redis_server import Server

from odometer_accountant.errors import LedgerCorrupt, StoreUnavailable
from odometer_accountant.stores import EMPTY_HEAD, Head, NewEntry, Note, Store, Write, open_store
from odometer_accountant.stores.redis import store as redis_store
from odometer_accountant.stores.redis.keys import StreamKeys
from odometer_accountant.stores.redis.safety import RIGHTS

PASSWORD = "hunter2/@?"
QUOTED = "hunter2%2F%40%3F"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a password, for tests that leave it running. Emptied by `redis`."""
    with redis_server.server(tmp_path_factory.mktemp("redis"), password=PASSWORD) as running:
        yield running


@pytest.fixture
def redis(shared: Server) -> Server:
    shared.ask("FLUSHALL")
    return shared


def url(server: Server, options: str = "") -> str:
    return f"redis://:{QUOTED}@127.0.0.1:{server.port}{options}"


@pytest.fixture
def store(redis: Server) -> Iterator[Store]:
    with closing(open_store(url(redis))) as opened:
        yield opened


@contextmanager
def own(folder: Path, *config: str, options: str = "") -> Iterator[tuple[Server, Store]]:
    """A server that the test may stop, and a store on it."""
    with (
        redis_server.server(folder, extra_config=config) as server,
        closing(open_store(f"{server.url}?timeout_s=0.5{options}")) as opened,
    ):
        yield server, opened


def write(n: int, stream: str = "d", count: int = 1) -> Write:
    """Entries n and on of `stream`, with the number of the last in the blob `last`."""
    expected = Head(n - 1, f"hash-{n - 1}") if n > 1 else EMPTY_HEAD
    entries = [NewEntry(f"hash-{i}", b"x" * 400, f"key-{i}") for i in range(n, n + count)]
    return Write(stream, expected, entries, {"last": b"%d" % (n + count - 1)})


def holds(store: Store, n: int, stream: str = "d") -> None:
    """The stream holds entries 1 to n, whole, and its blob says so."""
    assert store.load(stream, ["last"]) == (Head(n, f"hash-{n}"), {"last": b"%d" % n})
    assert [row.hash for row in store.entries(stream, 0, n + 10)] == [f"hash-{i}" for i in range(1, n + 1)]
    keys = [f"key-{i}" for i in range(1, n + 1)]
    assert [row.sequence for row in store.find(stream, keys).values()] == list(range(1, n + 1))


# Names


AWKWARD = ["", "%", "{", "}", "{}", "a{b}c", "{a}", "a", "A", "ä", "a:head", "a b\n", "*", "%7B"]


def test_any_name_of_a_stream_is_a_stream_of_its_own(store: Store) -> None:
    """No name ends the hash tag early, and no two names share a key."""
    for n, name in enumerate(AWKWARD):
        assert store.append([Write(name, EMPTY_HEAD, [NewEntry(f"hash of {n}", b"")])]) == [True]
    assert [store.load(name, [])[0].hash for name in AWKWARD] == [f"hash of {n}" for n in range(len(AWKWARD))]
    assert store.streams("", 100) == sorted(AWKWARD)[1:]


def test_all_keys_of_a_stream_share_a_hash_slot() -> None:
    """In a cluster a script takes the keys of one slot only."""
    for name in AWKWARD:
        keys = StreamKeys.of("po", name)
        assert len({key_slot(key) for key in (*keys.six(), keys.confirmed)}) == 1


def test_more_entries_than_one_step_reads_come_whole(store: Store) -> None:
    store.append([write(1, count=2500)])
    holds(store, 2500)
    assert [row.sequence for row in store.entries("d", 100, 2000)] == list(range(101, 2101))


def test_a_prefix_of_blobs_is_no_pattern(store: Store) -> None:
    """What means something in a pattern of Redis stands for itself in the prefix of a blob's name."""
    names = ["a*", "ab", "a?c", "[ab]", "b", "\\a", "^a", "a-c"]
    store.append([Write("d", EMPTY_HEAD, [], {name: name.encode() for name in names})])
    for prefix in ("a*", "a?", "[ab]", "\\", "^", "a-"):
        assert [name for name, _ in store.blobs("d", prefix, "", 10)] == [
            name for name in sorted(names) if name.startswith(prefix)
        ]


def test_many_blobs_are_listed_whole(store: Store) -> None:
    """More than one page, some ending with the last blob of the prefix."""
    names = [f"totals/unit/u-{n:07}" for n in range(5000)]
    store.append([Write("d", EMPTY_HEAD, [], {name: name.encode() * 4 for name in names})])
    listed: list[str] = []
    while page := store.blobs("d", "totals/", listed[-1] if listed else "", 1500):
        listed += [name for name, _ in page]
    assert listed == names


def test_ledgers_of_different_prefixes_share_a_server_and_nothing_else(redis: Server) -> None:
    with (
        closing(open_store(url(redis, "?prefix=one"))) as one,
        closing(open_store(url(redis, "?prefix=one:two"))) as other,
        closing(open_store(url(redis, "/1?prefix=one"))) as database,
    ):
        one.append([write(1)])
        one.put_note("p", Note("salt", "Ada"))
        for empty in (other, database):
            assert empty.load("d", ["last"]) == (EMPTY_HEAD, {})
            assert (empty.streams("", 10), empty.notes(["p"])) == ([], {})
            assert empty.append([write(1)]) == [True]
        holds(one, 1)


def test_a_name_whose_first_append_failed_is_not_listed(redis: Server, store: Store) -> None:
    store.append([write(1, "b")])
    redis.ask("ZADD", "po:streams", 0, "a", 0, "c")
    assert store.streams("", 1) == ["b"]
    assert store.streams("", 10) == ["b"]


# The settings of the server

WEAK = {
    "appendonly": "appendonly no",
    "appendfsync": "appendfsync everysec",
    "no-appendfsync-on-rewrite": "no-appendfsync-on-rewrite yes",
    "maxmemory-policy": "maxmemory-policy allkeys-lru",
}


@pytest.mark.parametrize("name", WEAK)
def test_a_server_that_may_forget_is_refused_with_the_lines_that_help(name: str, tmp_path: Path) -> None:
    with redis_server.server(tmp_path, extra_config=[WEAK[name]]) as server:
        with pytest.raises(ValueError, match="may lose") as caught:
            open_store(server.url)
        said = str(caught.value)
        assert f"127.0.0.1:{server.port}" in said
        assert f"{name} is {WEAK[name].split()[1]}, not" in said
        assert all(f"\n  {line}\n" in said for line in redis_server.SAFE)
        assert "--allow-volatile-store" in said


def test_a_server_that_hides_its_settings_is_refused(tmp_path: Path) -> None:
    with (
        redis_server.server(tmp_path, extra_config=['rename-command CONFIG ""']) as server,
        pytest.raises(ValueError, match="does not tell its settings"),
    ):
        open_store(server.url)


def test_a_user_who_may_not_read_the_settings_is_told_which_right_is_missing(redis: Server) -> None:
    redis.ask("ACL", "SETUSER", "clerk", "on", ">secret", "~*", "+@all", "-config")
    with pytest.raises(ValueError, match=r"\+config\|get"):
        open_store(f"redis://clerk:secret@127.0.0.1:{redis.port}")


def test_a_volatile_server_serves_if_that_is_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with redis_server.server(tmp_path, extra_config=WEAK.values()) as server:
        with closing(open_store(server.url, allow_volatile=True)) as store:
            store.append([write(1)])
            holds(store, 1)
        assert "may be lost" in caplog.text


def test_a_weak_replica_is_refused_as_the_primary_would_be(redis: Server, tmp_path: Path) -> None:
    """It may be the primary tomorrow."""
    follow = [f"replicaof 127.0.0.1 {redis.port}", "appendfsync everysec"]
    with redis_server.server(tmp_path, extra_config=follow, password=PASSWORD) as replica:
        redis_server.wait_until(lambda: len(redis.ask("ROLE")[2]) == 1, "the replica follows")
        with pytest.raises(ValueError, match=f"127.0.0.1:{replica.port} may lose"):
            open_store(url(redis))
    redis_server.wait_until(lambda: not redis.ask("ROLE")[2], "the replica is gone")


def test_a_server_that_comes_back_weaker_takes_no_append(tmp_path: Path) -> None:
    """Checked on the new connection, before anything is sent on it."""
    with own(tmp_path) as (server, store):
        store.append([write(1)])
        server.kill()
        server.file.write_text(server.file.read_text().replace("appendfsync always", "appendfsync everysec"))
        server.start()
        with pytest.raises(StoreUnavailable, match="appendfsync is everysec, not always"):
            store.append([write(2)])
        with pytest.raises(StoreUnavailable, match="appendfsync is everysec"):
            store.ping()
        assert server.ask("HGET", "po:{d}:head", "sequence") == b"1"


def test_a_setting_weakened_while_serving_turns_the_ping_off(
    redis: Server, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And appends from then on, on whatever connection, until it is set right again."""
    monkeypatch.setattr(redis_store, "RECHECK_S", 0.0)
    store.append([write(1)])
    assert isinstance(store, redis_store.RedisStore)
    nodes, node = store._exchange.nodes, ("127.0.0.1", redis.port)
    with nodes.connection(node), nodes.connection(node), nodes.connection(node):
        pass  # now three are idle
    redis.ask("CONFIG", "SET", "appendfsync", "no")
    try:
        for call in (store.ping, lambda: store.append([write(2)]), store.ping):
            with pytest.raises(StoreUnavailable, match="appendfsync is no"):
                call()
    finally:
        redis.ask("CONFIG", "SET", "appendfsync", "always")
    store.ping()
    assert store.append([write(2)]) == [True]


def test_a_replica_is_not_taken_for_the_primary(redis: Server, tmp_path: Path) -> None:
    with (
        redis_server.server(tmp_path, extra_config=["replicaof 127.0.0.1 1"]) as replica,
        pytest.raises(ValueError, match="is a replica"),
    ):
        open_store(replica.url)


# Servers that die, hang, run full


def test_a_killed_server_is_unavailable_and_comes_back_with_all_it_acknowledged(tmp_path: Path) -> None:
    with own(tmp_path) as (server, store):
        for n in range(1, 51):
            assert store.append([write(n)]) == [True]
        server.kill()
        for _ in range(3):
            for call in (lambda: store.append([write(51)]), lambda: store.load("d", []), store.ping):
                with pytest.raises(StoreUnavailable):
                    call()
        server.start()
        store.ping()
        holds(store, 50)
        assert store.append([write(51)]) == [True]


def test_a_paused_server_is_unavailable_within_the_timeout(tmp_path: Path) -> None:
    """What was sent to it may still happen, once and whole."""
    with own(tmp_path) as (server, store):
        store.append([write(1)])
        server.pause()
        try:
            began = time.monotonic()
            with pytest.raises(StoreUnavailable, match="Timeout"):
                store.append([write(2)])
            assert time.monotonic() - began < 3
        finally:
            server.resume()
        redis_server.wait_until(lambda: server.ask("PING") == b"PONG", "it answers again")
        if store.load("d", [])[0] == Head(1, "hash-1"):
            store.append([write(2)])
        holds(store, 2)


def test_a_full_server_refuses_the_write_and_changes_nothing(redis: Server, store: Store) -> None:
    store.append([write(1)])
    redis.ask("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(StoreUnavailable, match="maxmemory"):
            store.append([write(2)])
    finally:
        redis.ask("CONFIG", "SET", "maxmemory", "0")
    holds(store, 1)
    assert store.append([write(2)]) == [True]


def test_the_rights_that_are_listed_are_enough(redis: Server) -> None:
    """Every verb works for a user who has them and no more."""
    redis.ask("ACL", "SETUSER", "clerk", "reset", "on", ">secret", "~own:*", "-@all", *RIGHTS.split())
    options = "?prefix=own&replicas=1&wait_ms=1"
    with (
        closing(open_store(f"redis://clerk:secret@127.0.0.1:{redis.port}/1{options}")) as waiting,
        pytest.raises(StoreUnavailable, match="0 of the 1 replicas"),
    ):
        waiting.append([write(1)])
    with closing(open_store(f"redis://clerk:secret@127.0.0.1:{redis.port}/1?prefix=own")) as store:
        assert store.append([write(1), write(1, "e")]) == [True, True]
        assert store.append([write(2)]) == [True]
        holds(store, 2)
        assert store.streams("", 10) == ["d", "e"]
        assert store.blobs("d", "", "", 10) == [("last", b"2")]
        store.put_note("p", Note("salt", "Ada"))
        store.erase_note("p")
        assert store.notes(["p"]) == {}
        store.ping()


@pytest.mark.parametrize("right", ["hset", "xadd"])
def test_a_user_who_may_not_write_changes_nothing(redis: Server, right: str) -> None:
    redis.ask("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@all", f"-{right}")
    with closing(open_store(url(redis))) as store:
        store.append([write(1)])
        with (
            closing(open_store(f"redis://reader:secret@127.0.0.1:{redis.port}")) as limited,
            pytest.raises(StoreUnavailable),
        ):
            limited.append([write(2)])
        holds(store, 1)
        assert store.append([write(2)]) == [True]


def test_a_server_that_forgot_the_scripts_is_told_them_again(redis: Server, store: Store) -> None:
    store.append([write(1)])
    redis.ask("SCRIPT", "FLUSH")
    assert store.append([write(2)]) == [True]
    holds(store, 2)


def test_a_store_opened_before_a_fork_is_refused_in_the_child(store: Store) -> None:
    """Two processes on one connection would read each other's replies."""
    store.append([write(1)])
    child = os.fork()
    if child == 0:
        try:
            store.load("d", [])
        except StoreUnavailable as error:
            os._exit(0 if "fork" in str(error) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    holds(store, 1)


# Replicas


def test_an_append_that_too_few_replicas_have_is_unsure(tmp_path: Path) -> None:
    with own(tmp_path, options="&replicas=1&wait_ms=50") as (server, store):
        with pytest.raises(StoreUnavailable, match="0 of the 1 replicas"):
            store.append([write(1)])
        follow = [f"replicaof 127.0.0.1 {server.port}"]
        with redis_server.server(tmp_path / "replica", extra_config=follow):
            redis_server.wait_until(lambda: len(server.ask("ROLE")[2]) == 1, "the replica follows")
            with closing(open_store(f"{server.url}?replicas=1&wait_ms=4000")) as patient:
                assert patient.append([write(1)]) == [True]
                assert patient.append([write(1)]) == [False]
                holds(patient, 1)


def test_an_entry_that_too_few_replicas_have_is_not_found_for_certain(tmp_path: Path) -> None:
    """Else the retry of an append that was unsure would be told that it is safe."""
    with own(tmp_path, options="&replicas=1&wait_ms=50") as (server, store):
        with closing(open_store(server.url)) as careless:
            careless.append([write(1)])
        assert store.find("d", ["key-2"]) == {}
        with pytest.raises(StoreUnavailable, match="0 of the 1 replicas"):
            store.find("d", ["key-1"])


# Damage

DAMAGE: dict[str, tuple[Sequence[str], Callable[[Store], object]]] = {
    "the head is gone": (["DEL", "po:{d}:head"], lambda store: store.load("d", [])),
    "the head is gone, at an append": (["DEL", "po:{d}:head"], lambda store: store.append([write(1)])),
    "the head is gone, at entries": (["DEL", "po:{d}:head"], lambda store: store.entries("d", 0, 10)),
    "the head is gone, at a key": (["DEL", "po:{d}:head"], lambda store: store.find("d", ["key-1"])),
    "half a head": (["HDEL", "po:{d}:head", "hash"], lambda store: store.load("d", [])),
    "half a head, at several": (
        ["HDEL", "po:{d}:head", "hash"],
        lambda store: store.append([write(4), write(1, "e")]),
    ),
    "a head of no number": (["HSET", "po:{d}:head", "sequence", "x"], lambda store: store.load("d", [])),
    "an entry is gone": (["XDEL", "po:{d}:entries", "2-0"], lambda store: store.entries("d", 0, 10)),
    "the last is gone": (["XDEL", "po:{d}:entries", "3-0"], lambda store: store.entries("d", 2, 10)),
    "all are gone": (["DEL", "po:{d}:entries"], lambda store: store.entries("d", 0, 10)),
    "the entry of a key": (["XDEL", "po:{d}:entries", "2-0"], lambda store: store.find("d", ["key-2"])),
    "one too many": (
        ["XADD", "po:{d}:entries", "4-0", "h", "", "b", ""],
        lambda store: store.entries("d", 0, 9),
    ),
    "a foreign one": (["XADD", "po:{d}:entries", "3-1", "q", "z"], lambda store: store.entries("d", 0, 9)),
    "no room for the next": (
        ["XADD", "po:{d}:entries", "4-0", "h", "", "b", ""],
        lambda store: store.append([write(4)]),
    ),
    "a blob": (["HDEL", "po:{d}:blobs", "last"], lambda store: store.load("d", ["last"])),
    "a blob, at a page": (["HDEL", "po:{d}:blobs", "last"], lambda store: store.blobs("d", "", "", 9)),
    "a name of a blob": (["ZREM", "po:{d}:names", "last"], lambda store: store.blobs("d", "", "", 9)),
    "another kind of thing": (["SET", "po:{d}:blobs", "x"], lambda store: store.load("d", ["last"])),
    "another kind of thing, at an append": (
        ["SET", "po:{d}:blobs", "x"],
        lambda store: store.append([write(4)]),
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_seen_and_not_taken_for_an_empty_ledger(redis: Server, store: Store, what: str) -> None:
    command, call = DAMAGE[what]
    store.append([write(1, count=3)])
    redis.ask(*command)
    with pytest.raises(LedgerCorrupt):
        call(store)


# URLs


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("redis://", "each host"),
        ("redis://host:0", "port"),
        ("redis://host:99999", "port"),
        ("redis://host/name", "number of a database"),
        ("redis://one,two", "redis\\+sentinel://"),
        ("redis://hunter2@host", ":password@"),
        ("redis://:hunter2/x@host", "%2F"),
        ("redis://:hunter2?x@host", "%3F"),
        ("redis+sentinel://host", "/mymaster"),
        ("redis+sentinel://host/service/x", "number of a database"),
        ("redis+cluster://host/1", "one database"),
        ("redis://host?replica=1", "replicas: how many"),
        ("redis://host?replicas=17", "from 0 to 16"),
        ("redis://host?replicas=1.5", "whole number"),
        ("redis://host?replicas=1&replicas=2", "twice"),
        ("redis://host?wait_ms=x", "from 1 to"),
        ("redis://host?timeout_s=nan", "from 0.05 to 600"),
        ("redis://host?replicas=1&wait_ms=5000", "less than timeout_s"),
        ("redis://host?prefix={x}", "prefix takes"),
    ],
)
def test_a_url_that_is_not_valid_is_refused_with_what_would_work(wrong: str, says: str) -> None:
    """And nothing of a password is shown."""
    with pytest.raises(ValueError, match=says) as caught:
        open_store(wrong)
    assert "hunter2" not in str(caught.value)


def test_a_wrong_password_is_not_shown(redis: Server, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(StoreUnavailable, match="refused the login") as caught:
        open_store(f"redis://user:swordfish@127.0.0.1:{redis.port}")
    assert "swordfish" not in f"{caught.value!r} {caught.value.__cause__!r} {caplog.text}"


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1\b") as caught:
        open_store("redis://:swordfish@127.0.0.1:1")
    assert "swordfish" not in str(caught.value)


def test_tls_is_never_given_up(redis: Server) -> None:
    """`rediss://` to a server without TLS fails; the password does not go out in plain text."""
    with pytest.raises(StoreUnavailable):
        open_store(f"rediss://:{QUOTED}@127.0.0.1:{redis.port}?timeout_s=0.5")
