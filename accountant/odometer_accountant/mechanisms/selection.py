"""Private selection: the best of some candidates."""

from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from odometer_accountant.curves import basic
from odometer_accountant.curves.bounded_range import bounded_range
from odometer_accountant.mechanisms.base import Monotone, OneDirection, bounded
from odometer_accountant.mechanisms.stated import Pure
from odometer_accountant.model import Number
from odometer_accountant.numerics.curve import Curve
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.rounding import decimal, half_up

MOST_EPSILON = 1e3

Epsilon = Annotated[Number, Field(ge=0, le=MOST_EPSILON)]


class Exponential(OneDirection):
    """Chooses a candidate with probability proportional to e^{ε·score/(2Δ)}; noisy max with Gumbel noise."""

    kind: Literal["exponential"] = "exponential"
    epsilon: Epsilon
    """ε of one choice in nats, 0 to 1e3: the factor of the score times 2Δ.

    Δ is the sensitivity of every score under the dataset's adjacency. Where all scores move in one
    direction only, the factor of the score times Δ: say `monotone`. With Gumbel noise of scale s on the
    scores: 2Δ/s, and Δ/s of monotone ones.
    """
    monotone: Monotone = None
    """true: all scores move in one direction when a unit is added or blanked, as counts do, and ε is stated
    of half the noise. Under replace_one no scores do, and this is refused."""

    title: ClassVar[str] = "Exponential mechanism"
    purpose: ClassVar[str] = "The best of some candidates, by scores of known sensitivity; Gumbel noisy max."
    formula: ClassVar[str] = (
        "D_α = [α·L(αε/2) − (α−1)·L((α−1)ε/2) − L(ε/2)]/(α−1), L(y) = log(sinh(y)/y), the largest of "
        "range ε; D_∞ = ε, ρ = ε²/8, μ = 2Φ⁻¹(e^{ε/2}/(1+e^{ε/2}))"
    )
    source: ClassVar[str] = (
        "McSherry, Talwar 2007; Dong, Durfee, Rogers 2020 (bounded range); Cesar, Rogers 2021, Lemma 3.7 (ρ)"
    )
    avoid: ClassVar[str] = "Laplace or exponential noise on the scores, permute-and-flip: their ρ is larger."
    samplable: ClassVar[bool] = True
    float_bounds: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 0.15
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"kind": "exponential", "epsilon": 1.0},)

    def curve(self, grid: Grid) -> Curve:
        epsilon = decimal(self.epsilon)
        # μ: the worst pairs are two points, of log-odds x and x + ε. Φ⁻¹(e^x/(1+e^x)) is odd, and
        # steepest in the middle (φ(Φ⁻¹(s))/(s(1−s)) grows from s = 1/2), so x = −ε/2 is worst.
        return Curve.of(
            grid,
            bounded_range(self.epsilon, grid),
            pure=epsilon,
            rho=epsilon**2 / 8,
            mu_squared=Fraction(basic.pure_mu(half_up(self.epsilon))) ** 2,
        )

    def noisier(self, factor: float) -> Self | None:
        return self.model_copy(update={"epsilon": bounded(self.epsilon / factor, 0.0, MOST_EPSILON)})


class PermuteAndFlip(OneDirection):
    """Takes candidates in random order and keeps one with probability e^{ε(score − best)/(2Δ)}."""

    kind: Literal["permute_and_flip"] = "permute_and_flip"
    epsilon: Epsilon
    """ε of one choice in nats, 0 to 1e3: the factor of the score times 2Δ, Δ the sensitivity of every score.

    Δ is meant under the dataset's adjacency. Where all scores move in one direction only, the factor of the
    score times Δ: say `monotone`.
    """
    monotone: Monotone = None
    """true: all scores move in one direction when a unit is added or blanked, as counts do, and ε is stated
    of half the noise. Under replace_one no scores do, and this is refused."""

    title: ClassVar[str] = "Permute and flip"
    purpose: ClassVar[str] = "The best of some candidates, never worse in expectation than exponential."
    formula: ClassVar[str] = "as pure ε: ρ = ε·tanh(ε/2); ε²/8 is false here"
    source: ClassVar[str] = (
        "McKenna, Sheldon 2020, Thm. 1; Ding et al. 2021 (it is noisy max with exponential noise)"
    )
    avoid: ClassVar[str] = "Many choices under zCDP or Rényi budgets: exponential costs a quarter there."
    samplable: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 0.2
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"kind": "permute_and_flip", "epsilon": 1.0},)

    def curve(self, grid: Grid) -> Curve:
        return Pure(epsilon=self.epsilon).curve(grid)

    def noisier(self, factor: float) -> Self | None:
        return self.model_copy(update={"epsilon": bounded(self.epsilon / factor, 0.0, MOST_EPSILON)})


class ReportNoisyMax(OneDirection):
    """Adds Laplace or exponential noise to every score and reports only whose noisy score is largest."""

    kind: Literal["report_noisy_max"] = "report_noisy_max"
    noise: Literal["laplace", "exponential"]
    """The noise of each score: laplace or exponential (with Gumbel noise it is the kind exponential)."""
    epsilon: Epsilon
    """ε of one choice in nats, 0 to 1e3: 2Δ over the scale of the noise, Δ the sensitivity of every score.

    Δ is meant under the dataset's adjacency. Where all scores move in one direction only: Δ over the scale,
    and say `monotone`.
    """
    monotone: Monotone = None
    """true: all scores move in one direction when a unit is added or blanked, as counts do, and ε is stated
    of half the noise. Under replace_one no scores do, and this is refused."""

    title: ClassVar[str] = "Report noisy max"
    purpose: ClassVar[str] = "Which of some candidates is best; not how good it is."
    formula: ClassVar[str] = "as pure ε: ρ = ε·tanh(ε/2); ε²/8 is false here"
    source: ClassVar[str] = "Dwork, Roth 2014, Claim 3.9; Ding et al. 2021 (exponential noise)"
    avoid: ClassVar[str] = (
        "Reporting the noisy score too: that is another release. Gumbel noise: use exponential."
    )
    samplable: ClassVar[bool] = True
    float_bounds: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 0.15
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"kind": "report_noisy_max", "noise": "laplace", "epsilon": 1.0},
        {"kind": "report_noisy_max", "noise": "exponential", "epsilon": 0.5},
    )

    def curve(self, grid: Grid) -> Curve:
        return Pure(epsilon=self.epsilon).curve(grid)

    def noisier(self, factor: float) -> Self | None:
        return self.model_copy(update={"epsilon": bounded(self.epsilon / factor, 0.0, MOST_EPSILON)})
