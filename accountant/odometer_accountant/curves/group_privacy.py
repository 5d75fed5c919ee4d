"""Group privacy: what k units lose together, from what one loses."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from odometer_accountant.numerics.grid import Grid

Floats = npt.NDArray[np.float64]

_ULP: Final = 2.0**-53
_TOP: Final = 8192
"""The largest order that a base is asked for."""
_PAIRS_TOP: Final = 256
"""The largest order at which a base is asked for the weak triangle inequality: it helps at low ones."""
_P: Final = (Fraction(3, 2), Fraction(2), Fraction(3))
"""Values of p tried in the weak triangle inequality; any p > 1 is sound."""


def renyi(curve: Callable[[Grid], Floats], group_size: int, grid: Grid) -> Floats:
    """Upper bounds of D_alpha for groups, shape (n_orders,), infinity where none was found.

    curve: that of one unit on any grid, rounded up. Mironov 2017, Proposition 2: groups of 2^c units
    have at most
    3^c D at order 2^c alpha, for alpha >= 2; below 2, the bound at 2 (D never falls in its order). For
    two units
    also by the weak triangle inequality (Mironov 2017, Proposition 11), at a few p:
    D_alpha(2) <= [(alpha-1/p)/(alpha-1)] D_{p alpha} + D_{(p alpha - 1)/(p-1)}.
    """
    doublings = (group_size - 1).bit_length()
    orders = [max(order, Fraction(2)) * 2**doublings for order in grid.exact_orders]
    wanted: list[list[tuple[float, Fraction]]] = [[(3.0**doublings, order)] for order in orders]
    pairs: list[list[tuple[float, Fraction, Fraction]]] = [[] for _ in orders]
    if group_size == 2:
        for place, alpha in enumerate(grid.exact_orders):
            for p in _P:
                factor = float((alpha - 1 / p) / (alpha - 1)) * (1.0 + 4.0 * _ULP)
                first, second = p * alpha, (p * alpha - 1) / (p - 1)
                if max(first, second) <= _PAIRS_TOP:
                    pairs[place].append((factor, first, second))
    asked = {order for terms in wanted for _, order in terms}
    asked |= {order for terms in pairs for _, first, second in terms for order in (first, second)}
    known = {order for order in asked if order <= _TOP and order.denominator <= 4}
    if not known:
        return np.full(grid.n_orders, np.inf)
    base = Grid(99, tuple(sorted(known)))
    found = dict(zip(base.exact_orders, curve(base).tolist(), strict=True))
    bounds = []
    for terms, couples in zip(wanted, pairs, strict=True):
        bound = min(factor * found.get(order, math.inf) for factor, order in terms)
        for factor, first, second in couples:
            bound = min(bound, factor * found.get(first, math.inf) + found.get(second, math.inf))
        bounds.append(bound * (1.0 + 8.0 * _ULP))
    return np.array(bounds)


def delta(epsilon: Fraction, delta_one: Fraction, group_size: int) -> Fraction:
    """The delta of a group at k epsilon: delta (e^{k epsilon} - 1)/(e^epsilon - 1), rounded up, at most 1.

    Source: Vadhan 2017, Lemma 2.2, the sum delta (1 + e^epsilon + ... + e^{(k-1) epsilon}).
    """
    if not delta_one:
        return Fraction(0)
    top = float(epsilon) * (group_size - 1)
    if top > 600.0:
        return Fraction(1)
    e = float(epsilon)
    # Either form is an upper bound; the first is the sum itself, the second has no cancellation.
    growth = (
        math.expm1(e * group_size) / math.expm1(e)
        if e > 1e-9 and e * group_size < 600.0
        else group_size * math.exp(top)
    )
    return min(Fraction(1), delta_one * Fraction(growth * (1.0 + 2.0**-40)))
