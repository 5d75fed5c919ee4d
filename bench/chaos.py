"""200 faults at random moments under load: how many of them break a promise of the ledger?

Three services charge into one real Redis, each through a proxy that cuts, stalls and swallows. Redis and
services are killed and paused meanwhile; two threads inject, so that faults overlap. At the end every answer
that a caller was given is held against the ledger, which is counted again from its entries.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import striking
import workload

EVENTS = 200
SERVICES, CALLERS = 3, 8
GAP_S = (0.1, 0.9)
ON_REDIS = ("redis killed", "redis paused")
BAR = 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    asked = parser.parse_args()
    print(f"seed {asked.seed}, {asked.events} events, {SERVICES} services, {CALLERS} callers", flush=True)
    small = [max(10, asked.events * 4)] * 5
    some = workload.datasets(
        small=small, parts=asked.events * 5, units=max(8, asked.events // 2), tight=max(12, asked.events // 4)
    )
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="chaos-") as folder,
        striking.world(Path(folder), asked.seed, some, SERVICES) as world,
    ):
        with world.load(asked.seed, CALLERS):
            _inject(world, asked.seed, asked.events)
        struck = time.monotonic() - started
        findings = world.examine()
    return _say(world, findings, asked.events, struck, time.monotonic() - started)


def _inject(world: striking.World, seed: int, events: int) -> None:
    """A third of the faults are the server's, the others those of services and of the network."""
    on_redis = events // 3
    plans = [
        (random.Random(f"{seed}-redis"), ON_REDIS, on_redis),
        (random.Random(f"{seed}-api"), sorted(set(striking.KINDS) - set(ON_REDIS)), events - on_redis),
    ]
    failed: list[BaseException] = []

    def inject(chance: random.Random, kinds: tuple[str, ...], count: int) -> None:
        try:
            for _ in range(count):
                world.wait(chance.uniform(*GAP_S))
                world.strike(chance.choice(kinds), chance)
        except BaseException as fault:  # noqa: BLE001 - said by the main thread
            failed.append(fault)

    threads = [threading.Thread(target=inject, args=plan) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def _say(
    world: striking.World, findings: striking.Findings, events: int, struck_s: float, all_s: float
) -> int:
    for kind in striking.KINDS:
        print(f"  {world.struck.count(kind):4d}  {kind}")
    told, promises = world.promises.counts, world.promises
    print(
        f"{len(promises.acked)} acknowledged, {told['replayed']} of them only when asked again, "
        f"{told['refused']} refused, {told['unsure']} answers 503, {told['asked again']} asked again, "
        f"{findings.silent} charged and never answered"
    )
    print(f"{findings.entries} entries; used up to the last charge: {', '.join(sorted(findings.full))}")
    counts = {name: len(getattr(findings, name)) for name in striking.FAULTS}
    print("; ".join(f"{name} {count}" for name, count in counts.items()))
    for name, some in findings.faults().items():
        for one in some[:10]:
            print(f"  {name}: {one}")
    print(f"{struck_s:.0f} s under load, {all_s:.0f} s with the examination")
    faults = sum(counts.values())
    ratio = 0.0 if faults else len(world.struck) / events
    print(f"chaos ratio={ratio:.3f} bar={BAR}")
    return int(ratio < BAR)


if __name__ == "__main__":
    sys.exit(main())
