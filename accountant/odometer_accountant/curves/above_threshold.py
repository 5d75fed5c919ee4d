"""Rényi curve of one run of AboveThreshold (sparse vector), as an upper bound in nats."""

import numpy as np
import numpy.typing as npt

from odometer_accountant.curves import basic
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.rounding import decimal, round_up

Floats = npt.NDArray[np.float64]


def above_threshold(epsilon_threshold: float, epsilon_answers: float, grid: Grid) -> Floats:
    """Rényi curve of a run up to and including its first above answer, shape (n_orders,).

    Both within [1e-12, 1e3]; ValueError outside. Any relation. At each order the lesser of two bounds, the
    worst curve of any (e1+e2)-DP mechanism and D_alpha(Laplace of scale 1/e1) + e2 (Zhu, Wang 2020, c = 1:
    the threshold noise's divergence at alpha, the answer noise's at infinity).

    Proof of the second. Given threshold noise z, let f_k(z) be the probability that answer k is the first
    above on D, g_k(z + 1) that on D' with the threshold one sensitivity higher. Every below answer is at
    least as likely in g as in f; the above answer is at most e^e2 times likelier in f than in g: its noise
    has to make up for the threshold's move and for its own query's, two sensitivities at scale 2/e2; for
    monotone queries one, at scale 1/e2. (x, y) -> x^alpha y^(1-alpha) is convex and homogeneous, so the
    integral over z comes out of it, and what is left is e^((alpha-1) e2) times the moment of the threshold
    noise.
    """
    scale = float(1 / decimal(epsilon_threshold))
    both = decimal(epsilon_threshold) + decimal(epsilon_answers)
    pure = basic.pure(round_up(both), grid)
    split = (basic.laplace(scale, grid) + epsilon_answers) * (1.0 + 2.0**-50)
    return np.minimum(pure, split)


def above_threshold_rho(epsilon_threshold: float, epsilon_answers: float) -> float:
    """A rho with which such a run is rho-zCDP: the lesser of what the two bounds of `above_threshold` have.

    Of the second: D_alpha(Laplace) <= rho alpha, and e2 <= e2 alpha.
    """
    scale = float(1 / decimal(epsilon_threshold))
    both = round_up(decimal(epsilon_threshold) + decimal(epsilon_answers))
    return min(basic.pure_rho(both), (basic.laplace_rho(scale) + epsilon_answers) * (1.0 + 2.0**-50))
