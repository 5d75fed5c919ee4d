"""What is read over HTTP of a dataset whose store is damaged: right, or 503 ledger-corrupt, and never 500."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from serving import ONE, Live, live

READS = (
    "",
    "/odometer",
    "/odometer?scope=principal/p_1",
    "/budgets",
    "/history",
    "/spend",
    "/ledger",
    "/ledger?newest_first=true",
    "/holds",
    "/sessions",
    "/scopes?kind=principal",
    "/lineage?entry=2",
)
D = "(SELECT id FROM streams WHERE name='d')"
SECOND = f"(({D} << 40) + 2)"
DAMAGES = {
    "a total": f"DELETE FROM blobs WHERE name='totals/dataset' AND stream={D}",
    "another's total": f"UPDATE blobs SET value='1 2 3' WHERE name='totals/dataset' AND stream={D}",
    "the configuration": f"UPDATE blobs SET value=substr(value, 1, 40) WHERE name='config' AND stream={D}",
    "the holds": f"UPDATE blobs SET value='[1]' WHERE name='holds' AND stream={D}",
    "the last entry": f"UPDATE entries SET body=substr(body, 1, 30) WHERE id={SECOND} + 2",
    "an early entry": f"UPDATE entries SET body=substr(body, 1, 30) WHERE id={SECOND}",
    "a hash": f"UPDATE entries SET hash='00' WHERE id={SECOND}",
    "the head": "UPDATE streams SET sequence=2 WHERE name='d'",
    "the stream": "DELETE FROM streams WHERE name='d'",
    "all marks": "DELETE FROM marks",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def service(path: Path) -> Iterator[Live]:
    """A dataset of which all was read once, and one beside it."""
    with live(f"sqlite:///{path}") as running:
        for name in ("d", "whole"):
            running.open(name)
            for key in ("a", "b"):
                assert running.charge(name, key).status_code == 201
        hold = {**ONE, "expires_in_s": 600}
        made = running.ask(
            "POST", "/v1/datasets/d/holds", "charger", json=hold, headers={"Idempotency-Key": "h"}
        )
        assert made.status_code == 201
        yield running


@pytest.mark.parametrize("damage", DAMAGES)
def test_reads_are_right_or_refused(service: Live, path: Path, damage: str) -> None:
    before = {route: service.ask("GET", f"/v1/datasets/d{route}", "reader") for route in READS}
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute(DAMAGES[damage]).rowcount > 0
    refused = 0
    for route, was in before.items():
        reply = service.ask("GET", f"/v1/datasets/d{route}", "reader")
        if reply.status_code == 503:
            assert reply.json()["type"] in ("/problems/ledger-corrupt", "/problems/ledger-rolled-back"), route
            refused += 1
        else:
            assert reply.status_code == was.status_code, (route, reply.text)
            same = {**reply.json(), "time": None} == {**was.json(), "time": None}
            assert same or route in ("", "/budgets"), (route, reply.text)
    assert refused > 0
    listed = service.ask("GET", "/v1/datasets", "reader")
    assert listed.status_code == 200
    assert service.ask("GET", "/metrics", None).status_code == 200
    if damage != "all marks":
        assert service.ask("GET", "/v1/datasets/whole/odometer", "reader").status_code == 200
        assert service.charge("whole", "after").status_code == 201
