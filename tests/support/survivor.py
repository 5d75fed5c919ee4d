"""A ledger whose servers are killed under load: what callers were told against what it holds."""

import contextlib
import json
import random
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import forked
import httpx
from forked import Forked
from raw import Caller, Connection
from serving import ONE, dataset_document

from odometer_accountant.ledger.blobs import scope_blob
from odometer_accountant.ledger.fold import apply
from odometer_accountant.ledger.state import State
from odometer_accountant.stores import Store, open_store
from odometer_accountant.verify.walk import verify

DATASET = "d"
CALLERS = 12
SUBSAMPLED = {
    "kind": "poisson_subsampled",
    "base": {"kind": "gaussian", "noise_multiplier": 1.1},
    "sampling_rate": 0.01,
}
BODIES = [ONE, {"mechanism": SUBSAMPLED, "count": 100}, {"charges": [ONE, ONE, {**ONE, "count": 3}]}]
_PAGE = 1000


@dataclass
class Survivor:
    """One ledger file, and everything that callers were told about it."""

    folder: Path
    acked: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By key: which body, and the sequence number of its receipt."""
    unsure: dict[str, int] = field(default_factory=dict)
    """By key: which body. Asked, and not answered before the server went away."""
    lost_answers: int = 0
    """How many of the unsure turned out to have been charged."""
    kills: int = 0
    _token: str = ""
    _state: State | None = None
    _found: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder}/ledger.sqlite"

    @contextlib.contextmanager
    def serving(self) -> Iterator[Forked]:
        """A server process on the ledger; at its first start the dataset is opened."""
        with forked.serve(self.url) as service:
            if service.admin_key is not None:
                assert not self._token, "the admin key is shown once"
                self._token = service.admin_key
                self._open(service)
            yield service

    def _open(self, service: Forked) -> None:
        headers = {"Authorization": f"Bearer {self._token}"}
        reply = httpx.post(f"{service.url}/v1/datasets", json=dataset_document(DATASET), headers=headers)
        assert reply.status_code == 201, reply.text

    def connect(self, service: Forked) -> Connection:
        return Connection(service.url, self._token)

    def strike(self, service: Forked, after_s: float, sign: int = signal.SIGKILL) -> int:
        """Signal the server while every caller has charges under way; returns its exit status."""
        callers = [Caller(service.url, self._token, DATASET, BODIES) for _ in range(CALLERS)]
        for caller in callers:
            caller.start()
        for caller in callers:
            assert caller.some.wait(30), caller.wrong
        threading.Event().wait(after_s)  # a random moment under load: nothing to wait for
        status = service.end(sign)
        for caller in callers:
            caller.stop.set()
            caller.join(30)
            assert not caller.wrong, caller.wrong
            self.acked |= caller.acked
            if caller.open_ is not None:
                self.unsure[caller.open_[0]] = caller.open_[1]
        self.kills += 1
        return status

    def strike_at_the_start(self, after_s: float) -> None:
        """Kill a server at some moment while it starts and recovers."""
        process, said = forked.start(self.url)
        with said:
            threading.Event().wait(after_s)
            process.kill()
            process.join()
        self.kills += 1

    def retry(self, service: Forked, chance: random.Random) -> None:
        """Callers ask again: what was unsure, and some of what was answered, as if that had been lost."""
        connection = self.connect(service)
        try:
            for key, which in self.unsure.items():
                reply = connection.charge_for_certain(DATASET, key, BODIES[which])
                assert reply.status in (200, 201), reply
                self.lost_answers += reply.status == 200
                self.acked[key] = which, reply.document["sequence"]
            self.unsure.clear()
            for key in chance.sample(sorted(self.acked), min(20, len(self.acked))):
                which, sequence = self.acked[key]
                reply = connection.charge(DATASET, key, BODIES[which])
                assert (reply.status, reply.document["sequence"]) == (200, sequence), reply
        finally:
            connection.close()

    def examine(self) -> int:
        """Read the file: nothing missing, nothing doubled, chain and totals hold. The number of charges."""
        with contextlib.closing(open_store(self.url)) as store:
            self._fold(store)
            state = self._state
            assert state is not None
            head, blobs = store.load(DATASET, [scope_blob(scope) for scope in state.totals.life])
        assert head == state.head
        ours = {scope_blob(scope): loss.encode().encode() for scope, loss in state.totals.life.items()}
        assert blobs == ours
        assert {key: found[0] for key, found in self._found.items()} == {
            key: sequence for key, (_, sequence) in self.acked.items()
        }
        return len(self._found)

    def _fold(self, store: Store) -> None:
        """Apply what was appended since the last look."""
        while rows := store.entries(DATASET, self._state.head.sequence if self._state else 0, _PAGE):
            for row in rows:
                self._state = apply(self._state, row.hash, row.body)
                entry = json.loads(row.body)
                if entry["type"] == "charged":
                    assert entry["key"] not in self._found, f"charged twice: {entry['key']}"
                    self._found[entry["key"]] = row.sequence, row.hash


def survive(survivor: Survivor, rounds: int, chance: random.Random, sign: int = signal.SIGKILL) -> None:
    """So many servers, each killed at a random moment; after each, everything is accounted for."""
    while survivor.kills < rounds:
        with survivor.serving() as service:
            if survivor.acked:
                survivor.retry(service, chance)
                survivor.examine()
            survivor.strike(service, chance.uniform(0, 0.3), sign)
        if survivor.kills % 5 == 4:
            survivor.strike_at_the_start(chance.uniform(0, 0.2))
    with survivor.serving() as service:
        survivor.retry(service, chance)
        survivor.examine()
    with contextlib.closing(open_store(survivor.url)) as store:
        verdicts = list(verify(store))
    assert [verdict.stream for verdict in verdicts] == [DATASET, "~keys"]
    assert [verdict.findings for verdict in verdicts] == [(), ()]
