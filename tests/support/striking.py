"""Faults of every kind at random moments under load, between several services and their one Redis.

with world(folder, seed) as chaos:
    with chaos.load():
        chaos.strike("api killed")
    findings = chaos.examine()
"""

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import redis_server
from promises import FAULTS, Dataset, Findings, Promises, examine
from proxy import REPLIES, REQUESTS, Proxy
from restarting import Service
from workload import Load, datasets, open_all

from odometer_accountant.stores import open_store
from odometer_accountant.stores.redis import scripts

__all__ = ["FAULTS", "KINDS", "Findings", "World", "world"]

TIMEOUTS_S = (0.5, 0.1, 2.0)
"""What each of the services waits for Redis: some pauses are longer, some shorter."""
STRIKE_S = 10.0
"""How long an armed fault may wait for the bytes that it is to hit."""


@dataclass
class World:
    """A Redis, services that reach it each through a proxy of its own, and what callers were told."""

    redis: redis_server.Server
    proxies: list[Proxy]
    services: list[Service]
    datasets: Sequence[Dataset]
    chance: random.Random
    promises: Promises = field(default_factory=Promises)
    token: str = ""
    struck: list[str] = field(default_factory=list)
    quiet: threading.Event = field(default_factory=threading.Event)

    def load(self, seed: int, callers: int = 6, think_s: float = 0.02) -> Load:
        return Load(self.services, self.token, self.datasets, self.promises, seed, callers, think_s)

    def wait(self, for_s: float) -> None:
        """A moment under load: nothing to wait for."""
        self.quiet.wait(for_s)

    def strike(self, kind: str, chance: random.Random | None = None) -> None:
        """One fault, and its end."""
        KINDS[kind](self, chance or self.chance)
        self.struck.append(kind)

    def examine(self) -> Findings:
        """When the load is over: everything that was told against everything that is stored."""
        with contextlib.closing(open_store(self.redis.url)) as store:
            return examine(store, self.datasets, self.promises)


@contextlib.contextmanager
def world(
    folder: Path, seed: int, some: Sequence[Dataset] | None = None, services: int = 2
) -> Iterator[World]:
    """All up, and every dataset opened."""
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(redis_server.server(folder / "redis"))
        proxies = [stack.enter_context(Proxy(redis.port)) for _ in range(services)]
        urls = [
            f"{proxy.url}?timeout_s={timeout_s}"
            for proxy, timeout_s in zip(proxies, itertools.cycle(TIMEOUTS_S), strict=False)
        ]
        ready = [stack.enter_context(Service(url)) for url in urls]
        some = some or datasets(small=(30, 60, 100_000), parts=60, units=12, tight=40)
        made = World(redis, proxies, ready, some, random.Random(seed))
        made.token = ready[0].start() or ""
        for service in ready[1:]:
            service.start()
        assert ready[0].url is not None
        open_all(ready[0].url, made.token, some)
        yield made


def _redis_killed(world: World, chance: random.Random) -> None:
    world.redis.kill()
    world.wait(chance.choice([0, chance.uniform(0, 0.8)]))
    world.redis.start()


def _redis_paused(world: World, chance: random.Random) -> None:
    world.redis.pause()
    world.wait(chance.choice([chance.uniform(0.05, 0.3), chance.uniform(0.6, 1.6)]))
    world.redis.resume()


def _api_killed(world: World, chance: random.Random) -> None:
    service = chance.choice(world.services)
    service.kill()
    service.start()


def _api_paused(world: World, chance: random.Random) -> None:
    service = chance.choice(world.services)
    service.pause()
    world.wait(chance.choice([chance.uniform(0.05, 0.4), chance.uniform(0.6, 2.0)]))
    service.resume()


def _armed(world: World, proxy: Proxy) -> None:
    """Wait until the fault has hit something."""
    for _ in range(int(STRIKE_S / 0.02)):
        if not proxy.armed:
            return
        world.wait(0.02)


def _request_cut(world: World, chance: random.Random) -> None:
    proxy = chance.choice(world.proxies)
    proxy.cut(REQUESTS, chance.randrange(20_000))
    _armed(world, proxy)


def _reply_cut(world: World, chance: random.Random) -> None:
    proxy = chance.choice(world.proxies)
    proxy.cut(REPLIES, chance.randrange(5_000))
    _armed(world, proxy)


def _answer_lost(world: World, chance: random.Random) -> None:
    proxy = chance.choice(world.proxies)
    proxy.lose_reply(scripts.APPEND.sha.encode())
    _armed(world, proxy)


def _append_late(world: World, chance: random.Random) -> None:
    """Delivered when its sender was told long ago that nobody knows."""
    proxy = chance.choice(world.proxies)
    late_s = chance.choice([0.05, chance.uniform(0.2, 1.5)])
    proxy.lose_reply(scripts.APPEND.sha.encode(), late_s)
    _armed(world, proxy)
    world.wait(late_s)


def _api_killed_at_append(world: World, chance: random.Random) -> None:
    """The append is done, its answer swallowed, and the process that waits for it dies."""
    place = chance.randrange(len(world.services))
    world.proxies[place].lose_reply(scripts.APPEND.sha.encode(), chance.choice([0.0, 0.3]))
    _armed(world, world.proxies[place])
    world.services[place].kill()
    world.services[place].start()


def _refused(world: World, chance: random.Random) -> None:
    for_s = chance.uniform(0.1, 1.0)
    chance.choice(world.proxies).refuse(for_s)
    world.wait(for_s)


def _stalled(world: World, chance: random.Random) -> None:
    for_s = chance.choice([chance.uniform(0.05, 0.4), chance.uniform(0.6, 1.6)])
    chance.choice(world.proxies).stall(for_s)
    world.wait(for_s)


KINDS: dict[str, Callable[[World, random.Random], None]] = {
    "redis killed": _redis_killed,
    "redis paused": _redis_paused,
    "api killed": _api_killed,
    "api paused": _api_paused,
    "request cut": _request_cut,
    "reply cut": _reply_cut,
    "answer lost": _answer_lost,
    "append late": _append_late,
    "api killed at append": _api_killed_at_append,
    "refused": _refused,
    "stalled": _stalled,
}
