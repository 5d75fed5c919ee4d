"""Charges per second over HTTP with a durable ledger, against a no-op route; more with --store redis.

sqlite: also against a plain service, and with --against against an earlier checkout of this one. redis: a
real server that syncs each append; also four workers on one dataset against one worker (throughput), and on
a thousand datasets (CPU). Sides are asked in interleaved rounds; 32 connections, distinct keys. The servers
have one core, Redis and the load generator the other.
"""

import argparse
import os
import sys
from pathlib import Path

from support import servers, workers

OURS_BAR, REDIS_BAR, PLAIN_BAR, BEFORE_BAR = 1.0, 0.7, 10.0, 0.9


def on_sqlite(against: Path | None, pairs: int, number: int) -> bool:
    """Whether the ledger in a file is fast enough."""
    core, _ = servers.cores()
    with servers.folder() as folder, servers.ours("odometer", f"sqlite:///{folder}/ledger", core) as subject:
        noop_ratio = against_noop(subject, core, pairs, number)
        before_ratio = BEFORE_BAR
        if against is not None:
            before_ratio = against_before(subject, against, f"sqlite:///{folder}/before", core, pairs, number)
        with servers.peer("plain", core, str(folder / "plain.sqlite")) as other:
            servers.one_round(other, 40)
            print("against the plain service")
            plain_ratio = servers.ratio(
                servers.compare(subject, other, pairs, number, min(200, number)), "rate"
            )
    print(f"charge-plain ratio={plain_ratio:.1f} bar={PLAIN_BAR}")
    print(f"charge ratio={noop_ratio:.3f} bar={OURS_BAR}")
    return noop_ratio >= OURS_BAR and plain_ratio >= PLAIN_BAR and before_ratio >= BEFORE_BAR


def on_redis(datasets: int, pairs: int, number: int) -> bool:
    """Whether the ledger in Redis is fast enough, and several workers are no hindrance to each other."""
    core, other_core = servers.cores()
    with servers.folder() as folder, workers.redis(folder, other_core) as redis:
        with servers.ours("odometer", f"{redis.url}?prefix=alone", core) as subject:
            noop_ratio = against_noop(subject, core, pairs, number)
        print(f"charge-redis ratio={noop_ratio:.3f} bar={REDIS_BAR}", flush=True)
        hot = workers.on_one_dataset(redis, core, pairs, number)
        spread = workers.on_many(redis, core, datasets, pairs, number)
    return noop_ratio >= REDIS_BAR and hot and spread


def against_before(
    subject: servers.Side, folder: Path, store: str, core: int, pairs: int, number: int
) -> float:
    """Our throughput over that of the checkout in `folder`, which has an environment of its own."""
    with servers.ours("before", store, core, command=folder / ".venv" / "bin" / "odometer") as other:
        servers.one_round(other, min(500, number))
        print("against the checkout before")
        found = servers.ratio(servers.compare(subject, other, pairs, number, number), "rate")
    print(f"charge-before ratio={found:.3f} bar={BEFORE_BAR}", flush=True)
    return found


def against_noop(subject: servers.Side, core: int, pairs: int, number: int) -> float:
    """Our throughput over that of a route that only reads and answers."""
    warm = min(500, number)
    servers.one_round(subject, warm)
    with servers.peer("noop", core) as other:
        servers.one_round(other, warm)
        print("against the no-op route")
        return servers.ratio(servers.compare(subject, other, pairs, number, number), "rate")


def main(store: str = "sqlite") -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=("sqlite", "redis"), default=store)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument(
        "--datasets", type=int, default=1000, help="that four workers share, with --store redis"
    )
    parser.add_argument(
        "--against", type=Path, metavar="FOLDER", help="an earlier checkout, after make serve"
    )
    options = parser.parse_args()
    os.sched_setaffinity(0, {servers.cores()[1]})
    size = (options.pairs, options.requests)
    if options.store == "redis":
        kept = on_redis(options.datasets, *size)
    else:
        kept = on_sqlite(options.against, *size)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
