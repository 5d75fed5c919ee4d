"""Guarantees that the caller states directly, for whatever was proved elsewhere."""

import itertools
import math
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from odometer_accountant.mechanisms.base import PLAIN, Mechanism, bounded
from odometer_accountant.mechanisms.known_curves import contradiction, gaussian_curve, pure_curve
from odometer_accountant.model import STORED, Number, not_negative_zero
from odometer_accountant.numerics.curve import Curve
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.rounding import decimal

MOST = 1e6
"""Of an ε or a ρ that may be stated."""
MOST_MU = 1e3

Epsilon = Annotated[Number, Field(ge=0, le=MOST), AfterValidator(not_negative_zero)]
Delta = Annotated[Number, Field(ge=0, lt=1)]


class Pure(Mechanism):
    """Any ε-DP release."""

    kind: Literal["pure"] = "pure"
    epsilon: Epsilon
    """ε of one release under the dataset's adjacency, in nats, 0 to 1e6."""

    title: ClassVar[str] = "Pure ε-DP, as stated"
    purpose: ClassVar[str] = "A release that someone proved ε-DP, with nothing more known."
    formula: ClassVar[str] = (
        "D_α = [logaddexp(αε, (1−α)ε) − log(1 + e^ε)]/(α−1), D_∞ = ε, ρ = ε·tanh(ε/2), μ = 2Φ⁻¹(e^ε/(1+e^ε))"
    )
    source: ClassVar[str] = "exact for the worst case, binary randomised response; Steinke 2024 (ρ)"
    avoid: ClassVar[str] = "Laplace noise: its own curve is lower."
    samplable: ClassVar[bool] = True
    float_bounds: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 0.1
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"kind": "pure", "epsilon": 0.1},)

    def curve(self, grid: Grid) -> Curve:
        return pure_curve(self.epsilon, grid)

    def noisier(self, factor: float) -> Self | None:
        return self.model_copy(update={"epsilon": bounded(self.epsilon / factor, 0.0, MOST)})


class Approximate(Mechanism):
    """Any (ε, δ)-DP release."""

    kind: Literal["approximate"] = "approximate"
    epsilon: Epsilon
    """ε of one release under the dataset's adjacency, in nats, 0 to 1e6."""
    delta: Delta
    """δ of one release, 0 ≤ δ < 1. It counts against δ_add of approximate budgets."""

    title: ClassVar[str] = "(ε, δ)-DP, as stated"
    purpose: ClassVar[str] = "A release that someone proved (ε, δ)-DP, with nothing more known."
    formula: ClassVar[str] = "as pure ε, and Σδ_i grows by δ"
    source: ClassVar[str] = "Kairouz, Oh, Viswanath 2015; Rogers, Roth, Ullman, Vadhan 2016"
    avoid: ClassVar[str] = "Gaussian noise calibrated to (ε, δ): state its noise multiplier instead."
    samplable: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 0.15
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"kind": "approximate", "epsilon": 0.1, "delta": 1e-9},)

    def curve(self, grid: Grid) -> Curve:
        return pure_curve(self.epsilon, grid, delta=decimal(self.delta))

    def noisier(self, factor: float) -> Self | None:
        """With less ε: how much noise there is says nothing of δ."""
        return self.model_copy(update={"epsilon": bounded(self.epsilon / factor, 0.0, MOST)})

    def less_delta(self, factor: float) -> Self | None:
        return self.model_copy(update={"delta": self.delta / factor}) if self.delta else None


class Zcdp(Mechanism):
    """Any ρ-zCDP release."""

    kind: Literal["zcdp"] = "zcdp"
    rho: Annotated[Number, Field(ge=0, le=MOST)]
    """ρ of one release under the dataset's adjacency, 0 to 1e6."""

    title: ClassVar[str] = "ρ-zCDP, as stated"
    purpose: ClassVar[str] = "A release that someone proved ρ-zCDP, with nothing more known."
    formula: ClassVar[str] = "D_α = ρα"
    source: ClassVar[str] = "Bun, Steinke 2016, Def. 1.1"
    samplable: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 0.1
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"kind": "zcdp", "rho": 0.005},)

    def curve(self, grid: Grid) -> Curve:
        rho = decimal(self.rho)
        if rho == 0:
            return Curve.zero(grid)
        return Curve.linear(grid, rho)

    def noisier(self, factor: float) -> Self | None:
        return self.model_copy(update={"rho": bounded(self.rho / factor, 0.0, MOST)})


class Gdp(Mechanism):
    """Any μ-Gaussian-DP release."""

    kind: Literal["gdp"] = "gdp"
    mu: Annotated[Number, Field(ge=0, le=MOST_MU)]
    """μ of one release under the dataset's adjacency, 0 to 1e3."""

    title: ClassVar[str] = "μ-GDP, as stated"
    purpose: ClassVar[str] = (
        "A release whose trade-off curve someone proved to be at least that of N(0,1), N(μ,1)."
    )
    formula: ClassVar[str] = "D_α = αμ²/2, ρ = μ²/2"
    source: ClassVar[str] = "Dong, Roth, Su 2022"
    avoid: ClassVar[str] = "A μ from the central limit theorem: it is an approximation, not a bound."
    samplable: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 0.1
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"kind": "gdp", "mu": 0.1},)

    def curve(self, grid: Grid) -> Curve:
        mu_squared = decimal(self.mu) ** 2
        if mu_squared == 0:
            return Curve.zero(grid)
        return gaussian_curve(mu_squared, grid)

    def as_gaussian(self) -> float | None:
        # A trade-off curve above that of N(0,1), N(mu,1) means that one random map makes the mechanism's two
        # outputs of these (Dong, Roth, Su 2022, Thm. 2.10; Blackwell 1953).
        return math.nextafter(float(1 / decimal(self.mu)), 0.0) if self.mu > 1e-9 else None

    def noisier(self, factor: float) -> Self | None:
        return self.model_copy(update={"mu": bounded(self.mu / factor, 0.0, MOST_MU)})


class RenyiCurve(Mechanism):
    """A Rényi curve given at some orders."""

    kind: Literal["renyi_curve"] = "renyi_curve"
    orders: Annotated[tuple[Annotated[Number, Field(gt=1, le=1e6)], ...], Field(min_length=1, max_length=512)]
    """Orders α > 1, strictly increasing, at most 512 of them."""
    epsilons: Annotated[tuple[Epsilon, ...], Field(min_length=1, max_length=512)]
    """D_α of one release at each order, in nats: never decreasing, (α−1)·D_α convex, and 0 at one order only
    if 0 at all. A point that is only a loose bound may be left out."""

    title: ClassVar[str] = "Rényi curve, as stated"
    purpose: ClassVar[str] = "A release whose Rényi divergences were computed elsewhere."
    formula: ClassVar[str] = (
        "D at the least given order at or above each grid order; above the last: no bound"
    )
    source: ClassVar[str] = (
        "D_α never decreases in α, (1−α)·D_α is concave: van Erven, Harremoës 2014, Thm. 3 and Cor. 2"
    )
    samplable: ClassVar[bool] = True
    float_bounds: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 0.3
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"kind": "renyi_curve", "orders": [2, 4, 8, 16], "epsilons": [0.01, 0.02, 0.04, 0.08]},
    )

    @model_validator(mode="after")
    def _a_curve(self, info: ValidationInfo) -> Self:
        if len(self.orders) != len(self.epsilons):
            raise ValueError(
                f"{len(self.orders)} orders but {len(self.epsilons)} epsilons: give one for each"
            )
        if any(low >= high for low, high in itertools.pairwise(self.orders)):
            raise ValueError("orders must be strictly increasing")
        points = list(zip(self.orders, self.epsilons, strict=True))
        for (a, low), (b, high) in itertools.pairwise(points):
            if low > high:
                raise ValueError(
                    f"epsilons must never decrease: {low!r} at order {a:g} and {high!r} at order {b:g} "
                    "contradict each other"
                )
        if info.context is not STORED and (why := contradiction(points)) is not None:
            raise ValueError(why)
        return self

    def curve(self, grid: Grid) -> Curve:
        given = [
            (decimal(order), decimal(epsilon))
            for order, epsilon in zip(self.orders, self.epsilons, strict=True)
        ]
        at_or_above = [
            next((epsilon for order, epsilon in given if order >= grid_order), float("inf"))
            for grid_order in grid.exact_orders
        ]
        return Curve.of(grid, at_or_above)


class NonPrivate(Mechanism):
    """A release without differential privacy: no bound, so every budget refuses it."""

    kind: Literal["non_private"] = "non_private"
    what: Annotated[str, Field(min_length=1, max_length=200), PLAIN]
    """What went out and why it has no bound, for the record, 1 to 200 characters."""

    title: ClassVar[str] = "Not private"
    purpose: ClassVar[str] = "Plain federated averaging, secure aggregation or encryption alone, raw data."
    formula: ClassVar[str] = "no bound in any coordinate"
    source: ClassVar[str] = (
        "secure aggregation and encryption hide contributions, not what the result reveals"
    )
    avoid: ClassVar[str] = "Anything with calibrated noise."
    samplable: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 0.1
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"kind": "non_private", "what": "FedAvg without noise"},
    )

    def curve(self, grid: Grid) -> Curve:
        return Curve.no_bound(grid)
