"""`odometer verify` says which ledger it read, since it asks no service."""

import json
from pathlib import Path

import pytest
from command_line import Run, runner

from privacy_odometer.cli.connection import shown_store


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.sqlite'}"


@pytest.fixture
def run(store: str) -> Run:
    """Commands on a ledger with the dataset `adult`, which nothing but ODOMETER_URL names."""
    run = runner(ODOMETER_URL=store)
    opened = ("--unit", "person", "--adjacency", "add_remove", "--delta", "1e-6")
    run("dataset", "create", "adult", *opened, "--budget", "life:pure:epsilon=1")
    return run


def test_verify_reads_the_store_that_the_url_names_and_says_so(run: Run, store: str) -> None:
    result = run("verify")
    assert result.stdout.startswith(f"ledger  {store}\nok      adult")
    assert not result.stderr
    assert {one["store"] for one in json.loads(run("verify", "--format", "json").stdout)} == {store}


@pytest.mark.usefixtures("run")
def test_verify_says_that_it_asks_no_service(store: str) -> None:
    beside = runner(ODOMETER_URL="http://127.0.0.1:1", ODOMETER_STORE=store)
    for result in (beside("verify"), beside("verify", "--format", "json")):
        assert (
            f"verify reads the ledger directly and does not use ODOMETER_URL. It reads {store}."
            in result.stderr
        )
    assert not beside("verify", "--store", store).stderr
    assert not runner(ODOMETER_URL=store, ODOMETER_STORE=store)("verify").stderr


def test_verify_says_so_before_a_ledger_that_is_not_there(tmp_path: Path) -> None:
    missing = f"sqlite:///{tmp_path / 'none.sqlite'}"
    result = runner(ODOMETER_URL="http://127.0.0.1:1", ODOMETER_STORE=missing)("verify", status=2)
    assert "does not use ODOMETER_URL" in result.stderr
    assert "there is no ledger at" in result.stderr


def test_a_store_is_shown_without_its_login() -> None:
    assert shown_store("rediss://me:a%40b@host:6379/1") == "rediss://host:6379/1"
    assert shown_store("redis://me:a@b/c@host") == "redis://host"
