"""Charges per second over HTTP with a durable SQLite ledger, against a no-op route and a plain service.

One server at a time is asked, in interleaved rounds; 32 connections, one worker each, distinct keys.
The server has one core and the load generator the other, where there are two.
"""

import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support import load

from odometer_client.keys import new_key

HERE = Path(__file__).resolve().parent
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
OURS_BAR, PLAIN_BAR = 0.7, 10.0


@dataclass
class Server:
    name: str
    port: int
    token: str
    process: subprocess.Popen
    dataset: str = "bench"

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def peer(name: str, *more: str) -> Iterator[Server]:
    port = free_port()
    command = [sys.executable, str(HERE / "support" / "peers.py"), name, str(port), TOKEN, *more]
    with started(command) as process:
        process.stdout.readline()
        yield Server(name, port, TOKEN, process)


@contextlib.contextmanager
def ours(folder: Path) -> Iterator[Server]:
    store = f"sqlite:///{folder / 'ledger.sqlite'}"
    command = ["odometer", "serve", "--port", "0", "--store", store]
    command[0] = str(Path(sys.executable).parent / "odometer")
    with started(command) as process:
        token, port = "", 0
        for line in process.stdout:
            if "po_" in line:
                token = line.split()[-1]
            if "serving on" in line:
                port = int(line.rsplit(":", 1)[1])
                break
        server = Server("odometer", port, token, process)
        dataset = {
            "name": "bench",
            "unit": "person",
            "adjacency": "add_remove",
            "delta": 1e-5,
            "budgets": [{"name": "life", "kind": "approximate", "epsilon": 10000, "delta": 1e-5}],
        }
        call(server, "/v1/datasets", dataset)
        yield server


@contextlib.contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=HERE.parent)
    if len(os.sched_getaffinity(0)) > 1:
        os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
    try:
        yield process
    finally:
        process.terminate()
        process.wait(15)


def call(server: Server, path: str, body: dict) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}{path}",
        json.dumps(body).encode(),
        {"authorization": f"Bearer {server.token}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.read()


def keys() -> Iterator[str]:
    while True:
        yield new_key()


def one_round(server: Server, number: int) -> tuple[float, float, float]:
    """(charges per second, server CPU us per charge, generator CPU us per charge)."""
    requests = load.charge_requests(number, server.dataset, server.token, BODY, keys())
    before = server.cpu_s()
    result = load.run(server.port, requests, CONNECTIONS)
    if set(result.statuses) != {201}:
        raise SystemExit(f"{server.name} answered {result.statuses}")
    return result.rate, (server.cpu_s() - before) / number * 1e6, result.own_cpu_s * 1e6


def compare(subject: Server, other: Server, pairs: int, number: int, other_number: int) -> float:
    """The median of the pairs' ratios; prints each side's medians."""
    rows: dict[str, list[tuple[float, float, float]]] = {subject.name: [], other.name: []}
    for turn in range(pairs):
        sides = [(subject, number), (other, other_number)]
        for server, requests in sides if turn % 2 == 0 else reversed(sides):
            rows[server.name].append(one_round(server, requests))
    for name, found in rows.items():
        rate, cpu, own = (statistics.median(column) for column in zip(*found, strict=True))
        print(
            f"  {name:10s} {rate:8.0f}/s   server {cpu:6.0f} us CPU a charge   "
            f"generator {own:4.0f} us (its ceiling {1e6 / own:6.0f}/s)"
        )
    ratios = [mine[0] / theirs[0] for mine, theirs in zip(rows[subject.name], rows[other.name], strict=True)]
    print(f"  ratios {' '.join(f'{ratio:.2f}' for ratio in ratios)}")
    return statistics.median(ratios)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--requests", type=int, default=4000)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    folder = Path(tempfile.mkdtemp(prefix="odometer-bench-", dir=HERE.parent))
    try:
        with ours(folder) as subject:
            if len(cores) > 1:
                os.sched_setaffinity(0, {cores[1]})
            one_round(subject, 500)
            with peer("noop") as other:
                one_round(other, 500)
                print("against the no-op route")
                noop_ratio = compare(subject, other, options.pairs, options.requests, options.requests)
            with peer("plain", str(folder / "plain.sqlite")) as other:
                one_round(other, 40)
                print("against the plain service")
                plain_ratio = compare(subject, other, options.pairs, options.requests, 200)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"charge-plain ratio={plain_ratio:.1f} bar={PLAIN_BAR}")
    print(f"charge ratio={noop_ratio:.3f} bar={OURS_BAR}")
    return 0 if noop_ratio >= OURS_BAR and plain_ratio >= PLAIN_BAR else 1


if __name__ == "__main__":
    sys.exit(main())
