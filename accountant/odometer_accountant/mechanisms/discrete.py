"""Mechanisms that add noise drawn on the integers."""

from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from odometer_accountant.curves import basic
from odometer_accountant.curves.integer_noise import discrete_laplace
from odometer_accountant.mechanisms.base import Mechanism, bounded
from odometer_accountant.mechanisms.noise import NoiseMultiplier, more_noise
from odometer_accountant.model import Number, Whole
from odometer_accountant.numerics.curve import Curve
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.rounding import decimal, round_up

LEAST_SCALE, MOST_SCALE = 1e-3, 1e12
MOST_LOSS = 1e3


class DiscreteGaussian(Mechanism):
    """Discrete Gaussian noise N_Z(0, σ²) on each coordinate of an integer vector."""

    kind: Literal["discrete_gaussian"] = "discrete_gaussian"
    noise_multiplier: NoiseMultiplier
    """The parameter σ of the noise over the vector's L2 sensitivity, under the dataset's adjacency.

    σ is the law's parameter, P(x) ∝ e^{−x²/(2σ²)}; its standard deviation is no larger.
    0 (no noise) or 0.01 to 1e9.
    """

    title: ClassVar[str] = "Discrete Gaussian"
    purpose: ClassVar[str] = "Counts released with noise drawn on the integers, without floating point."
    formula: ClassVar[str] = "D_α ≤ α/(2z²), ρ = 1/(2z²), with z = noise_multiplier; no μ: it is not 1/z-GDP"
    source: ClassVar[str] = "Canonne, Kamath, Steinke 2020, Prop. 5 and Thm. 14"
    avoid: ClassVar[str] = (
        "A gdp budget (it has no μ); a sum of several parties' discrete Gaussians (use "
        "distributed_discrete_gaussian)."
    )
    samplable: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 0.1
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"kind": "discrete_gaussian", "noise_multiplier": 10.0},
    )

    def curve(self, grid: Grid) -> Curve:
        z = decimal(self.noise_multiplier)
        if z == 0:
            return Curve.no_bound(grid)
        rho = 1 / (2 * z**2)
        return Curve.linear(grid, rho)

    def noisier(self, factor: float) -> Self | None:
        return self.model_copy(update={"noise_multiplier": more_noise(self.noise_multiplier, factor)})


class DiscreteLaplace(Mechanism):
    """Two-sided geometric noise, P(x) ∝ e^{−|x|/b}, on an integer of bounded sensitivity."""

    kind: Literal["discrete_laplace"] = "discrete_laplace"
    scale: Annotated[Number, Field(ge=LEAST_SCALE, le=MOST_SCALE)]
    """b of the noise itself, in the integer's own units, 1e-3 to 1e12: p = e^{−1/b}."""
    sensitivity: Annotated[Whole, Field(ge=1, le=1_000_000_000)]
    """How far the integer may move under the dataset's adjacency, 1 to 1e9 and 1e3 times the scale."""

    title: ClassVar[str] = "Discrete Laplace (geometric)"
    purpose: ClassVar[str] = "A count released with geometric noise, without floating point."
    formula: ClassVar[str] = (
        "D_α of the laws e^{−|x|/b} and e^{−|x−Δ|/b} on the integers, summed; D_∞ = ε = Δ/b; ρ and μ those "
        "of any ε-DP mechanism, ε·tanh(ε/2) and 2Φ⁻¹(e^ε/(1+e^ε))"
    )
    source: ClassVar[str] = "Ghosh, Roughgarden, Sundararajan 2012; direct summation"
    avoid: ClassVar[str] = (
        "Continuous Laplace noise (its curve is lower, up to 29 %); a vector: charge each coordinate."
    )
    samplable: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 1.3
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"kind": "discrete_laplace", "scale": 10.0, "sensitivity": 1},
    )

    @model_validator(mode="after")
    def _some_privacy(self) -> Self:
        if self.sensitivity > MOST_LOSS * self.scale:
            raise ValueError(f"sensitivity/scale is above {MOST_LOSS:g}: there is no privacy to account for")
        return self

    def curve(self, grid: Grid) -> Curve:
        pure: Fraction = self.sensitivity / decimal(self.scale)
        epsilon = round_up(pure)
        return Curve.of(
            grid,
            discrete_laplace(self.scale, self.sensitivity, grid),
            pure=pure,
            rho=basic.pure_rho(epsilon),
            mu_squared=Fraction(basic.pure_mu(epsilon)) ** 2,
        )

    def noisier(self, factor: float) -> Self | None:
        least = max(LEAST_SCALE, self.sensitivity / MOST_LOSS * (1 + 1e-12))
        return self.model_copy(update={"scale": bounded(self.scale * factor, least, MOST_SCALE)})
