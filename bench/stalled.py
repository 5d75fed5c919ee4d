"""One reader asks for the slowest that is accepted, on six connections: what do eight others notice of it?

Each of the eight has a key of its own and asks in turn, one request after another, with bodies that are new:
a charge, a check, and a charge that is refused. Runs with and without the attacker alternate. Nobody of the
eight may be told 503 or 429, and their 99th percentile is compared.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import statistics
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from support import servers, slowest

BAR = 5.0
ATTACKERS, OTHERS = 6, 8
_ADMITTED, _REFUSED = "admitted", "refused"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--core", type=int, help="bind the service to one core")
    options = parser.parse_args()
    with servers.folder() as folder, _service(folder, options.core) as side:
        found = [_pair(side, turn, options.seconds) for turn in range(options.pairs)]
    ratios = [with_it.p99_s / without.p99_s for without, with_it in found]
    for name, rounds in zip(("alone", "beside the attacker"), zip(*found, strict=True), strict=True):
        p50, p99 = (
            statistics.median(getattr(one, each) for one in rounds) * 1e3 for each in ("p50_s", "p99_s")
        )
        print(
            f"{name:20s} p50 {p50:6.1f} ms   p99 {p99:6.1f} ms   {sum(one.asked for one in rounds)} requests"
        )
    attacks = sum((with_it.attacks for _, with_it in found), Counter())
    unserved = sum(one.unserved for pair in found for one in pair)
    print(f"the attacker was told {dict(attacks)}; python {sys.version.split()[0]}")
    print(f"ratios {' '.join(f'{one:.2f}' for one in ratios)}; of the others {unserved} were not served")
    ratio = statistics.median(ratios)
    print(f"stalled ratio={ratio:.2f} bar={BAR}")
    return 0 if ratio <= BAR and not unserved else 1


class Run:
    """The answers that the eight got, and the time each took."""

    def __init__(self) -> None:
        self.took: list[float] = []
        self.wrong: Counter[str] = Counter()
        self.attacks: Counter[int] = Counter()

    @property
    def asked(self) -> int:
        return len(self.took)

    @property
    def unserved(self) -> int:
        return sum(self.wrong.values())

    @property
    def p50_s(self) -> float:
        return statistics.median(self.took)

    @property
    def p99_s(self) -> float:
        return sorted(self.took)[len(self.took) * 99 // 100]


def _pair(side: servers.Side, turn: int, seconds: float) -> tuple[Run, Run]:
    """(without, with the attacker), in the one order or the other."""
    if turn % 2:
        attacked = asyncio.run(_run(side, seconds, attackers=ATTACKERS))
        return asyncio.run(_run(side, seconds, attackers=0)), attacked
    alone = asyncio.run(_run(side, seconds, attackers=0))
    return alone, asyncio.run(_run(side, seconds, attackers=ATTACKERS))


class _service:  # noqa: N801  (a context manager)
    """`odometer serve` on a new file, with its keys and two datasets: one with room, one that is full."""

    def __init__(self, folder: Path, core: int | None) -> None:
        cores = os.sched_getaffinity(0)
        self._ours = servers.ours("odometer", f"sqlite:///{folder}/ledger", min(cores))
        self._core, self._cores = core, cores

    def __enter__(self) -> servers.Side:
        side = self._ours.__enter__()
        for process in side.processes:
            mask = self._cores if self._core is None else {self._core}
            for thread in Path(f"/proc/{process.pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), mask)
        _post(side, "/v1/datasets", _dataset(_ADMITTED, 1e6))
        _post(side, "/v1/datasets", _dataset(_REFUSED, 1e-6))
        side.keys = [_key(side, "charger") for _ in range(OTHERS)]
        side.reader = _key(side, "reader")
        return side

    def __exit__(self, *fault: object) -> None:
        self._ours.__exit__(*fault)


def _dataset(name: str, rho: float) -> dict:
    budgets = [
        {"name": "life", "kind": "zcdp", "rho": rho},
        {"name": "filter", "kind": "approximate", "epsilon": 9999.0, "delta": 1e-5},
    ]
    return {"name": name, "unit": "person", "adjacency": "add_remove", "delta": 1e-5, "budgets": budgets}


def _key(side: servers.Side, role: str) -> str:
    return _post(side, "/v1/keys", {"role": role})["token"]


def _post(side: servers.Side, path: str, document: dict) -> dict:
    headers = {"authorization": f"Bearer {side.token}", "content-type": "application/json"}
    url = f"http://127.0.0.1:{side.ports[0]}{path}"
    with urllib.request.urlopen(
        urllib.request.Request(url, json.dumps(document).encode(), headers)
    ) as answer:
        return json.load(answer)


async def _run(side: servers.Side, seconds: float, attackers: int) -> Run:
    run, until = Run(), time.monotonic() + seconds
    bodies = itertools.cycle(slowest.requests(_ADMITTED)) if attackers else iter(())
    tasks = [asyncio.create_task(_attacker(side, bodies, run)) for _ in range(attackers)]
    if tasks:
        await asyncio.sleep(min(1.0, seconds / 4))  # until it is under way
    await asyncio.gather(*(_other(side, key, until, run) for key in side.keys))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(min(1.5, seconds / 4))  # until the last of its work is done
    return run


async def _attacker(side: servers.Side, bodies: Iterator[tuple[str, str, bytes]], run: Run) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", side.ports[0])
    try:
        for method, path, body in bodies:
            run.attacks[await _ask(reader, writer, method, path, side.reader, body)] += 1
    finally:
        writer.close()


async def _other(side: servers.Side, key: str, until: float, run: Run) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", side.ports[0])
    draw = random.Random(key)
    wanted = ((_ADMITTED, "charges", 201), (_ADMITTED, "checks", 200), (_REFUSED, "charges", 409))
    for dataset, what, status in itertools.cycle(wanted):
        if time.monotonic() >= until:
            break
        body = json.dumps(_step(draw)).encode()
        started = time.perf_counter()
        told = await _ask(reader, writer, "POST", f"/v1/datasets/{dataset}/{what}", key, body)
        run.took.append(time.perf_counter() - started)
        if told != status:
            run.wrong[f"{what} {told}"] += 1
            print(f"  one of the others asked for {what} and was told {told}", flush=True)
    writer.close()


def _step(draw: random.Random) -> dict:
    """A step of training with noise and rate of its own: no curve of it is known."""
    gaussian = {"kind": "gaussian", "noise_multiplier": draw.uniform(1, 9)}
    sampled = {"kind": "poisson_subsampled", "base": gaussian, "sampling_rate": draw.uniform(0.001, 0.02)}
    return {"mechanism": sampled, "count": draw.randint(1, 100)}


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: str, path: str, key: str, body: bytes
) -> int:
    """The status of the answer, which is read to its end."""
    once = random.getrandbits(64)
    lines = (
        f"{method} {path} HTTP/1.1",
        "host: 127.0.0.1",
        "content-type: application/json",
        f"authorization: Bearer {key}",
        f"idempotency-key: k{once:x}",
        f"content-length: {len(body)}",
    )
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    head = await reader.readuntil(b"\r\n\r\n")
    at = head.lower().find(b"content-length:")
    if at >= 0:
        await reader.readexactly(int(head[at + 15 : head.index(b"\r\n", at)]))
    return int(head[9:12])


if __name__ == "__main__":
    sys.exit(main())
