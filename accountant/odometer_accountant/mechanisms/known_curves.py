"""Curves that several mechanisms share, of pure ε and of a Gaussian, and a check of stated curves."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from odometer_accountant.curves import basic
from odometer_accountant.numerics.curve import Amount, Curve
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.rounding import decimal, round_down

ROUNDED: Final = Fraction(1, 10**5)
"""Relative error that a stated divergence may have: other tools print six digits of a float."""


def contradiction(points: Sequence[tuple[float, float]]) -> str | None:
    """Why no mechanism has these divergences; None where one may.

    points: (order, divergence in nats), orders above 1 and increasing, divergences never decreasing.
    (α−1)·D_α is the logarithm of a moment: convex in α, and 0 at α = 1 (van Erven, Harremoës 2014, Cor. 2).
    So three points contradict each other where the slope falls, even with each rounded by `ROUNDED`. And a
    divergence of 0 at one order says that the two outputs are the same: it is 0 at all (their Thm. 8).
    """
    last_order, last = points[-1]
    zero = next((order for order, epsilon in reversed(points) if epsilon == 0), None)
    if zero is not None and last > 0:
        return (
            f"epsilons: 0 at order {zero:g} and {last!r} at order {last_order:g} contradict each other: a "
            "Rényi divergence of 0 at one order is 0 at all of them: leave out what was not computed, and "
            "state no less than the least float for what is too small for one"
        )
    plain = [(1.0, 0.0), *((order, (order - 1) * epsilon) for order, epsilon in points)]
    # Floats are off by far less than ROUNDED here: a slope that rises in them needs no fractions.
    sure = points[0][0] > 1.001 and points[0][1] > 1e-100
    for place in range(len(points) - 1):
        (x, u), (y, v), (z, w) = plain[place : place + 3]
        if sure and (v - u) * (z - y) <= (w - v) * (y - x):
            continue
        before = points[place - 1] if place else None
        least = _least_after(before, points[place], points[place + 1])
        if least is not None:
            (b_order, low), (c_order, high) = points[place], points[place + 1]
            told = f", with {before[1]!r} at order {before[0]:g}," if before else ""
            return (
                f"epsilons: {low!r} at order {b_order:g} and {high!r} at order {c_order:g} contradict each "
                f"other: (α−1)·D_α is convex and 0 at α = 1, so that D at order {c_order:g}{told} is at "
                f"least {least:.6g}. One of the two is wrong, or loose: a curve without it holds too"
            )
    return None


def _least_after(
    one: tuple[float, float] | None, two: tuple[float, float], three: tuple[float, float]
) -> float | None:
    """The least divergence at the third order if the first two are right; None where the third may be right.

    The first is left out for order 1, at which the moment is 0. Exact.
    """
    a, f = _moment(*one) if one else (Fraction(1), Fraction(0))
    (b, g), (c, h) = _moment(*two), _moment(*three)
    rise = (g * (1 - ROUNDED) - f * (1 + ROUNDED)) * (c - b)
    if rise <= (h * (1 + ROUNDED) - g * (1 - ROUNDED)) * (b - a):
        return None
    return float((g + (c - b) * (g - f) / (b - a)) / (c - 1))


def _moment(order: float, divergence: float) -> tuple[Fraction, Fraction]:
    exact = decimal(order)
    return exact, (exact - 1) * decimal(divergence)


def pure_curve(epsilon: float, grid: Grid, *, pure: Amount | None = None, delta: Amount = 0) -> Curve:
    """The largest loss of a release that is (ε, δ)-DP, with nothing more known.

    epsilon: in nats, 0 to 1e6, rounded up where it is no decimal itself; `pure` is then the exact one.
    """
    return Curve.of(
        grid,
        basic.pure(epsilon, grid),
        pure=decimal(epsilon) if pure is None else pure,
        rho=basic.pure_rho(epsilon),
        mu_squared=Fraction(basic.pure_mu(epsilon)) ** 2,
        delta=delta,
    )


def gaussian_curve(mu_squared: Fraction, grid: Grid) -> Curve:
    """The curve of a Gaussian mechanism of μ = 1/noise_multiplier, exactly."""
    return Curve.linear(grid, mu_squared / 2, mu_squared=mu_squared)


def multiplier_of(mu_squared: Fraction) -> float:
    """The noise multiplier 1/μ, rounded down."""
    return math.nextafter(math.sqrt(round_down(1 / mu_squared)), 0.0)


def scaled(curve: Curve) -> tuple[basic.Floats, basic.Floats]:
    """(orders, bounds of (α−1)·D_α) of a curve: points for `renyi_subsampled.convex_below`."""
    orders = curve.grid.orders
    return orders, (orders - 1.0) * curve.floats()[: orders.size] * (1.0 + 2.0**-50)
