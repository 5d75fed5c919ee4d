"""`odometer derived`, `lineage`, and how the ledger says it."""

import json
from pathlib import Path

import command_line
import pytest
from command_line import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Commands on a ledger of their own; entry 2 of the dataset `adult` is a charge."""
    url = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    run = command_line.runner(COLUMNS="160", ODOMETER_URL=url)
    opened = ("--unit", "person", "--adjacency", "add_remove", "--delta", "1e-6")
    run("dataset", "create", "adult", *opened, "--budget", "life:pure:epsilon=1")
    run("charge", "adult", "pure", "epsilon=0.1")
    return run


def test_what_was_made_is_recorded_and_shown(run: Run) -> None:
    said = run("derived", "adult", "2", "a table, rounded").stdout
    assert "recorded adult, entry 3, made from entry 2" in said
    made = json.loads(run("derived", "adult", "3", "a plot", "--format", "json").stdout)
    assert (made["sequence"], made["parent"], made["depth"]) == (4, 3, 2)
    assert "made from entry 3: a plot" in run("ledger", "adult").stdout
    charged, itself, plot = run("lineage", "adult", "3").stdout.splitlines()
    assert charged.startswith("       2 ")
    assert "charged 1 × pure" in charged
    assert itself.startswith(">      3 ")
    assert plot.startswith("       4 ")
    assert "made from entry 3: a plot, by " in plot
    assert json.loads(run("lineage", "adult", "2", "--format", "json").stdout)["next"] is None


def test_the_same_key_is_the_same_entry(run: Run) -> None:
    for _ in range(2):
        said = run("derived", "adult", "2", "a table", "--idempotency-key", "k").stdout
    assert "entry 3, made from entry 2 (recorded before, under the same key)" in said


def test_what_let_nothing_out_is_no_parent(run: Run) -> None:
    assert "of type opened" in run("derived", "adult", "1", "a table", status=1).output
    run("derived", "adult", "0", "a table", status=2)


def test_it_may_be_somebody_elses(run: Run) -> None:
    """An embedded ledger acts for whoever is named; the ledger says who asked."""
    said = run("derived", "adult", "2", "a table", "--principal", "alice").stdout
    assert "for      alice, requested by embedded" in said
    assert "made from entry 2: a table, requested by embedded" in run("ledger", "adult").stdout
