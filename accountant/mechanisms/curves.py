"""Curves that several mechanisms have: those of pure ε and of a Gaussian."""

import math
from fractions import Fraction

from accountant import renyi
from accountant.grid import Grid
from accountant.loss import Amount, Curve
from accountant.rounding import decimal, round_down


def pure_curve(epsilon: float, grid: Grid, *, pure: Amount | None = None, delta: Amount = 0) -> Curve:
    """What an (ε, δ)-DP release of which nothing more is known loses, at most.

    epsilon: in nats, 0 to 1e6, rounded up where it is no decimal itself; `pure` is then the exact one.
    """
    return Curve.of(
        grid,
        renyi.pure(epsilon, grid),
        pure=decimal(epsilon) if pure is None else pure,
        rho=renyi.pure_rho(epsilon),
        mu_squared=Fraction(renyi.pure_mu(epsilon)) ** 2,
        delta=delta,
    )


def gaussian_curve(mu_squared: Fraction, grid: Grid) -> Curve:
    """The curve of a Gaussian mechanism of μ = 1/noise_multiplier, exactly."""
    return Curve.linear(grid, mu_squared / 2, mu_squared=mu_squared)


def multiplier_of(mu_squared: Fraction) -> float:
    """The noise multiplier 1/μ, rounded down."""
    return math.nextafter(math.sqrt(round_down(1 / mu_squared)), 0.0)


def scaled(curve: Curve) -> tuple[renyi.Floats, renyi.Floats]:
    """(orders, bounds of (α−1)·D_α) of a curve: points for `renyi_subsampled.convex_below`."""
    orders = curve.grid.orders
    return orders, (orders - 1.0) * curve.floats()[: orders.size] * (1.0 + 2.0**-50)
