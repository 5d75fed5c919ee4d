"""PATE: the mistakes people make, published values, and every bound against the true distributions."""

import ast
import inspect
import itertools
import math
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from scipy import integrate, stats

from odometer_accountant.mechanisms import ANY_MECHANISM
from odometer_accountant.mechanisms.noise import LEAST_NOISE_MULTIPLIER
from odometer_accountant.mechanisms.pate import PateGnmax, PateLnmax
from odometer_accountant.numerics.grid import GRID_V1
from odometer_client.holds import sanitised_body
from odometer_client.mechanisms import RenyiCurve
from odometer_client.queries import pate_losses, pate_votes

ORDERS = [float(order) for order in GRID_V1.exact_orders]


def curve(**document: Any) -> Any:
    return ANY_MECHANISM.validate_python(document).curve(GRID_V1)


def at(document: dict[str, Any], order: float) -> float:
    amount = curve(**document).amounts[ORDERS.index(order)]
    return math.inf if amount is None else float(amount)


def answers(votes: list[int], noise: str, scale: float) -> Any:
    """The probability of each label, by Simpson's rule between the kinks, over the winner's noisy count."""
    one = stats.norm(scale=scale) if noise == "gaussian" else stats.laplace(scale=1 / scale)
    spread = 12 * scale if noise == "gaussian" else 60 / scale
    kinks = sorted({*votes, min(votes) - spread, max(votes) + spread})
    found = np.zeros(len(votes))
    for low, high in itertools.pairwise(kinks):
        x = np.linspace(low, high, 16_001)
        below = np.array([one.cdf(x - count) for count in votes])
        for label, count in enumerate(votes):
            density = one.pdf(x - count) * np.prod(np.delete(below, label, axis=0), axis=0)
            found[label] += integrate.simpson(density, x=x)
    assert sum(found) == pytest.approx(1, abs=1e-9)
    return found / sum(found)


def divergence(p: Any, q: Any, order: float) -> float:
    return float(np.log(np.sum(p**order * q ** (1 - order))) / (order - 1))


def neighbours(votes: list[int]) -> list[list[int]]:
    """One teacher votes otherwise."""
    found = []
    for source, target in itertools.permutations(range(len(votes)), 2):
        if votes[source]:
            other = list(votes)
            other[source] -= 1
            other[target] += 1
            found.append(other)
    return found


VOTES = [[10, 0, 0], [7, 3, 0], [5, 4, 1], [4, 3, 3], [12, 1]]


# -- wrong by habit ------------------------------------------------------------------------------------------


def test_the_papers_sigma_passed_as_noise_multiplier_halves_the_charge() -> None:
    """The noise multiplier is σ/√2, for one teacher moves two counts; the paper's σ has a name of its own."""
    right = at({"kind": "pate_gnmax", "standard_deviation_of_counts": 40.0}, 14.0)
    assert right == pytest.approx(14 / 1600, rel=1e-12)
    assert at({"kind": "pate_gnmax", "noise_multiplier": 40 / math.sqrt(2)}, 14.0) == pytest.approx(right)
    assert at({"kind": "pate_gnmax", "noise_multiplier": 40.0}, 14.0) == pytest.approx(right / 2)


def test_a_query_of_lnmax_is_two_gamma_and_not_gamma() -> None:
    """Two counts move: Papernot et al. 2017, section 3.1. Its γ = 0.05 is 0.1 a query."""
    assert curve(kind="pate_lnmax", gamma=0.05).amounts[GRID_V1.pure] * 10 == 1


def test_noisy_max_with_laplace_noise_is_not_charged_as_bounded_range() -> None:
    """ε²/8 is the exponential mechanism's ρ alone."""
    rho = curve(kind="pate_lnmax", gamma=0.5).amounts[GRID_V1.rho]
    assert float(rho) == pytest.approx(math.tanh(0.5))


def test_one_of_two_ways_to_say_the_noise() -> None:
    """Both, or neither, is a mistake."""
    for document in ({}, {"noise_multiplier": 28.0, "standard_deviation_of_counts": 40.0}):
        with pytest.raises(ValueError, match="exactly one"):
            ANY_MECHANISM.validate_python({"kind": "pate_gnmax", **document})


# -- bounds against the truth --------------------------------------------------------------------------------


@pytest.mark.parametrize("votes", VOTES)
@pytest.mark.parametrize("deviation", [1.0, 2.5])
def test_no_gnmax_figure_is_below_the_true_divergence(votes: list[int], deviation: float) -> None:
    """Of the answer, against every neighbour: with the votes and without."""
    true = answers(votes, "gaussian", deviation)
    log_q = pate_votes.log_q_gaussian(votes, deviation)
    assert 1 - true.max() <= math.exp(log_q) + 1e-9
    for other in neighbours(votes):
        for order in (1.5, 3.0, 8.0):
            exact = divergence(true, answers(other, "gaussian", deviation), order)
            assert exact <= float(pate_votes.gnmax_rdp(log_q, deviation, order)) + 1e-9
            document = {"kind": "pate_gnmax", "standard_deviation_of_counts": deviation}
            assert exact <= at(document, order) + 1e-9


@pytest.mark.parametrize("votes", VOTES)
@pytest.mark.parametrize("gamma", [0.2, 1.0])
def test_no_lnmax_figure_is_below_the_true_divergence(votes: list[int], gamma: float) -> None:
    """Of the answer, against every neighbour: with the votes (Theorem 3) and without (2γ)."""
    true = answers(votes, "laplace", gamma)
    log_q = pate_votes.log_q_laplace(votes, gamma)
    assert 1 - true.max() <= math.exp(log_q) + 1e-9
    for other in neighbours(votes):
        for order in (1.5, 3.0, 8.0):
            exact = divergence(true, answers(other, "laplace", gamma), order)
            assert exact <= float(pate_votes.lnmax_rdp(log_q, gamma, order)) + 1e-9
            assert exact <= at({"kind": "pate_lnmax", "gamma": gamma}, order) + 1e-9


@pytest.mark.parametrize(
    ("beta", "noise", "order"), [(0.0329, 6.23, 14), (0.0533, 4.88, 7.5), (0.01, 3.0, 8)]
)
@pytest.mark.parametrize("quantile", [0.0, 4.75])
def test_telling_a_figure_is_charged_at_the_worst_pair(
    beta: float, noise: float, order: float, quantile: float
) -> None:
    """The integral of two normals that it allows, at 30 digits; the published bound is below it."""
    with mp.workdps(30):
        wide, narrow = mp.exp(beta) * noise, mp.mpf(noise)
        mean = 1 + noise * quantile * mp.expm1(beta)

        def density(x: Any) -> Any:
            logs = order * (-((x / wide) ** 2) / 2 - mp.log(wide))
            logs += (1 - order) * (-(((x - mean) / narrow) ** 2) / 2 - mp.log(narrow))
            return mp.exp(logs) / mp.sqrt(2 * mp.pi)

        # The integrand is a normal density itself, far out and wide.
        spread = order / wide**2 + (1 - order) / narrow**2
        middle, width = (1 - order) * mean / narrow**2 / spread, 1 / mp.sqrt(spread)
        points = [middle + width * step for step in (-30, -10, -3, 0, 3, 10, 30)]
        true = mp.log(mp.quad(density, points)) / (order - 1)
    found = pate_votes.smooth_release_rdp(order, beta, noise, quantile)
    assert true <= found <= true * (1 + 1e-6)
    if order == 14:
        assert pate_votes.smooth_release_published(order, beta, noise) < true


def test_telling_has_no_bound_where_the_noise_may_differ_too_much() -> None:
    """e^{2β} < α/(α−1) is needed: else the wider normal outweighs the narrower one."""
    beta = 0.05
    last = 1 / math.expm1(2 * beta) + 1
    assert math.isfinite(pate_votes.smooth_release_rdp(last - 1e-6, beta, 5.0))
    assert pate_votes.smooth_release_rdp(last + 1e-6, beta, 5.0) == math.inf


# -- sensitivity ---------------------------------------------------------------------------------------------


def histograms(teachers: int, labels: int) -> list[tuple[int, ...]]:
    return [v for v in itertools.product(range(teachers + 1), repeat=labels) if sum(v) == teachers]


@pytest.mark.parametrize(("noise", "scale"), [("gaussian", 0.8), ("gaussian", 3.0), ("laplace", 0.4)])
@pytest.mark.parametrize("order", [1.5, 4.0, 8.0])
def test_the_smooth_sensitivity_is_one(noise: Any, scale: float, order: float) -> None:
    """On all histograms: no neighbour's total differs by more, and it falls by at most e^β a teacher."""
    beta, teachers = 0.1, 9
    found = {
        votes: pate_votes.total_and_sensitivity(np.array([votes, votes]), noise, scale, teachers, order, beta)
        for votes in histograms(teachers, 3)
    }
    for votes, (total, smooth) in found.items():
        for other in neighbours(list(votes)):
            total2, smooth2 = found[tuple(other)]
            assert abs(total - total2) <= min(smooth, smooth2) + 1e-12
            assert smooth <= math.exp(beta) * smooth2 * (1 + 1e-12) + 1e-15


@pytest.mark.parametrize(("noise", "scale"), [("gaussian", 0.8), ("gaussian", 3.0), ("laplace", 0.4)])
def test_the_total_is_above_the_figures_of_its_queries(noise: Any, scale: float) -> None:
    """The step function that is told is a bound on each query's own figure, within a cell."""
    for votes in histograms(9, 3):
        total, _ = pate_votes.total_and_sensitivity(np.array([votes]), noise, scale, 9, 4.0, 0.1)
        if noise == "gaussian":
            raw = float(pate_votes.gnmax_rdp(pate_votes.log_q_gaussian(votes, scale), scale, 4.0))
        else:
            raw = float(pate_votes.lnmax_rdp(pate_votes.log_q_laplace(votes, scale), scale, 4.0))
        assert total >= raw or pate_votes.gnmax_rdp(-1e-9, scale, 4.0) <= total * (1 + 1e-9)


def test_local_sensitivities_are_not_below_the_published_ones() -> None:
    """smooth_sensitivity_test.py of tensorflow/privacy, commit 03035d5: votes 10 0 0, σ .5, order 1.5.

    Ours needs no condition on the shape of the bound, and is therefore another one, above it.
    """
    published = [3.13503646e-17, 1.6017828e-08, 0.00590681786]
    ours = pate_votes.local_sensitivities([10, 0, 0], "gaussian", 0.5, 10, 1.5)
    assert np.all(ours[:3] >= published)
    assert ours[0] < 1e-14
    assert ours[-1] <= 1.5 / 0.5**2


# -- the sanitised figure ------------------------------------------------------------------------------------


PLAN = pate_votes.Plan(orders=(2.0, 4.0), failure_probability=0.2, beta=0.05, noise=3.0)


def test_a_told_figure_is_too_low_no_more_often_than_it_says() -> None:
    """At any of its orders; 400 tellings, with a fifth allowed to fail."""
    votes = np.array([[180, 15, 5]] * 30)
    true = [
        pate_votes.total_and_sensitivity(votes, "gaussian", 20.0, 200, o, PLAN.beta)[0] for o in PLAN.orders
    ]
    told = [pate_votes.sanitise(votes, "gaussian", 20.0, 200, PLAN).epsilons for _ in range(400)]
    failed = sum(any(t < f for t, f in zip(one, true, strict=True)) for one in told)
    assert failed <= 400 * 0.2 + 5 * math.sqrt(400 * 0.2 * 0.8)
    assert all(list(one) == sorted(one) for one in told)


def test_the_charge_of_telling_counts_every_order_that_is_told() -> None:
    """Each figure is a release: two cost twice one of the same quantile."""
    document = PLAN.charge(ORDERS)
    ANY_MECHANISM.validate_python(document)
    quantile = float(stats.norm.isf(0.1))
    one = pate_votes.smooth_release_rdp(4.0, PLAN.beta, PLAN.noise, quantile)
    epsilons = dict(zip(document["orders"], document["epsilons"], strict=True))  # type: ignore[call-overload]
    assert epsilons[4.0] == pytest.approx(2 * one, rel=1e-6)
    assert max(epsilons) < 1 / math.expm1(2 * PLAN.beta) + 1


@pytest.mark.parametrize(
    "votes", [[[3, 4, 5]], [[1.5, 1, 1]], [[-1, 2, 3]], [1, 2], [[5]], np.zeros((0, 3)), [[math.nan, 1, 1]]]
)
def test_what_are_no_votes_is_refused(votes: Any) -> None:
    """More than the teachers, parts of a vote, negative ones, no labels."""
    with pytest.raises(ValueError, match="votes"):
        pate_votes.sanitise(votes, "gaussian", 1.0, 10, PLAN)


ROWS = np.array([[180, 15, 5]] * 3)
WITH_NOISE: dict[str, Any] = {
    "sanitise": lambda noise, scale: pate_votes.sanitise(ROWS, noise, scale, 200, PLAN),
    "total_and_sensitivity": lambda noise, scale: pate_votes.total_and_sensitivity(
        ROWS, noise, scale, 200, 4, 0.1
    ),
    "local_sensitivities": lambda noise, scale: pate_votes.local_sensitivities([5, 3], noise, scale, 8, 4.0),
}


@pytest.mark.parametrize("function", WITH_NOISE.values(), ids=WITH_NOISE)
@pytest.mark.parametrize("noise", ["Gaussian", "gauss", "normal", "GAUSSIAN", "Laplace", "", None])
def test_an_unknown_noise_is_not_taken_for_another(function: Any, noise: Any) -> None:
    """Under another noise the figure is another: the names that work are said."""
    with pytest.raises(ValueError, match="'gaussian' or 'laplace' works"):
        function(noise, 20.0)


@pytest.mark.parametrize("function", WITH_NOISE.values(), ids=WITH_NOISE)
@pytest.mark.parametrize("scale", [0, -1.0, math.nan, math.inf, 1e-200, 1e10])
def test_the_scale_is_in_the_range_of_its_noise(function: Any, scale: float) -> None:
    with pytest.raises(ValueError, match=r"the standard deviation, is .*: 0.01 to 1e\+09 works"):
        function("gaussian", scale)
    with pytest.raises(ValueError, match=r"the gamma, is .*: 1e-12 to 500 works"):
        function("laplace", scale)


def test_the_ranges_are_those_of_the_charges() -> None:
    """What can be held can be told of: a check of Confident-GNMax, and γ of LNMax."""
    gnmax, lnmax = PateGnmax.model_json_schema(), PateLnmax.model_json_schema()["properties"]["gamma"]
    assert (lnmax["minimum"], lnmax["maximum"]) == pate_votes.GAMMA
    sigma = gnmax["properties"]["standard_deviation_of_counts"]["anyOf"][0]
    assert (LEAST_NOISE_MULTIPLIER, sigma["maximum"]) == pate_votes.DEVIATION


@pytest.mark.parametrize("wrong", [0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize(
    "call",
    [
        lambda x: pate_votes.log_q_gaussian([5, 3], x),
        lambda x: pate_votes.log_q_laplace([5, 3], x),
        lambda x: pate_votes.log_q_threshold([5, 3], 4, x),
        lambda x: pate_votes.gnmax_rdp(-3.0, x, 4.0),
        lambda x: pate_votes.gnmax_rdp(-3.0, 20.0, x),
        lambda x: pate_votes.threshold_rdp(-3.0, x, 4.0),
        lambda x: pate_votes.threshold_rdp(-3.0, 20.0, x),
        lambda x: pate_votes.lnmax_rdp(-3.0, x, 4.0),
        lambda x: pate_votes.lnmax_rdp(-3.0, 0.1, x),
        lambda x: pate_votes.Plan(orders=(x,), failure_probability=0.2, beta=0.05, noise=3.0),
        lambda x: pate_votes.Plan(orders=(2.0,), failure_probability=x, beta=0.05, noise=3.0),
        lambda x: pate_votes.Plan(orders=(2.0,), failure_probability=0.2, beta=x, noise=3.0),
        lambda x: pate_votes.Plan(orders=(2.0,), failure_probability=0.2, beta=0.05, noise=x),
        lambda x: pate_votes.smooth_release_rdp(x, 0.05, 3.0),
        lambda x: pate_votes.smooth_release_rdp(4.0, x, 3.0),
        lambda x: pate_votes.smooth_release_rdp(4.0, 0.05, x),
        lambda x: pate_votes.smooth_release_published(4.0, x, 3.0),
        lambda x: pate_votes.smooth_release_published(4.0, 0.05, x),
        lambda x: pate_votes.total_and_sensitivity(ROWS, "gaussian", 20.0, 200, x, 0.1),
        lambda x: pate_votes.total_and_sensitivity(ROWS, "gaussian", 20.0, 200, 4.0, x),
        lambda x: pate_votes.total_and_sensitivity(ROWS, "gaussian", 20.0, x, 4.0, 0.1),
        lambda x: pate_votes.local_sensitivities([5, 3], "laplace", 0.1, x, 4.0),
        lambda x: pate_votes.local_sensitivities([5, 3], "laplace", 0.1, 8, x),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(call: Any, wrong: float) -> None:
    """Not divided by, and no figure of it."""
    with pytest.raises(ValueError, match="work"):
        call(wrong)


@pytest.mark.parametrize("wrong", [0.05, math.nan])
def test_a_probability_in_the_place_of_its_logarithm_is_refused(wrong: float) -> None:
    for figure in (pate_votes.gnmax_rdp, pate_votes.threshold_rdp, pate_votes.lnmax_rdp):
        with pytest.raises(ValueError, match="logarithm"):
            figure(np.array([-3.0, wrong]), 1.0, 4.0)


@pytest.mark.parametrize("votes", [[math.nan, 1], [-1, 2], [5], [math.inf, 1]])
def test_what_is_no_querys_count_is_refused(votes: Any) -> None:
    with pytest.raises(ValueError, match="votes"):
        pate_votes.log_q_gaussian(votes, 1.0)
    with pytest.raises(ValueError, match="votes"):
        pate_votes.log_q_laplace(votes, 1.0)
    with pytest.raises(ValueError, match="votes"):
        pate_votes.log_q_threshold(votes, 3.0, 1.0)


def test_a_plan_that_fails_more_often_than_not_is_not_cheaper_for_it() -> None:
    """Its quantile is below 0: the mean moves the other way, as far."""
    for quantile in (0.3, 1.28):
        up, down = (pate_votes.smooth_release_rdp(4.0, 0.05, 3.0, sign * quantile) for sign in (1, -1))
        assert up == down > pate_votes.smooth_release_rdp(4.0, 0.05, 3.0)


def test_the_raw_figure_is_not_sent() -> None:
    """The library opens nothing and knows no client; the client's helper takes curves and nothing else."""
    modules = {
        name.name
        for library in (pate_losses, pate_votes)
        for node in ast.walk(ast.parse(Path(inspect.getfile(library)).read_text("utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([ast.alias(node.module or "")] if isinstance(node, ast.ImportFrom) else node.names)
    }
    assert {name for name in modules if name.startswith("odometer_client")} == {pate_losses.__name__}
    modules = {name.split(".")[0] for name in modules} - {"odometer_client"}
    assert modules == {"math", "secrets", "collections", "dataclasses", "typing", "numpy", "scipy"}
    with pytest.raises(TypeError, match="RenyiCurve or None"):
        sanitised_body([[[180, 15, 5]]], 1e-6)  # type: ignore[list-item]
    body = sanitised_body([RenyiCurve(orders=(2.0,), epsilons=(0.5,)), None], 1e-6)
    assert body.keys() == {"curves", "failure_probability"}
