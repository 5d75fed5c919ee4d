"""Mechanisms of training loops that are Gaussian in disguise: several noisy sums from the same data."""

import math
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, model_validator

from odometer_accountant.curves.tree_sensitivity import most_participations, squared_sensitivity
from odometer_accountant.mechanisms.base import Adjacency, Mechanism, bounded
from odometer_accountant.mechanisms.known_curves import gaussian_curve, multiplier_of
from odometer_accountant.mechanisms.noise import (
    LEAST_NOISE_MULTIPLIER,
    MOST_NOISE_MULTIPLIER,
    NoiseMultiplier,
    more_noise,
)
from odometer_accountant.model import STORED, Number, Whole
from odometer_accountant.numerics.curve import Curve
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.rounding import decimal


class AdaptiveClipping(Mechanism):
    """A clipped noisy sum and the noisy count of unclipped units that adapts the clip, of one batch."""

    kind: Literal["adaptive_clipping"] = "adaptive_clipping"
    noise_multiplier: Annotated[Number, Field(ge=LEAST_NOISE_MULTIPLIER, le=MOST_NOISE_MULTIPLIER)] | None = (
        None
    )
    """z of both together: what is charged; 0.01 to 1e9. Give this or gradient_noise_multiplier.

    The sum's own noise must then be z_g = (z⁻² − (2σ_b)⁻²)^{−1/2} times the clip norm, which is more than z.
    """
    gradient_noise_multiplier: (
        Annotated[Number, Field(ge=LEAST_NOISE_MULTIPLIER, le=MOST_NOISE_MULTIPLIER)] | None
    ) = None
    """z_g: standard deviation of the noise on the sum, over the clip norm in force; 0.01 to 1e9."""
    count_standard_deviation: Annotated[Number, Field(ge=LEAST_NOISE_MULTIPLIER, le=MOST_NOISE_MULTIPLIER)]
    """σ_b: standard deviation of the noise on the count, each unit counted as its bit less ½.

    0.01 to 1e9, and above z/2.
    """

    title: ClassVar[str] = "Adaptive clipping"
    purpose: ClassVar[str] = "DP-SGD or DP-FedAvg whose clip norm follows a noisy quantile."
    formula: ClassVar[str] = "a Gaussian of multiplier z, 1/z² = 1/z_g² + 1/(2σ_b)²"
    source: ClassVar[str] = "Andrew, Thakkar, McMahan, Ramaswamy 2021, Thm. 1"
    adjacencies: ClassVar[frozenset[Adjacency]] = frozenset({Adjacency.add_remove, Adjacency.zero_out})
    elsewhere: ClassVar[str] = (
        "replacing a unit moves the sum by 2C and the count by 1: under replace_one charge composed of "
        "gaussian(noise over 2C) and gaussian(σ_b)"
    )
    avoid: ClassVar[str] = (
        "A count of the bits themselves (0 or 1: its sensitivity is 1, not ½); averages over a drawn batch."
    )
    samplable: ClassVar[bool] = True
    always_gaussian: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 0.1
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"kind": "adaptive_clipping", "noise_multiplier": 1.0, "count_standard_deviation": 10.0},
        {"kind": "adaptive_clipping", "gradient_noise_multiplier": 1.1, "count_standard_deviation": 10.0},
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.noise_multiplier is None) == (self.gradient_noise_multiplier is None):
            raise ValueError("give exactly one of noise_multiplier and gradient_noise_multiplier")
        least = decimal(self.noise_multiplier or 0.0) / 2
        if decimal(self.count_standard_deviation) <= least:
            raise ValueError(
                f"count_standard_deviation must be above noise_multiplier/2 = {float(least):g}: with less "
                "noise the count alone loses more than that"
            )
        return self

    def _mu_squared(self) -> Fraction:
        if self.noise_multiplier is not None:
            return 1 / decimal(self.noise_multiplier) ** 2
        gradient = decimal(self.gradient_noise_multiplier or 0.0)
        return 1 / gradient**2 + 1 / (2 * decimal(self.count_standard_deviation)) ** 2

    def curve(self, grid: Grid) -> Curve:
        return gaussian_curve(self._mu_squared(), grid)

    def as_gaussian(self) -> float | None:
        return multiplier_of(self._mu_squared())

    def noisier(self, factor: float) -> Self | None:
        changes = {
            name: bounded(value * factor, LEAST_NOISE_MULTIPLIER, MOST_NOISE_MULTIPLIER)
            for name in ("noise_multiplier", "gradient_noise_multiplier", "count_standard_deviation")
            if (value := getattr(self, name)) is not None
        }
        if "noise_multiplier" in changes:  # rounding and the range's ends keep the two apart
            least = math.nextafter(changes["noise_multiplier"] / 2, math.inf)
            changes["count_standard_deviation"] = max(changes["count_standard_deviation"], least)
        return self.model_copy(update=changes)


class TreeAggregation(Mechanism):
    """All noisy partial sums of a stream of gradients, of one run or epoch (DP-FTRL)."""

    kind: Literal["tree_aggregation"] = "tree_aggregation"
    noise_multiplier: NoiseMultiplier
    """Standard deviation of a node's noise over the clip norm (2C under replace_one); 0 or 0.01 to 1e9."""
    steps: Annotated[Whole, Field(ge=1, le=1_000_000_000)]
    """Steps of each tree, 1 to 1e9.

    A tree that is completed with virtual steps (before a restart) counts those: the next power of two.
    """
    trees: Annotated[Whole, Field(ge=1, le=1_000_000)]
    """Trees one after another, 1 to 1e6: one more than the number of restarts."""
    participations: Annotated[Whole, Field(ge=1, le=1_000_000)]
    """In how many steps a unit takes part at most, over all trees, 1 to 1e6.

    Refused above trees · ⌈steps/(separation + 1)⌉, the most that the other three fields allow.
    """
    separation: Annotated[Whole, Field(ge=0, le=1_000_000_000)] = 0
    """Steps that lie strictly between two participations of a unit in one tree, at least, 0 to 1e9."""

    title: ClassVar[str] = "Tree aggregation (DP-FTRL)"
    purpose: ClassVar[str] = "Training without sampling: every prefix sum comes out of one tree of noise."
    formula: ClassVar[str] = (
        "a Gaussian of multiplier z/√s, s the largest sum over nodes of (participations under it)²; "
        "s = ⌊log₂ steps⌋ + 1 for one participation"
    )
    source: ClassVar[str] = "Kairouz, McMahan, Song, Thakkar, Thakurta, Xu 2021, Thm. 4.1 and App. D"
    adjacencies: ClassVar[frozenset[Adjacency]] = frozenset({Adjacency.zero_out, Adjacency.replace_one})
    elsewhere: ClassVar[str] = (
        "a unit that is added or removed shifts the steps of all later ones: open the dataset with zero_out "
        "(or replace_one, with the noise over 2C)"
    )
    avoid: ClassVar[str] = (
        "Charging part of a run: it is one release, its steps share noise. Matrix factorisation: charge "
        "gaussian with the noise over the matrix's own sensitivity."
    )
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {
            "kind": "tree_aggregation",
            "noise_multiplier": 8.83,
            "steps": 1600,
            "trees": 1,
            "participations": 1,
            "separation": 0,
        },
    )

    @model_validator(mode="after")
    def _as_often_as_can_be(self, info: ValidationInfo) -> Self:
        # More would be charged as what can happen: too little for who forgets a tree, or miscounts the steps.
        most = most_participations(self.steps, self.trees, self.separation)
        if self.participations > most and info.context is not STORED:
            raise ValueError(
                f"participations is at most {most}: a unit cannot take part {self.participations} times in "
                f"{self.trees} tree(s) of {self.steps} step(s) with {self.separation} between two. State "
                "every tree (one more than the restarts), the steps of one tree, and the least separation; "
                f"if these are right, participations {most} is all there can be"
            )
        return self

    def curve(self, grid: Grid) -> Curve:
        mu_squared = self._mu_squared()
        return Curve.no_bound(grid) if mu_squared is None else gaussian_curve(mu_squared, grid)

    def _mu_squared(self) -> Fraction | None:
        if self.noise_multiplier == 0:
            return None
        square = squared_sensitivity(self.steps, self.trees, self.participations, self.separation)
        return square / decimal(self.noise_multiplier) ** 2

    # Not `as_gaussian`: sampled, it would mean one cohort for the whole tree, and be read as one a step.

    def noisier(self, factor: float) -> Self | None:
        return self.model_copy(update={"noise_multiplier": more_noise(self.noise_multiplier, factor)})
