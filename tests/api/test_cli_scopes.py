"""`odometer scopes`, and what `status` says of a scope that was never charged."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Run, runner

from odometer_client.testing import Service, serve


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A ledger of its own with the dataset `adult`, ε 1, of which the group `sweep` has 0.5."""
    url = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    run = runner(ODOMETER_URL=url, ODOMETER_STORE=url)
    opened = ("--unit", "person", "--adjacency", "add_remove", "--delta", "1e-6")
    run(
        "dataset",
        "create",
        "adult",
        *opened,
        "--budget",
        "life:pure:epsilon=1,scope=group/*",
        "--odometer-only",
    )
    run("charge", "adult", "pure", "epsilon=0.25", "--group", "sweep", "--runs", 2)
    return run


def test_status_of_a_scope_that_was_never_charged_says_so(run: Run) -> None:
    """Beside the zero that it reads, which is true of it."""
    said = "nothing was ever charged to group/swep: did you mean sweep?"
    assert said in run("status", "adult", "--scope", "group/swep").stdout
    (shown,) = json.loads(run("status", "adult", "--scope", "group/swep", "--format", "json").stdout)
    assert (shown["odometer"]["known"], shown["odometer"]["notes"]) == (False, [said])


def test_status_of_a_scope_that_was_charged_says_nothing_of_it(run: Run) -> None:
    assert "never" not in run("status", "adult", "--scope", "group/sweep").stdout
    (shown,) = json.loads(run("status", "adult", "--scope", "group/sweep", "--format", "json").stdout)
    assert shown["odometer"]["known"] is True
    assert "notes" not in shown["odometer"]


def test_scopes_lists_whom_the_dataset_was_charged_for(run: Run) -> None:
    """All kinds, or one; each with what it lost and its budget."""
    listed = run("scopes", "adult").stdout
    assert "group/sweep  ε 0.5 at δ 1e-06 if stopped now" in listed
    assert "life is the most used: 0.5 of 1" in listed
    assert "mechanism/pure" in listed
    assert "mechanism/pure" not in run("scopes", "adult", "--kind", "group").stdout
    shown = json.loads(run("scopes", "adult", "--kind", "group", "--format", "json").stdout)
    assert [item["scope"] for item in shown] == ["group/sweep"]


def test_a_kind_of_which_nothing_was_charged_is_said_to_have_none(run: Run) -> None:
    assert run("scopes", "adult", "--kind", "team").stdout == "No teams of adult were charged yet.\n"
    assert "Invalid value" in run("scopes", "adult", "--kind", "unit", status=2).stderr


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with serve() as running:
        yield running


def test_status_of_what_a_principal_is_called_ends_without_a_reading(service: Service) -> None:
    """The zero of nobody would pass for theirs; the command says whom to ask for."""
    run = runner(ODOMETER_URL=str(service.url), ODOMETER_KEY=str(service.admin_key), COLUMNS="300")
    made = json.loads(run("key", "create", "charger", "--name", "ann", "--format", "json").stdout)
    opened = ("--unit", "person", "--adjacency", "add_remove", "--delta", "1e-6")
    run("dataset", "create", "named", *opened, "--budget", "life:pure:epsilon=1")
    run("charge", "named", "pure", "epsilon=0.25", "--key", made["token"])
    for more in ((), ("--format", "json")):
        ended = run("status", "named", "--scope", "principal/ann", *more, status=1)
        assert "ε" not in ended.stdout
        assert "{" not in ended.stdout
        asks = f"odometer status named --scope principal/{made['principal']}"
        assert (
            f"there is no principal/ann in this ledger; 'ann' is the name of {made['principal']}: {asks}"
            in ended.stderr
        )
    assert "ε 0.25" in run("status", "named", "--scope", f"principal/{made['principal']}").stdout
    assert (
        "nothing was ever charged to principal/bob"
        in run("status", "named", "--scope", "principal/bob").stdout
    )
