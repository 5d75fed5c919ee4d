"""A store that is put back as a whole, or is gone: what was charged after the copy is not spent again."""

import json
import logging
import multiprocessing
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis_server
from command_line import runner
from serving import ONE, Live, dataset_document, live

from odometer_accountant.ledger.snapshot import KnownHead
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores import Head
from odometer_accountant.writer.witness import EVERYTHING, FileWitness, Sighting
from privacy_odometer.cli.serve import _announce

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store" / "ledger.sqlite"


@pytest.fixture
def witness(tmp_path: Path) -> Path:
    return tmp_path / "elsewhere" / "witness.jsonl"


@contextmanager
def served(path: Path, witness: Path) -> Iterator[Live]:
    with live(f"sqlite:///{path}", witness=str(witness)) as running:
        yield running


def copied(path: Path, to: Path) -> None:
    """A copy of a ledger that nobody has open."""
    shutil.copyfile(path, to)


def put_back(copy: Path, path: Path) -> None:
    for beside in path.parent.glob(f"{path.name}*"):
        beside.unlink()
    shutil.copyfile(copy, path)


@pytest.fixture
def older(path: Path, witness: Path, tmp_path: Path) -> str:
    """A ledger of which an older copy was put back; the admin's key."""
    with served(path, witness) as running:
        running.open("d", rho=1.0)
        running.open("untouched", rho=1.0)
        assert running.charge("d", "a").status_code == 201
        admin = running.admin
        first_charger = running.keys["charger"]
    copied(path, tmp_path / "copy.sqlite")
    with served(path, witness) as running:
        assert running.charge("d", "b", role=first_charger).status_code == 201
    put_back(tmp_path / "copy.sqlite", path)
    return f"{admin} {first_charger}"


def test_a_dataset_that_is_behind_is_frozen_and_the_others_go_on(
    path: Path, witness: Path, older: str
) -> None:
    admin, charger = older.split()
    with served(path, witness) as running:
        refused = running.charge("d", "c", role=charger)
        assert (refused.status_code, refused.json()["type"]) == (503, "/problems/ledger-rolled-back")
        assert running.ask("GET", "/v1/datasets/d/odometer", admin).status_code == 503
        assert running.charge("untouched", "c", role=charger).status_code == 201
    with served(path, witness) as running:  # and so for every later start, with or without the witness
        assert running.charge("d", "c", role=charger).status_code == 503
    with live(f"sqlite:///{path}") as running:
        assert running.charge("d", "c", role=charger).status_code == 503


def test_what_a_killed_service_did_not_tell_is_told_by_the_next(path: Path, witness: Path) -> None:
    """Though that one never comes to the dataset: what is in the ledger at its start is seen."""
    with served(path, witness) as running:
        running.open("d", rho=1.0)
        admin = running.admin
    copied(path, path.parent / "copy.sqlite")
    with Accountant.open(f"sqlite:///{path}") as killed:  # as one that has no time to tell its witness
        killed.charge("d", ONE, "a", "somebody")
    with served(path, witness):
        pass
    put_back(path.parent / "copy.sqlite", path)
    with served(path, witness) as running:
        reply = running.charge("d", "b", role=admin)
        assert (reply.status_code, reply.json()["type"]) == (503, "/problems/ledger-rolled-back")


def test_a_person_accepts_a_restored_copy_by_unfreezing(path: Path, witness: Path, older: str) -> None:
    """The decision is an entry, and it stands at the next start too."""
    admin, charger = older.split()
    with served(path, witness) as running:
        assert running.charge("d", "c", role=charger).status_code == 503

        def unfrozen() -> bool:  # 503 while the writer is still about to record that it froze
            reply = running.ask("POST", "/v1/datasets/d/unfreeze", admin, json={"reason": "disk died"})
            assert reply.status_code in (200, 503), reply.text
            return reply.status_code == 200

        redis_server.wait_until(unfrozen, "the dataset is unfrozen")
        assert running.charge("d", "c", role=charger).status_code == 201
    with served(path, witness) as running:
        assert running.charge("d", "more", role=charger).status_code == 409  # the budget of 1 is used
        entries = running.ask("GET", "/v1/datasets/d/ledger", admin).json()["items"]
        assert [item["entry"]["type"] for item in entries][-3:] == ["frozen", "unfrozen", "charged"]


def serve(path: Path, witness: Path) -> subprocess.CompletedProcess[str]:
    """`odometer serve`, of which it is expected that it ends by itself."""
    command = [sys.executable, "-m", "privacy_odometer", "serve", "--port", "0"]
    command += ["--store", f"sqlite:///{path}", "--witness", str(witness)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_an_empty_ledger_where_there_was_one_is_not_served(path: Path, witness: Path, older: str) -> None:
    del older
    for beside in path.parent.glob("ledger.sqlite*"):
        beside.unlink()
    ended = serve(path, witness)
    assert ended.returncode == 3
    assert "this store is empty, and the witness saw 3 ledgers in it" in ended.stderr
    options = f"--store sqlite:///{path.resolve()} --witness {witness}"
    assert f"odometer unfreeze '~ledger' {options} --reason TEXT" in ended.stderr
    assert not path.exists()  # what is refused is not made first
    run = runner()
    url = f"sqlite:///{path}"
    run("unfreeze", EVERYTHING, "--reason", "a new beginning", "--store", url, "--witness", witness)
    with served(path, witness) as running:
        running.open("d", rho=1.0)
        assert running.charge("d", "a").status_code == 201


def test_api_keys_that_went_back_are_not_served(path: Path, witness: Path) -> None:
    """One that was revoked since would open again."""
    with served(path, witness):
        pass
    mine = FileWitness(witness, f"sqlite:///{path}")
    known = mine.read()["~keys"]
    mine.append({"~keys": Sighting(known.first, KnownHead(Head(known.seen.head.sequence + 1, "ab" * 32)))})
    ended = serve(path, witness)
    assert ended.returncode == 3
    assert "entries of the API keys" in ended.stderr
    assert f"odometer unfreeze '~keys' --store sqlite:///{path.resolve()}" in ended.stderr


def test_a_dataset_that_is_gone_altogether_is_not_made_anew(path: Path, witness: Path) -> None:
    with served(path, witness) as running:
        running.open("kept")
        admin = running.admin
    gone = Sighting("cd" * 32, KnownHead(Head(5, "ab" * 32)))
    FileWitness(witness, f"sqlite:///{path}").append({"d": gone})
    with served(path, witness) as running:
        made = running.ask("POST", "/v1/datasets", admin, json=dataset_document("d"))
        assert (made.status_code, made.json()["type"]) == (503, "/problems/ledger-rolled-back")
    run = runner()
    run("unfreeze", "d", "--reason", "of a test", "--store", f"sqlite:///{path}", "--witness", witness)
    with served(path, witness) as running:
        assert running.ask("POST", "/v1/datasets", admin, json=dataset_document("d")).status_code == 201


def test_a_copy_under_another_name_is_known_for_one(path: Path, witness: Path, older: str) -> None:
    """A backup that is restored elsewhere is as old as one that is restored in its place."""
    charger = older.split()[1]
    moved = path.with_name("moved.sqlite")
    shutil.copyfile(path, moved)
    with served(moved, witness) as running:
        assert running.charge("d", "c", role=charger).status_code == 503


def test_a_ledger_that_nobody_saw_is_taken_as_it_is(
    path: Path, witness: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first start after an upgrade, which is warned of."""
    with live(f"sqlite:///{path}") as running:
        running.open("d", rho=1.0)
        charger = running.keys["charger"]
    with served(path, witness) as running:
        assert running.charge("d", "a", role=charger).status_code == 201
    assert FileWitness(witness, f"sqlite:///{path}").read()["d"].seen.head.sequence == 2
    assert "has no record of this ledger yet" in caplog.text


def test_a_new_ledger_is_no_warning_of_the_witness(
    path: Path, witness: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every first start would have it."""
    with caplog.at_level(logging.INFO), served(path, witness):
        pass
    said = [record.levelname for record in caplog.records if record.name == "odometer.witness"]
    assert said == ["INFO"]


def test_a_witness_that_cannot_be_written_is_said(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with served(path, tmp_path / "file" / "witness.jsonl") as running:
        running.open("d")
    assert "NO WITNESS IS KEPT" in caplog.text


def test_what_is_beside_the_ledger_is_no_witness(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with served(path, path.with_name("witness.jsonl")):
        assert "is beside the ledger" in caplog.text


def _append(path: Path, process: int) -> None:
    mine = FileWitness(path, "sqlite:///x")
    for number in range(1, 101):
        mine.append({f"d{process}": Sighting("f", KnownHead(Head(number, f"{number:064}")))})


def test_several_processes_share_one(tmp_path: Path) -> None:
    """No line of one is lost by another, and each stream's last is there."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_append, args=(tmp_path / "w", number)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    found = FileWitness(tmp_path / "w", "sqlite:///x").read()
    assert {stream: one.seen.head.sequence for stream, one in found.items()} == dict.fromkeys(
        ("d0", "d1", "d2"), 100
    )


def test_one_that_lags_takes_nothing_back(tmp_path: Path) -> None:
    """Of two workers the slower one says less, later."""
    mine = FileWitness(tmp_path / "w", "sqlite:///x")
    for number in (3, 2):
        mine.append({"d": Sighting("f", KnownHead(Head(number, "a")))})
    assert mine.read()["d"].seen.head.sequence == 3


def test_it_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written anew with the last of each stream, and with what people decided."""
    monkeypatch.setattr("odometer_accountant.writer.witness.BYTES_MAX", 4096)
    mine = FileWitness(tmp_path / "w", "sqlite:///x")
    mine.append({"gone": Sighting("f", KnownHead(Head(1, "a")))})
    mine.accept("gone", "of a test", "2026-03-02")
    for number in range(1, 300):
        mine.append({"d": Sighting("f", KnownHead(Head(number, "a" * 64)))})
    assert (tmp_path / "w").stat().st_size < 2 * 4096 + 400
    assert {stream: one.seen.head.sequence for stream, one in mine.read().items()} == {"d": 299}
    assert b'"accepted":"of a test"' in (tmp_path / "w").read_bytes()


def test_a_line_that_was_cut_off_costs_itself_alone(tmp_path: Path) -> None:
    mine = FileWitness(tmp_path / "w", "sqlite:///x")
    mine.append({"d": Sighting("f", KnownHead(Head(1, "a")))})
    with (tmp_path / "w").open("ab") as file:
        file.write(b'{"ledger":"sqli')
    mine.append({"e": Sighting("f", KnownHead(Head(2, "b")))})
    assert sorted(mine.read()) == ["d", "e"]
    assert json.loads((tmp_path / "w").read_bytes().splitlines()[0])["stream"] == "d"


def test_a_new_ledger_is_said_out_loud(path: Path, witness: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Whoever mistyped the name of the file sees it, on the first start alone."""
    with served(path, witness) as running:
        app = running.app
        app.state.first_key = "shown"
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            _announce(app, "127.0.0.1", listener)
            assert f"NEW LEDGER: sqlite:///{path} was empty" in capfd.readouterr().out
            _announce(app, "127.0.0.1", listener)
            assert "NEW LEDGER" not in capfd.readouterr().out
