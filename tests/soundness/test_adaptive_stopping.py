"""An analyst who stops at the worst moment: unit Gaussian queries, sigma 10, at most 4,000, delta 0.01.

Simulated is what a reading claims (SOUNDNESS section 2): the odometer bounds the loss at all moments at once,
if_stopped_now bounds delta at whatever moment one stops. Readings of plans fixed in advance do neither.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from odometer_accountant.numerics import conversions, prior
from odometer_accountant.numerics.grid import GRID_V1
from odometer_accountant.numerics.mixture import Mixture

Floats = npt.NDArray[np.float32]

RUNS, QUERIES, BATCH = 20_000, 4_000, 500
DELTA, SIGMA = 0.01, 10.0
RHO = 1 / (2 * SIGMA**2)
SEED = 20240615


def curve(reading: Callable[[Any], float]) -> Floats:
    """A reading after 1, 2, ... queries, shape (QUERIES,)."""
    return np.array([reading(GRID_V1.orders * (RHO * k)) for k in range(1, QUERIES + 1)], dtype=np.float32)


def textbook(losses: Any) -> float:
    """Min over orders of S + log(1/delta)/(alpha - 1): Mironov 2017, Prop. 3, as most code prints it."""
    return float(np.min(losses - math.log(DELTA) / (GRID_V1.orders - 1)))


def fixed_plan(losses: Any) -> float:
    return conversions.rdp_epsilon(losses, GRID_V1.orders, DELTA)[0]


@pytest.fixture(scope="module")
def readings() -> dict[str, Floats]:
    mixture = Mixture(GRID_V1, prior.reading_prior(GRID_V1), DELTA)
    return {
        "odometer": curve(mixture.odometer),
        "if_stopped_now": curve(mixture.if_stopped_now),
        "textbook": curve(textbook),
        "fixed_plan": curve(fixed_plan),
    }


def losses() -> Iterator[Floats]:
    """Log dP/dQ after each query, under P, in batches of shape (BATCH, QUERIES)."""
    rng = np.random.default_rng(SEED)
    for _ in range(RUNS // BATCH):
        loss = rng.standard_normal((BATCH, QUERIES), dtype=np.float32)
        loss /= np.float32(SIGMA)
        loss += np.float32(RHO)
        yield np.cumsum(loss, axis=1, out=loss)


@pytest.fixture(scope="module")
def measured(readings: dict[str, Floats]) -> dict[str, tuple[float, float]]:
    """By reading: how often the loss is ever above it, and its delta under the worst of five stopping rules.

    A rule stops when the loss is `margin` above the reading, or else at the end; then delta is
    E[(1 - e^{reading - loss})_+].
    """
    margins = (0.0, 0.3, 0.7, 1.0, 2.0)
    ever = dict.fromkeys(readings, 0)
    deltas = {name: np.zeros(len(margins)) for name in readings}
    for loss in losses():
        for name, reading in readings.items():
            over = loss - reading
            ever[name] += int((over > 0).any(axis=1).sum())
            for place, margin in enumerate(margins):
                beyond = over > margin
                stop = np.where(beyond.any(axis=1), beyond.argmax(axis=1), QUERIES - 1)
                excess = np.maximum(over[np.arange(BATCH), stop].astype(float), 0)
                deltas[name][place] -= np.expm1(-excess).sum()
    return {name: (ever[name] / RUNS, float(deltas[name].max()) / RUNS) for name in readings}


def test_the_odometer_holds(measured: dict[str, tuple[float, float]]) -> None:
    """The loss is above it, at any moment at all, in at most delta of the runs."""
    violated, _ = measured["odometer"]
    assert 0.003 <= violated <= 0.009 < DELTA


def test_the_textbook_reading_is_no_odometer(measured: dict[str, tuple[float, float]]) -> None:
    """It is violated in more than three times delta of the runs; the sharper conversion in 30 times."""
    assert 0.030 <= measured["textbook"][0] <= 0.037
    assert 0.28 <= measured["fixed_plan"][0] <= 0.31


def test_if_stopped_now_holds_at_the_worst_moment(measured: dict[str, tuple[float, float]]) -> None:
    """Its delta stays below the promised one for each rule of stopping."""
    _, delta = measured["if_stopped_now"]
    assert 0 < delta <= DELTA


def test_the_fixed_plan_does_not_survive_a_chosen_moment(measured: dict[str, tuple[float, float]]) -> None:
    """Stopping when the noise was unlucky gives more than twice its delta: such a plan was not fixed."""
    _, delta = measured["fixed_plan"]
    assert delta > 2 * DELTA
