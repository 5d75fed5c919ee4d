"""Local randomisers: each person's own report is noisy."""

import math
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from odometer_accountant.curves import basic
from odometer_accountant.mechanisms.base import Adjacency, Mechanism, bounded
from odometer_accountant.model import Number, Whole
from odometer_accountant.numerics.curve import Amount, Curve
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.rounding import decimal, log_up, next_up, shown_up

MOST_EPSILON = 1e3
_MOST_ODDS: Final = Fraction(10) ** 300


class RandomizedResponse(Mechanism):
    """Reports the true one of k values with probability p, each other value with (1 − p)/(k − 1)."""

    kind: Literal["randomized_response"] = "randomized_response"
    k: Annotated[Whole, Field(ge=2, le=1_000_000_000)]
    """Number of possible values, 2 to 1e9 (2: binary randomised response)."""
    probability_of_truth: Annotated[Number, Field(ge=0, le=1)] | None = None
    """Probability p of reporting the true value, 1/k to 1 (1: no noise, no bound)."""
    epsilon: Annotated[Number, Field(ge=0, le=MOST_EPSILON)] | None = None
    """Pure ε of a report in nats, 0 to 1e3: p = e^ε/(e^ε + k − 1)."""

    title: ClassVar[str] = "Randomised response"
    purpose: ClassVar[str] = "A category that each person randomises before it is sent."
    formula: ClassVar[str] = (
        "D_α = log{p^α r^{1−α} + r^α p^{1−α} + (k−2)r}/(α−1), r = (1−p)/(k−1), D_∞ = ε = log(p/r), "
        "ρ = ε·tanh(ε/2), μ = 2Φ⁻¹(e^ε/(1+e^ε))"
    )
    source: ClassVar[str] = "Warner 1965; Mironov 2017, Prop. 5; Steinke 2024 (ρ of pure ε)"
    adjacencies: ClassVar[frozenset[Adjacency]] = frozenset({Adjacency.replace_one})
    elsewhere: ClassVar[str] = (
        "who reports is public here, so the neighbours differ in one value: open the dataset with replace_one"
    )
    instead_of_sampling: ClassVar[str] = (
        "reports show who was drawn, so nothing is amplified: charge every report"
    )
    local: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 0.15
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"kind": "randomized_response", "k": 2, "probability_of_truth": 0.75},
        {"kind": "randomized_response", "k": 10, "epsilon": 1.0},
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.probability_of_truth is None) == (self.epsilon is None):
            raise ValueError("give exactly one of probability_of_truth and epsilon")
        if self.probability_of_truth is not None and decimal(self.probability_of_truth) * self.k < 1:
            raise ValueError(self._rarely_true(decimal(self.probability_of_truth)))
        return self

    def _rarely_true(self, truth: Fraction) -> str:
        """The error text for less truth than chance, with settings that would work."""
        said = (
            "probability_of_truth is below 1/k: the true value would be reported less often than by chance. "
            f"With {self.k} values it is at least {shown_up(1, self.k)!r} (check that k and the probability "
            "are not mixed up)"
        )
        if self.k == 2:
            swapped = shown_up(truth.denominator - truth.numerator, truth.denominator)
            return f"{said}; if it is meant so, the two values are swapped: state {swapped!r}"
        odds = (1 - truth) / ((self.k - 1) * truth) if truth else None
        if odds is None or odds > _MOST_ODDS:
            return f"{said}; if it is meant so, charge non_private"
        return f"{said}; if it is meant so, charge pure with epsilon {log_up(odds)!r}"

    def curve(self, grid: Grid) -> Curve:
        pure: Amount
        if self.epsilon is not None:
            pure, epsilon = decimal(self.epsilon), self.epsilon
            truth = 1 / (1 + (self.k - 1) * math.exp(-epsilon))
        else:
            truth = self.probability_of_truth or 0.0
            odds = self._odds()
            if odds is None:
                return Curve.no_bound(grid)
            if odds == 1:
                return Curve.zero(grid)
            pure = epsilon = log_up(odds)
        return Curve.of(
            grid,
            basic.randomized_response(epsilon, truth, self.k, grid),
            pure=pure,
            rho=basic.pure_rho(epsilon),
            mu_squared=Fraction(basic.pure_mu(epsilon)) ** 2,
        )

    def _odds(self) -> Fraction | None:
        """p/r exactly, None when the truth is always told."""
        truth = decimal(self.probability_of_truth or 0.0)
        return None if truth == 1 else truth * (self.k - 1) / (1 - truth)

    def noisier(self, factor: float) -> Self | None:
        if self.epsilon is not None:
            return self.model_copy(update={"epsilon": bounded(self.epsilon / factor, 0.0, MOST_EPSILON)})
        odds = self._odds()
        epsilon = 40.0 if odds is None else math.log(odds)
        truth = 1 / (1 + (self.k - 1) * math.exp(-epsilon / factor))
        return self.model_copy(update={"probability_of_truth": bounded(truth, next_up(1 / self.k), 1.0)})
