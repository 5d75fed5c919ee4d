"""The servers that the benchmarks ask: started on one core where there are two, and what their work cost."""

import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from support import load

from odometer_client.keys import new_key

BENCH = Path(__file__).resolve().parent.parent
ODOMETER = Path(sys.executable).parent / "odometer"
TOKEN = "po_bench_token_of_the_peers_1234567890123456789"
CONNECTIONS = 32
BODY = json.dumps(
    {
        "mechanism": {
            "kind": "poisson_subsampled",
            "base": {"kind": "gaussian", "noise_multiplier": 1.1},
            "sampling_rate": 0.01,
        },
        "count": 1,
    }
).encode()


@dataclass
class Side:
    """One or more servers that are asked together: what a benchmark compares with another side."""

    name: str
    ports: list[int]
    token: str
    processes: list[subprocess.Popen]
    datasets: tuple[str, ...] = ("bench",)

    def cpu_s(self) -> float:
        """CPU seconds of all processes so far."""
        return sum(cpu_s(process.pid) for process in self.processes)


@dataclass(frozen=True)
class Round:
    """One round of requests: charges per second, and CPU seconds per charge of servers and generator."""

    rate: float
    server_cpu_s: float
    own_cpu_s: float
    p99_s: float


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cores() -> tuple[int, int]:
    """The servers' core, and the one of everything else: the generator, and Redis. One core may be both."""
    here = sorted(os.sched_getaffinity(0))
    return here[0], here[-1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def started(command: list[str], core: int) -> Iterator[subprocess.Popen]:
    """A process on one core, until the end of the block."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=BENCH.parent)
    os.sched_setaffinity(process.pid, {core})
    try:
        yield process
    finally:
        process.terminate()
        process.wait(15)


@contextlib.contextmanager
def peer(name: str, core: int, *more: str) -> Iterator[Side]:
    """A service of support/peers.py."""
    port = free_port()
    command = [sys.executable, str(BENCH / "support" / "peers.py"), name, str(port), TOKEN, *more]
    with started(command, core) as process:
        process.stdout.readline()
        yield Side(name, [port], TOKEN, [process])


@contextlib.contextmanager
def ours(
    name: str, store: str, core: int, workers: int = 1, datasets: int = 1, command: Path = ODOMETER
) -> Iterator[Side]:
    """As many `odometer serve` on one empty store, and datasets that never run out."""
    serve = [str(command), "serve", "--port", "0", "--store", store]
    with contextlib.ExitStack() as stack:
        # With a witness, as everybody has; not the one of whoever runs this.
        os.environ["XDG_STATE_HOME"] = str(stack.enter_context(folder()))
        token, ports, processes = "", [], []
        for _ in range(workers):
            process = stack.enter_context(started(serve, core))
            for line in process.stdout:
                if "po_" in line:
                    token = line.split()[-1]
                if "serving on" in line:
                    ports.append(int(line.rsplit(":", 1)[1]))
                    break
            processes.append(process)
        names = ("bench",) if datasets == 1 else tuple(f"bench-{number}" for number in range(datasets))
        for dataset in names:
            _open(ports[0], token, dataset)
        yield Side(name, ports, token, processes, names)


def _open(port: int, token: str, dataset: str) -> None:
    budget = {"name": "life", "kind": "approximate", "epsilon": 10000, "delta": 1e-5}
    document = {"name": dataset, "unit": "person", "adjacency": "add_remove", "delta": 1e-5}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/datasets",
        json.dumps({**document, "budgets": [budget]}).encode(),
        {"authorization": f"Bearer {token}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.read()


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder of the benchmark's own, on the disk of the repository: what is temporary may lie in memory."""
    with tempfile.TemporaryDirectory(prefix="odometer-bench-", dir=BENCH.parent) as path:
        yield Path(path)


def one_round(side: Side, number: int, ports: list[int] | None = None) -> Round:
    """Charge so often, spread evenly over all connections, and these over the ports; all must be admitted."""
    requests = load.charge_requests(number, side.datasets, side.token, BODY, _keys())
    before = side.cpu_s()
    result = load.run(ports or side.ports, requests, CONNECTIONS)
    if set(result.statuses) != {201}:
        raise SystemExit(f"{side.name} answered {result.statuses}")
    return Round(result.rate, (side.cpu_s() - before) / number, result.own_cpu_s, result.p99_s)


def one_routed_round(side: Side, number: int) -> Round:
    """As `one_round`, each dataset's charges always to the same server, as deploy/nginx.conf sends them."""
    requests = load.charge_requests(number, side.datasets, side.token, BODY, _keys())
    lines: dict[int, list[bytes]] = {port: [] for port in side.ports}
    for place, request in enumerate(requests):
        dataset = side.datasets[place % len(side.datasets)]
        lines[side.ports[zlib.crc32(dataset.encode()) % len(side.ports)]].append(request)
    before = side.cpu_s()
    result = load.run_routed(lines, CONNECTIONS)
    if set(result.statuses) != {201}:
        raise SystemExit(f"{side.name} answered {result.statuses}")
    return Round(result.rate, (side.cpu_s() - before) / number, result.own_cpu_s, result.p99_s)


def least_share(side: Side, number: int) -> tuple[float, float]:
    """The share of the server that answered least, relative to an even share; the 99th percentile in s."""
    requests = load.charge_requests(number, side.datasets, side.token, BODY, _keys())
    result = load.run(side.ports, requests, CONNECTIONS)
    return min(result.by_port.values()) * len(side.ports) / number, result.p99_s


def _keys() -> Iterator[str]:
    while True:
        yield new_key()


def compare(
    subject: Side,
    other: Side,
    pairs: int,
    number: int,
    other_number: int,
    ask: Callable[[Side, int], Round] | None = None,
) -> list[tuple[Round, Round]]:
    """Rounds of both sides in turn, by `one_round` or as said; prints each side's medians."""
    ask = ask or one_round
    found: list[tuple[Round, Round]] = []
    for turn in range(pairs):
        if turn % 2:
            theirs, mine = ask(other, other_number), ask(subject, number)
        else:
            mine, theirs = ask(subject, number), ask(other, other_number)
        found.append((mine, theirs))
    for side, rounds in zip((subject, other), zip(*found, strict=True), strict=True):
        rate, cpu, own, p99 = (
            statistics.median(getattr(one, name) for one in rounds)
            for name in ("rate", "server_cpu_s", "own_cpu_s", "p99_s")
        )
        print(
            f"  {side.name:10s} {rate:6.0f}/s   server {cpu * 1e6:5.0f} us CPU a charge   "
            f"p99 {p99 * 1e3:4.0f} ms   generator {own * 1e6:4.0f} us (its ceiling {1 / own:6.0f}/s)",
            flush=True,
        )
    return found


def ratio(pairs: list[tuple[Round, Round]], figure: str) -> float:
    """The median of the pairs' ratios of one figure; prints them all."""
    ratios = [getattr(mine, figure) / getattr(theirs, figure) for mine, theirs in pairs]
    print(f"  ratios {' '.join(f'{one:.2f}' for one in ratios)}")
    return statistics.median(ratios)
