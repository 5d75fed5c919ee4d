"""Callers that charge, hold and settle on several services, and ask again until they are sure."""

import contextlib
import http.client
import json
import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from promises import RHO_EACH, UNIT, Ask, Dataset, Promises
from raw import LOST
from restarting import Service

from odometer_accountant.scopes import shard_of
from odometer_client.keys import new_key

SHARDS = 4
UNITS = [f"u{number}" for number in range(24)]
PARTITIONS = ["a", "b", "c"]
PLENTY = 2_000_000
RESOLVE_S = 60.0
"""How long callers go on asking for a last word, once the load is over."""


def _document(name: str, cap: int, scope: str | None = None, **more: Any) -> dict[str, Any]:
    life = {"name": "life", "kind": "zcdp", "rho": cap * RHO_EACH, **({"scope": scope} if scope else {})}
    return {
        "name": name,
        "unit": "person",
        "adjacency": "add_remove",
        "delta": 1e-6,
        "budgets": [life],
        **more,
    }


def datasets(small: Sequence[int], parts: int, units: int, tight: int) -> list[Dataset]:
    """One of every kind: plenty, several that are used up, holds, partitions, units of their own."""
    wide = _document("plain", PLENTY)
    wide["budgets"].append({"name": "daily", "kind": "zcdp", "rho": PLENTY * RHO_EACH, "window": "day"})
    by_part = {"composition": "by_partition", "partitions": PARTITIONS}
    by_unit = {"composition": "by_unit", "shards": SHARDS}
    return [
        Dataset("plain", wide, PLENTY),
        Dataset("held", _document("held", PLENTY), PLENTY),
        Dataset("tight", _document("tight", tight), tight),
        Dataset("parts", _document("parts", parts, "partition/*", **by_part), parts),
        Dataset("units", _document("units", units, "unit/*", **by_unit), units),
        *(
            Dataset(f"small-{place}", _document(f"small-{place}", cap), cap)
            for place, cap in enumerate(small)
        ),
    ]


def ask_once(
    url: str,
    token: str,
    method: str,
    path: str,
    body: Any = None,
    key: str | None = None,
    timeout_s: float = 15,
) -> tuple[int, dict[str, Any]]:
    """One request on a connection of its own. Raises one of `LOST` when there is no whole answer."""
    http_ = _connect(url, timeout_s)
    with contextlib.closing(http_):
        return _send(http_, token, method, path, body, key)


def _connect(url: str, timeout_s: float) -> http.client.HTTPConnection:
    where = urlsplit(url)
    return http.client.HTTPConnection(where.hostname or "", where.port, timeout=timeout_s)


def _send(
    http_: http.client.HTTPConnection, token: str, method: str, path: str, body: Any, key: str | None
) -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": f"Bearer {token}"}
    if key is not None:
        headers["Idempotency-Key"] = key
    http_.request(method, path, None if body is None else json.dumps(body).encode(), headers)
    answer = http_.getresponse()
    return answer.status, json.loads(answer.read())


def open_all(url: str, token: str, some: Sequence[Dataset]) -> None:
    for dataset in some:
        status, reply = ask_once(url, token, "POST", "/v1/datasets", dataset.document)
        assert status == 201, reply


@dataclass
class Load:
    """Callers under way, between `with`; after it each has its last word, or is among the unresolved."""

    services: Sequence[Service]
    token: str
    datasets: Sequence[Dataset]
    promises: Promises
    seed: int
    callers: int = 6
    think_s: float = 0.02
    stop: threading.Event = field(default_factory=threading.Event)
    gives_up_when_frozen: bool = False
    """Whether a caller takes `ledger-rolled-back` for the last word."""

    def __enter__(self) -> "Load":
        self._threads = [
            threading.Thread(target=_Caller(self, random.Random(f"{self.seed}-{n}")).run, daemon=True)
            for n in range(self.callers)
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(RESOLVE_S * 3)
            assert not thread.is_alive(), "a caller never ended"


class _Caller:
    def __init__(self, load: Load, chance: random.Random) -> None:
        self._load = load
        self._chance = chance
        self._by_name = {dataset.name: dataset for dataset in load.datasets}
        self._small = [dataset for dataset in load.datasets if dataset.name.startswith("small")]
        self._open: dict[str, http.client.HTTPConnection] = {}
        self._stop_at = 0.0

    def run(self) -> None:
        while not self._load.stop.is_set():
            try:
                self._one()
            except Exception as fault:  # noqa: BLE001 - a caller that ends silently would hide a fault
                self._load.promises.wrong.append(f"a caller failed: {fault!r}")
                return
            self._load.stop.wait(self._chance.uniform(0, self._load.think_s))
        for connection in self._open.values():
            connection.close()

    def _one(self) -> None:
        kinds = [dataset.name for dataset in self._load.datasets if dataset not in self._small]
        kind = self._chance.choice([*kinds, *(["small"] * 3 if self._small else [])])
        if kind == "small":
            dataset = self._small[0]
            last = self.ask(self._charge(dataset, 1, ("dataset",)))
            if last is not None and last[0] == 409 and len(self._small) > 1:
                self._small.pop(0)
        elif kind in ("held", "tight"):
            self._hold(self._by_name[kind])
        elif kind == "parts":
            some = self._chance.sample(PARTITIONS, self._chance.choice([1, 1, 2]))
            whole = self._chance.random() < 0.1
            body = {"partitions": "all" if whole else some}
            self.ask(self._charge(self._by_name[kind], 1, ("dataset",) if whole else tuple(some), body))
        elif kind == "units":
            unit = self._chance.choice(UNITS)
            near = [one for one in UNITS if shard_of(one, SHARDS) == shard_of(unit, SHARDS)]
            some = list(dict.fromkeys([unit, *self._chance.sample(near, self._chance.choice([0, 1]))]))
            self.ask(self._charge(self._by_name[kind], 1, tuple(some), {"units": some}))
        else:
            self.ask(self._charge(self._by_name[kind], self._chance.choice([1, 1, 3]), ("dataset",)))

    def _charge(
        self,
        dataset: Dataset,
        runs: int,
        scopes: tuple[str, ...],
        more: Mapping[str, Any] | None = None,
        what: str = "charges",
    ) -> Ask:
        body = {"mechanism": UNIT, "count": runs, **(more or {})}
        return Ask(dataset, f"/v1/datasets/{dataset.name}/{what}", body, new_key(), runs, scopes)

    def _hold(self, dataset: Dataset) -> None:
        runs = self._chance.randint(1, 4)
        ask = self._charge(dataset, runs, ("dataset",), {"expires_in_s": 3600}, "holds")
        last = self.ask(ask)
        if last is None or last[0] == 409 or self._chance.random() < 0.05:
            return  # now and then a caller dies before it settles
        hold = last[1]["hold"]["id"]
        path = f"/v1/datasets/{dataset.name}/holds/{hold}/settlement"
        used = self._chance.randint(0, runs)
        self.ask(Ask(dataset, path, {"used": used}, None, used - runs, ("dataset",), hold))

    def ask(self, ask: Ask) -> tuple[int, dict[str, Any]] | None:
        """The last word on it, from whichever service; None when there was none in time."""
        promises, asked, tries, end = self._load.promises, time.time(), 0, None
        while True:
            if self._load.stop.is_set():
                end = end or time.monotonic() + RESOLVE_S
                if time.monotonic() > end:
                    promises.unresolved.append(ask)
                    return None
            service = self._chance.choice(self._load.services)
            url = service.url
            if url is not None:
                tries += 1
                with contextlib.suppress(*LOST):
                    status, document = self._try(url, ask)
                    if promises.heard(ask, status, document, asked, tries):
                        return status, document
                    if self._load.gives_up_when_frozen and "rolled-back" in str(document.get("type")):
                        return None
                promises.count("asked again")
            time.sleep(self._chance.uniform(0.01, 0.05) * min(tries + 1, 6))

    def _try(self, url: str, ask: Ask) -> tuple[int, dict[str, Any]]:
        connection = self._open.get(url)
        if connection is None:
            # Some wait for an answer, some go elsewhere soon while the service may still be at it.
            connection = self._open[url] = _connect(url, self._chance.choice([1.0, 15.0]))
        try:
            return _send(connection, self._load.token, "POST", ask.path, ask.body, ask.key)
        except LOST:
            connection.close()
            del self._open[url]
            raise
