"""A ledger that an earlier version wrote has no marks: it is counted again once, from its entries."""

import json
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis_server
from places import redis_without_marks, sqlite_without_marks
from serving import dataset_document

from odometer_accountant.errors import LedgerCorrupt
from odometer_accountant.ledger.adoption import adopt_all
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.service.api_keys import KeyRing
from odometer_accountant.stores import open_store
from odometer_accountant.verify.walk import all_streams, verify
from tests.golden.ledger.opened import restore

FILE = "format_3.txt"


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis_server.Server]:
    with redis_server.server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path, redis: redis_server.Server) -> str:
    """The golden ledger as the version that wrote it kept it."""
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    if request.param == "redis":
        url = f"{redis.url}?prefix={tmp_path.name}"
    with closing(restore(FILE, open_store(url))) as store:
        streams = list(all_streams(store))
    if request.param == "redis":
        redis_without_marks(url, streams)
    else:
        sqlite_without_marks(tmp_path / "ledger.sqlite")
    return url


def findings(url: str) -> list[str]:
    with closing(open_store(url)) as store:
        return [str(finding) for verdict in verify(store) for finding in verdict.findings]


def test_it_verifies_as_it_is(url: str) -> None:
    """Reading alone gives it no marks."""
    assert findings(url) == []
    with closing(open_store(url)) as store:
        assert not store.load("plain", [])[0].marked


def test_every_stream_is_counted_again_and_says_so(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "odometer.ledger")
    with closing(open_store(url)) as store:
        adopt_all(store)
        assert all(store.load(name, [])[0].marked for name in all_streams(store))
        head = store.load("plain", [])[0]
        [last] = store.entries("plain", head.sequence - 1, 1)
        assert (json.loads(last.body)["type"], json.loads(last.body)["v"]) == ("recounted", 4)
        ring = KeyRing(store)
        assert [key["role"] for key in ring.keys()] == ["admin", "reader", "charger", "charger"]  # noqa: SIM118
    assert "plain was counted again" in caplog.text
    assert findings(url) == []


def test_it_is_counted_again_when_it_is_first_asked_for(url: str) -> None:
    """Not only at the start: workers of both versions may run on it for a while."""
    body = {"mechanism": {"kind": "pure", "epsilon": 0.01}, "count": 1}
    with Accountant.open(url) as accountant:
        before = accountant.odometer("plain")["totals"]["rho"]
        accountant.charge("plain", body, "new", "ada")
        assert accountant.odometer("plain")["totals"]["rho"] > before
        assert accountant.store.load("plain", [])[0].marked
    assert findings(url) == []


def test_what_an_earlier_version_would_read_of_it_cannot_be_read(url: str, tmp_path: Path) -> None:
    """It refuses, and writes no total without a mark beside those that have one."""
    with closing(open_store(url)) as store:
        adopt_all(store)
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as connection:
            [raw] = connection.execute("SELECT value FROM blobs WHERE name='config'").fetchone()
        with pytest.raises(ValueError, match="Expecting value"):
            json.loads(raw)


def test_what_was_wrong_before_is_not_taken_over(tmp_path: Path) -> None:
    """Nothing is admitted on a total that the entries contradict, and nothing shown of it."""
    url, path = f"sqlite:///{tmp_path}/ledger.sqlite", tmp_path / "ledger.sqlite"
    restore(FILE, open_store(url)).close()
    sqlite_without_marks(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        changed = connection.execute(
            """UPDATE blobs SET value=(SELECT value FROM blobs AS b WHERE b.name='totals/principal/carol')
            WHERE name='totals/principal/ada' AND stream=(SELECT id FROM streams WHERE name='plain')"""
        )
        assert changed.rowcount == 1
    with Accountant.open(url) as accountant:
        adopt_all(accountant.store)
        body = {"mechanism": {"kind": "pure", "epsilon": 0.01}, "count": 1}
        with pytest.raises(LedgerCorrupt, match="the entries add up to"):
            accountant.charge("plain", body, "new", "ada")
        with pytest.raises(LedgerCorrupt, match="the entries add up to"):
            accountant.odometer("plain")
        assert accountant.odometer("counted")["sequence"] > 0
    assert findings(url) != []


def test_marks_that_were_lost_are_no_earlier_version(tmp_path: Path) -> None:
    """A ledger that had marks, and has none, is not counted again: it is damaged."""
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    with Accountant.open(url) as accountant:
        accountant.create_dataset(dataset_document("d"), "p")
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)) as connection:
        connection.execute("DELETE FROM marks WHERE stream=0")
    with (
        Accountant.open(url) as accountant,
        pytest.raises(LedgerCorrupt, match="its stream has none"),
    ):
        accountant.odometer("d")
    assert findings(url) != []
