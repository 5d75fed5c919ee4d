"""Local reports: formulas of the authors' own code, and every outcome summed."""

import itertools
import math
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from pydantic import ValidationError

from odometer_accountant.curves import local_bits
from odometer_accountant.mechanisms import ANY_MECHANISM
from odometer_accountant.numerics.grid import GRID_V1


def curve_of(kind: str, **fields: Any) -> list[float]:
    amounts = ANY_MECHANISM.validate_python({"kind": kind, **fields}).curve(GRID_V1).amounts
    return [math.inf if amount is None else float(amount) for amount in amounts]


def pure(kind: str, **fields: Any) -> float:
    return curve_of(kind, **fields)[GRID_V1.pure]


def refused(**fields: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        ANY_MECHANISM.validate_python({"kind": "randomized_response", **fields})
    return str(caught.value)


def log_odds(p: Fraction, q: Fraction) -> mp.mpf:
    with mp.workdps(60):
        odds = p * (1 - q) / (q * (1 - p))
        return mp.log(mp.mpf(odds.numerator) / odds.denominator)


def test_the_pure_loss_of_bits_is_never_below_the_truth() -> None:
    """Where the odds are a ratio of large integers, the ulps of their two logarithms are larger than those
    of the difference: it was 1e-14 too low, 9e9 units of 1e9 charges.
    """
    q, p, h, f = (Fraction(text) for text in ("0.23568449880620854", "0.1", "1000", "0.079065244198614"))
    high, low = (1 - f / 2) * max(p, q) + f / 2 * min(p, q), f / 2 * max(p, q) + (1 - f / 2) * min(p, q)
    fields = {"h": 1000, "f": float(f), "p": 0.1, "q": float(q), "permanent_bits": "fresh"}
    found = ANY_MECHANISM.validate_python({"kind": "rappor", **fields}).curve(GRID_V1)
    exact = log_odds(high, low)
    least = h * exact
    amount = found.amounts[GRID_V1.pure]
    assert amount is not None
    with mp.workdps(60):
        assert least <= mp.mpf(amount.numerator) / amount.denominator <= least * (1 + mp.mpf(10) ** -12)
    rng = np.random.default_rng(7)
    for _ in range(200):
        a, b = sorted(Fraction(repr(float(10 ** -rng.uniform(0, 9)))) for _ in "pq")
        with mp.workdps(60):
            exact, ours = log_odds(b, a), local_bits.log_odds(b, a)
            assert exact <= ours <= exact * (1 + mp.mpf(10) ** -13)


def test_less_truth_than_chance_is_refused_with_what_would_work() -> None:
    """Each remedy is taken, and costs what the report does: log((1 - p)/((k - 1) p))."""
    swapped = refused(k=2, probability_of_truth=0.3)
    assert "at least 0.5 " in swapped
    assert "state 0.7 " in swapped
    assert pure("randomized_response", k=2, probability_of_truth=0.7) == pytest.approx(math.log(7 / 3))
    rare = refused(k=3, probability_of_truth=0.2)
    least = float(rare.split("at least ")[1].split()[0])
    epsilon = float(rare.split("charge pure with epsilon ")[1].split()[0])
    assert epsilon == pytest.approx(math.log(0.8 / 0.4), rel=1e-12)
    assert epsilon >= math.log(2)
    assert pure("randomized_response", k=3, probability_of_truth=least) == pytest.approx(0, abs=1e-15)
    for never in (0.0, 5e-324):
        assert "charge non_private" in refused(k=3, probability_of_truth=never)


def rappor(**fields: Any) -> float:
    return pure("rappor", **fields)


def test_rappor_as_its_authors_compute_it() -> None:
    """google/rappor@004af04 analysis/R/decode.R, ComputePrivacyGuarantees, at h = 2, f = p = 1/2, q = 3/4.

    Its q2 is .6875 and p2 .5625; exp(e_inf) = ((1 - f/2)/(f/2))^{2h} = 3^4, e_1 is worked out here.
    """
    instant = {"h": 2, "f": 0.5, "p": 0.5, "q": 0.75}
    assert rappor(**instant, permanent_bits="kept") == pytest.approx(4 * math.log(3), rel=1e-14)
    one_report = 2 * math.log(0.6875 * (1 - 0.5625) / (0.5625 * (1 - 0.6875)))
    assert one_report == pytest.approx(1.0743, abs=1e-4)
    assert rappor(**instant, permanent_bits="fresh") == pytest.approx(one_report, rel=1e-14)


def test_instantaneous_noise_does_not_lower_what_is_paid_for_ever() -> None:
    """However noisy the single reports, averaging them shows the permanent bits."""
    kept = {"h": 2, "f": 0.5, "permanent_bits": "kept"}
    assert curve_of("rappor", **kept, p=0.49, q=0.51) == curve_of("rappor", **kept)


def test_kept_bits_are_not_charged_as_fresh_ones() -> None:
    """Reports of kept bits can lose more than the sum of single ones: p = 0, two reports, one bit.

    The second report is judged knowing the first: seen a 0, both values make a 1 less likely, but not alike.
    """
    q, f = 0.1, 0.5
    ones = {1: 1 - f / 2, 0: f / 2}
    many = 400
    zeros = [bit * (1 - q) ** many + (1 - bit) for bit in (ones[1], ones[0])]
    # A single 1 after many 0s, in any place.
    seen = [bit * q * (1 - q) ** many for bit in (ones[1], ones[0])]
    after = math.log(seen[0] / seen[1]) - math.log(zeros[0] / zeros[1])
    single = math.log(ones[1] * q / (ones[0] * q))
    assert after > single
    assert math.log(zeros[1] / zeros[0]) > math.log((1 - ones[0] * q) / (1 - ones[1] * q))


def test_without_permanent_noise_nothing_is_promised() -> None:
    assert rappor(h=1, f=0.0, permanent_bits="kept") == math.inf
    assert rappor(h=1, f=1.0, permanent_bits="kept") == 0


def test_one_time_rappor_is_its_permanent_bits() -> None:
    """With p = 0 and q = 1 nothing is added to them."""
    kept = rappor(h=3, f=0.3, permanent_bits="kept")
    assert rappor(h=3, f=0.3, p=0.0, q=1.0, permanent_bits="fresh") == pytest.approx(kept, rel=1e-14)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, math.log(3)])
def test_oue_and_sue_as_published(epsilon: float) -> None:
    """Wang et al. 2017, section 4.3: OUE q = 1/(e^eps + 1), p = 1/2; SUE p = 1 - q, odds e^{eps/2}."""
    oue = curve_of("unary_encoding", p=0.5, q=1 / (math.exp(epsilon) + 1))
    assert oue == pytest.approx(curve_of("unary_encoding", optimized_epsilon=epsilon), rel=1e-9)
    sue_p = math.exp(epsilon / 2) / (math.exp(epsilon / 2) + 1)
    sue = curve_of("unary_encoding", p=sue_p, q=1 - sue_p)[: GRID_V1.rho]
    assert sue == pytest.approx(
        curve_of("unary_encoding", symmetric_epsilon=epsilon)[: GRID_V1.rho], rel=1e-9
    )
    assert oue[GRID_V1.pure] == pytest.approx(epsilon, rel=1e-12)


def test_oue_by_the_formula_of_a_peer() -> None:
    """As pure_ldp's client sets OUE: p = 1/2, q = 1/(e^eps + 1); at eps = 1 worked out here."""
    assert pure("unary_encoding", p=0.5, q=0.2689414213699951) == pytest.approx(1.0, rel=1e-12)


def test_unary_encoding_is_not_its_epsilon_alone() -> None:
    """Two bits in opposite directions are less than binary randomised response of the same eps, by a half."""
    found = curve_of("unary_encoding", optimized_epsilon=1.0)
    response = curve_of("pure", epsilon=1.0)
    orders = GRID_V1.n_orders
    assert all(mine < theirs for mine, theirs in zip(found[:orders], response[:orders], strict=True))
    assert found[3] < 0.6 * response[3]


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.25), (0.9, 0.1), (0.6, 0.59), (0.3, 0.001)])
def test_all_vectors_of_unary_encoding_are_summed(p: float, q: float) -> None:
    """Five values, 32 vectors, every pair of values: the largest divergence is the charge."""
    found = curve_of("unary_encoding", p=p, q=q)

    def law(value: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        ones = [p if bit == value else q for bit in range(5)]
        vectors = itertools.product((0, 1), repeat=5)
        return np.array(
            [math.prod(o if v else 1 - o for o, v in zip(ones, vs, strict=True)) for vs in vectors]
        )

    for place, alpha in ((0, 1.25), (3, 2.0), (GRID_V1.n_orders - 20, None)):
        order = float(GRID_V1.orders[place]) if alpha is None else alpha
        assert GRID_V1.orders[place] == order
        worst = max(
            math.log((law(a) ** order * law(b) ** (1 - order)).sum()) / (order - 1)
            for a, b in itertools.permutations(range(5), 2)
        )
        assert worst * (1 - 1e-9) <= found[place] <= worst * (1 + 1e-6)


def test_a_sketch_is_symmetric_unary_encoding() -> None:
    """Apple 2017: entries are flipped with probability 1/(e^{eps/2} + 1), two of them differ."""
    assert curve_of("count_mean_sketch", epsilon=4.0) == curve_of("unary_encoding", symmetric_epsilon=4.0)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"kind": "unary_encoding", "p": 0.5}, "both"),
        ({"kind": "unary_encoding"}, "exactly one"),
        ({"kind": "unary_encoding", "p": 0.2, "q": 0.5}, "at least q"),
        ({"kind": "unary_encoding", "p": 0.5, "q": 0.2, "optimized_epsilon": 1.0}, "exactly one"),
        ({"kind": "rappor", "h": 1, "f": 0.5, "permanent_bits": "fresh"}, "needed"),
        ({"kind": "rappor", "h": 1, "f": 0.5, "p": 0.5, "permanent_bits": "kept"}, "both or neither"),
    ],
)
def test_what_is_missing_is_said(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        ANY_MECHANISM.validate_python(wrong)
