"""A Redis that comes back as it was before its last acknowledged append, under two real services."""

import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis_server
from promises import Dataset
from raw import LOST
from restarting import Service
from workload import ask_once, datasets, open_all

from odometer_client.keys import new_key

NOTICED_S = 30.0
ROLLED_BACK = (503, "/problems/ledger-rolled-back")


@dataclass
class World:
    redis: redis_server.Server
    saw: Service
    """The one that acknowledged what is lost."""
    never_saw: Service
    dataset: Dataset
    token: str
    kept: Path

    def ask(self, service: Service, path: str, body: Any, key: str | None = None) -> tuple[int, str | None]:
        """Status and type of problem, once it is sure or the history is gone."""
        path = f"/v1/datasets/{self.dataset.name}/{path}"
        for _ in range(600):
            try:
                assert service.url is not None
                status, reply = ask_once(service.url, self.token, "POST", path, body, key)
            except LOST:
                continue
            if status != 503 or "rolled-back" in reply["type"]:
                return status, reply.get("type")
            threading.Event().wait(0.05)  # the store is coming back
        raise AssertionError("no sure answer")

    def charge(self, service: Service) -> tuple[int, str | None]:
        body = {"mechanism": {"kind": "gaussian", "noise_multiplier": 1.0}, "count": 1}
        return self.ask(service, "charges", body, new_key())

    def lose_one_charge(self) -> None:
        """One service acknowledges a charge, and the server comes back without it. The other is paused."""
        self.never_saw.pause()
        self.redis.kill()
        shutil.copytree(self.redis.folder, self.kept)
        self.redis.start()
        assert self.charge(self.saw) == (201, None)
        self.redis.kill()
        shutil.rmtree(self.redis.folder)
        self.kept.rename(self.redis.folder)
        self.redis.start()
        self.never_saw.resume()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with redis_server.server(tmp_path / "redis") as redis:
        url = f"{redis.url}?timeout_s=2"
        with Service(url) as saw, Service(url) as never_saw:
            token = saw.start() or ""
            never_saw.start()
            assert saw.url is not None
            (dataset,) = (one for one in datasets((), 9, 9, 9) if one.name == "plain")
            open_all(saw.url, token, [dataset])
            made = World(redis, saw, never_saw, dataset, token, tmp_path / "kept")
            assert made.charge(never_saw) == (201, None)
            yield made


def test_a_service_that_nobody_asks_freezes_what_it_acknowledged_and_others_stop(world: World) -> None:
    world.lose_one_charge()
    end = time.monotonic() + NOTICED_S
    while (answer := world.charge(world.never_saw)) == (201, None):
        assert time.monotonic() < end, "the service that saw it never looked"
    assert answer == ROLLED_BACK
    for service in (world.saw, world.never_saw):
        service.kill()
        service.start()
        assert world.charge(service) == ROLLED_BACK
    assert world.ask(world.never_saw, "unfreeze", {"reason": "written off"}) == (200, None)
    assert [world.charge(service) for service in (world.saw, world.never_saw)] == [(201, None)] * 2


def test_a_service_that_saw_what_is_lost_goes_on_when_another_was_told_to(world: World) -> None:
    world.lose_one_charge()
    assert world.charge(world.saw) == ROLLED_BACK
    assert world.ask(world.never_saw, "unfreeze", {"reason": "written off"}) == (200, None)
    assert [world.charge(service) for service in (world.saw, world.never_saw)] == [(201, None)] * 2
