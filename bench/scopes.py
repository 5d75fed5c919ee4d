"""The cost of a charge on one unit among many units, relative to one among a thousand; and its size.

A dataset of the local model, with an odometer and two budgets (each day, for life) for every unit, in SQLite
and in a real Redis. The million are made by the service's own deciding and appending, in large batches. Then
single charges of random units, each new to the caches, take turns on the two ledgers; medians are compared.
"""

import argparse
import contextlib
import gc
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from odometer_accountant.ledger.commands import ChargeCommand
from odometer_accountant.scopes import shard_of, shard_stream
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.service.request_checks import prepared_charge
from odometer_accountant.stores import Store, open_store
from odometer_accountant.writer.batch import Submission
from odometer_accountant.writer.cache import StateCache
from odometer_accountant.writer.planner import BatchPlanner
from odometer_accountant.writer.stats import WriterStats
from odometer_accountant.writer.writer import utc_now
from odometer_client.keys import new_key

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
import redis_server

BAR = 1.3
FEW = 1_000
UNITS_AT_ONCE = 1_000
DATASET, PRINCIPAL = "devices", "collector"
REPORT = {"mechanism": {"kind": "pure", "epsilon": 1.0}, "count": 1}
OPEN: dict[str, Any] = {
    "name": DATASET,
    "unit": "device",
    "adjacency": "replace_one",
    "delta": 1e-6,
    "composition": "by_unit",
    "shards": 256,
    "budgets": [
        {"name": "life", "kind": "pure", "epsilon": 100.0, "scope": "unit/*"},
        {"name": "day", "kind": "pure", "epsilon": 50.0, "scope": "unit/*", "window": "day"},
    ],
}


class Nobody:
    """A sink for the answers of a bulk load."""

    def deliver(self, answers: object) -> None: ...


def unit(number: int) -> str:
    return f"d-{number:08x}"


def fill(url: str, units: int) -> None:
    """Charge each unit once, a thousand of a shard at a time."""
    with Accountant.open(url) as accountant:
        accountant.create_dataset(OPEN, PRINCIPAL)
    by_shard: dict[int, list[str]] = {}
    for number in range(units):
        by_shard.setdefault(shard_of(unit(number), OPEN["shards"]), []).append(unit(number))
    store = open_store(url)
    planner = BatchPlanner(StateCache(store, WriterStats()))
    for shard, names in by_shard.items():
        stream = shard_stream(DATASET, shard)
        for start in range(0, len(names), UNITS_AT_ONCE):
            body = {**REPORT, "units": names[start : start + UNITS_AT_ONCE]}
            command = ChargeCommand(prepared_charge(body), PRINCIPAL, new_key())
            plan = planner.plan(stream, [Submission(stream, command, Nobody(), None)], utc_now())
            if plan is None or plan.write is None or store.append([plan.write]) != [True]:
                raise SystemExit(f"the load of shard {shard} was not taken: {plan}")
            planner.keep(plan)
    store.close()


def charge_times(accountant: Accountant, units: int, number: int, rng: random.Random) -> list[float]:
    """Seconds of each of `number` charges of one unit."""
    taken = []
    for _ in range(number):
        body = {**REPORT, "units": [unit(rng.randrange(units))]}
        started = time.perf_counter()
        accountant.charge(DATASET, body, new_key(), PRINCIPAL)
        taken.append(time.perf_counter() - started)
    return taken


def compare(few: str, many: str, units_of_many: int, rounds: int, number: int) -> float:
    """The median cost among many over that among few; they take turns."""
    rng = random.Random(20_261_130)
    medians: dict[int, list[float]] = {FEW: [], units_of_many: []}
    with Accountant.open(few) as small, Accountant.open(many) as large:
        sides = [(small, FEW), (large, units_of_many)]
        for accountant, units in sides:  # each shard is met once before
            charge_times(accountant, units, 3 * OPEN["shards"], rng)
        gc.collect()
        gc.freeze()
        for turn in range(rounds):
            for accountant, units in sides if turn % 2 == 0 else reversed(sides):
                medians[units].append(statistics.median(charge_times(accountant, units, number, rng)))
    cost = {units: statistics.median(found) for units, found in medians.items()}
    for units, seconds in cost.items():
        print(f"  a charge among {units:>9,} units: {seconds * 1e6:7.0f} us")
    pairs = zip(medians[units_of_many], medians[FEW], strict=True)
    return statistics.median(large / small for large, small in pairs)


def blob_bytes(store: Store) -> float:
    """Bytes of names and values that a unit has beside the entries, on average over one shard."""
    stream, after, size, names = shard_stream(DATASET, 0), "", 0, set()
    while page := store.blobs(stream, "", after, 1000):
        for name, value in page:
            if "unit/" in name:
                size += len(name) + len(value)
                names.add(name.partition("unit/")[2].partition("@")[0])
        after = page[-1][0]
    return size / len(names)


@contextlib.contextmanager
def stores(kind: str, folder: Path) -> Iterator[tuple[str, str, object]]:
    """URLs for the small and the large ledger, and what tells the size of the large one's store in bytes."""
    if kind == "sqlite":
        path = folder / "many.sqlite"
        yield f"sqlite:///{folder / 'few.sqlite'}", f"sqlite:///{path}", lambda: path.stat().st_size
        return
    with redis_server.server(folder / "few") as few, redis_server.server(folder / "many") as many:
        yield few.url, many.url, lambda: used_memory(many.url)


def used_memory(url: str) -> int:
    """Bytes that a Redis has in use."""
    import redis

    with redis.Redis.from_url(url) as client:
        return int(client.info("memory")["used_memory"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "redis"], action="append")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--number", type=int, default=400)
    parser.add_argument("--shards", type=int, default=OPEN["shards"])
    parser.add_argument("--units", type=int, default=1_000_000, help="in the large ledger")
    options = parser.parse_args()
    OPEN["shards"] = options.shards
    worst = 0.0
    for kind in options.store or ["sqlite", "redis"]:
        with tempfile.TemporaryDirectory(prefix="odometer-bench-", dir=Path(__file__).parent) as name:
            folder = Path(name)
            for side in ("few", "many"):
                (folder / side).mkdir()
            with stores(kind, folder) as (few, many, size):
                print(f"{kind}: loading {options.units:,} units", flush=True)
                fill(few, FEW)
                before = size() if kind == "redis" else 0
                started = time.perf_counter()
                fill(many, options.units)
                took = time.perf_counter() - started
                weight = (size() - before) / options.units
                store = open_store(many)
                print(f"  loaded in {took:.0f} s; {weight:.0f} bytes a unit in the store, entries and all")
                print(f"  of these {blob_bytes(store):.0f} bytes are the names and values of its two counts")
                store.close()
                ratio = compare(few, many, options.units, options.rounds, options.number)
                print(f"scopes-{kind} ratio={ratio:.3f} bar={BAR}", flush=True)
                worst = max(worst, ratio)
    print(f"scopes ratio={worst:.3f} bar={BAR}")
    return 0 if worst <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
