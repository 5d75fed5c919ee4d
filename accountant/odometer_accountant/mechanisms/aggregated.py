"""Noise that many clients add together under secure aggregation: the server sees the noisy sum alone."""

from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from odometer_accountant.curves.integer_noise import distributed_gaussian, skellam
from odometer_accountant.mechanisms.base import Adjacency, Mechanism, bounded
from odometer_accountant.model import Number, Whole
from odometer_accountant.numerics.curve import Curve
from odometer_accountant.numerics.grid import Grid

Clients = Annotated[Whole, Field(ge=1, le=1_000_000_000)]
Norm = Annotated[Number, Field(ge=1, le=1e12)]
"""Of whole numbers: one that moves at all moves by 1."""

STAYS = frozenset({Adjacency.zero_out, Adjacency.replace_one})
"""Noise that clients add is there in both of two neighbours only if the client itself is."""
ELSEWHERE = (
    "a client that is removed takes its noise along, which no bound here covers: open the dataset with "
    "zero_out (a client whose data is blank still sends noise) or replace_one"
)


class DistributedDiscreteGaussian(Mechanism):
    """A secure sum of integer vectors to which each client added discrete Gaussian noise of its own."""

    kind: Literal["distributed_discrete_gaussian"] = "distributed_discrete_gaussian"
    client_noise: Annotated[Number, Field(ge=0.5, le=1e9)]
    """The parameter σ of each client's noise, in the integer units that are summed, 0.5 to 1e9."""
    clients: Clients
    """How many clients' noise is surely in the sum, 1 to 1e9: without those that may drop out or collude."""
    l2_sensitivity: Norm
    """How far the integer sum may move, L2, under the dataset's adjacency, after scaling and rounding
    to whole numbers; 1 to 1e12. Random rounding lengthens vectors: repeat it until the length is within the
    stated bound (Kairouz, Liu, Steinke 2021, Prop. 22), or add √dimension to that of the scaled vector."""
    dimension: Annotated[Whole, Field(ge=1, le=1_000_000_000_000)]
    """Coordinates of the vector, with padding, 1 to 1e12."""

    title: ClassVar[str] = "Distributed discrete Gaussian"
    purpose: ClassVar[str] = "A federated round whose clients add the noise before secure aggregation."
    formula: ClassVar[str] = (
        "the lesser of D_α ≤ αΔ²/(2s²) + τd and D_α ≤ α(Δ²/s² + 2τ·min(Δ√d, Δ²)/s + τ²d)/2, s = √n·σ, "
        "τ = 10·Σ_{k<n} e^{−2π²σ²k/(k+1)}; ρ: at α = 1"
    )
    source: ClassVar[str] = "Kairouz, Liu, Steinke 2021, Prop. 14"
    adjacencies: ClassVar[frozenset[Adjacency]] = STAYS
    elsewhere: ClassVar[str] = ELSEWHERE
    avoid: ClassVar[str] = "Noise drawn by the server (use discrete_gaussian); sums that wrap around modulo."
    samplable: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 0.1
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {
            "kind": "distributed_discrete_gaussian",
            "client_noise": 2.0,
            "clients": 100,
            "l2_sensitivity": 10.0,
            "dimension": 1024,
        },
    )

    def curve(self, grid: Grid) -> Curve:
        parameters = self.client_noise, self.clients, self.l2_sensitivity, self.dimension
        return Curve.of(
            grid,
            distributed_gaussian(*parameters, grid.orders),
            rho=float(distributed_gaussian(*parameters, np.array([1.0]))[0]),
        )

    def noisier(self, factor: float) -> Self | None:
        return self.model_copy(update={"client_noise": bounded(self.client_noise * factor, 0.5, 1e9)})


class Skellam(Mechanism):
    """An integer vector, or a secure sum of such, with Skellam noise (a difference of two Poissons)."""

    kind: Literal["skellam"] = "skellam"
    variance: Annotated[Number, Field(ge=1e-6, le=1e18)]
    """Variance of all noise on one coordinate of the sum, 1e-6 to 1e18: clients' variances add."""
    l1_sensitivity: Norm
    """How far the vector may move, L1, under the dataset's adjacency, after scaling and rounding to
    whole numbers; 1 to 1e12. Never above the square of l2_sensitivity, nor √dimension times it."""
    l2_sensitivity: Norm
    """The same in L2; at most l1_sensitivity."""

    title: ClassVar[str] = "Skellam"
    purpose: ClassVar[str] = "A federated round with noise that stays Skellam when clients' noise is summed."
    formula: ClassVar[str] = (
        "D_α ≤ αΔ₂²/(2v) + min{((2α−1)Δ₂² + 6Δ₁)/(4v²), 3Δ₁/(2v)} at whole α, "
        "(α−1)D_α linear between; ρ = D_2"
    )
    source: ClassVar[str] = "Agarwal, Kairouz, Liu 2021, Thm. 3.5"
    adjacencies: ClassVar[frozenset[Adjacency]] = STAYS
    elsewhere: ClassVar[str] = ELSEWHERE
    avoid: ClassVar[str] = "Noise over a coarse grid (little scaling): the second term is then large."
    samplable: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 0.2
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"kind": "skellam", "variance": 10000.0, "l1_sensitivity": 100.0, "l2_sensitivity": 10.0},
    )

    @model_validator(mode="after")
    def _norms(self) -> Self:
        if self.l2_sensitivity > self.l1_sensitivity:
            raise ValueError("an L2 norm is never above the L1 norm: check which is which")
        return self

    def curve(self, grid: Grid) -> Curve:
        norms = self.l1_sensitivity, self.l2_sensitivity, self.variance
        # For n < alpha <= n + 1, D_alpha/alpha <= D_{n+1}/n, which falls with n: at most D_2.
        return Curve.of(grid, skellam(*norms, grid.orders), rho=float(skellam(*norms, np.array([2.0]))[0]))

    def noisier(self, factor: float) -> Self | None:
        return self.model_copy(update={"variance": bounded(self.variance * factor**2, 1e-6, 1e18)})
