"""The rate at which a float sampler really draws, and one step of DP-SGD at that rate. Needs no framework.

`torch.rand` in single precision gives whole multiples of 2^-24, and a record enters a batch where its number
lies below the rate. So a record enters with probability ceil(q·2^24)/2^24, which is above q: .01 becomes
.0100000500679…, 1e-7 becomes 1.19e-7. Whoever charges, plans or advises uses this one function.
"""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Final

from odometer_client.mechanisms import Gaussian, PoissonSubsampled

SAMPLER_BITS: Final = 24
"""Bits of a single precision random number: it is a multiple of 2^-24."""


def drawn_rate(rate: float, *, bits: int = SAMPLER_BITS, beyond: int = 0) -> float:
    """The probability of a draw whose random numbers are multiples of 2^-bits: at least `rate`.

    Args:
        rate: what the sampler compares with, 0 < rate ≤ 1.
        bits: 24 in single precision; it also covers double precision, whose multiples are finer.
        beyond: so many multiples more, for random numbers that are not exact multiples (a GPU's).

    The number's shortest decimal, which is what goes to the service, is not below the probability either.
    Raises ValueError for a rate outside (0, 1].
    """
    if not 0 < rate <= 1:
        raise ValueError(f"sampling rate is {rate!r}: give a number above 0, at most 1")
    whole = 2**bits
    multiple = min(whole, math.ceil(Fraction(rate) * whole) + beyond)
    probability = Fraction(multiple, whole)
    drawn = float(probability)
    while drawn < 1 and Fraction(Decimal(repr(drawn))) < probability:
        drawn = math.nextafter(drawn, 1.0)
    return drawn


def dp_sgd_step(noise_multiplier: float, sampling_rate: float, *, beyond: int = 0) -> PoissonSubsampled:
    """One step of DP-SGD as the guard charges it: hold or check the same for a sweep or a plan.

    `sampling_rate` is what the loader's sampler is told (Opacus: one over the number of batches).
    """
    return PoissonSubsampled(
        base=Gaussian(noise_multiplier=noise_multiplier),
        sampling_rate=drawn_rate(sampling_rate, beyond=beyond),
    )
