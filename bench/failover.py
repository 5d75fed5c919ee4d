"""Primaries of a real Redis Cluster are killed under load: is every acknowledged charge kept, or frozen?

Three primaries and three replicas. Asked twice: with `replicas=1`, where an append waits for the replica and
nothing acknowledged is lost; and without, where in every second failover the replica was cut off shortly
before. Every fourth primary is not killed but stopped until another has taken over, and then goes on. What
is lost must be noticed: the stream is frozen for every process, also a restarted one, until a person
unfreezes it.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import failing_over
from promises import FAULTS

FAILOVERS = 50
BAR = 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--failovers", type=int, default=FAILOVERS, help="for each of the two answers")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--only", choices=("wait", "plain"))
    asked = parser.parse_args()
    print(f"seed {asked.seed}, {asked.failovers} failovers each", flush=True)
    modes = [replicas for replicas, name in ((1, "wait"), (0, "plain")) if asked.only in (None, name)]
    answers = [_answer(asked.seed, replicas, asked.failovers) for replicas in modes]
    acked, accounted, faults = (sum(column) for column in zip(*answers, strict=True))
    ratio = accounted / acked if acked and not faults else 0.0
    print(f"failover ratio={ratio:.6f} bar={BAR}")
    return int(ratio < BAR)


def _answer(seed: int, replicas: int, failovers: int) -> tuple[int, int, int]:
    """(acknowledged, accounted for, faults)."""
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="failover-") as folder,
        failing_over.world(Path(folder), seed, replicas=replicas) as world,
    ):
        for number in range(failovers):
            cut, paused = not replicas and number % 2 == 1, number % 4 == 2
            done = world.round(cut=cut, paused=paused, restarts=number % 4 == 3)
            for one in done.unaccounted:
                print(f"  failover {number}: {one}", flush=True)
        findings = world.examine()
    sums = failing_over.tally(world.rounds)
    mode = f"replicas={replicas}" if replicas else "without waiting for replicas"
    slowest = max(one.freeze_s for one in world.rounds)
    print(
        f"{mode}: {failovers} failovers in {time.monotonic() - started:.0f} s, {sums['acked']} acknowledged: "
        f"{sums['in_ledger']} in the ledger, {sums['frozen']} lost and frozen, "
        f"{sums['unaccounted']} neither; "
        f"{sums['streams']} streams frozen and unfrozen, the slowest {slowest:.1f} s after; "
        f"{world.promises.counts['unsure']} answers 503"
    )
    found = findings.faults()
    if replicas and sums["streams"]:
        found["frozen"] = [f"{sums['streams']} streams, though every append had its replica"]
    print("  " + "; ".join(f"{name} {len(found.get(name, []))}" for name in FAULTS), flush=True)
    for name, some in found.items():
        for one in some[:10]:
            print(f"  {name}: {one}", flush=True)
    accounted = sums["in_ledger"] + sums["frozen"]
    return sums["acked"], accounted, sum(map(len, found.values())) + sums["unaccounted"]


if __name__ == "__main__":
    sys.exit(main())
