"""Answers of an ensemble of teachers (PATE): noisy votes of which only the label with the most goes out."""

import math
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from odometer_accountant.mechanisms.base import Mechanism, bounded
from odometer_accountant.mechanisms.known_curves import gaussian_curve, pure_curve
from odometer_accountant.mechanisms.noise import (
    LEAST_NOISE_MULTIPLIER,
    MOST_NOISE_MULTIPLIER,
    NoiseMultiplier,
)
from odometer_accountant.model import Number
from odometer_accountant.numerics.curve import Curve
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.rounding import decimal, round_down, round_up

LEAST_GAMMA: Final = 1e-12
MOST_GAMMA: Final = 500.0

_ONE_TEACHER: Final = (
    "A unit's data must be seen by one teacher and never decide who is at another: assign people by a hash "
    "of their id, not by their place in a list. "
)


def _zero_or_enough(deviation: float) -> float:
    if 0 < deviation < 2 * LEAST_NOISE_MULTIPLIER:
        raise ValueError(
            f"below {2 * LEAST_NOISE_MULTIPLIER} there is no privacy to account for: "
            "use more noise, or 0 if there is none"
        )
    return deviation


StandardDeviation = Annotated[Number, Field(ge=0, le=MOST_NOISE_MULTIPLIER), AfterValidator(_zero_or_enough)]
"""Of the noise on each count, in votes."""


class PateLnmax(Mechanism):
    """The label with the most votes of teachers after Laplace noise on each count (LNMax)."""

    kind: Literal["pate_lnmax"] = "pate_lnmax"
    gamma: Annotated[Number, Field(ge=LEAST_GAMMA, le=MOST_GAMMA)]
    """One over the scale of the Laplace noise on each count of votes, 1e-12 to 500.

    A query is 2γ-DP, not γ-DP: one teacher that changes its vote moves two counts by one.
    """

    title: ClassVar[str] = "PATE, Laplace noisy max of votes"
    purpose: ClassVar[str] = "One query answered by teachers, each trained on people of its own."
    formula: ClassVar[str] = (
        "the curve of pure ε = 2γ, and no other: noisy max with Laplace noise is not ε²/8-zCDP"
    )
    source: ClassVar[str] = (
        "Papernot et al. 2017, section 3.1 (2γ-DP a query); the curve of pure ε: see `pure`"
    )
    avoid: ClassVar[str] = (
        _ONE_TEACHER + "Gaussian noise on the counts: `pate_gnmax`. Votes that go out themselves: `laplace`."
    )
    sanitisable: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 0.2
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"kind": "pate_lnmax", "gamma": 0.05},)

    def curve(self, grid: Grid) -> Curve:
        epsilon = 2 * decimal(self.gamma)
        return pure_curve(round_up(epsilon), grid, pure=epsilon)

    def noisier(self, factor: float) -> Self | None:
        return self.model_copy(update={"gamma": bounded(self.gamma / factor, LEAST_GAMMA, MOST_GAMMA)})


class PateGnmax(Mechanism):
    """The label with the most votes of teachers after Gaussian noise on each count (GNMax)."""

    kind: Literal["pate_gnmax"] = "pate_gnmax"
    noise_multiplier: NoiseMultiplier | None = None
    """Standard deviation of the noise on each count over √2, the L2 sensitivity of the votes.

    One teacher moves two counts. The paper's σ is the standard deviation itself: passed here it would halve
    the charge; give it as `standard_deviation_of_counts`. 0 (no noise) or 0.01 to 1e9.
    """
    standard_deviation_of_counts: StandardDeviation | None = None
    """Standard deviation of the noise on each count, in votes: the paper's σ. 0 (no noise) or 0.02 to 1e9."""

    title: ClassVar[str] = "PATE, Gaussian noisy max of votes"
    purpose: ClassVar[str] = "One query answered by teachers, each trained on people of its own."
    formula: ClassVar[str] = (
        "D_α = α/(2z²), ρ = 1/(2z²), μ = 1/z, with z = noise_multiplier = standard_deviation_of_counts/√2"
    )
    source: ClassVar[str] = (
        "Papernot et al. 2018, Prop. 8 (α/σ²); post-processing of a Gaussian vector of L2 sensitivity √2"
    )
    avoid: ClassVar[str] = (
        _ONE_TEACHER + "The threshold check of Confident-GNMax: one count moves by one, which is `gaussian`."
    )
    sanitisable: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 0.1
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"kind": "pate_gnmax", "noise_multiplier": 28.0},
        {"kind": "pate_gnmax", "standard_deviation_of_counts": 40.0},
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.noise_multiplier is None) == (self.standard_deviation_of_counts is None):
            raise ValueError("give exactly one of noise_multiplier and standard_deviation_of_counts")
        return self

    def _squared_multiplier(self) -> Fraction:
        """z² exactly."""
        if self.noise_multiplier is not None:
            return decimal(self.noise_multiplier) ** 2
        return decimal(self.standard_deviation_of_counts or 0.0) ** 2 / 2

    def curve(self, grid: Grid) -> Curve:
        squared = self._squared_multiplier()
        if squared == 0:
            return Curve.no_bound(grid)
        return gaussian_curve(1 / squared, grid)

    def noisier(self, factor: float) -> Self | None:
        name = "noise_multiplier" if self.noise_multiplier is not None else "standard_deviation_of_counts"
        least = LEAST_NOISE_MULTIPLIER if self.noise_multiplier is not None else 2 * LEAST_NOISE_MULTIPLIER
        noise = max(float(getattr(self, name)), least) * factor
        return self.model_copy(update={name: bounded(noise, least, MOST_NOISE_MULTIPLIER)})

    def as_gaussian(self) -> float | None:
        return math.sqrt(round_down(self._squared_multiplier())) * (1 - 2.0**-51)
