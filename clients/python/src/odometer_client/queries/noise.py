"""OpenDP's noise whose cost, by OpenDP's own map, is at most what is charged for it."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

import opendp.prelude as dp

from odometer_client.base import UnsupportedPlan

_TRIES: Final = 64
_A_LITTLE: Final = 1 + 2.0**-40


def laplace(sensitivity: float, epsilon: float, times: int) -> Any:
    """Laplace noise with `times` the loss of moving by `sensitivity` at most `epsilon`, above 0."""
    if finite("epsilon", epsilon) <= 0:
        raise ValueError(f"epsilon is {epsilon}: a number above 0 works")
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    return _raised(
        lambda scale: dp.m.make_laplace(*space, scale=scale),
        lambda noise: times * float(noise.map(sensitivity)) <= epsilon,
        times * sensitivity / epsilon,
        f"Laplace noise that costs {epsilon} at sensitivity {sensitivity}",
    )


def gaussian(size: int | None, sensitivity: float, noise_multiplier: float) -> Any:
    """Gaussian noise that costs ρ = 1/(2·noise_multiplier²) at most when moved by `sensitivity` in L2 norm.

    `size`: of the vector that it is added to; None for a number.
    """
    atom: Any = dp.atom_domain(T=float, nan=False)
    space = (
        (atom, dp.absolute_distance(T=float))
        if size is None
        else (dp.vector_domain(atom, size=size), dp.l2_distance(T=float))
    )
    charged = 1 / (2 * Fraction(repr(noise_multiplier)) ** 2)  # as it is written, which is what is charged
    return _raised(
        lambda scale: dp.m.make_gaussian(*space, scale=scale),
        lambda noise: Fraction(float(noise.map(sensitivity))) <= charged,
        noise_multiplier * sensitivity,
        f"Gaussian noise of multiplier {noise_multiplier} at sensitivity {sensitivity}",
    )


def _raised(make: Callable[[float], Any], paid: Callable[[Any], bool], scale: float, what: str) -> Any:
    """OpenDP's floats cost a little more than their scale says: it is raised until the map agrees."""
    for _ in range(_TRIES):
        noise = make(scale)
        if paid(noise):
            return noise
        scale *= _A_LITTLE
    raise UnsupportedPlan(f"OpenDP draws no {what}")


def finite(name: str, value: float) -> float:
    """`value` as a float. Raises ValueError for what is no finite number."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{name} is {number}: a finite number works")
    return number
