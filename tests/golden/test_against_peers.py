"""A few draws of what tests/golden/against_peers.py does with thousands, for what is installed."""

import pytest

from tests.golden import against_peers
from tests.support import oracles, peers
from tests.support.peers import Pair

DRAWS = 12
PAIRS = [(peer, pair) for peer in ("dp_accounting", "autodp") for pair in peers.pairs(peer)]


@pytest.mark.parametrize(("peer", "pair"), PAIRS, ids=[f"{peer}-{pair.name}" for peer, pair in PAIRS])
def test_a_curve_agrees_with_a_peers_or_the_truth_says_why(peer: str, pair: Pair) -> None:
    draws = DRAWS if pair.truth is oracles.renyi else 2  # integrals of 50 digits are slow
    result = against_peers.compare(peer, pair, draws, seed=2)
    assert result.points >= draws
    assert not result.failures, "\n".join(result.failures[:3])


def test_a_difference_that_nobody_explained_fails() -> None:
    """A peer that is a thousandth above the truth is no reason to accept one."""
    [known] = [pair for peer, pair in PAIRS if peer == "dp_accounting" and pair.name == "gaussian"]
    assert known.curve is not None
    curve = known.curve
    wrong = Pair(
        "gaussian", known.draw, lambda document, orders: [1.001 * x for x in curve(document, orders)]
    )
    result = against_peers.compare("dp_accounting", wrong, 3, seed=1)
    assert len(result.failures) == result.points
    assert "not listed" in result.failures[0]


def test_ours_below_the_truth_fails_whoever_agrees() -> None:
    """Also when the peer is the same, and whatever explains it."""
    [known] = [pair for peer, pair in PAIRS if peer == "dp_accounting" and pair.name == "zcdp"]
    twice = Pair(
        "zcdp",
        known.draw,
        lambda _document, orders: [2e9 for _ in orders],
        truth=lambda document, order: known.truth(document, order) * (1 + 1e-14),
    )
    result = against_peers.compare("dp_accounting", twice, 2, seed=1)
    assert len(result.failures) == result.points
    assert "below the truth" in result.failures[0]
