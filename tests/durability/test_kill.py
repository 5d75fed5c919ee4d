"""The real server, killed: a few times here; `make test-system` does it fifty times."""

import random
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import forked
import httpx
import pytest
from amount import amount
from raw import LOST, Connection
from serving import ONE, dataset_document
from survivor import Survivor, survive

from odometer_client import testing

ROUNDS = amount(8, 3)


@pytest.fixture
def survivor() -> Iterator[Survivor]:
    """Beside the sources rather than in the system's temporary folder, which may be memory."""
    with tempfile.TemporaryDirectory(prefix=".survivor-", dir=Path(__file__).parent) as folder:
        yield Survivor(Path(folder))


def test_a_killed_server_loses_and_doubles_nothing(survivor: Survivor) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    survive(survivor, ROUNDS, random.Random(seed))
    assert len(survivor.acked) > 10 * ROUNDS


def test_a_server_told_to_end_finishes_what_it_took(survivor: Survivor) -> None:
    """SIGTERM under load: it ends with status 0, and what it acknowledged is there."""
    chance = random.Random(0)
    for _ in range(2):
        with survivor.serving() as service:
            assert survivor.strike(service, 0.1, signal.SIGTERM) == 0
    with survivor.serving() as service:
        survivor.retry(service, chance)
        assert survivor.examine() > 0


DIES = """
import sys
from odometer_accountant.stores.sqlite import SqliteStore
append = SqliteStore.append
def dying(self, writes):
    if any(write.stream == "deadly" and write.expected.sequence for write in writes):
        raise KeyboardInterrupt("nothing catches this")
    return append(self, writes)
SqliteStore.append = dying
sys.argv[0] = "odometer"
from privacy_odometer import cli
cli.main()
"""


def test_a_dead_writer_ends_the_process_with_70(survivor: Survivor) -> None:
    """The caller hears 503, never 201; the supervisor hears a status that is not success."""
    with testing.serve(survivor.url, command=[sys.executable, "-c", DIES]) as service:
        admin = {"Authorization": f"Bearer {service.admin_key}"}
        for name in ("deadly", "other"):
            reply = httpx.post(f"{service.url}/v1/datasets", json=dataset_document(name), headers=admin)
            assert reply.status_code == 201
        connection = Connection(service.url, service.admin_key or "")
        assert connection.charge("other", "k", ONE).status == 201
        assert connection.charge("deadly", "k", ONE).status == 503
        assert service.process.wait(30) == 70
        with pytest.raises(LOST):
            connection.charge("other", "k2", ONE)
        connection.close()


def test_the_first_key_is_shown_once(survivor: Survivor) -> None:
    with forked.serve(survivor.url) as service:
        first = service.admin_key
        assert first is not None
    with forked.serve(survivor.url) as service:
        assert service.admin_key is None
        me = httpx.get(f"{service.url}/v1/me", headers={"Authorization": f"Bearer {first}"})
        assert me.json()["role"] == "admin"
