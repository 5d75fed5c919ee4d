"""Mechanisms that answer queries as they come, and charge by their public answers: a step of each."""

from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from odometer_accountant.curves import above_threshold, basic
from odometer_accountant.mechanisms.base import Mechanism, bounded
from odometer_accountant.model import Number
from odometer_accountant.numerics.curve import Curve
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.rounding import decimal, round_up

LEAST_EPSILON = 1e-9
MOST_EPSILON = 1e3
RunEpsilon = Annotated[Number, Field(ge=LEAST_EPSILON, le=MOST_EPSILON)]


class AboveThreshold(Mechanism):
    """One run of AboveThreshold: any number of queries, up to and including the first above answer."""

    kind: Literal["above_threshold"] = "above_threshold"
    epsilon_threshold: RunEpsilon
    """Sensitivity of the queries over the scale of the Laplace noise on the threshold, which is drawn afresh
    for this run: scale Δ/epsilon_threshold. In nats, 1e-9 to 1e3."""
    epsilon_answers: RunEpsilon
    """Twice the sensitivity of the queries over the scale of the Laplace noise on each of them, drawn afresh
    for each: scale 2Δ/epsilon_answers. Of monotone queries, which all rise or all fall when a unit is added,
    once: scale Δ/epsilon_answers; under replace_one none count as such, some rise while others fall. A
    session says `monotone`, and is refused there. In nats, 1e-9 to 1e3."""

    title: ClassVar[str] = "AboveThreshold, one run"
    purpose: ClassVar[str] = (
        "Sparse vector: queries are compared with a threshold until one is above; answers below are free."
    )
    formula: ClassVar[str] = (
        "ε = ε₁ + ε₂; D_α = min{pure ε₁+ε₂, D_α(Laplace of scale 1/ε₁) + ε₂}; with ε₁ = epsilon_threshold, "
        "ε₂ = epsilon_answers"
    )
    source: ClassVar[str] = "Dwork, Roth 2014, Thm 3.23; Lyu, Su, Li 2017, Alg. 1; Zhu, Wang 2020 (Rényi)"
    avoid: ClassVar[str] = (
        "Several above answers on one threshold: Alg. 7 of Lyu, Su, Li 2017, whose answer noise grows with "
        "their number, is another mechanism. Noisy query values as answers: each needs its own charge."
    )
    curve_ms: ClassVar[float] = 0.5
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"kind": "above_threshold", "epsilon_threshold": 0.1, "epsilon_answers": 0.2},
    )

    def curve(self, grid: Grid) -> Curve:
        both = decimal(self.epsilon_threshold) + decimal(self.epsilon_answers)
        return Curve.of(
            grid,
            above_threshold.above_threshold(self.epsilon_threshold, self.epsilon_answers, grid),
            pure=both,
            rho=above_threshold.above_threshold_rho(self.epsilon_threshold, self.epsilon_answers),
            mu_squared=Fraction(basic.pure_mu(round_up(both))) ** 2,
        )

    def noisier(self, factor: float) -> Self | None:
        names = ("epsilon_threshold", "epsilon_answers")
        return self.model_copy(
            update={
                name: bounded(getattr(self, name) / factor, LEAST_EPSILON, MOST_EPSILON) for name in names
            }
        )
