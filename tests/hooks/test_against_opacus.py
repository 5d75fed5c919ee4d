"""Curves against Opacus's, at equal orders: tests/golden/against_peers.py with a few draws."""

import pytest

from tests.golden import against_peers
from tests.support import peers
from tests.support.peers import Pair

DRAWS = 12
PAIRS = peers.pairs("opacus")


@pytest.mark.parametrize("pair", PAIRS, ids=[pair.name for pair in PAIRS])
def test_a_curve_agrees_with_opacus_or_the_truth_says_why(pair: Pair) -> None:
    result = against_peers.compare("opacus", pair, DRAWS, seed=2)
    assert result.points >= DRAWS
    assert not result.failures, "\n".join(result.failures[:3])


def test_the_file_that_is_compared_is_the_one_that_opacus_uses() -> None:
    """It is loaded by its path: the same code as the package's."""
    from opacus.accountants.analysis import rdp

    from tests.support.peers.of_opacus import ANALYSIS

    for orders in ([2, 63], [1.25, 10.9]):
        arguments = {"q": 0.01, "noise_multiplier": 1.1, "steps": 1, "orders": orders}
        assert list(ANALYSIS.compute_rdp(**arguments)) == list(rdp.compute_rdp(**arguments))
