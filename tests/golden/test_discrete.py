"""Integer noise and trees: numbers from elsewhere, the exact sums, and the mistakes that are habits."""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import dp_accounting
import mpmath as mp
import numpy as np
import pytest
from pydantic import ValidationError

from odometer_accountant.curves import basic
from odometer_accountant.curves.integer_noise import discrete_laplace
from odometer_accountant.curves.tree_sensitivity import _by_level, most_participations, squared_sensitivity
from odometer_accountant.mechanisms import ANY_MECHANISM, Adjacency, Mechanism
from odometer_accountant.mechanisms.charge import Charge
from odometer_accountant.model import floats_to_text
from odometer_accountant.numerics import conversions
from odometer_accountant.numerics.grid import GRID_V1
from tests.golden.test_vectors import grid_of


def mechanism(kind: str, **fields: object) -> Mechanism:
    return ANY_MECHANISM.validate_python({"kind": kind, **fields})


def test_the_continuous_curve_for_discrete_laplace_undercharges() -> None:
    """By up to 29 % (SYSTEMS): at scale 1, sensitivity 1 the continuous curve is below the true sum."""
    worst = max(
        discrete_laplace(b, 1, GRID_V1)[n] / basic.laplace(b, GRID_V1)[n]
        for b in (0.5, 1.0, 2.0, 10.0)
        for n in range(GRID_V1.n_orders)
    )
    assert 1.28 < worst < 1.5
    for b in (0.3, 1.0, 5.0):
        assert (discrete_laplace(b, 1, GRID_V1) >= basic.laplace(b, GRID_V1)).all()


def test_sensitivity_one_is_binary_randomised_response() -> None:
    for b in (0.2, 1.0, 7.0):
        assert discrete_laplace(b, 1, GRID_V1) == pytest.approx(basic.pure(1 / b, GRID_V1), rel=1e-9)


@pytest.mark.parametrize(("b", "width"), [(1.0, 2), (3.0, 5), (0.7, 4)])
def test_discrete_laplace_by_summing_the_law(b: float, width: int) -> None:
    """Against P(x)^alpha Q(x)^(1-alpha), term by term."""
    curve = discrete_laplace(b, width, GRID_V1)
    for place in (0, 3, 10, 20):
        alpha, p = mp.mpf(float(GRID_V1.orders[place])), mp.exp(-1 / mp.mpf(b))
        total = mp.fsum(
            (1 - p) / (1 + p) * p ** (alpha * abs(x) + (1 - alpha) * abs(x - width)) for x in range(-500, 500)
        )
        truth = float(mp.log(total) / (alpha - 1))
        assert truth <= curve[place] <= truth * (1 + 1e-9)


def test_a_discrete_gaussian_has_no_mu() -> None:
    """Read as 1/z-GDP it would undercharge: at z = .5 its delta is several times the Gaussian's."""
    curve = mechanism("discrete_gaussian", noise_multiplier=0.5).curve(GRID_V1)
    assert curve.amounts[GRID_V1.mu_squared] is None
    assert curve.amounts[GRID_V1.rho] == 2
    weights = {x: math.exp(-2.0 * x * x) for x in range(-30, 31)}
    norm = sum(weights.values())
    ratios = []
    for epsilon in [tenth / 10 for tenth in range(100)]:
        delta = sum(
            max(0.0, weights[x] - math.exp(epsilon) * weights.get(x + 1, 0.0)) for x in range(-30, 30)
        )
        ratios.append(delta / norm / conversions.gdp_delta(2.0, epsilon))
    assert max(ratios) > 3


@pytest.mark.parametrize(("z", "order"), [(0.3, 2.5), (0.5, 1.5), (1.0, 8.0), (2.0, 32.0)])
def test_a_discrete_gaussian_by_summing_the_law(z: float, order: float) -> None:
    """The bound of Canonne, Kamath, Steinke is never below the sum."""
    spread = 2 * mp.mpf(z) ** 2
    norm = mp.fsum(mp.exp(-(x**2) / spread) for x in range(-400, 401))
    total = mp.fsum(mp.exp(-(order * x**2 + (1 - order) * (x - 1) ** 2) / spread) for x in range(-400, 401))
    truth = float(mp.log(total / norm) / (order - 1))
    found = mechanism("discrete_gaussian", noise_multiplier=z).curve(grid_of([order])).amounts[0]
    assert float(found or 0) >= truth


def test_a_sum_of_discrete_gaussians_is_not_one() -> None:
    """At little noise a client, tau counts; at more it vanishes and the sum costs what one Gaussian does."""
    few = {"clients": 100, "l2_sensitivity": 10.0, "dimension": 1024}
    for noise, least, most in ((0.5, 1.01, 1e9), (3.0, 1.0, 1 + 1e-9)):
        one = mechanism("distributed_discrete_gaussian", client_noise=noise, **few).curve(GRID_V1)
        plain = 100 / (2 * 100 * noise**2)
        assert least <= float(one.amounts[GRID_V1.rho] or 0) / plain <= most


def test_skellam_by_summing_the_law() -> None:
    """One coordinate of variance 25 moved by 1: the theorem's bound is above the true one, by little."""
    weights = {x: mp.besseli(abs(x), 25) * mp.exp(-25) for x in range(-130, 132)}
    for alpha in (2, 8, 32):
        total = mp.fsum(weights[x] ** alpha * weights[x + 1] ** (1 - alpha) for x in range(-120, 121))
        truth = float(mp.log(total) / (alpha - 1))
        one = mechanism("skellam", variance=25.0, l1_sensitivity=1.0, l2_sensitivity=1.0)
        found = float(one.curve(grid_of([alpha])).amounts[0] or 0)
        assert truth <= found <= truth * 1.3


def test_adaptive_clipping_is_one_gaussian() -> None:
    """Z and sigma_b give z; the sum's own noise, which is more than z, gives the same."""
    z, count = 1.0, 10.0
    gradient = (z**-2 - (2 * count) ** -2) ** -0.5
    given = mechanism("adaptive_clipping", noise_multiplier=z, count_standard_deviation=count)
    stated = mechanism(
        "adaptive_clipping", gradient_noise_multiplier=gradient, count_standard_deviation=count
    )
    plain = mechanism("gaussian", noise_multiplier=z)
    assert given.curve(GRID_V1) == plain.curve(GRID_V1)
    for mine, theirs in zip(stated.curve(GRID_V1).amounts, plain.curve(GRID_V1).amounts, strict=True):
        assert (mine is None) == (theirs is None)
        assert mine is None or theirs is None or float(mine) == pytest.approx(float(theirs), rel=1e-12)


def test_too_little_noise_on_the_count_is_refused() -> None:
    with pytest.raises(ValueError, match=r"above noise_multiplier/2 = 0\.5"):
        mechanism("adaptive_clipping", noise_multiplier=1.0, count_standard_deviation=0.5)


def test_a_tree_of_one_participation_counts_its_levels() -> None:
    """Kairouz et al. 2021, Thm. 4.1: ceil(log2(n + 1)) nodes; trees that a unit is not in cost nothing."""
    for steps, levels in ((1, 1), (2, 2), (3, 2), (8, 4), (1600, 11)):
        for trees in (1, 7):
            one = mechanism(
                "tree_aggregation", noise_multiplier=2.0, steps=steps, trees=trees, participations=1
            )
            assert one.curve(GRID_V1).amounts[GRID_V1.mu_squared] == levels / 4


def test_a_tree_is_refused_where_units_come_and_go() -> None:
    tree = mechanism("tree_aggregation", noise_multiplier=2.0, steps=8, trees=1, participations=1)
    assert Adjacency.add_remove not in tree.valid_under()


def sum_of_discrete_gaussians(sigma: float, clients: int) -> np.ndarray:
    """Its law, by convolving the law of one; every term is positive, so nothing is lost."""
    x = np.arange(-int(37 * sigma), int(37 * sigma) + 1)
    one = np.exp(-(x**2) / (2 * sigma**2))
    one /= one.sum()
    law = one
    for _ in range(clients - 1):
        law = np.convolve(law, one)
        law = law[law > 1e-300]  # it has one peak: this cuts its ends
    return law


def divergence(law: np.ndarray, move: int, alpha: float) -> float:
    """D_alpha of the law against itself, moved."""
    logs = alpha * np.log(law[move:]) + (1 - alpha) * np.log(law[:-move])
    return float((logs.max() + np.log(np.exp(logs - logs.max()).sum())) / (alpha - 1))


@pytest.mark.parametrize(
    ("sigma", "clients"), [(0.5, 2), (0.5, 10), (0.5, 100), (0.55, 200), (0.7, 20), (1.0, 3)]
)
def test_distributed_noise_is_never_below_the_exact_sum(sigma: float, clients: int) -> None:
    """Coordinates are independent, so one moved by any whole number says it for all."""
    law, alphas = sum_of_discrete_gaussians(sigma, clients), (1.001, 1.25, 2.0, 8.0)
    for move in (1, 2, 5, clients // 2, clients):
        fields = {"client_noise": sigma, "clients": clients, "l2_sensitivity": float(max(move, 1))}
        one = mechanism("distributed_discrete_gaussian", dimension=1, **fields).curve(grid_of(alphas))
        for place, alpha in enumerate(alphas):
            if move and alpha * move < 25 * math.sqrt(clients) * sigma:  # the law's ends are cut off
                exact = divergence(law, move, alpha)
                assert exact <= float(one.amounts[place] or 0)
                assert exact <= alpha * float(one.amounts[one.grid.rho] or 0)


def test_a_quarter_of_tau_is_too_little() -> None:
    """With alpha tau d/4 for tau d, 100 clients of sigma = 1/2 would be undercharged for a move by 50."""
    tau = 10 * sum(math.exp(-(math.pi**2) / 2 * k / (k + 1)) for k in range(1, 100))
    exact = divergence(sum_of_discrete_gaussians(0.5, 100), 50, 1.001)
    assert exact > 1.001 * (50**2 / 25 + tau / 2) / 2


@pytest.mark.parametrize("kind", ["distributed_discrete_gaussian", "skellam"])
def test_clients_noise_leaves_with_them(kind: str) -> None:
    """Under add_remove the neighbour has less noise: two scales of noise, which no bound of a move covers."""
    one = Mechanism.registry[kind].model_validate(Mechanism.registry[kind].examples[0])
    assert one.valid_under() == {Adjacency.zero_out, Adjacency.replace_one}


def test_norms_are_of_whole_numbers() -> None:
    """A clip norm of 0.1 that was not scaled to the integer grid is refused."""
    for kind in ("distributed_discrete_gaussian", "skellam"):
        with pytest.raises(ValidationError):
            ANY_MECHANISM.validate_python({**Mechanism.registry[kind].examples[0], "l2_sensitivity": 0.1})


def test_how_often_a_unit_takes_part_is_never_assumed() -> None:
    """A default of one participation would undercharge whoever forgets the others."""
    with pytest.raises(ValidationError, match="participations"):
        mechanism("tree_aggregation", noise_multiplier=2.0, steps=8, trees=1)


TREE = {"kind": "tree_aggregation", "noise_multiplier": 2.0}


@pytest.mark.parametrize(
    ("steps", "trees", "separation", "most"),
    [(100, 1, 0, 100), (100, 10, 99, 10), (100, 10, 10**9, 10), (100, 3, 32, 12), (7, 2, 2, 6), (1, 1, 0, 1)],
)
def test_no_unit_takes_part_more_often_than_the_trees_allow(
    steps: int, trees: int, separation: int, most: int
) -> None:
    """Ten epochs of one participation stated as one tree would cost a tenth: refused, with the largest."""
    stated = TREE | {"steps": steps, "trees": trees, "separation": separation}
    once_more = stated | {"participations": most + 1}
    ANY_MECHANISM.validate_python(stated | {"participations": most})
    with pytest.raises(ValidationError, match=f"participations is at most {most}: .*State every tree"):
        ANY_MECHANISM.validate_python(once_more)


def test_the_most_participations_are_those_of_the_longest_pattern() -> None:
    for steps, gap in itertools.product((1, 2, 5, 8, 11), (1, 2, 3, 7, 20)):
        longest = max(len(found) for found in patterns(steps, steps, gap))
        assert most_participations(steps, 1, gap - 1) == longest


def test_a_tree_that_a_ledger_took_stays_readable() -> None:
    """An earlier version took more participations than can be: its charge is counted as it was then."""
    tree = TREE | {"steps": 8, "trees": 1}
    stored = floats_to_text({"mechanism": tree | {"participations": 9}, "count": 1})
    possible = Charge.model_validate({"mechanism": tree | {"participations": 8}, "count": 1})
    assert Charge.of_ledger(stored).loss(GRID_V1) == possible.loss(GRID_V1)


def patterns(steps: int, participations: int, gap: int) -> Iterator[tuple[int, ...]]:
    for many in range(participations + 1):
        for found in itertools.combinations(range(steps), many):
            if all(b - a >= gap for a, b in itertools.pairwise(found)):
                yield found


def squares(pattern: tuple[int, ...], steps: int) -> int:
    """Over the complete subtrees of one tree."""
    total = 0
    for level in range(steps.bit_length()):
        for node in range(steps >> level):
            total += sum(leaf >> level == node for leaf in pattern) ** 2
    return total


@pytest.mark.parametrize("steps", [1, 2, 5, 7, 8, 11, 13])
def test_no_pattern_of_participation_moves_a_tree_by_more(steps: int) -> None:
    """All patterns, one by one; by levels alone the bound is above, at most by a quarter."""
    for participations, gap in itertools.product((1, 2, 3, 5), (1, 2, 3, 5, 20)):
        worst = max(squares(found, steps) for found in patterns(steps, participations, gap))
        assert squared_sensitivity(steps, 1, participations, gap - 1) == worst
        assert worst <= _by_level(steps, 1, participations, gap) <= worst * 1.25


def test_restarts_of_a_tree_by_all_patterns() -> None:
    """Three trees of four steps, as TF Privacy's restarts: every tree that a unit is in counts."""
    for participations, gap in itertools.product((1, 2, 3, 5), (1, 2, 4, 5)):
        worst = max(
            sum(squares(tuple(x - 4 * tree for x in found if x // 4 == tree), 4) for tree in range(3))
            for found in patterns(12, participations, gap)
        )
        assert worst <= squared_sensitivity(4, 3, participations, gap - 1) <= worst * 1.25


@pytest.mark.parametrize("steps", [3, 8, 11, 19, 1000])
def test_trees_of_tf_privacy(steps: int) -> None:
    """tensorflow/privacy, tree_aggregation_accountant_test.py: every step, and any two."""
    powers = [bit for bit in range(steps.bit_length()) if steps >> bit & 1]
    every = sum(2**d * (2 ** (d + 1) - 1) for d in powers)
    assert squared_sensitivity(steps, 1, steps, 0) == every
    assert squared_sensitivity(steps, 1, 2, 0) == 2 + 4 * max(powers)


def test_single_epoch_trees_of_dp_accounting() -> None:
    """Its SingleEpochTreeAggregationDpEvent at the setting of its own test."""
    accountant = dp_accounting.rdp.RdpAccountant(
        [2, 8, 32], dp_accounting.NeighboringRelation.REPLACE_SPECIAL
    )
    accountant.compose(dp_accounting.SingleEpochTreeAggregationDpEvent(1.13, [400, 1600, 30]))
    fields = {"noise_multiplier": 1.13, "steps": 1600, "trees": 3, "participations": 1}
    ours = mechanism("tree_aggregation", **fields).curve(grid_of([2, 8, 32])).amounts[:3]
    assert [float(found or 0) for found in ours] == pytest.approx(list(accountant._rdp), rel=1e-12)


def test_adaptive_clipping_as_opacus() -> None:
    """Opacus AdaClipDPOptimizer, its test's noise 1.5 and unclipped_num_std 1: noise 2.2678 on the sum."""
    one = mechanism("adaptive_clipping", gradient_noise_multiplier=2.26779, count_standard_deviation=1.0)
    assert one.as_gaussian() == pytest.approx(1.5, rel=1e-5)
    assert Fraction(one.as_gaussian() or 0) ** 2 * (one.curve(GRID_V1).amounts[GRID_V1.mu_squared] or 0) <= 1
