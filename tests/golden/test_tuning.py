"""Tuning: the paper's corollaries, a peer at equal orders, and exact sums over the number of runs."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from odometer_accountant.mechanisms import ANY_MECHANISM
from odometer_accountant.numerics.grid import GRID_V1, Grid

ORDERS = GRID_V1.orders
GAUSSIAN = {"kind": "gaussian", "noise_multiplier": 5.0}


def curve_of(base: dict[str, Any], grid: Grid = GRID_V1, **repeats: Any) -> list[float]:
    document = {"kind": "tuned", "base": base, "repeats": repeats}
    amounts = ANY_MECHANISM.validate_python(document).curve(grid).amounts
    return [math.inf if amount is None else float(amount) for amount in amounts]


@pytest.mark.parametrize(("eta", "name"), [(0.0, "logarithmic"), (1.0, "geometric"), (0.5, ""), (5.0, "")])
@pytest.mark.parametrize("epsilon", [0.1, 2.0])
def test_pure_loss_is_two_and_eta_times(eta: float, name: str, epsilon: float) -> None:
    """Papernot, Steinke 2022, Corollary 3: (2 + eta) eps, whatever the mean; dp_accounting tests the same."""
    law: dict[str, Any] = {"distribution": name or "negative_binomial", "gamma": 1e-3}
    if not name:
        law["eta"] = eta
    found = curve_of({"kind": "laplace", "epsilon": epsilon}, GRID_V1, **law)
    assert found[GRID_V1.pure] == pytest.approx((2 + eta) * epsilon, rel=1e-9)


@pytest.mark.parametrize(
    ("rho", "gamma", "eta"), [(0.01, 0.01, 0.0), (1.0, 0.1, 0.5), (0.01, 0.01, 1.0), (1.0, 0.1, 5.0)]
)
def test_gaussian_corollary(rho: float, gamma: float, eta: float) -> None:
    """Corollary 4, the cases of dp_accounting's test: closed form on the orders where its optima lie."""
    log_mean = (
        math.log((1 / gamma - 1) / math.log(1 / gamma))
        if eta == 0
        else math.log(eta * (1 / gamma - 1) / (1 - gamma**eta))
    )
    turn = 1 + math.sqrt(log_mean / rho)
    exact = sorted(
        {Fraction(repr(o)) for o in (1.1, 2.0, math.sqrt(-math.log(gamma) / rho), turn, 3.0, 100.0)}
    )
    grid = Grid(9, tuple(exact))
    base = {"kind": "zcdp", "rho": rho}
    found = curve_of(base, grid, distribution="negative_binomial", gamma=gamma, eta=eta)
    common = 2 * (1 + eta) * math.sqrt(-rho * math.log(gamma)) - eta * rho
    for order, value in zip(map(float, exact), found, strict=False):
        if order <= turn:
            assert value == pytest.approx(2 * math.sqrt(rho * log_mean) + common, rel=1e-7)
        else:
            assert value == pytest.approx(rho * (order - 1) + log_mean / (order - 1) + common, rel=1e-7)


@pytest.mark.parametrize("noise", [1.0, 5.0])
@pytest.mark.parametrize(
    ("law", "mean", "shape"),
    [
        ({"distribution": "geometric", "gamma": 0.1}, 10.0, 1.0),
        ({"distribution": "logarithmic", "gamma": 0.01}, 99 / math.log(100), 0.0),
        ({"distribution": "negative_binomial", "gamma": 0.1, "eta": 2.0}, 18 / 0.99, 2.0),
        ({"distribution": "poisson", "mean": 10.0}, 10.0, math.inf),
    ],
)
def test_as_dp_accounting(noise: float, law: dict[str, Any], mean: float, shape: float) -> None:
    """Never above the peer at equal orders; equal from the best order on where the theorem is the same."""
    pytest.importorskip("dp_accounting")
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(orders=list(ORDERS))
    accountant.compose(dp_event.RepeatAndSelectDpEvent(dp_event.GaussianDpEvent(noise), mean, shape))
    theirs = np.array(accountant._rdp)
    ours = np.array(curve_of({"kind": "gaussian", "noise_multiplier": noise}, **law)[: len(ORDERS)])
    assert np.all(ours <= theirs * (1 + 1e-6))
    same = (ours > theirs * (1 - 1e-6)).sum()
    assert same > 30 if law["distribution"] != "poisson" else same > 5


def exact_best(p: float, law: str, parameter: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Law of the best output of K runs, each 1 with probability p: (nothing, 0, 1)."""
    if law == "poisson":
        none, no_one = math.exp(-parameter), math.exp(-parameter * p)
    elif law == "geometric":
        none, no_one = 0.0, parameter * (1 - p) / (1 - (1 - parameter) * (1 - p))
    else:
        none, no_one = 0.0, math.log(1 - (1 - parameter) * (1 - p)) / math.log(parameter)
    return np.array([none, no_one - none, 1 - no_one])


@pytest.mark.parametrize(
    ("law", "parameter"),
    [("poisson", 1.0), ("poisson", 10.0), ("geometric", 0.1), ("geometric", 0.9), ("logarithmic", 0.05)],
)
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_never_below_the_exact_best(law: str, parameter: float, epsilon: float) -> None:
    """Randomised response on whether a run is good, also rarely good: summed over the number of runs."""
    given: dict[str, Any] = {"mean": parameter} if law == "poisson" else {"gamma": parameter}
    found = np.array(curve_of({"kind": "pure", "epsilon": epsilon}, GRID_V1, distribution=law, **given))
    for good in (1 / (1 + math.exp(epsilon)), 0.01, 1e-4):
        for high in (good * math.exp(epsilon), 1 - (1 - good) * math.exp(-epsilon)):
            if not 0 < high < 1 or (1 - good) / (1 - high) > math.exp(epsilon) * (1 + 1e-9):
                continue
            if high / good > math.exp(epsilon) * (1 + 1e-9):
                continue
            p, q = exact_best(good, law, parameter), exact_best(high, law, parameter)
            kept = (p > 0) & (q > 0)
            for one, other in ((p[kept], q[kept]), (q[kept], p[kept])):
                logs = ORDERS[:, None] * np.log(one) + (1 - ORDERS[:, None]) * np.log(other)
                peak = logs.max(axis=1)
                exact = (peak + np.log(np.exp(logs - peak[:, None]).sum(axis=1))) / (ORDERS - 1)
                assert np.all(exact <= found[: len(ORDERS)] * (1 + 1e-9) + 1e-12)
                assert np.all(exact / ORDERS <= found[GRID_V1.rho] + 1e-12)
                assert np.log(one / other).max() <= found[GRID_V1.pure] * (1 + 1e-9)


def test_tuning_is_not_free_and_not_every_run() -> None:
    """Ten runs in the mean: more than one, less than ten."""
    one = [float(order) / 50 for order in ORDERS]
    found = curve_of(GAUSSIAN, distribution="geometric", gamma=0.1)
    assert all(value > single for value, single in zip(found, one, strict=False))
    assert found[30] < 10 * one[30]


@pytest.mark.parametrize(
    ("base", "repeats", "why"),
    [
        (
            {"kind": "approximate", "epsilon": 1.0, "delta": 1e-6},
            {"distribution": "geometric", "gamma": 0.1},
            "δ",
        ),
        (
            GAUSSIAN,
            {"distribution": "geometric", "mean": 10.0},
            "geometric needs gamma, and takes nothing else",
        ),
        (GAUSSIAN, {"distribution": "negative_binomial", "gamma": 0.1}, "eta and gamma"),
        (GAUSSIAN, {"distribution": "poisson", "mean": 0.5}, "greater than or equal to 1"),
    ],
)
def test_what_does_not_work_is_said(base: dict[str, Any], repeats: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        ANY_MECHANISM.validate_python({"kind": "tuned", "base": base, "repeats": repeats})
