"""Integer noise and trees: numbers from elsewhere, the exact sums, and the mistakes that are habits."""

import math

import mpmath as mp
import pytest

from accountant import conversions, renyi
from accountant.grid import GRID_V1
from accountant.mechanisms import ANY_MECHANISM, Adjacency, Mechanism
from accountant.renyi_discrete import discrete_laplace
from tests.golden.test_vectors import grid_of


def mechanism(kind: str, **fields: object) -> Mechanism:
    return ANY_MECHANISM.validate_python({"kind": kind, **fields})


def test_the_continuous_curve_for_discrete_laplace_undercharges() -> None:
    """By up to 29 % (SYSTEMS): at scale 1, sensitivity 1 the continuous curve is below the true sum."""
    worst = max(
        discrete_laplace(b, 1, GRID_V1)[n] / renyi.laplace(b, GRID_V1)[n]
        for b in (0.5, 1.0, 2.0, 10.0)
        for n in range(GRID_V1.n_orders)
    )
    assert 1.28 < worst < 1.5
    for b in (0.3, 1.0, 5.0):
        assert (discrete_laplace(b, 1, GRID_V1) >= renyi.laplace(b, GRID_V1)).all()


def test_sensitivity_one_is_binary_randomised_response() -> None:
    for b in (0.2, 1.0, 7.0):
        assert discrete_laplace(b, 1, GRID_V1) == pytest.approx(renyi.pure(1 / b, GRID_V1), rel=1e-9)


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
            one = mechanism("tree_aggregation", noise_multiplier=2.0, steps=steps, trees=trees)
            assert one.curve(GRID_V1).amounts[GRID_V1.mu_squared] == levels / 4


def test_a_tree_is_refused_where_units_come_and_go() -> None:
    tree = mechanism("tree_aggregation", noise_multiplier=2.0, steps=8)
    assert Adjacency.add_remove not in tree.valid_under()
