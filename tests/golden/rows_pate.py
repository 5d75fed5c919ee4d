"""Rows of vectors.json about PATE's votes: raw data-dependent figures, which no reply ever holds."""

from collections.abc import Callable
from typing import Any

import pytest

from odometer_client.queries import pate_votes

Row = dict[str, Any]


def near(row: Row, value: float) -> None:
    """Within the row's tolerance; our rounding up is far below it."""
    assert value == pytest.approx(row["expected"], rel=row["tolerance"]["rel"], abs=0)


def gnmax(row: Row) -> None:
    """From the votes, by their own bound on q."""
    params = row["params"]
    log_q = pate_votes.log_q_gaussian(params["votes"], params["sigma"])
    assert log_q == pytest.approx(params["log_q"], rel=1e-10)
    near(row, float(pate_votes.gnmax_rdp(log_q, params["sigma"], params["order"])))


def threshold(row: Row) -> None:
    """The check moves by one vote, not by two counts."""
    params = row["params"]
    log_q = pate_votes.log_q_threshold(params["votes"], params["threshold"], params["sigma"])
    near(row, float(pate_votes.threshold_rdp(log_q, params["sigma"], params["order"])))


def smooth_release(row: Row) -> None:
    """The published bound comes out, and what is charged is the larger true divergence of the two normals."""
    params = row["params"]
    order, beta, noise = params["order"], params["beta"], params["sigma"]
    near(row, pate_votes.smooth_release_published(order, beta, noise))
    assert pate_votes.smooth_release_rdp(order, beta, noise) > row["expected"]


BY_ID: dict[str, Callable[[Row], None]] = {"pate-thr-dd": threshold}
BY_KIND: dict[tuple[str, str], Callable[[Row], None]] = {
    ("pate gnmax (data-dependent)", "rdp"): gnmax,
    ("pate smooth-sensitivity release (GNSS)", "rdp"): smooth_release,
}
