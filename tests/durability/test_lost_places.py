"""A thousand faults of a store: what was lost, is older, torn or another's is found, or it is harmless.

Each fault hits one place: a row of the file, a field of a Redis, a page, a whole key. Then everything is
asked that can be asked, of a service that starts on it and of one that runs meanwhile. Every reply is right,
or says that the store is not believed; and `odometer verify` finds what the service found, and nothing else.
`FAULTS=1000` strikes that often for each store.
"""

import json
import os
import random
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest
import redis_server
from amount import amount
from places import KINDS, FilePlaces, Place, RedisPlaces, kind_of
from told import Asking, Truth, story, targets

from odometer_accountant.errors import OdometerError
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores import open_store
from odometer_accountant.verify.walk import verify
from tests.golden.ledger.drive import Clock

HOWS = ("deleted", "older", "torn", "swapped")
WHENS = ("restart", "running")
NUMBER = int(os.environ.get("FAULTS", amount(100)))
START = "2026-03-01T23:30:00.000000Z"


class World(NamedTuple):
    """A store with a story in it, and the truth of that."""

    places: FilePlaces | RedisPlaces
    truth: Truth
    clock: Clock


@pytest.fixture(scope="module", params=["sqlite", "redis"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder: Path = tmp_path_factory.mktemp("places")
    if request.param == "sqlite":
        yield told(FilePlaces(folder))
        return
    with redis_server.server(folder / "redis") as server:
        yield told(RedisPlaces(server.url, "t"))


def told(places: FilePlaces | RedisPlaces) -> World:
    clock, truth = Clock(START), Truth()
    with Accountant(open_store(places.url()), clock) as accountant:
        story(Asking(accountant, truth, clock), places.halfway)
    places.ended()
    return World(places, truth, clock)


def faults(seed: int) -> Iterator[tuple[str, str, str]]:
    """What is hit, how and when: as many of each, in an order of chance."""
    all_kinds = [*product((*KINDS, "page"), HOWS, WHENS)]
    chance = random.Random(seed)
    while True:
        chance.shuffle(all_kinds)
        yield from all_kinds


def damaged(world: World, kind: str, how: str, chance: random.Random) -> str | None:
    """Hit one place; what was done, or None where there is no such fault."""
    places = world.places
    if kind == "page":
        pages = places.pages()
        page, other = chance.sample(pages, 2)
        places.put_page(page, how, other, chance)
        return f"page {page} {how} {other}"
    some = sorted(place for place in places.last if kind_of(place) == kind)
    if how == "older":
        some = [one for one in some if one in places.older and places.older[one] != places.last[one]]
    if how == "swapped":
        some = [one for one in some if others(world, one)]
    if not some:
        return None
    place = chance.choice(some)
    value = places.last[place]
    if how == "deleted":
        places.put(place, None)
    elif how == "older":
        places.put(place, places.older[place])
    elif how == "torn":
        places.put(place, torn(place, value, chance))
    else:
        other = chance.choice(others(world, place))
        places.put(place, places.last[other])
        places.put(other, value)
        return f"{place} {how} with {other}"
    return f"{place} {how}"


def others(world: World, place: Place) -> list[Place]:
    """Of another scope or stream, the same kind of thing with another value."""
    last = world.places.last
    return sorted(
        one for one in last if kind_of(one) == kind_of(place) and one != place and last[one] != last[place]
    )


def torn(place: Place, value: tuple[bytes, ...], chance: random.Random) -> tuple[bytes, ...]:
    """A value of which a part is another; a number is another number."""
    if place[0] == "key" or (place[0] == "head" and chance.random() < 0.5):
        return (str(max(1, int(value[0]) + chance.choice((-1, 1)))).encode(), *value[1:])
    *before, last = value
    at = chance.randrange(len(last))
    changed = {
        "cut": last[:at],
        "flip": last[:at] + bytes((last[at] ^ 1 << chance.randrange(7),)) + last[at + 1 :],
        "zeros": last[:at] + bytes(len(last) - at),
    }[chance.choice(("cut", "flip", "zeros"))]
    return (*before, changed)


def findings(url: str) -> list[str]:
    """What verify says; that it cannot even open the store is a finding."""
    try:
        with closing(open_store(url)) as store:
            return [str(finding) for verdict in verify(store) for finding in verdict.findings]
    except OdometerError as error:
        return [error.detail]


def unneeded(world: World, what: str) -> bool:
    """Whether entries were hit that say how a shard began, and nothing else.

    They have no loss and no key, and are on no page. Whoever has read them does not do so again, so that
    `verify` alone comes upon them, and the next start.
    """
    hit = [place for place in world.places.last if place[0] == "entry" and str(place) in what]
    entries = [json.loads(world.places.last[place][1]) for place in hit]
    shards = all(stream.startswith("~units/") for _, stream, _ in hit)
    return bool(hit) and shards and all(entry["type"] in ("opened", "synced") for entry in entries)


class Struck(NamedTuple):
    """What was hit, what the service did not answer, and what verify finds."""

    what: str
    unsure: list[str]
    found: list[str]


def struck(world: World, kind: str, how: str, when: str, seed: str) -> Struck | None:
    """One fault, and everything that is asked after it; None where there is no such fault."""
    url, truth, chance = world.places.fresh(), world.truth.copy(), random.Random(seed)
    clock = Clock()
    clock.moment = world.clock.moment
    try:
        if when == "restart":
            done = damaged(world, kind, how, chance)
            if done is None:
                return None
            found = findings(url)
            try:
                accountant = Accountant(open_store(url), clock)
            except OdometerError as error:
                return Struck(done, [error.detail], found)
            with accountant:
                return Struck(done, asked(Asking(accountant, truth, clock)), found)
        with Accountant(open_store(url), clock) as accountant:
            asking = Asking(accountant, truth, clock)
            for place, (dataset, who, more) in enumerate(targets()):
                if chance.random() < 0.5:  # of these the service knows the counts
                    asking.charge(dataset, who, f"before-{place}", 1, **more)
            done = damaged(world, kind, how, chance)
            if done is None:
                return None
            found = findings(url)
            return Struck(done, asked(asking), found)
    finally:
        world.places.drop()


def asked(asking: Asking) -> list[str]:
    """Ask everything; what was not answered."""
    asking.read_all()
    asking.retry_all()
    asking.charge_all("after")
    return asking.unsure


def test_every_fault_is_found_or_harmless(world: World) -> None:
    done = 0
    for number, (kind, how, when) in enumerate(faults(2026)):
        if done >= NUMBER:
            break
        try:
            hit = struck(world, kind, how, when, f"{number}")
        except Exception as error:
            raise AssertionError(f"fault {number}: {kind} {how} {when}") from error
        if hit is None:
            continue
        done += 1
        unread = when == "running" and kind == "entry" and not hit.unsure and unneeded(world, hit.what)
        assert unread or bool(hit.unsure) == bool(hit.found), f"fault {number}, {when}: {hit}"
