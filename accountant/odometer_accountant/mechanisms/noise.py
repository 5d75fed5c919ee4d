"""Mechanisms that add noise to a numeric answer."""

from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from odometer_accountant.curves import basic
from odometer_accountant.mechanisms.base import Mechanism, bounded
from odometer_accountant.mechanisms.known_curves import gaussian_curve
from odometer_accountant.model import Number
from odometer_accountant.numerics.curve import Curve
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.rounding import decimal, round_up

LEAST_NOISE_MULTIPLIER = 0.01
MOST_NOISE_MULTIPLIER = 1e9


def _zero_or_enough(noise_multiplier: float) -> float:
    if 0 < noise_multiplier < LEAST_NOISE_MULTIPLIER:
        raise ValueError(
            f"below {LEAST_NOISE_MULTIPLIER} there is no privacy to account for: "
            "use more noise, or 0 if there is none"
        )
    return noise_multiplier


def more_noise(noise_multiplier: float, factor: float) -> float:
    """`factor` times the noise within the field's range; no noise counts as the least."""
    noise = max(noise_multiplier, LEAST_NOISE_MULTIPLIER) * factor
    return bounded(noise, LEAST_NOISE_MULTIPLIER, MOST_NOISE_MULTIPLIER)


NoiseMultiplier = Annotated[Number, Field(ge=0, le=MOST_NOISE_MULTIPLIER), AfterValidator(_zero_or_enough)]


class Gaussian(Mechanism):
    """Gaussian noise on an answer of bounded L2 sensitivity."""

    kind: Literal["gaussian"] = "gaussian"
    noise_multiplier: NoiseMultiplier
    """Standard deviation of the noise over the L2 sensitivity under the dataset's adjacency.

    With a clip norm C the sensitivity is C under add_remove and zero_out, 2C under replace_one.
    0 (no noise) or 0.01 to 1e9.
    """

    title: ClassVar[str] = "Gaussian mechanism"
    purpose: ClassVar[str] = "A vector or number released with Gaussian noise; one full-batch gradient."
    formula: ClassVar[str] = "D_α = α/(2z²), ρ = 1/(2z²), μ = 1/z, with z = noise_multiplier"
    source: ClassVar[str] = "Mironov 2017, Cor. 3; Bun, Steinke 2016, Prop. 1.6; Dong, Roth, Su 2022"
    avoid: ClassVar[str] = "Noise drawn on integers (use a discrete mechanism); sampled batches."
    samplable: ClassVar[bool] = True
    always_gaussian: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 0.1
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"kind": "gaussian", "noise_multiplier": 10.0},)

    def curve(self, grid: Grid) -> Curve:
        z = decimal(self.noise_multiplier)
        if z == 0:
            return Curve.no_bound(grid)
        return gaussian_curve(1 / z**2, grid)  # exact: the noise multiplier is a decimal

    def as_gaussian(self) -> float | None:
        return self.noise_multiplier

    def noisier(self, factor: float) -> Self | None:
        return self.model_copy(update={"noise_multiplier": more_noise(self.noise_multiplier, factor)})


class Laplace(Mechanism):
    """Laplace noise on an answer of bounded L1 sensitivity, given by its scale or by its epsilon."""

    kind: Literal["laplace"] = "laplace"
    scale_over_sensitivity: Annotated[Number, Field(ge=1e-3, le=1e12)] | None = None
    """Scale b of the noise over the L1 sensitivity under the dataset's adjacency, 1e-3 to 1e12."""
    epsilon: Annotated[Number, Field(ge=1e-12, le=1e3)] | None = None
    """One over the scale: the pure ε of a release, in nats, 1e-12 to 1e3."""

    title: ClassVar[str] = "Laplace mechanism"
    purpose: ClassVar[str] = "A count, sum or histogram released with Laplace noise."
    formula: ClassVar[str] = (
        "D_α = log{α/(2α−1)·e^{(α−1)/b} + (α−1)/(2α−1)·e^{−α/b}}/(α−1), D_∞ = 1/b, "
        "ρ = 1/b + e^{−1/b} − 1, μ = −2Φ⁻¹(½e^{−1/(2b)})"
    )
    source: ClassVar[str] = "Mironov 2017, Prop. 6; Harrison, Manurangsi 2025 (ρ); Dong, Roth, Su 2022 (μ)"
    avoid: ClassVar[str] = "Integer (geometric) noise: its curve is higher."
    samplable: ClassVar[bool] = True
    float_bounds: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 0.15
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"kind": "laplace", "scale_over_sensitivity": 10.0},
        {"kind": "laplace", "epsilon": 0.1},
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.scale_over_sensitivity is None) == (self.epsilon is None):
            raise ValueError("give exactly one of scale_over_sensitivity and epsilon")
        return self

    def _epsilon(self) -> Fraction:
        if self.epsilon is not None:
            return decimal(self.epsilon)
        return 1 / decimal(self.scale_over_sensitivity or 0.0)

    def floats(self, grid: Grid) -> basic.Floats:
        """Its curve and then D at infinity and rho, rounded up, shape (n_orders + 2,): quick at any grid."""
        epsilon = self._epsilon()
        scale = float(1 / epsilon)
        return np.append(basic.laplace(scale, grid), [round_up(epsilon), basic.laplace_rho(scale)])

    def curve(self, grid: Grid) -> Curve:
        epsilon = self._epsilon()
        scale = float(1 / epsilon)
        return Curve.of(
            grid,
            basic.laplace(scale, grid),
            pure=epsilon,
            rho=basic.laplace_rho(scale),
            mu_squared=Fraction(basic.laplace_mu(scale)) ** 2,
        )

    def noisier(self, factor: float) -> Self | None:
        if self.epsilon is not None:
            return self.model_copy(update={"epsilon": bounded(self.epsilon / factor, 1e-12, 1e3)})
        scale = bounded((self.scale_over_sensitivity or 0.0) * factor, 1e-3, 1e12)
        return self.model_copy(update={"scale_over_sensitivity": scale})
