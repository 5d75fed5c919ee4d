"""The cost of a charge and of a reading in a ledger of a million entries, relative to one of ten.

Embedded and over HTTP, one caller, warmed, with the client's own keys; the two ledgers take turns, and
medians are compared. The large one is made by the service's own deciding and appending, in large batches.
"""

import argparse
import contextlib
import gc
import http.client
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from odometer_accountant.ledger.commands import ChargeCommand
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.service.request_checks import prepared_charge
from odometer_accountant.stores import open_store
from odometer_accountant.writer.batch import Submission
from odometer_accountant.writer.cache import StateCache
from odometer_accountant.writer.planner import BatchPlanner
from odometer_accountant.writer.stats import WriterStats
from odometer_accountant.writer.writer import utc_now
from odometer_client.keys import new_key
from odometer_client.testing import Service, serve

BAR = 1.2
SMALL = 10
BATCH = 10_000
DATASET = "bench"
PRINCIPAL = "bench"
BODY = {
    "mechanism": {
        "kind": "poisson_subsampled",
        "base": {"kind": "gaussian", "noise_multiplier": 1.1},
        "sampling_rate": 0.01,
    },
    "count": 1,
}
OPEN = {
    "name": DATASET,
    "unit": "person",
    "adjacency": "add_remove",
    "delta": 1e-6,
    "budgets": [
        {"name": "life", "kind": "approximate", "epsilon": 10_000.0, "delta": 1e-6},
        {"name": "order", "kind": "renyi", "order": 8, "epsilon": 1e6},
    ],
}


class Nobody:
    """A sink for the answers of a bulk load."""

    def deliver(self, answers: object) -> None: ...


def fill(url: str, entries: int) -> None:
    """A ledger of `entries` entries: decided one by one, appended `BATCH` at a time."""
    with Accountant.open(url) as accountant:
        accountant.create_dataset(OPEN, PRINCIPAL)
    prepared, nobody = prepared_charge(BODY), Nobody()
    with contextlib.closing(open_store(url)) as store:
        planner, left = BatchPlanner(StateCache(store, WriterStats())), entries - 1
        while left:
            size = min(left, BATCH)
            commands = (ChargeCommand(prepared, PRINCIPAL, new_key()) for _ in range(size))
            plan = planner.plan(
                DATASET, [Submission(DATASET, command, nobody, None) for command in commands], utc_now()
            )
            assert plan is not None
            assert plan.write is not None
            assert len(plan.write.entries) == size, "the budget was too small for the bench"
            assert store.append([plan.write]) == [True]
            planner.keep(plan)
            left -= size


class Http:
    """One kept connection."""

    def __init__(self, service: Service) -> None:
        where = urlsplit(service.url)
        self._http = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
        self._headers = {"Authorization": f"Bearer {service.admin_key}"}
        self._body = json.dumps(BODY).encode()

    def charge(self) -> None:
        headers = {**self._headers, "Idempotency-Key": new_key()}
        self._ask("POST", "charges", 201, self._body, headers)

    def read(self) -> None:
        self._ask("GET", "odometer", 200, None, self._headers)

    def _ask(self, method: str, what: str, status: int, body: bytes | None, headers: dict[str, str]) -> None:
        self._http.request(method, f"/v1/datasets/{DATASET}/{what}", body, headers)
        reply = self._http.getresponse()
        text = reply.read()
        assert reply.status == status, text


class Embedded:
    """The library itself."""

    def __init__(self, accountant: Accountant) -> None:
        self._accountant = accountant

    def charge(self) -> None:
        self._accountant.charge(DATASET, BODY, new_key(), PRINCIPAL)

    def read(self) -> None:
        self._accountant.odometer(DATASET)


@contextlib.contextmanager
def over_http(url: str) -> Iterator[Http]:
    with serve(url) as service:
        yield Http(service)


@contextlib.contextmanager
def embedded(url: str) -> Iterator[Embedded]:
    with Accountant.open(url) as accountant:
        yield Embedded(accountant)


def took(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(face: str, what: str, small: Callable[[], None], large: Callable[[], None], rounds: int) -> float:
    """The ratio of the medians, in turns; which one comes first changes each round."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + rounds // 4):
        for which in (0, 1) if number % 2 else (1, 0):
            seconds = took(large if which else small)
            if number >= rounds // 4:  # warmed
                times[which].append(seconds)
    few, many = (statistics.median(one) for one in times)
    print(
        f"{face:<9} {what:<7} at {SMALL} entries {few * 1e6:8.0f} us, at many {many * 1e6:8.0f} us, "
        f"ratio {many / few:.3f}",
        flush=True,
    )
    return many / few


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--entries", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=400)
    given = options.parse_args()
    root = Path(__file__).resolve().parent.parent
    # Beside the sources, which lie on a disk: what is temporary may lie in memory.
    with tempfile.TemporaryDirectory(prefix=".growth-", dir=root) as folder:
        urls = [f"sqlite:///{folder}/{name}.sqlite" for name in ("small", "large")]
        start = time.perf_counter()
        gc.disable()  # it walks over each batch again and again, and finds nothing
        for url, entries in zip(urls, (SMALL, given.entries), strict=True):
            fill(url, entries)
        gc.enable()
        size = Path(folder, "large.sqlite").stat().st_size
        print(
            f"{given.entries} entries in {time.perf_counter() - start:.0f} s, {size / 1e6:.0f} MB; "
            f"{given.rounds} rounds each, one caller",
            flush=True,
        )
        ratios = []
        for face, opened in (("embedded", embedded), ("HTTP", over_http)):
            with opened(urls[0]) as small, opened(urls[1]) as large:
                ratios.append(compare(face, "charge", small.charge, large.charge, given.rounds))
                ratios.append(compare(face, "reading", small.read, large.read, given.rounds))
    worst = max(ratios)
    print(f"growth ratio={worst:.3f} bar={BAR}")
    return 0 if worst <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
