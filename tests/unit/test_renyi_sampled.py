"""The Rényi curve of the Poisson-subsampled Gaussian against two oracles of 90 digits, and its laws."""

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import numpy.typing as npt
import pytest

from odometer_accountant.curves.basic import poisson_subsampled_gaussian
from odometer_accountant.numerics.grid import GRID_V1, Grid

GOLDEN = Path(__file__).parents[1] / "golden" / "vectors.json"
ORDERS = [float(order) for order in GRID_V1.exact_orders]
WHOLE = [int(order) for order in ORDERS if order == int(order)]
FRACTIONAL = [order for order in ORDERS if order != int(order)]
RNG = np.random.default_rng(20240613)


@pytest.fixture(autouse=True)
def _digits() -> Any:
    with mp.workdps(90):
        yield


def grid_of(*orders: float) -> Grid:
    return Grid(99, tuple(Fraction(str(order)) for order in orders))


def exact_whole(q: float, z: float, alpha: int) -> Any:
    """The binomial sum, each binomial term from the one before."""
    odds, spread = mp.mpf(q) / (1 - mp.mpf(q)), 1 / (2 * mp.mpf(z) ** 2)
    binomial, excess = (1 - mp.mpf(q)) ** alpha * odds * alpha, mp.mpf(0)
    for k in range(2, alpha + 1):
        binomial *= odds * (alpha - k + 1) / k
        excess += binomial * mp.expm1(k * (k - 1) * spread)
    return mp.log1p(excess) / (alpha - 1)


def exact_fractional(q: float, z: float, alpha: float) -> Any:
    """The signed series of Mironov, Talwar, Zhang 2019, section 3.3: no quadrature in it.

    From its ceil(alpha)-th term on, the series alternates: summed as Cohen, Villegas, Zagier 2000 do.
    """
    q, z, alpha = mp.mpf(q), mp.mpf(z), mp.mpf(alpha)
    split = z * z * mp.log(1 / q - 1) + mp.mpf(1) / 2

    def part(i: Any, rest: Any, where: Any) -> Any:
        tail = mp.erfc(-where / (z * mp.sqrt(2))) / 2
        return q**i * (1 - q) ** rest * mp.exp((i * i - i) / (2 * z * z)) * tail

    def term(i: int) -> Any:
        return mp.binomial(alpha, i) * (part(i, alpha - i, split - i) + part(alpha - i, i, alpha - i - split))

    first = int(alpha) + 1
    sign = mp.sign(mp.binomial(alpha, first))
    head = mp.fsum(term(i) for i in range(first))
    return mp.log(head + sign * alternating(lambda i: abs(term(first + i)))) / (alpha - 1)


def alternating(term: Callable[[int], Any], n: int = 70) -> Any:
    """Sum of (-1)^i term(i) to about 5.8^-n (Cohen, Villegas, Zagier 2000, algorithm 1)."""
    d = (3 + mp.sqrt(8)) ** n
    d = (d + 1 / d) / 2
    b, c, total = mp.mpf(-1), -d, mp.mpf(0)
    for i in range(n):
        c = b - c
        total += c * term(i)
        b = b * (i + n) * (i - n) / ((i + mp.mpf(1) / 2) * (i + 1))
    return total / d


def exact(q: float, z: float, alpha: float) -> Any:
    return exact_whole(q, z, int(alpha)) if alpha == int(alpha) else exact_fractional(q, z, alpha)


def assert_tight(value: float, truth: Any, relative: float = 1e-8) -> None:
    """Never below, at most 1e-8 above, relative to the true value (promised: 1e-6, plus 1e-12)."""
    excess = float((mp.mpf(float(value)) - truth) / truth)
    assert 0.0 <= excess <= relative


def draws(n: int) -> list[tuple[float, float]]:
    """(q, z): rates from 1e-9 to 1 - 1e-15, noise from 0.01 to 1e9, most of them below 10."""
    rates = np.where(RNG.random(n) < 0.75, 10 ** RNG.uniform(-9, 0, n), 1 - 10 ** RNG.uniform(-15, 0, n))
    noises = 10 ** np.where(RNG.random(n) < 0.75, RNG.uniform(-2, 1, n), RNG.uniform(1, 9, n))
    return [(float(q), float(z)) for q, z in zip(rates, noises, strict=True)]


CORNERS = [(q, z) for q in (1e-9, 0.01, 0.5, 1 - 2**-53) for z in (0.01, 0.15, 0.4, 3.0, 1e9)]


@pytest.mark.parametrize(("q", "z"), draws(25) + CORNERS)
def test_never_below_the_truth_and_tight(q: float, z: float) -> None:
    """At two fractional orders and a whole one, the bound lies just above the exact value."""
    curve = poisson_subsampled_gaussian(z, q, GRID_V1)
    for alpha in [*RNG.choice(FRACTIONAL, 2, replace=False), RNG.choice([2, 3, 8, 14, 64, 256])]:
        assert_tight(curve[ORDERS.index(alpha)], exact(q, z, float(alpha)))


@pytest.mark.parametrize(
    ("alpha", "q", "z"),
    [(512, 0.01, 1.1), (1024, 1e-4, 0.6), (2048, 1e-9, 1e6), (8192, 0.01, 1.1), (8192, 0.3, 500.0)],
)
def test_high_orders(alpha: int, q: float, z: float) -> None:
    """Neither the binomials nor the powers of e overflow or lose digits."""
    value = poisson_subsampled_gaussian(z, q, GRID_V1)[ORDERS.index(alpha)]
    assert_tight(value, exact_whole(q, z, alpha))


@pytest.mark.parametrize(("q", "z"), [(0.01, 1.1), (0.4, 12.0), (1e-4, 0.05)])
def test_any_grid(q: float, z: float) -> None:
    """The error bound is not made for one grid: orders near 1, just above 2, and far up."""
    orders = (1.1, 1.9, 2.1, 13.5, 33.25, 59.25)
    for alpha, value in zip(orders, poisson_subsampled_gaussian(z, q, grid_of(*orders)), strict=True):
        assert_tight(value, exact_fractional(q, z, alpha))


@pytest.mark.parametrize(("q", "z"), [(0.01, 1.1), (0.01, 0.3), (0.4, 12.0), (1e-9, 0.6)])
def test_far_orders_that_are_not_whole_are_on_the_chord_of_those_beside(q: float, z: float) -> None:
    """Beyond the proof of the quadrature; (1 + u) to such powers overflows, which gave NaN."""
    grid = grid_of(2.5, 60.5, 61, 767.5, 6143.75)
    found = poisson_subsampled_gaussian(z, q, grid)
    scaled = dict(zip(grid.exact_orders, found * (grid.orders - 1), strict=True))
    for low, share in ((60, 0.5), (767, 0.5), (6143, 0.75)):
        ends = [exact_whole(q, z, order) * (order - 1) for order in (low, low + 1)]
        assert_tight(scaled[low + Fraction(share)], ends[0] + (ends[1] - ends[0]) * share)
    assert_tight(found[0], exact_fractional(q, z, 2.5))
    assert_tight(found[2], exact_whole(q, z, 61))


def golden_rows() -> list[dict[str, Any]]:
    rows = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return [
        row
        for row in rows
        if (row["mechanism"], row["quantity"]) == ("poisson-subsampled-gaussian", "rdp")
        and row["params"]["order"] != "inf"
    ]


@pytest.mark.parametrize("row", golden_rows(), ids=lambda row: row["id"])
def test_golden(row: dict[str, Any]) -> None:
    """The published and recomputed numbers come out; the known wrong ones do not."""
    params = row["params"]
    order = params["order"]
    value = (
        float(poisson_subsampled_gaussian(params["sigma"], params["q"], grid_of(order))[0]) * params["steps"]
    )
    relative = row["tolerance"].get("rel", 0.0)
    assert value == pytest.approx(row["expected"], rel=relative, abs=0.0)
    if "reject" in row and row["reject"] not in ("inf", "nan"):
        assert value != pytest.approx(row["reject"], rel=relative, abs=0.0)


def test_golden_rows_are_there() -> None:
    assert len(golden_rows()) == 26


@pytest.mark.parametrize(("q", "z"), [*draws(12), *CORNERS])
def test_laws_in_the_order(q: float, z: float) -> None:
    """D never falls with the order; (alpha-1) D is convex and 0 at alpha = 1."""
    curve = poisson_subsampled_gaussian(z, q, GRID_V1)
    alpha = np.array([1.0, *ORDERS])
    scaled = np.array([0.0, *((alpha[1:] - 1) * curve)])
    slopes = np.diff(scaled) / np.diff(alpha)
    assert np.all(np.diff(curve) >= -1e-8 * curve[1:])
    assert np.all(np.diff(slopes) >= -1e-7 * slopes[1:])


@pytest.mark.parametrize(("q", "z"), [*draws(12), *CORNERS])
def test_more_noise_or_less_sampling_never_costs_more(q: float, z: float) -> None:
    """At every order, however small the change."""
    here = poisson_subsampled_gaussian(z, q, GRID_V1)
    for step in (1e-7, 0.01, 1.0):
        assert np.all(poisson_subsampled_gaussian(min(z * (1 + step), 1e9), q, GRID_V1) <= here)
        assert np.all(poisson_subsampled_gaussian(z, q / (1 + step), GRID_V1) <= here)


def test_the_ends_of_the_sampling_rate() -> None:
    """Nobody sampled costs nothing; everybody sampled is the plain Gaussian; no rate costs more."""
    z = 0.7
    gaussian = np.array(ORDERS) / (2 * z * z)
    assert np.array_equal(poisson_subsampled_gaussian(z, 0.0, GRID_V1), np.zeros(GRID_V1.n_orders))
    whole: npt.NDArray[np.float64] = poisson_subsampled_gaussian(z, 1.0, GRID_V1)
    assert np.all((whole >= gaussian) & (whole <= gaussian * (1 + 1e-14)))
    assert np.all(poisson_subsampled_gaussian(z, 1 - 2**-53, GRID_V1) <= whole)


def test_a_rate_beyond_the_smallest_is_still_charged() -> None:
    """A rate whose square is no float is charged as 1e-100: above 0, below any unit of account."""
    curve = poisson_subsampled_gaussian(1.0, 5e-324, GRID_V1)
    assert np.all(curve[:30] > 0.0)
    assert np.all(curve[:30] < 1e-100)


@pytest.mark.parametrize(
    ("z", "q"),
    [(1.0, -1e-9), (1.0, 1.0001), (1.0, np.nan), (0.0099, 0.1), (np.nan, 0.1), (np.inf, 0.1), (-1.0, 0.1)],
)
def test_outside_the_range(z: float, q: float) -> None:
    """A parameter out of range is refused with its name and what works."""
    with pytest.raises(ValueError, match=r"(sampling_rate|noise_multiplier) is .* between .* works"):
        poisson_subsampled_gaussian(z, q, GRID_V1)


def test_whole_orders_as_dp_accounting() -> None:
    """At whole orders the widely used accountant agrees (at fractional ones it is wrong: see the rejects)."""
    dp_accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.rdp import RdpAccountant

    few = [alpha for alpha in WHOLE if alpha <= 1024]
    for q, z in [(0.01, 1.1), (1e-3, 0.5), (0.2, 4.0), (0.5, 20.0)]:
        event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z))
        theirs = RdpAccountant(orders=few).compose(event)._rdp
        ours = poisson_subsampled_gaussian(z, q, grid_of(*few))
        assert ours == pytest.approx(theirs, rel=1e-9)
