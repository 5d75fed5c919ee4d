"""An append whose answer never comes: nobody knows whether it is done. Asked again, it is done once."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import redis_server
from proxy import Proxy
from redis_server import wait_until

from odometer_accountant.errors import StoreUnavailable
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores.redis.scripts import APPEND

TIMEOUT_S = 2.0
LATE_S = 1.0
ONE = {"mechanism": {"kind": "gaussian", "noise_multiplier": 1.0}, "count": 1}
DATASET = {
    "name": "d",
    "unit": "person",
    "adjacency": "add_remove",
    "delta": 1e-6,
    "budgets": [{"name": "life", "kind": "zcdp", "rho": 1.0}],
}
"""Two charges of `ONE` fit."""


@dataclass
class Pair:
    """Two services on one Redis; the first reaches it through a proxy."""

    proxy: Proxy
    cut_off: Accountant
    other: Accountant

    def unsure(self, late_s: float = 0.0) -> None:
        """The first service's charge under the key "k" is sent; it hears nothing of it."""
        self.proxy.lose_reply(APPEND.sha.encode(), late_s)
        with pytest.raises(StoreUnavailable):
            self.cut_off.charge("d", ONE, "k", "caller")

    def sequence(self) -> int:
        return self.other.store.load("d", [])[0].sequence


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis_server.Server]:
    with redis_server.server(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
def pair(redis: redis_server.Server) -> Iterator[Pair]:
    redis.ask("FLUSHALL")
    with Proxy(redis.port) as proxy:
        near = Accountant.open(f"{proxy.url}?timeout_s={TIMEOUT_S}")
        with near, Accountant.open(f"{redis.url}?timeout_s=10") as other:
            other.create_dataset(DATASET, "admin")  # the server knows the script from here on
            yield Pair(proxy, near, other)


@pytest.mark.parametrize("again", ["cut_off", "other"])
def test_a_charge_whose_answer_was_lost_is_found_by_its_key(pair: Pair, again: str) -> None:
    pair.unsure()
    wait_until(lambda: pair.sequence() == 2, "the append is done")
    receipt, replayed = getattr(pair, again).charge("d", ONE, "k", "caller")
    assert (receipt["sequence"], replayed) == (2, True)
    assert pair.other.charge("d", ONE, "k2", "caller")[0]["sequence"] == 3


@pytest.mark.parametrize("again", ["cut_off", "other"])
def test_an_append_that_comes_after_its_key_was_charged_again_changes_nothing(pair: Pair, again: str) -> None:
    pair.unsure(LATE_S)
    receipt, replayed = getattr(pair, again).charge("d", ONE, "k", "caller")
    assert (receipt["sequence"], replayed) == (2, False)
    threading.Event().wait(LATE_S + 0.5)  # nothing tells that it came and was refused
    assert pair.sequence() == 2
    assert pair.other.charge("d", ONE, "k", "caller")[1] is True


def test_an_append_that_comes_late_takes_no_place_that_others_filled(pair: Pair) -> None:
    pair.unsure(LATE_S)
    for key in ("k2", "k3"):  # the budget is used up before it comes
        pair.other.charge("d", ONE, key, "caller")
    threading.Event().wait(LATE_S + 0.5)
    assert pair.sequence() == 3


def test_a_paused_server_does_the_append_when_it_goes_on_and_the_key_finds_it(
    pair: Pair, redis: redis_server.Server
) -> None:
    pair.cut_off.charge("d", ONE, "k0", "caller")
    redis.pause()
    with pytest.raises(StoreUnavailable):
        pair.cut_off.charge("d", ONE, "k", "caller")
    redis.resume()
    sequences = {pair.cut_off.charge("d", ONE, "k", "caller")[0]["sequence"] for _ in range(2)}
    assert sequences == {3}
    assert pair.sequence() == 3
