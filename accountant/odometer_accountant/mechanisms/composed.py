"""Several releases as one mechanism, and one release as seen by several units."""

from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from odometer_accountant.curves import group_privacy, subsampling
from odometer_accountant.mechanisms.base import Around, Base, Mechanism
from odometer_accountant.mechanisms.known_curves import gaussian_curve, multiplier_of, pure_curve, scaled
from odometer_accountant.model import Whole
from odometer_accountant.numerics.curve import Curve
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.rounding import decimal, round_up


class Composed(Mechanism):
    """Several mechanisms on the same data, as one: what a sample, a group or a repetition is made of."""

    kind: Literal["composed"] = "composed"
    mechanisms: Annotated[tuple[Base, ...], Field(min_length=1, max_length=16)]
    """The mechanisms, 1 to 16, all run on the same data (inside of a sampling: on one and the same
    sample)."""
    counts: (
        Annotated[tuple[Annotated[Whole, Field(ge=1, le=1_000_000)], ...], Field(min_length=1, max_length=16)]
        | None
    ) = None
    """How many times each is run, 1 to 1e6; once each when left out."""

    title: ClassVar[str] = "Several mechanisms as one"
    purpose: ClassVar[str] = (
        "All that goes out of one sampled cohort, or of one run whose repetitions or groups are charged."
    )
    formula: ClassVar[str] = "every coordinate is the sum: D_α, D_∞, ρ, μ², δ"
    source: ClassVar[str] = (
        "Mironov 2017, Prop. 1; Bun, Steinke 2016, Lemma 1.7; Dong, Roth, Su 2022, Cor. 3.3"
    )
    avoid: ClassVar[str] = "Releases that need not be one: charge them separately, the ledger adds."
    samplable: ClassVar[bool] = True
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {
            "kind": "composed",
            "mechanisms": [
                {"kind": "gaussian", "noise_multiplier": 10.0},
                {"kind": "laplace", "scale_over_sensitivity": 20.0},
            ],
            "counts": [2, 1],
        },
    )

    @model_validator(mode="after")
    def _one_count_each(self) -> Self:
        if self.counts is not None and len(self.counts) != len(self.mechanisms):
            raise ValueError(
                f"{len(self.mechanisms)} mechanisms but {len(self.counts)} counts: give one for each"
            )
        if not self.valid_under():
            raise ValueError(
                "no adjacency holds for all of these mechanisms: charge them to datasets of their own"
            )
        return self

    def parts(self) -> tuple[Mechanism, ...]:
        return self.mechanisms

    def terms(self) -> list[tuple[Mechanism, int]]:
        """Each mechanism and how many times it is run."""
        return list(zip(self.mechanisms, self.counts or (1,) * len(self.mechanisms), strict=True))

    def curve(self, grid: Grid) -> Curve:
        (first, times), *others = self.terms()
        total = first.curve(grid).repeated(times)
        for mechanism, count in others:
            total = total.plus(mechanism.curve(grid), count)
        return total

    def as_gaussian(self) -> float | None:
        total = Fraction(0)
        for mechanism, count in self.terms():
            noise = mechanism.as_gaussian()
            if noise is None or noise == 0:
                return noise
            total += count / decimal(noise) ** 2
        return multiplier_of(total)

    def noisier(self, factor: float) -> Self | None:
        found = [mechanism.noisier(factor) for mechanism in self.mechanisms]
        noisier = tuple(mechanism for mechanism in found if mechanism is not None)
        return self.model_copy(update={"mechanisms": noisier}) if len(noisier) == len(found) else None

    def less_delta(self, factor: float) -> Self | None:
        found = [mechanism.less_delta(factor) for mechanism in self.mechanisms]
        if not any(found):
            return None
        less = tuple(new or old for new, old in zip(found, self.mechanisms, strict=True))
        return self.model_copy(update={"mechanisms": less})


class Grouped(Around):
    """The joint loss of a group of units: a user with several records, a node with several edges."""

    kind: Literal["grouped"] = "grouped"
    base: Base
    """What is released, as charged for one unit. A run of many steps is `composed` in here, then
    grouped: less than
    grouping each step where the bound is no square."""
    group_size: Annotated[Whole, Field(ge=1, le=1_000_000)]
    """k: the most units that belong to one (records of a user, edges of a node), enforced before the
    release; 1 to 1e6."""

    title: ClassVar[str] = "Group privacy"
    purpose: ClassVar[str] = "User-level from record-level, node-level from edge-level (k: the degree)."
    formula: ClassVar[str] = (
        "D_∞ = kε, ρk², μk, (kε, δ(e^{kε} − 1)/(e^ε − 1)); D_α: the least of these and 3ᶜ·D_{2ᶜα} for k "
        "≤ 2ᶜ, α ≥ 2; for "
        "k = 2 also (α−1/p)/(α−1)·D_{pα} + D_{(pα−1)/(p−1)}"
    )
    source: ClassVar[str] = (
        "Mironov 2017, Prop. 2 and 11; Bun, Steinke 2016, Prop. 1.9; Dong, Roth, Su 2022, Thm. 2.14; "
        "Vadhan 2017, Lemma 2.2"
    )
    avoid: ClassVar[str] = (
        "Multiplying a curve by k: the loss of a group grows by more than k. Where a user's "
        "contribution is clipped as a "
        "whole, the user is the unit: charge the mechanism itself."
    )
    instead_of_sampling: ClassVar[str] = (
        "put the sampling inside of the group, not the group inside of the sampling"
    )
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"kind": "grouped", "base": {"kind": "gaussian", "noise_multiplier": 20.0}, "group_size": 3},
    )

    @model_validator(mode="after")
    def _not_twice(self) -> Self:
        if self.base.kind == "grouped":
            raise ValueError("a group of groups is one group: multiply the two sizes")
        return self

    def curve(self, grid: Grid) -> Curve:
        k, one = self.group_size, self.base.curve(grid)
        if k == 1:
            return one
        pure, rho, mu_squared, delta = one.amounts_from(grid.pure)
        if delta is None:
            return Curve.no_bound(grid)
        if delta > 0:
            together = Fraction(1) if pure is None else group_privacy.delta(pure, delta, k)
            if pure is None or together >= 1:
                return Curve.no_bound(grid)
            return self._stated(k * pure, together, grid)
        found = Curve.of(grid, group_privacy.renyi(self._floats, k, grid))
        if pure is not None:
            found = found.at_most(self._stated(k * pure, delta, grid))
        if rho is not None:
            found = found.at_most(Curve.linear(grid, rho * k * k))
        if mu_squared is not None:
            found = found.at_most(gaussian_curve(mu_squared * k * k, grid))
        # What a rho or mu of the pure part says of the orders, too.
        _, rho, mu_squared, _ = found.amounts_from(grid.pure)
        if rho is not None:
            found = found.at_most(Curve.linear(grid, rho))
        if mu_squared is not None:
            found = found.at_most(gaussian_curve(mu_squared, grid))
        return found.at_most(Curve.of(grid, subsampling.convex_below([scaled(found)], grid)))

    def _floats(self, grid: Grid) -> group_privacy.Floats:
        return self.base.curve(grid).floats()[: grid.n_orders]

    @staticmethod
    def _stated(epsilon: Fraction, delta: Fraction, grid: Grid) -> Curve:
        """Any (epsilon, delta)-DP release."""
        number = round_up(epsilon)
        if number > 1e6:
            return Curve.no_bound(grid)
        return pure_curve(number, grid, pure=epsilon, delta=delta)

    def as_gaussian(self) -> float | None:
        noise = self.base.as_gaussian()
        return (
            noise if noise is None or noise == 0 else multiplier_of(self.group_size**2 / decimal(noise) ** 2)
        )
