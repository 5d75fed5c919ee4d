"""Hyper-parameter tuning: the best of a random number of private runs."""

import math
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from odometer_accountant.curves import basic, random_repetition
from odometer_accountant.mechanisms.base import Around, Base
from odometer_accountant.model import Model, Number
from odometer_accountant.numerics.curve import Curve
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.rounding import decimal, log_up

_ONE_ORDER: Final = Grid(0, (Fraction(2),))


class Repeats(Model):
    """The law of the number of runs: drawn before the first, from nothing private, and never shown."""

    distribution: Literal["geometric", "negative_binomial", "logarithmic", "poisson"]
    """geometric, negative_binomial (truncated: at least one run), logarithmic or poisson."""
    gamma: Annotated[Number, Field(ge=1e-9, le=0.999)] | None = None
    """γ of all but poisson, 1e-9 to 0.999: the probability of stopping after a run (geometric: mean 1/γ)."""
    eta: Annotated[Number, Field(gt=-1, le=100)] | None = None
    """η of negative_binomial, above −1, at most 100: 1 is geometric, 0 logarithmic; less costs less."""
    mean: Annotated[Number, Field(ge=1, le=1e9)] | None = None
    """Mean number of runs of poisson, 1 to 1e9."""

    @model_validator(mode="after")
    def _what_the_law_needs(self) -> Self:
        needed = {"poisson": {"mean"}, "negative_binomial": {"gamma", "eta"}}.get(
            self.distribution, {"gamma"}
        )
        given = {name for name in ("gamma", "eta", "mean") if getattr(self, name) is not None}
        if given != needed:
            raise ValueError(
                f"{self.distribution} needs {' and '.join(sorted(needed))}, and takes nothing else"
            )
        return self

    def shape(self) -> float:
        """η, of all but poisson."""
        named = {"geometric": 1.0, "logarithmic": 0.0}
        return named.get(self.distribution, self.eta or 0.0)


class Tuned(Around):
    """Runs a mechanism a random number of times on the same data and releases only the best output."""

    kind: Literal["tuned"] = "tuned"
    base: Base
    """One run with everything that it looks at, the score included; without δ."""
    repeats: Repeats
    """How the number of runs is drawn: distribution geometric or logarithmic with gamma (1e-9 to 0.999: the
    probability of stopping after a run), negative_binomial with gamma and eta (above −1, at most 100), or
    poisson with mean (1 to 1e9).
    """

    title: ClassVar[str] = "Best of a random number of runs"
    purpose: ClassVar[str] = (
        "Hyper-parameter tuning: train several times, keep one, for a few times the loss."
    )
    formula: ClassVar[str] = (
        "D_α = D_α(base) + C + log E[K]/(α−1), least over the orders from α on. Negative binomial: "
        "C = (1+η)·min over β of (1−1/β)·D_β(base) + log(1/γ)/β; D_∞ ≤ (2+η)·D_∞(base). Poisson of mean m: "
        "C = m·δ(log(1+1/(α−1))), δ(ε) that of the base"
    )
    source: ClassVar[str] = (
        "Papernot, Steinke 2022, Thm. 2 (η = 1: geometric, 0: logarithmic) and Thm. 6 (Poisson)"
    )
    avoid: ClassVar[str] = (
        "A number of runs that was fixed, or depends on what came out; outputs that are looked at besides: "
        "charge each run. Settling a hold for part of it."
    )
    samplable: ClassVar[bool] = True
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {
            "kind": "tuned",
            "base": {"kind": "gaussian", "noise_multiplier": 5.0},
            "repeats": {"distribution": "geometric", "gamma": 0.1},
        },
        {
            "kind": "tuned",
            "base": {"kind": "laplace", "epsilon": 0.5},
            "repeats": {"distribution": "poisson", "mean": 10.0},
        },
    )

    @model_validator(mode="after")
    def _no_delta(self) -> Self:
        if self.base.curve(_ONE_ORDER).floats()[_ONE_ORDER.delta]:
            raise ValueError(
                "the base has a δ of its own, which the theorem does not cover: use a base without"
            )
        return self

    def curve(self, grid: Grid) -> Curve:
        losses = self.base.curve(grid).floats()
        if math.isinf(losses[grid.delta]):
            return Curve.no_bound(grid)
        run = random_repetition.Run(
            grid, losses[: grid.n_orders], float(losses[grid.pure]), float(losses[grid.rho])
        )
        law = self.repeats
        if law.mean is not None:
            log_mean, added = log_up(decimal(law.mean)), random_repetition.poisson(run, law.mean)
        else:
            eta, gamma = law.shape(), law.gamma or 0.0
            log_mean = random_repetition.negative_binomial_log_mean(eta, gamma)
            added = random_repetition.negative_binomial(run, eta, gamma)
        orders, pure, rho = random_repetition.repeated(run, log_mean, added)
        known = pure <= 1e6
        return Curve.of(
            grid,
            orders,
            pure=pure,
            rho=min(rho, basic.pure_rho(pure)) if known else rho,
            mu_squared=Fraction(basic.pure_mu(pure)) ** 2 if known else math.inf,
        )
