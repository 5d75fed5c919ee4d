"""Warnings about a new dataset are shown where it is opened."""

import json

from command_line import Run, runner
from typer.testing import Result


def opened(run: Run, name: str, *more: str) -> Result:
    who = ("--unit", "person", "--adjacency", "add_remove", "--delta", "0.01")
    return run("dataset", "create", name, *who, "--budget", "life:pure:epsilon=1", *more)


def test_a_large_delta_is_noted(tmp_path: object) -> None:
    run = runner(ODOMETER_URL=f"sqlite:///{tmp_path}/ledger.sqlite")
    assert "Note: δ is 0.01: nothing is promised with that probability." in opened(run, "a").stdout
    assert len(json.loads(opened(run, "b", "--format", "json").stdout)["notes"]) == 1
    assert "Note:" not in run("dataset", "show", "a").stdout
