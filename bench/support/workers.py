"""Several workers on one Redis against one worker: what they cost each other."""

import contextlib
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from support import servers
from support.servers import BENCH, Side

sys.path.insert(0, str(BENCH.parent / "tests" / "support"))
import redis_server

WORKERS = 4
HOT_BAR, SPREAD_BAR = 0.8, 1.1


@contextlib.contextmanager
def redis(folder: Path, core: int) -> Iterator[redis_server.Server]:
    """A real server that has each append on the disk before it says so."""
    with redis_server.server(folder / "redis") as server:
        os.sched_setaffinity(server.process.pid, {core})
        yield server


@contextlib.contextmanager
def sides(redis: redis_server.Server, core: int, datasets: int) -> Iterator[tuple[Side, Side]]:
    """Four workers, and one, each side with a ledger of its own and datasets of the same names."""
    name = f"{datasets}-datasets"
    with (
        servers.ours("four", f"{redis.url}?prefix=four-{name}", core, WORKERS, datasets) as four,
        servers.ours("one", f"{redis.url}?prefix=one-{name}", core, 1, datasets) as one,
    ):
        yield four, one


def on_one_dataset(redis: redis_server.Server, core: int, pairs: int, number: int) -> bool:
    """Whether four workers on one hot dataset admit nearly as much as one alone."""
    print("four workers against one, on one hot dataset")
    with sides(redis, core, 1) as (four, one):
        for side in (four, one):
            servers.one_round(side, min(1000, number))
        found = servers.ratio(servers.compare(four, one, pairs, number, number), "rate")
        shares, p99 = [], []
        for _ in range(3):
            least, slow = servers.least_share(four, number)
            shares.append(least)
            p99.append(slow)
        print(
            f"  the worker that admitted least had {min(shares):.2f} of an even share of the charges; "
            f"p99 {max(p99) * 1e3:.0f} ms"
        )
    print(f"charge-redis-hot ratio={found:.3f} bar={HOT_BAR}", flush=True)
    return found >= HOT_BAR


def on_many(redis: redis_server.Server, core: int, datasets: int, pairs: int, number: int) -> bool:
    """Whether a charge costs four workers hardly more CPU than one: each dataset always asks the same worker.

    That is how the proxy sends them (deploy/nginx.conf). What it costs when a charge comes to any worker,
    which must then read what the others wrote, is printed beside it.
    """
    print(f"four workers against one, on {datasets} datasets")
    with sides(redis, core, datasets) as (four, one):
        for side in (four, one):
            for port in side.ports:  # each worker has met each dataset
                servers.one_round(side, datasets, [port])
            servers.one_routed_round(side, WORKERS * datasets)  # and has noticed who writes which
        before = servers.cpu_s(redis.process.pid)
        found = servers.compare(four, one, pairs, number, number, servers.one_routed_round)
        cpu = (servers.cpu_s(redis.process.pid) - before) / (2 * pairs * number)
        print(f"  Redis, in both: {cpu * 1e6:.0f} us CPU a charge")
        more = servers.ratio(found, "server_cpu_s")
        print("  the same with each charge at any worker:")
        servers.ratio(servers.compare(four, one, min(pairs, 3), number, number), "server_cpu_s")
        print(f"  rates: {statistics.median(a.rate / b.rate for a, b in found):.2f} of one worker's")
    print(f"charge-redis-spread ratio={more:.3f} bar={SPREAD_BAR}", flush=True)
    return more <= SPREAD_BAR
