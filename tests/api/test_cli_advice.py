"""What the command line says would fit instead of a charge that is refused."""

from pathlib import Path

import pytest
from command_line import Run, runner


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A ledger of its own with the dataset `taps`, whose budget has δ 1e-6 and delta_add 1e-8."""
    url = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    run = runner(ODOMETER_URL=url, ODOMETER_STORE=url, COLUMNS="300")
    opened = ("--unit", "person", "--adjacency", "replace_one", "--delta", "1e-6")
    run(
        "dataset",
        "create",
        "taps",
        *opened,
        "--budget",
        "life:approximate:epsilon=3,delta=1e-6,delta_add=1e-8",
    )
    return run


def test_a_delta_that_is_too_much_is_refused_with_the_one_that_fits(run: Run) -> None:
    """And is then taken as it was advised."""
    kind = ("charge", "taps", "shuffled", "epsilon0=1", "population=100000")
    refused = run(*kind, "delta=1e-6", status=1).stderr
    assert "kept for them: 1e-06 asked, 1e-08 of 1e-08 left" in refused
    advised = "this with less δ or more noise: shuffled epsilon0=1.0 population=100000 delta=1e-08"
    assert f"What would fit: {advised}." in refused
    run(*kind, "delta=1e-8")


def test_where_nothing_was_found_it_says_what_was_looked_for(run: Run) -> None:
    """Not that nothing smaller fits: an approximate charge without δ would."""
    run("charge", "taps", "approximate", "epsilon=0.1", "delta=1e-8")
    refused = run("charge", "taps", "approximate", "epsilon=0.1", "delta=1e-8", status=1).stderr
    assert "1e-08 asked, 0 of 1e-08 left" in refused
    assert "limit 3, spent 0.1" in refused
    assert "with this no ε at its δ" in refused
    assert "No count and no amount of noise would fit." in refused
