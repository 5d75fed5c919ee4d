"""A stream that someone changed behind the service's back: that one is refused, all others go on."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from serving import ONE, dataset_document

from odometer_accountant.errors import LedgerCorrupt
from odometer_accountant.ledger.entries import entry_hash
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores import open_store
from odometer_accountant.verify.walk import verify

FIRST_CHARGE = (1 << 40) + 2
"""Id of the first dataset's second entry."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger of two datasets with a charge each."""
    with Accountant.open(f"sqlite:///{tmp_path}/ledger.sqlite") as accountant:
        for name in ("broken", "whole"):
            accountant.create_dataset(dataset_document(name), "p")
            accountant.charge(name, ONE, "k", "p")
    return tmp_path / "ledger.sqlite"


def run(path: Path, *statements: tuple[Any, ...]) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement, *values in statements:
            assert connection.execute(statement, values).rowcount > 0, statement


def rewritten(path: Path, body: bytes) -> None:
    """Another last entry, with hashes that fit."""
    digest = entry_hash(body)
    run(
        path,
        ("UPDATE entries SET body=?, hash=? WHERE id=?", body, digest, FIRST_CHARGE),
        ("UPDATE streams SET hash=? WHERE id=1", digest),
    )


def findings(path: Path) -> list[str]:
    with closing(open_store(f"sqlite:///{path}")) as store:
        return [finding.what for verdict in verify(store) for finding in verdict.findings]


@pytest.fixture
def opened(path: Path) -> Iterator[Any]:
    accountants = []

    def open_() -> Accountant:
        accountants.append(Accountant.open(f"sqlite:///{path}"))
        return accountants[-1]

    yield open_
    for accountant in accountants:
        accountant.close()


def refused_alone(accountant: Accountant) -> None:
    """The changed dataset is refused, read and charged, and the other one is charged as before."""
    with pytest.raises(LedgerCorrupt):
        accountant.charge("broken", ONE, "new", "p")
    with pytest.raises(LedgerCorrupt):
        accountant.odometer("broken")
    assert accountant.charge("whole", ONE, "new", "p")[0]["sequence"] == 3
    assert accountant.writer.alive


def test_a_last_entry_without_a_time(path: Path, opened: Any) -> None:
    with closing(sqlite3.connect(path)) as connection:
        [body] = connection.execute("SELECT body FROM entries WHERE id=?", (FIRST_CHARGE,)).fetchone()
    entry = json.loads(body)
    del entry["time"]
    rewritten(path, json.dumps(entry, sort_keys=True, separators=(",", ":")).encode())
    assert any("has no time" in what for what in findings(path))
    refused_alone(opened())


def test_a_last_entry_that_is_no_object(path: Path, opened: Any) -> None:
    rewritten(path, b"[1]")
    refused_alone(opened())


def test_a_configuration_of_another_shape(path: Path, opened: Any) -> None:
    statement = 'UPDATE blobs SET value=CAST(replace(value, \'"budgets":{\', \'"budgets":[],"x":{\') AS BLOB)'
    run(path, (f"{statement} WHERE name='config' AND stream=1",))
    refused_alone(opened())


def test_two_ledgers_that_changed_names(path: Path, opened: Any) -> None:
    """What was spent on one must not be read as what was spent on the other."""
    names = (("x", 1), ("broken", 2), ("whole", 1))
    run(path, *(("UPDATE streams SET name=? WHERE id=?", name, number) for name, number in names))
    for name in ("broken", "whole"):
        with pytest.raises(LedgerCorrupt, match="is that of"):
            opened().charge(name, ONE, "new", "p")


def test_a_key_that_leads_to_anothers_entry_is_no_replay(path: Path, opened: Any) -> None:
    """Or a new release would be told that it is paid for."""
    run(path, ("INSERT INTO keys(stream, key, sequence) VALUES (1, 'p/new', 2)",))
    accountant = opened()
    with pytest.raises(LedgerCorrupt, match="not its own"):
        accountant.charge("broken", ONE, "new", "p")
    assert accountant.charge("broken", ONE, "k", "p")[1]


def test_text_in_the_place_of_the_same_bytes_is_read(path: Path, opened: Any) -> None:
    """A database tool stored what it showed: nothing is lost, and nothing ends."""
    run(
        path,
        ("UPDATE blobs SET value=CAST(value AS TEXT) WHERE stream=1",),
        ("UPDATE entries SET body=CAST(body AS TEXT) WHERE id=?", FIRST_CHARGE),
    )
    accountant = opened()
    assert accountant.charge("broken", ONE, "k", "p")[1]
    assert accountant.charge("broken", ONE, "new", "p")[0]["sequence"] == 3
    assert findings(path) == []


def _a_lowered_total_is_found(path: Path) -> None:
    """One more charge, and then the total of before it: the next one is not admitted."""
    url = f"sqlite:///{path}"
    with closing(sqlite3.connect(path)) as connection:
        question = "SELECT value FROM blobs WHERE name = 'totals/dataset'"
        [before] = connection.execute(question).fetchone()
    with Accountant.open(url) as accountant:
        accountant.charge("d", ONE, "last", "p")
    with Accountant.open(url) as accountant:  # whole, it opens
        assert accountant.charge("d", ONE, "last", "p")[1]
    run(path, ("UPDATE blobs SET value=? WHERE name='totals/dataset'", before))
    with Accountant.open(url) as accountant, pytest.raises(LedgerCorrupt, match="not what its entries"):
        accountant.charge("d", ONE, "next", "p")


@pytest.mark.parametrize("charges", [1, 127, 128, 200])
def test_a_total_lowered_beside_the_entries_is_found_before_the_next_charge(
    tmp_path: Path, charges: int
) -> None:
    """With and without a checkpoint before it."""
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    with Accountant.open(url) as accountant:
        accountant.create_dataset(dataset_document("d"), "p")
        for number in range(charges - 1):
            accountant.charge("d", ONE, f"k{number}", "p")
    _a_lowered_total_is_found(tmp_path / "ledger.sqlite")


def test_a_checkpoint_number_that_fell_to_another_entry_is_no_damage(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    with Accountant.open(url) as accountant:
        accountant.create_dataset(dataset_document("d"), "p")
        for number in range(126):
            accountant.charge("d", ONE, f"k{number}", "p")
        extra = {"name": "extra", "kind": "zcdp", "rho": 1000}
        accountant.add_budget("d", extra, "p")
        assert accountant.charge("d", ONE, "after", "p")[0]["sequence"] == 129
    with Accountant.open(url) as accountant:
        assert accountant.charge("d", ONE, "again", "p")[0]["sequence"] == 130


def test_a_total_lowered_after_a_settlement_that_is_the_checkpoint_is_found_before_the_next_charge(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    with Accountant.open(url) as accountant:
        accountant.create_dataset(dataset_document("d"), "p")
        accountant.charge("d", ONE, "first", "p")
        for number in range(63):
            hold = accountant.hold("d", {**ONE, "count": 2, "expires_in_s": 600}, f"h{number}", "p")[0][
                "hold"
            ]
            said, _ = accountant.settle("d", hold["id"], {"used": 1}, "p")
        assert said["sequence"] == 128
    _a_lowered_total_is_found(tmp_path / "ledger.sqlite")


def test_without_its_list_of_open_holds_a_ledger_is_refused(tmp_path: Path) -> None:
    """Which holds are open is unknown then, not none: nothing is given back, and nothing shown."""
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    with Accountant.open(url) as accountant:
        accountant.create_dataset(dataset_document("d"), "p")
        hold = accountant.hold("d", {**ONE, "expires_in_s": 600}, "h", "p")[0]["hold"]
    run(tmp_path / "ledger.sqlite", ("DELETE FROM blobs WHERE name='holds'",))
    with Accountant.open(url) as accountant:
        with pytest.raises(LedgerCorrupt, match="is gone"):
            accountant.settle("d", hold["id"], {"used": 0}, "p")
        with pytest.raises(LedgerCorrupt, match="is gone"):
            accountant.odometer("d")


@pytest.mark.parametrize("blob", [b"[1]", b'{"a":"b"}', b"{", b"\xff"])
def test_open_holds_that_cannot_be_read(path: Path, opened: Any, blob: bytes) -> None:
    """Met while another process's entries are followed: it is that dataset's answer, not the thread's end."""
    first, second = opened(), opened()
    first.charge("broken", ONE, "a", "p")
    second.charge("broken", ONE, "b", "p")
    run(path, ("UPDATE blobs SET value=? WHERE name='holds' AND stream=1", blob))
    refused_alone(first)


def test_counts_below_what_is_open_are_damage(path: Path, opened: Any) -> None:
    """A count that was lost together with its mark is not read as one that holds can be taken out of."""
    each = {"name": "each", "kind": "zcdp", "rho": 9, "scope": "principal/p"}
    with Accountant.open(f"sqlite:///{path}") as accountant:
        accountant.add_budget("broken", each, "p")
        accountant.hold("broken", {**ONE, "expires_in_s": 3600}, "h", "p")
    lost = "totals/principal/p"
    run(path, *((f"DELETE FROM {table} WHERE stream=1 AND name=?", lost) for table in ("blobs", "marks")))
    with pytest.raises(LedgerCorrupt, match="below what its open holds"):
        opened().odometer("broken", scope="principal/p")
