"""Four server processes on one store: what a race between them admits, told from the ledger itself."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier
from typing import Any

import forked
import httpx
import redis_server
from raw import Connection, Reply
from serving import ONE, dataset_document

from odometer_accountant.ledger.blobs import scope_blob
from odometer_accountant.ledger.fold import fold
from odometer_accountant.ledger.state import State
from odometer_accountant.stores import open_store
from odometer_client.keys import new_key

PROCESSES, CALLERS = 4, 64
COST = 0.5
"""rho of `ONE`."""
Job = Callable[[Connection, int], list[Reply]]


@dataclass(frozen=True)
class Four:
    """The processes, and an admin key that all know."""

    urls: tuple[str, ...]
    key: str
    store: str

    def open(self, name: str, fitting: int) -> None:
        """A dataset with room for so many charges of `ONE`."""
        headers = {"Authorization": f"Bearer {self.key}"}
        document = dataset_document(name, COST * fitting)
        reply = httpx.post(f"{self.urls[0]}/v1/datasets", json=document, headers=headers, timeout=60)
        assert reply.status_code == 201, reply.text

    def race(self, job: Job, callers: int = CALLERS) -> list[list[Reply]]:
        """The replies of each of `callers`, spread over the processes and started together."""
        start = Barrier(callers)

        def run(number: int) -> list[Reply]:
            with closing(Connection(self.urls[number % len(self.urls)], self.key)) as connection:
                start.wait(60)
                return job(connection, number)

        with ThreadPoolExecutor(callers) as pool:
            return list(pool.map(run, range(callers)))

    def folded(self, name: str) -> State:
        """The dataset's state as its entries tell it; what the store keeps beside them is the same."""
        with closing(open_store(self.store)) as store:
            state = fold((row.hash, row.body) for row in store.entries(name, 0, 10_000))
            assert state is not None
            head, blobs = store.load(name, [scope_blob(scope) for scope in state.totals.life])
        assert head == state.head
        assert blobs == {
            scope_blob(scope): loss.encode().encode() for scope, loss in state.totals.life.items()
        }
        return state


@contextlib.contextmanager
def four(kind: str) -> Iterator[Four]:
    """On one Redis server that syncs each append, or on one SQLite file."""
    with ExitStack() as stack:
        where = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="odometer-four-")))
        store = f"sqlite:///{where}/ledger.sqlite"
        if kind == "redis":
            store = stack.enter_context(redis_server.server(where / "redis")).url
        running = [stack.enter_context(forked.serve(store)) for _ in range(PROCESSES)]
        assert running[0].admin_key is not None
        yield Four(tuple(one.url for one in running), running[0].admin_key, store)


def exactly_what_fits(four: Four, name: str, fitting: int) -> int:
    """Single charges from 64 callers. Returns how often a caller had to ask again."""
    four.open(name, fitting)
    again = 0

    def job(one: Connection, _: int) -> list[Reply]:
        nonlocal again
        replies = []
        for _ in range(2):
            key = new_key()
            while (reply := one.charge(name, key, ONE)).status == 503:
                again += 1
            replies.append(reply)
        return replies

    replies = [reply for some in four.race(job) for reply in some]
    good = [reply.document["sequence"] for reply in replies if reply.status == 201]
    assert {reply.status for reply in replies} <= {201, 409}
    assert sorted(good) == list(range(2, fitting + 2))
    state = four.folded(name)
    assert (state.head.sequence, state.charges) == (fitting + 1, fitting)
    return again


def lists_are_whole(four: Four, name: str, fitting: int) -> None:
    """Lists of two to five race with single charges, which fill what lists leave: no part of a list is in."""
    four.open(name, fitting)

    def job(one: Connection, number: int) -> list[Reply]:
        size = 2 + number % 4
        bodies: list[Any] = [{"charges": [ONE] * size}, ONE, ONE]
        return [one.charge_for_certain(name, new_key(), body) for body in bodies]

    replies = [reply for some in four.race(job) for reply in some]
    good = [reply for reply in replies if reply.status == 201]
    assert {reply.status for reply in replies} <= {201, 409}
    assert sum(len(reply.document["charges"]) for reply in good) == fitting
    assert four.folded(name).charges == len(good)


def one_key_is_one_charge(four: Four, name: str) -> None:
    """Each of ten keys is sent by 64 callers to all processes at once."""
    keys = [f"key-{number}" for number in range(10)]
    four.open(name, 100)
    replies = four.race(lambda one, _: [one.charge_for_certain(name, key, ONE) for key in keys])
    for same in zip(*replies, strict=True):
        assert {reply.status for reply in same} <= {200, 201}
        assert [reply.status for reply in same].count(201) <= 1  # none where its answer was a 503
        assert len({(reply.document["sequence"], reply.document["hash"]) for reply in same}) == 1
    assert four.folded(name).charges == len(keys)
