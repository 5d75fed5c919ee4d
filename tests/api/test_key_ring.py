"""The key ring's cache: what another process did is seen, and how soon."""

from copy import deepcopy

import pytest
from serving import live

from odometer_accountant.errors import Forbidden
from odometer_accountant.service import key_stream
from odometer_accountant.service.api_keys import KeyRing, Role
from odometer_accountant.stores import open_store
from odometer_accountant.stores.memory import MemoryStore


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(key_stream, "time", clock)
    return clock


def test_a_key_made_elsewhere_is_known_after_a_twentieth_of_a_second(clock: Clock) -> None:
    store = open_store("memory://")
    here, elsewhere = KeyRing(store, 60), KeyRing(store, 60)
    identity, token = elsewhere.create(Role.charger, None, "p_admin")
    assert here.identify(token) is None
    clock.now_s += 0.051
    assert here.identify(token) == identity


def test_a_key_revoked_elsewhere_ends_when_the_cache_does(clock: Clock) -> None:
    store = open_store("memory://")
    here, elsewhere = KeyRing(store, 1), KeyRing(store, 1)
    identity, token = elsewhere.create(Role.charger, None, "p_admin")
    clock.now_s += 0.051
    assert here.identify(token) == identity
    elsewhere.revoke(identity.key, "p_admin")
    clock.now_s += 0.99
    assert here.identify(token) == identity
    clock.now_s += 0.02
    assert here.identify(token) is None


def test_unknown_tokens_look_at_the_store_at_most_every_twentieth_of_a_second(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store("memory://")
    ring = KeyRing(store, 1)
    looks: list[str] = []
    load = store.load
    monkeypatch.setattr(store, "load", lambda stream, names: (looks.append(stream), load(stream, names))[1])
    clock.now_s += 0.051
    for number in range(100):
        assert ring.identify(f"po_{number}") is None
    assert len(looks) == 1


def test_the_last_admin_key_stays() -> None:
    ring = KeyRing(open_store("memory://"))
    token = ring.create_first()
    first = ring.identify(token)
    assert first is not None
    with pytest.raises(Forbidden, match="make another one first"):
        ring.revoke(first.key, first.principal)
    assert ring.identify(token) == first
    second, _ = ring.create(Role.admin, None, first.principal)
    ring.revoke(first.key, second.principal)
    assert ring.identify(token) is None


def test_a_service_that_has_seen_newer_keys_than_the_store_has_is_not_ready() -> None:
    """It lets nobody in, so nobody should be sent to it; one that is started then does."""
    store = MemoryStore()
    with live(store) as service:
        before = deepcopy(store._streams["~keys"])
        token = service.make_key("reader")["token"]
        assert service.ask("GET", "/readyz", None).status_code == 200
        store._streams["~keys"] = before
        reply = service.ask("GET", "/readyz", None)
        assert (reply.status_code, reply.json()["type"]) == (503, "/problems/ledger-corrupt")
        assert KeyRing(store).identify(service.admin) is not None
        assert KeyRing(store).identify(token) is None
