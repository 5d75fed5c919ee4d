"""A real Redis Cluster whose primaries are killed under load, and what becomes of what was acknowledged.

with world(folder, seed, replicas=0) as failing:
    accounted = failing.round(cut=True)
"""

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis_server
from promises import Ask, Dataset, Findings, Promises, examine
from raw import LOST
from restarting import Service
from workload import Load, ask_once, datasets, open_all

from odometer_accountant.ledger.snapshot import load_state
from odometer_accountant.scopes import shard_parent
from odometer_accountant.stores import Store, open_store
from odometer_accountant.verify.walk import all_streams

TIMEOUT_S = 1.0
NODE_TIMEOUT_MS = 1000
FREEZE_S = 20.0
"""How soon every stream that lost something seen must be frozen."""
HOT = ("plain", "held", "parts", "units")
SETTLE_S = 30.0


@dataclass
class Round:
    """What one failover came to, in acknowledged charges."""

    acked: int = 0
    in_ledger: int = 0
    frozen: int = 0
    """Lost, and their stream is frozen for every process."""
    unaccounted: list[str] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)
    """Frozen."""
    freeze_s: float = 0.0


@dataclass
class World:
    """A cluster, services on it, and what callers were told."""

    cluster: redis_server.Cluster
    url: str
    services: list[Service]
    datasets: Sequence[Dataset]
    chance: random.Random
    token: str = ""
    promises: Promises = field(default_factory=Promises)
    """Of all rounds, without what was lost."""
    rounds: list[Round] = field(default_factory=list)

    def load(self, promises: Promises, callers: int = 6) -> Load:
        seed = self.chance.randrange(2**32)
        return Load(
            self.services, self.token, self.datasets, promises, seed, callers, gives_up_when_frozen=True
        )

    def round(self, *, cut: bool = False, paused: bool = False, restarts: bool = False) -> Round:
        """Kill the primary of a busy stream under load, wait for the replica to take over, and look.

        `cut`: its replica hears nothing of the last charges. `paused`: the primary is not killed but stopped,
        and goes on, for a moment still a primary, when another has taken over. `restarts`: the services are
        started again before it is looked whether they refuse.
        """
        stream = self.chance.choice(HOT)
        promises = Promises()
        with self.load(promises):
            _moment(self.chance.uniform(0.2, 0.5))
            if paused:
                self._pause(stream)
            else:
                self._kill(stream, cut=cut)
            _moment(0.3)
        done = self._look(promises)
        if done.streams:
            if restarts:
                for service in self.services:
                    service.kill()
                    service.start()
            self._refused_everywhere(done, promises)
            self._go_on(done)
        self.cluster.wait_followed()
        self.rounds.append(done)
        self.promises.refused += promises.refused
        self.promises.wrong += promises.wrong
        self.promises.unresolved += promises.unresolved
        self.promises.counts += promises.counts
        return done

    def _kill(self, stream: str, *, cut: bool) -> None:
        old, replica = self.cluster.holders(redis_server.StreamKeys.of("po", stream).head)[:2]
        if cut:
            replica.pause()
            old.ask("CLIENT", "KILL", "TYPE", "replica")  # what was sent before is still read by it
            _moment(0.4)
        old.kill()
        replica.resume()
        self.cluster.wait_failover(stream, old)
        old.start()
        self.cluster.wait_followed()

    def _pause(self, stream: str) -> None:
        old = self.cluster.primary_of(stream)
        old.pause()
        redis_server.wait_until(lambda: self.cluster.primary_of(stream) is not old, "a replica takes over")
        old.resume()
        self.cluster.wait_followed()

    def _look(self, promises: Promises) -> Round:
        """Each acknowledged charge is in the ledger, or its stream is frozen, soon."""
        done = Round(acked=len(promises.acked))
        with contextlib.closing(self.open_store()) as store:
            started = time.monotonic()
            lost = {}
            for name, (ask, receipt) in promises.acked.items():
                if _there(store, ask, receipt):
                    self.promises.acked[name] = ask, receipt
                else:
                    lost[name] = ask, receipt
            done.in_ledger = done.acked - len(lost)
            holds = {told["hold"]["id"] for _, told in lost.values() if isinstance(told.get("hold"), dict)}
            self.promises.unknown_holds += [one for one in promises.unknown_holds if one.hold not in holds]
            for name, (ask, receipt) in lost.items():
                stream = _stream(ask, receipt)
                while not self._is_frozen(store, stream) and time.monotonic() < started + FREEZE_S:
                    _moment(0.05)
                if self._is_frozen(store, stream):
                    done.frozen += 1
                    if stream not in done.streams:
                        done.streams.append(stream)
                else:
                    done.unaccounted.append(f"{name}: entry {receipt['sequence']} of {stream}")
            done.freeze_s = time.monotonic() - started if lost else 0.0
            # What was lost and never acknowledged, or only seen while it was read, freezes as well.
            _moment(1.5 if lost else 0)
            for stream in all_streams(store):
                if self._dataset_of(stream) and stream not in done.streams and self._is_frozen(store, stream):
                    done.streams.append(stream)
        return done

    def _is_frozen(self, store: Store, stream: str) -> bool:
        state = load_state(store, stream)
        return state is not None and state.frozen is not None

    def _dataset_of(self, stream: str) -> Dataset | None:
        name = shard_parent(stream) or stream
        return next((one for one in self.datasets if one.name == name), None)

    def _refused_everywhere(self, done: Round, promises: Promises) -> None:
        """Every process says so for each frozen stream: one that saw the loss, and one that never did."""
        asks = {_stream(ask, told): ask for ask, told in promises.acked.values() if ask.key is not None}
        for stream in done.streams:
            ask = asks.get(stream)
            if ask is None:
                continue
            for service in self.services:
                status, reply = self._ask(service, ask.path, ask.body, f"frozen-{self.chance.random()}")
                if (status, reply.get("type")) != (503, "/problems/ledger-rolled-back"):
                    done.unaccounted.append(f"{stream} is frozen, and was answered {status} {reply}")

    def _go_on(self, done: Round) -> None:
        """A person decides: the datasets go on without what was lost."""
        for name in {dataset.name for stream in done.streams if (dataset := self._dataset_of(stream))}:
            service = self.chance.choice(self.services)
            path = f"/v1/datasets/{name}/unfreeze"
            status, reply = self._ask(service, path, {"reason": "written off after a failover"})
            if status != 200 and "not-frozen" not in str(reply.get("type")):
                done.unaccounted.append(f"{name} could not be unfrozen: {status} {reply}")

    def _ask(
        self, service: Service, path: str, body: Any, key: str | None = None
    ) -> tuple[int, Mapping[str, Any]]:
        """A sure answer, or the last one."""
        end = time.monotonic() + SETTLE_S
        while True:
            last: tuple[int, Mapping[str, Any]] = (0, {})
            with contextlib.suppress(*LOST):
                assert service.url is not None
                last = ask_once(service.url, self.token, "POST", path, body, key)
            unsure = last[0] in (0, 503) and "rolled-back" not in str(last[1].get("type"))
            if not unsure or time.monotonic() > end:
                return last
            _moment(0.1)

    def open_store(self) -> Store:
        end = time.monotonic() + SETTLE_S
        while True:
            try:
                return open_store(f"{self.url}?timeout_s=5")
            except Exception:
                if time.monotonic() > end:
                    raise
                _moment(0.1)

    def examine(self) -> Findings:
        with contextlib.closing(self.open_store()) as store:
            return examine(store, self.datasets, self.promises)


def _there(store: Store, ask: Ask, receipt: Mapping[str, Any]) -> bool:
    rows = store.entries(_stream(ask, receipt), receipt["sequence"] - 1, 1)
    return bool(rows) and (rows[0].sequence, rows[0].hash) == (receipt["sequence"], receipt["hash"])


def _stream(ask: Ask, receipt: Mapping[str, Any]) -> str:
    if "shard" in receipt:
        return f"~units/{ask.dataset.name}/{receipt['shard']:04x}"
    return ask.dataset.name


def _moment(for_s: float) -> None:
    """Nothing tells of this moment: it is any, under load."""
    threading.Event().wait(for_s)


def tally(rounds: Sequence[Round]) -> Counter[str]:
    """Sums over rounds."""
    sums: Counter[str] = Counter()
    for one in rounds:
        sums += Counter(
            acked=one.acked,
            in_ledger=one.in_ledger,
            frozen=one.frozen,
            unaccounted=len(one.unaccounted),
            streams=len(one.streams),
        )
    return sums


@contextlib.contextmanager
def world(folder: Path, seed: int, *, replicas: int, services: int = 2) -> Iterator[World]:
    """Six nodes, services on them that wait for `replicas`, and every dataset opened and replicated."""
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(redis_server.cluster(folder, node_timeout_ms=NODE_TIMEOUT_MS))
        options = f"timeout_s={TIMEOUT_S}" + (f"&replicas={replicas}&wait_ms=800" if replicas else "")
        ready = [stack.enter_context(Service(f"{cluster.url}?{options}")) for _ in range(services)]
        some = datasets(small=(), parts=1_000_000, units=1_000_000, tight=1_000_000)
        made = World(cluster, cluster.url, ready, some, random.Random(seed))
        made.token = ready[0].start() or ""
        for service in ready[1:]:
            service.start()
        assert ready[0].url is not None
        open_all(ready[0].url, made.token, some)
        cluster.wait_followed()
        yield made
