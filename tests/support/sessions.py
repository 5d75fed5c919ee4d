"""Sessions whose servers are killed while they are answered: what runners were told against the ledger.

with world(kind, servers=2) as killed:
    killed.round(chance)
    killed.settle()
    killed.examine()
"""

import contextlib
import itertools
import json
import random
import signal
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import forked
import httpx
import redis_server
from raw import LOST, Connection, Reply
from serving import dataset_document

from odometer_accountant.ledger.fold import fold
from odometer_accountant.stores import Store, open_store
from odometer_accountant.verify.walk import verify
from odometer_client.keys import new_key

DATASET = "d"
RUNNERS = 12
KINDS: dict[str, dict[str, Any]] = {
    "sparse_vector": {"epsilon_threshold": 0.1, "epsilon_answers": 0.2, "max_above": 4},
    "confident_gnmax": {"noise_multiplier_check": 100.0, "noise_multiplier_answer": 20.0, "max_answers": 3},
}
MOST = {"sparse_vector": 4, "confident_gnmax": 3}
_SESSIONS = f"/v1/datasets/{DATASET}/sessions"


@dataclass(frozen=True)
class Step:
    """Something that a runner asks for, the same each time that it asks."""

    what: str
    """`open`, `above`, `below` or `close`."""
    path: str
    body: Mapping[str, Any]
    key: str | None
    run: int = 0


@dataclass(frozen=True)
class Told:
    """What was acknowledged of a step that the ledger has an entry of."""

    step: Step
    number: int
    """Of the session."""
    sequence: int | None
    """Of its receipt; None where it cost nothing."""


@dataclass
class Runner:
    """Answers one session after the other, alone, as the recipes say: `run` in each answer, a key a step."""

    kind: str
    dice: random.Random
    told: dict[str, Told] = field(default_factory=dict)
    """By key: every step of sessions that is in the ledger, as far as it was acknowledged."""
    ends: set[int] = field(default_factory=set)
    """Sessions that were closed by hand."""
    session: str | None = None
    run: int = 0
    above: int = 0
    pending: Step | None = None
    free: int = 0
    """Below answers that cost nothing."""
    found_again: int = 0
    """Steps that were done though their answer was lost."""
    wrong: list[str] = field(default_factory=list)
    some: threading.Event = field(default_factory=threading.Event)
    """That a step was acknowledged since this was cleared."""

    @property
    def number(self) -> int:
        return int((self.session or "0.").partition(".")[0])

    def work(self, urls: list[str], token: str, stop: threading.Event) -> None:
        """Ask one server or the other, whichever answers, until told to stop. `urls` may change meanwhile."""
        connections: dict[str, Connection] = {}
        try:
            while not stop.is_set() and not self.wrong:
                url = self.dice.choice(urls)
                one = connections.setdefault(url, Connection(url, token))
                if not self.ask(one):
                    connections.pop(url).close()
                    stop.wait(0.01)
        finally:
            for one in connections.values():
                one.close()

    def ask(self, connection: Connection) -> bool:
        """The step that waits for its answer, else another one. False when the server is away."""
        self.pending = step = self.pending or self.next()
        try:
            reply = connection.post(step.path, step.body, step.key)
        except LOST:
            return False
        if reply.status == 503:
            return True
        try:
            self.hear(step, reply)
        except Exception as error:
            self.wrong.append(f"{step}: {reply}: {error!r}")
            raise
        self.pending = None
        self.some.set()
        return True

    def next(self) -> Step:
        if self.session is None:
            return Step("open", _SESSIONS, {"session": {"kind": self.kind, **KINDS[self.kind]}}, new_key())
        path = f"{_SESSIONS}/{self.session}"
        if self.dice.random() < 0.02:
            return Step("close", f"{path}/close", {}, None)
        above = self.dice.random() < 0.3
        free = not above and self.kind == "sparse_vector"
        body = {"above": above, "run": self.run}
        return Step(
            "above" if above else "below", f"{path}/answers", body, None if free else new_key(), self.run
        )

    def hear(self, step: Step, reply: Reply) -> None:
        """Take an answer: the session must be where what was acknowledged before leads to."""
        assert reply.status in (200, 201), reply
        found, receipt = reply.document["session"], reply.document["receipt"]
        self.found_again += bool(reply.document["replayed"])
        if step.what == "open":
            self.session, self.run, self.above = found["id"], 1, 0
        elif step.what == "close":
            self.ends.add(self.number)
        elif step.key is None:
            self.free += 1
        else:
            self.run, self.above = self.run + 1, self.above + (step.what == "above")
        if step.key is not None:
            self.told[step.key] = Told(step, self.number, receipt and receipt["sequence"])
        over = step.what == "close" or self.above == MOST[self.kind]
        expected = (False, None, self.above) if over else (True, self.run, self.above)
        assert (found["open"], found["run"], found["above"]) == expected
        assert (receipt is None) == (step.key is None or (over and self.kind == "sparse_vector"))
        if over:
            self.session = None


@dataclass
class Killed:
    """Servers on one store, and the runners that answer sessions at all of them."""

    store: str
    runners: list[Runner]
    redis: redis_server.Server | None
    _stack: ExitStack
    running: list[forked.Forked] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    kills: int = 0
    _token: str = ""

    def start(self) -> None:
        """One more server; with the first one the dataset is opened."""
        service = self._stack.enter_context(forked.serve(self.store))
        if service.admin_key is not None:
            self._token = service.admin_key
            headers = {"Authorization": f"Bearer {self._token}"}
            reply = httpx.post(f"{service.url}/v1/datasets", json=dataset_document(DATASET), headers=headers)
            assert reply.status_code == 201, reply.text
        self.running.append(service)
        self.urls[:] = [one.url for one in self.running]

    def round(self, chance: random.Random, *, store_too: bool = False) -> None:
        """Kill one server under load, and the store too; then look, while nobody asks, and start another."""
        stop = threading.Event()
        with ThreadPoolExecutor(len(self.runners)) as pool:
            for runner in self.runners:
                runner.some.clear()
            jobs = [pool.submit(runner.work, self.urls, self._token, stop) for runner in self.runners]
            try:
                assert all(runner.some.wait(60) for runner in self.runners), self.wrong()
                threading.Event().wait(chance.uniform(0, 0.3))  # a random moment under load
                if store_too and self.redis is not None:
                    self.redis.kill()
                self.running.pop(chance.randrange(len(self.running))).end(signal.SIGKILL)
                self.kills += 1
                if store_too and self.redis is not None:
                    self.redis.start()
                if self.running:  # the others go on for a moment, with what the dead one left
                    threading.Event().wait(chance.uniform(0, 0.2))
            finally:
                stop.set()
        for job in jobs:
            job.result()
        self.examine(settled=False)
        self.start()
        self.retry(chance)

    def wrong(self) -> list[str]:
        return [wrong for runner in self.runners for wrong in runner.wrong]

    def retry(self, chance: random.Random) -> None:
        """Ask again for some of what was answered: it is the same entry, and is told so."""
        told = [(key, one) for runner in self.runners for key, one in runner.told.items()]
        with closing(Connection(chance.choice(self.urls), self._token)) as connection:
            for key, one in chance.sample(told, min(15, len(told))):
                while (reply := connection.post(one.step.path, one.step.body, key)).status == 503:
                    pass
                assert (reply.status, reply.document["replayed"]) == (200, True), (one, reply)
                receipt = reply.document["receipt"]
                assert (receipt and receipt["sequence"]) == one.sequence, (one, reply)

    def settle(self) -> None:
        """Every step whose answer was lost is asked for again, under its key."""
        with closing(Connection(self.urls[0], self._token)) as connection:
            for runner in self.runners:
                while runner.pending is not None:
                    assert runner.ask(connection)

    def examine(self, *, settled: bool = True) -> None:
        """Read the store. Unless all is `settled`, each runner may have one step that it was not told of."""
        assert not self.wrong(), self.wrong()
        with closing(open_store(self.store)) as store:
            entries = list(_entries(store))
            findings = [finding for verdict in verify(store) for finding in verdict.findings]
            state = fold((row.hash, row.body) for row in _rows(store))
        assert findings == []
        assert state is not None
        steps, ends = self._by_key(entries)
        told = {key: one for runner in self.runners for key, one in runner.told.items()}
        waiting = {} if settled else {one.pending.key: one.pending for one in self.runners if one.pending}
        assert set(told) - set(steps) == set(), "acknowledged, and not in the ledger"
        assert set(steps) - set(told) <= set(waiting), "in the ledger, and nobody was told or waits"
        for key, one in told.items():
            assert _says(steps[key]) == (one.step.what, one.number, one.step.run), (one, steps[key])
            assert one.sequence in (None, steps[key]["seq"])
        by_hand = set().union(*(runner.ends for runner in self.runners))
        assert by_hand <= ends
        assert settled is False or by_hand == ends
        self._never_better(entries, state.sessions)

    def _by_key(self, entries: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Mapping[str, Any]], set[int]]:
        """The steps by their keys, each once; and the sessions that were closed by hand."""
        steps: dict[str, Mapping[str, Any]] = {}
        ends: set[int] = set()
        for entry in entries:
            if entry["type"] == "session_closed" and "key" not in entry:
                ends.add(entry["session"])
            elif entry["type"] in ("charged", "session_closed"):
                assert entry["key"] not in steps, f"twice: {entry['key']}"
                steps[entry["key"]] = entry
        return steps, ends

    def _never_better(self, entries: Sequence[Mapping[str, Any]], open_: Mapping[int, Any]) -> None:
        """No session stands before what its runner was told, and each run that began was paid once."""
        paid: dict[int, set[int]] = defaultdict(set)
        above: dict[int, int] = defaultdict(int)
        for entry in entries:
            if entry["type"] == "charged":
                step = entry["command"]["session"]
                number = step.get("id", entry["seq"])
                begins = 1 if "open" in step else step["run"] + 1
                assert begins not in paid[number], f"run {begins} of session {number} was paid twice"
                if not step.get("last"):
                    paid[number].add(begins)
                above[number] += bool(step.get("above"))
            elif entry["type"] == "session_closed" and "key" in entry:
                above[entry["session"]] += 1
        for number, runs in paid.items():
            assert runs == set(range(1, len(runs) + 1)), f"session {number} has runs {runs}"
            assert above[number] <= len(runs), f"session {number}: {above[number]} above answers"
        for runner in self.runners:
            if runner.session is not None:
                waits = runner.pending is not None
                now = open_.get(runner.number)
                assert now is not None or waits, f"session {runner.session} is closed"
                assert runner.run in paid[runner.number], f"{runner.session} began run {runner.run} unpaid"
                assert now is None or runner.run <= now.run <= runner.run + waits, (runner, now)
                assert now is None or runner.above <= now.above <= runner.above + waits, (runner, now)


def _says(entry: Mapping[str, Any]) -> tuple[str, int, int]:
    """(what, session, run it ends) of a step's entry."""
    if entry["type"] == "session_closed":
        return "above", entry["session"], entry["run"]
    step = entry["command"]["session"]
    if "open" in step:
        return "open", entry["seq"], 0
    return "above" if step["above"] else "below", step["id"], step["run"]


def _rows(store: Store) -> Iterator[Any]:
    after = 0
    while rows := store.entries(DATASET, after, 1000):
        yield from rows
        after = rows[-1].sequence


def _entries(store: Store) -> Iterator[dict[str, Any]]:
    return (json.loads(row.body) for row in _rows(store))


@contextlib.contextmanager
def world(kind: str, servers: int, dice: random.Random) -> Iterator[Killed]:
    """So many servers on one SQLite file, or on one Redis server that syncs each append."""
    with ExitStack() as stack:
        # Beside the sources rather than in the system's temporary folder, which may be memory.
        folder = tempfile.TemporaryDirectory(prefix=".sessions-", dir=Path(__file__).parent)
        where = Path(stack.enter_context(folder))
        redis = stack.enter_context(redis_server.server(where / "redis")) if kind == "redis" else None
        store = f"sqlite:///{where}/ledger.sqlite" if redis is None else redis.url
        kinds = itertools.cycle(KINDS)
        runners = [Runner(next(kinds), random.Random(dice.randrange(2**32))) for _ in range(RUNNERS)]
        killed = Killed(store, runners, redis, stack)
        for _ in range(servers):
            killed.start()
        yield killed


def survive(killed: Killed, rounds: int, chance: random.Random) -> None:
    """So many kills; after each, and at the end, everything is accounted for. Every third is of Redis too."""
    for number in range(rounds):
        killed.round(chance, store_too=number % 3 == 2)
    killed.settle()
    killed.examine()


def figures(killed: Killed) -> str:
    """What happened, in one line."""
    told = sum(len(runner.told) for runner in killed.runners)
    free, again = (sum(getattr(one, name) for one in killed.runners) for name in ("free", "found_again"))
    return f"{killed.kills} kills, {told} steps in the ledger, {free} free answers, {again} found again"
