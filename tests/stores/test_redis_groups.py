"""The Redis store on several servers, Sentinels and a cluster. Primaries die here, and slots move."""

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
import redis_server
from redis_server import Cluster, Group

from odometer_accountant.errors import StoreUnavailable
from odometer_accountant.stores import EMPTY_HEAD, Head, NewEntry, Note, Store, Write, open_store


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    with redis_server.sentinel_group(tmp_path_factory.mktemp("sentinels")) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with redis_server.cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def write(stream: str, n: int) -> Write:
    expected = Head(n - 1, f"hash-{n - 1}") if n > 1 else EMPTY_HEAD
    return Write(stream, expected, [NewEntry(f"hash-{n}", b"body", f"key-{n}")], {"last": b"%d" % n})


def holds(store: Store, stream: str, n: int) -> None:
    assert store.load(stream, ["last"]) == (Head(n, f"hash-{n}"), {"last": b"%d" % n})
    assert [row.hash for row in store.entries(stream, 0, 100)] == [f"hash-{i}" for i in range(1, n + 1)]
    assert store.find(stream, [f"key-{n}"])[f"key-{n}"].sequence == n
    assert store.blobs(stream, "l", "", 10) == [("last", b"%d" % n)]


# Sentinels


def test_a_store_follows_the_sentinels_to_the_new_primary(group: Group) -> None:
    """With an acknowledging replica nothing is lost when the primary dies."""
    with closing(open_store(f"{group.url}?replicas=1&wait_ms=4000")) as store:
        for n in range(1, 21):
            assert store.append([write("d", n)]) == [True]
        old = group.current()
        old.kill()
        with pytest.raises(StoreUnavailable):
            store.append([write("d", 21)])
        new = group.wait_failover(old)
        # Read without confirmation: until the old one is back, there is no replica.
        with closing(open_store(group.url)) as plain:
            holds(plain, "d", 20)
        # As the Sentinels would configure it after a while.
        old.file.write_text(f"{old.file.read_text()}\nreplicaof 127.0.0.1 {new.port}\n")
        old.start()
        redis_server.wait_until(lambda: len(new.ask("ROLE")[2]) == 1, "the old primary follows the new one")
        new.ask("DEL", "po:streams")  # as if the name had not reached the replica
        assert store.append([write("d", 21)]) == [True]
        holds(store, "d", 21)
        assert store.streams("", 10) == ["d"]


def test_sentinels_that_know_no_such_service_are_unavailable(group: Group) -> None:
    with pytest.raises(StoreUnavailable, match=r"'other'.*does not watch that service"):
        open_store(group.url.replace(f"/{redis_server.SERVICE}", "/other"))


# A cluster


@pytest.fixture
def store(cluster: Cluster) -> Iterator[Store]:
    with closing(open_store(f"{cluster.url}?replicas=1&wait_ms=4000")) as opened:
        yield opened


def test_streams_on_all_nodes_are_written_in_one_call(cluster: Cluster, store: Store) -> None:
    names = [f"spread-{n:02}" for n in range(24)]
    assert len({cluster.primary_of(name).port for name in names}) == 3
    assert store.append([write(name, 1) for name in names]) == [True] * 24
    assert store.append([write(name, 1 + n % 2) for n, name in enumerate(names)]) == [False, True] * 12
    for n, name in enumerate(names):
        holds(store, name, 1 + n % 2)
    assert store.streams("spread-", 100)[:24] == names
    store.ping()


def test_a_taken_key_keeps_nothing_on_any_node(store: Store) -> None:
    names = [f"taken-{n}" for n in range(9)]
    store.append([write("taken-4", 1)])
    again = Write("taken-4", Head(1, "hash-1"), [NewEntry("x", b"", "key-1")])
    with pytest.raises(ValueError, match="key"):
        store.append([again if name == "taken-4" else write(name, 1) for name in names])
    assert [store.load(name, [])[0].sequence for name in names] == [0, 0, 0, 0, 1, 0, 0, 0, 0]


def test_notes_live_in_a_cluster_too(store: Store) -> None:
    store.put_note("p", Note("salt", "Ada"))
    store.erase_note("q")
    assert store.notes(["p", "q"]) == {"p": Note("salt", "Ada")}


def test_a_stream_is_followed_to_where_its_slot_moved(cluster: Cluster, store: Store) -> None:
    store.append([write("moving", 1)])
    source = cluster.primary_of("moving")
    target = next(node for node in cluster.nodes if node is not source and node.ask("ROLE")[0] == b"master")
    cluster.move_slot("moving", target)
    assert store.append([write("moving", 2)]) == [True]
    holds(store, "moving", 2)


def test_a_stream_on_its_way_is_found_on_either_side(cluster: Cluster, store: Store) -> None:
    """While the slot moves, and its keys are all still here or all there already."""
    store.append([write("halfway", 1)])
    source = cluster.primary_of("halfway")
    target = next(node for node in cluster.nodes if node is not source and node.ask("ROLE")[0] == b"master")
    with cluster.moving_slot("halfway", target) as move_keys:
        assert store.append([write("halfway", 2)]) == [True]
        move_keys()
        holds(store, "halfway", 2)
        assert store.append([write("halfway", 3)]) == [True]
    holds(store, "halfway", 3)


def test_a_plain_url_to_a_cluster_says_what_to_write_instead(cluster: Cluster) -> None:
    for node in cluster.nodes:
        with pytest.raises(ValueError, match=r"redis\+cluster://"):
            open_store(node.url)


def test_a_stream_survives_the_death_of_its_primary(cluster: Cluster, store: Store) -> None:
    """Unavailable until a replica took over, then whole. Streams of other nodes go on meanwhile."""
    for n in range(1, 11):
        assert store.append([write("lasting", n)]) == [True]
    old = cluster.primary_of("lasting")
    elsewhere = next(name for n in range(99) if cluster.primary_of(name := f"else-{n}") is not old)
    old.kill()
    with pytest.raises(StoreUnavailable):
        store.append([write("lasting", 11)])
    cluster.wait_failover("lasting", old)
    with closing(open_store(cluster.url)) as plain:
        holds(plain, "lasting", 10)
        assert plain.append([write("lasting", 11), write(elsewhere, 1)]) == [True, True]
    old.start()
    cluster.wait_followed()
    assert store.append([write("lasting", 12)]) == [True]
    holds(store, "lasting", 12)


def test_a_node_that_hangs_is_waited_for_once_and_the_others_go_on(tmp_path: Path) -> None:
    """One thread asks for all datasets: it must not wait for the same node again and again."""
    config = ["cluster-require-full-coverage no"]
    with (
        redis_server.cluster(tmp_path, replicas=0, node_timeout_ms=30_000, extra_config=config) as running,
        closing(open_store(f"{running.url}?timeout_s=2")) as store,
    ):
        sick = running.primary_of("sick")
        well = next(name for n in range(99) if running.primary_of(name := f"well-{n}") is not sick)
        assert store.append([write("sick", 1), write(well, 1)]) == [True, True]
        sick.pause()
        try:
            with pytest.raises(StoreUnavailable, match="Timeout"):
                store.load("sick", [])
            began = time.monotonic()
            with pytest.raises(StoreUnavailable, match="not answered"):
                store.append([write("sick", 2)])
            assert store.append([write(well, 2)]) == [True]
            assert time.monotonic() - began < 1
        finally:
            sick.resume()

        def answers() -> bool:
            with suppress(StoreUnavailable):
                return store.append([write("sick", 2)]) == [True]
            return False

        redis_server.wait_until(answers, "the node is asked again")
        holds(store, "sick", 2)
