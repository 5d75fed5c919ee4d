"""`odometer export` and `odometer import`: files, exit statuses, and a service that goes on elsewhere."""

import io
import json
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import pytest
from command_line import Run, runner

from odometer_accountant.errors import StoreUnavailable
from odometer_accountant.stores import open_store
from odometer_client import Client
from odometer_client.testing import serve
from privacy_odometer.cli import progress, transfer
from tests.support import redis_server

ROOT = Path(__file__).resolve().parents[2]
ODOMETER = [sys.executable, "-m", "privacy_odometer"]
CHARGE = {"kind": "gaussian", "noise_multiplier": 50}
LIFE = {"name": "life", "kind": "zcdp", "rho": 1}


@pytest.fixture
def run() -> Run:
    return runner()


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A ledger file with the datasets `adult` (two charges) and `other`."""
    url = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    with Client(url) as client:
        for name in ("adult", "other"):
            client.create_dataset(name, unit="person", adjacency="add_remove", delta=1e-6, budgets=[LIFE])
        for key in ("one", "two"):
            client.charge("adult", CHARGE, 1, key=key)
    return url


@pytest.fixture
def new(tmp_path: Path) -> str:
    """A ledger file that is not there."""
    return f"sqlite:///{tmp_path / 'new.sqlite'}"


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis_server.Server]:
    with redis_server.server(tmp_path_factory.mktemp("redis")) as running:
        yield running


def status(url: str, name: str = "adult") -> Any:
    with Client(url) as client:
        return client.dataset(name)["sequence"]


def test_a_service_goes_on_in_redis_where_it_ended_in_sqlite(
    run: Run, tmp_path: Path, redis: redis_server.Server
) -> None:
    """Old keys get their receipts, API keys work, `verify` finds nothing; and so on the way back."""
    first, last = f"sqlite:///{tmp_path / 'first.sqlite'}", f"sqlite:///{tmp_path / 'last.sqlite'}"
    with serve(first, command=ODOMETER) as running, Client(running.url, running.admin_key) as client:
        client.create_dataset("d", unit="person", adjacency="add_remove", delta=1e-6, budgets=[LIFE])
        made = client.create_key("charger", "Ada Lovelace")
        key = running.admin_key
        with Client(running.url, made["token"]) as charger:
            receipt = charger.charge("d", CHARGE, 3, key="k")
    file = tmp_path / "ledger.ndjson"
    for source, target in ((first, redis.url), (redis.url, last)):
        run("export", source, "--out", file)
        run("import", target, file)
        run("verify", "--store", target)
        with serve(target, command=ODOMETER) as running, Client(running.url, made["token"]) as client:
            assert running.admin_key is None
            again = client.charge("d", CHARGE, 3, key="k")
            assert (again.hash, again.sequence, again.replayed) == (receipt.hash, receipt.sequence, True)
            client.charge("d", CHARGE, 1, key=f"then-{target}")
            with Client(running.url, key) as admin:
                assert {item["name"] for item in admin.keys()} == {None, "Ada Lovelace"}  # noqa: SIM118
    with closing(open_store(last)) as store:
        assert store.load("d", [])[0].sequence == 4


def test_through_a_pipe(run: Run, url: str, new: str) -> None:
    """Standard output into standard input; the counts are said on the standard error."""
    result = run("export", url)
    assert "exported 2 streams, 4 entries, 0 names, SHA-256 " in result.stderr
    done = run("import", new, "-", input=result.stdout_bytes)
    assert "imported 2 streams, 4 entries, 0 names, SHA-256 " in done.stderr
    assert done.stderr.split()[-1] == result.stderr.split()[-1]
    assert (status(new), status(new, "other")) == (3, 1)


def test_some_datasets_without_keys_and_names(run: Run, url: str) -> None:
    run("key", "create", "reader", "--name", "Ada", "--store", url)
    options = ("--dataset", "other", "--without-keys", "--without-notes")
    lines = [json.loads(line) for line in run("export", url, *options).stdout.splitlines()]
    assert [line["stream"] for line in lines if "stream" in line] == ["other"]
    assert lines[0]["datasets"] == ["other"]
    assert not any("note" in line for line in lines)


def test_the_file_is_for_its_owner_alone_and_replaces_an_older_one_when_it_is_whole(
    run: Run, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "backup.ndjson"
    file.write_text("older")
    file.chmod(0o644)

    def broken(*_: object, **__: object) -> None:
        raise StoreUnavailable("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr("odometer_accountant.transfer.export.export", broken)
        assert "the disk is gone" in run("export", url, "--out", file, status=3).stderr
    assert file.read_text() == "older"
    run("export", url, "--out", file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text().endswith("}\n")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_charges_while_the_file_is_written_are_warned_of(
    run: Run, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from odometer_accountant.transfer import export as files

    pages = files._pages

    def charged(*arguments: Any) -> Any:
        yield from pages(*arguments)
        with Client(url) as client:
            client.charge("adult", CHARGE, 1, key=f"meanwhile-{arguments[1]}")

    monkeypatch.setattr(files, "_pages", charged)
    result = run("export", url, "--out", tmp_path / "backup.ndjson")
    assert "WARNING: entries were added to adult during the export" in result.stderr
    assert "stop every service" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("export", "sqlite:///{folder}/nothing.sqlite"), 2, "there is no ledger at"),
        (("export", "memory://"), 2, "ends with the process"),
        (("export", "{url}", "--dataset", "nobody"), 1, "there is no dataset 'nobody'"),
        (("export", "{url}", "--out", "{folder}"), 2, "is not a regular file"),
        (("export", "{url}", "--out", "{folder}/none/file"), 2, "No such file"),
        (("export", "redis://127.0.0.1:1/0"), 3, "odometer: "),
        (("import", "{new}", "{folder}/nothing"), 2, "No such file"),
        (("import", "{new}", "{folder}"), 2, "directory"),
        (("import", "{new}", "{folder}/ledger.sqlite"), 1, "line 1: "),
        (("import", "{url}", "{folder}/nothing"), 1, "the target is not empty (it holds 'adult')"),
        (("import", "oracle://x", "{folder}/ledger.sqlite"), 2, "no kind of store"),
    ],
)
def test_what_cannot_be_moved_is_said_with_its_exit_status(
    run: Run, url: str, new: str, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    words = [word.format(url=url, new=new, folder=tmp_path) for word in arguments]
    result = run(*words, status=code)
    assert said in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "new.sqlite").exists()


def test_a_file_that_lies_is_refused_with_the_place_and_makes_no_ledger(
    run: Run, url: str, new: str, tmp_path: Path
) -> None:
    text = run("export", url).stdout.replace('\\"count\\":1', '\\"count\\":2')
    result = run("import", new, "-", input=text, status=1)
    assert "adult, entry 2: its bytes do not have the hash" in result.stderr
    assert "did not end" not in result.stderr
    assert not (tmp_path / "new.sqlite").exists()


def test_an_import_that_stops_says_what_to_do_and_is_refused_again(
    run: Run, url: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "backup.ndjson"
    run("export", url, "--out", file)

    def broken(*_: object) -> None:
        raise StoreUnavailable("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("odometer_accountant.transfer.import_._Writer.append_keys", broken)
        result = run("import", new, file, status=3)
    assert transfer.UNFINISHED in result.stderr
    assert "the disk is full" in result.stderr
    assert "a part of an import that did not end" in run("import", new, file, status=1).stderr
    run("verify", "--store", new, status=1)
    run("status", "adult", "--url", new, status=3)
    (tmp_path / "new.sqlite").unlink()
    run("import", new, file)
    run("verify", "--store", new)


def test_an_import_that_was_interrupted_is_unsure(
    run: Run, url: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "backup.ndjson"
    run("export", url, "--out", file)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("odometer_accountant.transfer.import_._Writer.append_keys", interrupted)
    assert transfer.UNFINISHED in run("import", new, file, status=3).stderr


def test_an_import_that_is_killed_leaves_nothing_that_can_be_charged(
    url: str, new: str, tmp_path: Path, run: Run
) -> None:
    """SIGKILL between two appends, in a process of its own."""
    file = tmp_path / "backup.ndjson"
    run("export", url, "--out", file)
    script = (
        "import os, signal, odometer_accountant.transfer.import_ as importing, privacy_odometer.cli\n"
        "importing._Writer.append_keys = lambda self: os.kill(os.getpid(), signal.SIGKILL)\n"
        "privacy_odometer.cli.main()"
    )
    command = [sys.executable, "-c", script, "import", new, str(file)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    for name in ("adult", "other"):
        assert "configuration" in run("status", name, "--url", new, status=3).stderr
        run("charge", name, "gaussian", "noise_multiplier=50", "--url", new, status=3)
    assert "did not end" in run("import", new, file, status=1).stderr


def test_a_target_that_a_service_was_started_on_is_refused(run: Run, url: str, new: str) -> None:
    with serve(new, command=ODOMETER) as running:
        assert running.admin_key
    text = run("export", url).stdout
    assert "a service was started on it" in run("import", new, "-", input=text, status=1).stderr


@pytest.mark.parametrize("unit", ["entries", "bytes"])
def test_progress_is_shown_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, unit: Literal["entries", "bytes"]
) -> None:
    shown = io.StringIO()

    class Terminal:
        def __call__(self, **_: object) -> Any:
            from rich.console import Console

            return Console(file=shown, force_terminal=True, width=100)

    with progress.progress_bar("exporting", 10, unit) as advance:
        assert advance is None
    monkeypatch.setattr(progress, "Console", Terminal())
    with progress.progress_bar("exporting", 10, unit) as advance:
        assert advance is not None
        advance(5)
    assert "exporting" in shown.getvalue()


def test_a_redis_that_may_forget_is_saved_though_it_is_not_served(run: Run, url: str, tmp_path: Path) -> None:
    """Its ledger must be out of it before its settings are changed; nothing is put into it."""
    file = tmp_path / "all.ndjson"
    run("export", url, "--out", file)
    folder = tmp_path / "redis"
    folder.mkdir()
    with redis_server.server(folder) as redis:
        run("import", redis.url, file)
        redis.ask("CONFIG", "SET", "appendfsync", "everysec")
        run("export", redis.url, "--out", tmp_path / "again.ndjson")
        run("verify", "--store", redis.url)
        assert (tmp_path / "again.ndjson").read_bytes().splitlines()[1:-1] == file.read_bytes().splitlines()[
            1:-1
        ]
        refused = run("import", redis.url, file, status=2)
        assert "CONFIG SET appendonly yes" in refused.output
