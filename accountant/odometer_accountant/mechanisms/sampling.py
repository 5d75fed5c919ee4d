"""Mechanisms run on a random sample. The sampling scheme is part of the mechanism, never assumed."""

import math
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from odometer_accountant.curves import basic, subsampling
from odometer_accountant.mechanisms.base import Adjacency, Around, Base, Mechanism
from odometer_accountant.mechanisms.composed import Composed
from odometer_accountant.mechanisms.known_curves import multiplier_of, pure_curve, scaled
from odometer_accountant.mechanisms.noise import Gaussian, Laplace
from odometer_accountant.model import Number, Whole
from odometer_accountant.numerics.curve import Curve
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.rounding import decimal, round_up


def _first_unfit(mechanism: Mechanism) -> Mechanism | None:
    if not mechanism.samplable:
        return mechanism
    return next((found for part in mechanism.parts() if (found := _first_unfit(part))), None)


def _check_base(outer: Mechanism, base: Mechanism, needed: Adjacency) -> None:
    """Raise ValueError for a base that no theorem covers; the text says what to do instead.

    A unit that is not drawn is absent. So a base on a Poisson sample must be analysed under add_remove,
    even in a dataset under zero_out. Noise that each unit adds itself, for example, is not.
    """
    unfit = _first_unfit(base)
    if unfit is not None:
        hint = unfit.instead_of_sampling or f"charge {unfit.kind} without sampling"
        raise ValueError(f"{unfit.kind} cannot run on a sample here: {hint}")
    if needed not in base.valid_under():
        raise ValueError(
            f"{outer.kind} needs a base that is analysed under {needed.value}, which {base.kind} is not: "
            f"charge {base.kind} without sampling"
        )


def _sampled_pure(epsilon: Fraction, delta: Fraction, rate: float, grid: Grid) -> Curve:
    """Amplification of (epsilon, delta)-DP by sampling: log(1 + q (e^epsilon - 1)), q delta."""
    if epsilon > 10**6:  # no curve is computed above: without amplification it is the base's own
        return Curve.no_bound(grid)
    found = subsampling.pure_epsilon(round_up(epsilon), rate)
    kept = delta * decimal(rate)
    return pure_curve(found, grid, pure=min(decimal(found), epsilon), delta=kept)


def _moments(base: Mechanism) -> subsampling.Moments:
    ladder = subsampling.every_order() if _is_quick(base) else subsampling.LADDER
    found = _floats(base, ladder)
    return subsampling.Moments.of(
        ladder, found[: ladder.n_orders], float(found[ladder.rho]), float(found[ladder.pure])
    )


def _is_quick(base: Mechanism) -> bool:
    """Whether its curve is quick at thousands of orders, and no line: for that its rho is enough."""
    if isinstance(base, Composed):
        return any(map(_is_quick, base.mechanisms)) and all(
            bool(part.as_gaussian()) or _is_quick(part) for part in base.mechanisms
        )
    return isinstance(base, Laplace)


def _floats(base: Mechanism, ladder: Grid) -> subsampling.Floats:
    """Its curve on the ladder, its pure part and its rho, rounded up; infinity for no bound.

    As floats from the start where that is quick: exact sums of so many orders are not.
    """
    noise = base.as_gaussian()
    if noise:
        rho = 0.5 / noise**2 * (1.0 + 2.0**-50)
        return np.append(ladder.orders * rho, [math.inf, rho]) * (1.0 + 2.0**-50)
    if isinstance(base, Laplace):
        return base.floats(ladder)
    if isinstance(base, Composed):
        total = np.sum([count * _floats(part, ladder) for part, count in base.terms()], axis=0)
        return np.asarray(total * (1.0 + 2.0**-47), dtype=np.float64)
    return base.curve(ladder).floats()[: ladder.rho + 1]


def _amplified(base: Mechanism, rate: float, grid: Grid, *, poisson: bool) -> Curve:
    """The loss of `base` on a sample at 0 < rate < 1: the least that the theorems give, never above
    the base's own.
    """
    own = base.curve(grid)
    pure, _, mu_squared, delta = own.amounts_from(grid.pure)
    if delta is None or all(bound == math.inf for bound in own.bounds[: grid.delta]):
        return Curve.no_bound(grid)
    if delta > 0:
        return Curve.no_bound(grid) if pure is None else _sampled_pure(pure, delta, rate, grid)
    points = [scaled(own)]
    # Without mu: a sampled Gaussian has none, though its base has.
    least = own.without(grid.mu_squared)
    if pure is not None:
        sampled = _sampled_pure(pure, delta, rate, grid)
        points.append(scaled(sampled))
        least = least.at_most(sampled)
        if poisson and 0 < pure <= 500:
            points.append((grid.orders, subsampling.pure_poisson(round_up(pure), rate, grid)))
    moments = _moments(base)
    if poisson:
        points += subsampling.poisson(moments, rate, grid, reversible=isinstance(base, Laplace))
        if mu_squared and Fraction(1, 10**17) < mu_squared < 10**3:
            points.append((grid.orders, _gaussian_points(mu_squared, rate, grid)))
    else:
        noise = base.noise_multiplier if isinstance(base, Gaussian) else None
        points += subsampling.without_replacement(moments, rate, grid, gaussian=noise)
    return least.at_most(Curve.of(grid, subsampling.convex_below(points, grid)))


def _gaussian_points(mu_squared: Fraction, rate: float, grid: Grid) -> subsampling.Floats:
    noise = multiplier_of(mu_squared)
    return basic.poisson_subsampled_gaussian(noise, rate, grid) * (grid.orders - 1.0) * (1.0 + 2.0**-50)


class PoissonSubsampled(Around):
    """A mechanism on a Poisson sample: each unit is in the batch with probability q, independently."""

    kind: Literal["poisson_subsampled"] = "poisson_subsampled"
    base: Base
    """What runs on the sample. Several releases from one sample: `composed`, in here; not a charge for
    each."""
    sampling_rate: Annotated[Number, Field(ge=0, le=1)]
    """q: the sampler's own probability, fixed before the draw, 0 to 1; never a realised batch size
    over n."""

    title: ClassVar[str] = "Poisson-subsampled mechanism (DP-SGD)"
    purpose: ClassVar[str] = "One step of DP-SGD: a clipped, noised gradient of a Poisson-sampled batch."
    formula: ClassVar[str] = (
        "Gaussian base: D_α = log E[(1 − q + q·e^{(2x−1)/(2z²)})^α]/(α−1), x ∼ N(0, z²); other bases: the "
        "least that their curve, their pure ε and their μ give; ρ that of the base, "
        "D_∞ = log(1 + q(e^ε − 1)), δ becomes qδ"
    )
    source: ClassVar[str] = (
        "Mironov, Talwar, Zhang 2019, Thm. 4, 5 and section 3.3; Zhu, Wang 2019, Thm. 5; Balle, Barthe, "
        "Gaboardi 2018; "
        "Dong, Roth, Su 2022, Thm. 2.10 (a μ is dominated by its Gaussian, also on a sample)"
    )
    adjacencies: ClassVar[frozenset[Adjacency]] = frozenset({Adjacency.add_remove, Adjacency.zero_out})
    elsewhere: ClassVar[str] = (
        "under replace_one the amplification is another: open the dataset with add_remove or zero_out, "
        "or charge an unsampled gaussian with the noise over the replace-one sensitivity (2C)"
    )
    avoid: ClassVar[str] = (
        "Shuffled or fixed-size batches; two vectors from one cohort (put gaussian(z/√2), or composed, "
        "inside instead)."
    )
    instead_of_sampling: ClassVar[str] = (
        "of two Poisson samples in turn, charge one at the product of the rates"
    )
    samples: ClassVar[bool] = True
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {
            "kind": "poisson_subsampled",
            "base": {"kind": "gaussian", "noise_multiplier": 1.1},
            "sampling_rate": 0.01,
        },
        {
            "kind": "poisson_subsampled",
            "base": {"kind": "laplace", "scale_over_sensitivity": 2.0},
            "sampling_rate": 0.05,
        },
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _check_base(self, self.base, Adjacency.add_remove)
        return self

    def curve(self, grid: Grid) -> Curve:
        rate, noise = self.sampling_rate, self.base.as_gaussian()
        if rate == 0:
            return Curve.zero(grid)
        if rate == 1 or noise == 0:
            return self.base.curve(grid)
        if noise is None or not 0.01 <= noise <= 1e9:
            return _amplified(self.base, rate, grid, poisson=True)
        # D_alpha is at most the unsampled alpha/(2 z^2) and tends to that slope, so the supremum of
        # D_alpha/alpha over real orders is the Gaussian's own rho: sampling does not lower it.
        return Curve.of(
            grid,
            basic.poisson_subsampled_gaussian(noise, rate, grid),
            pure=math.inf,
            rho=1 / (2 * decimal(noise) ** 2),
            mu_squared=math.inf,
        )


class SampledWithoutReplacement(Around):
    """A mechanism on a batch of fixed size, drawn uniformly among all units, anew for each release."""

    kind: Literal["sampled_without_replacement"] = "sampled_without_replacement"
    base: Base
    """What runs on the batch. Its noise is over the replace-one sensitivity: 2C with a clip norm C."""
    batch_size: Annotated[Whole, Field(ge=0, le=1_000_000_000_000)]
    """Units in the batch, fixed before the draw, 0 to population."""
    population: Annotated[Whole, Field(ge=1, le=1_000_000_000_000)]
    """Units in the data set, which is public, 1 to 1e12."""

    title: ClassVar[str] = "Fixed-size batch without replacement"
    purpose: ClassVar[str] = (
        "One step of training or one round of clients on a uniform batch of a fixed size."
    )
    formula: ClassVar[str] = (
        "D_α ≤ log{1 + Σ_{j≥2} C(α,j) qʲ t_j}/(α−1), q = batch/population, t_j = e^{(j−1)D_j}·min{2, "
        "(e^ε − 1)ʲ} of the base, or less; D_∞ = log(1 + q(e^ε − 1)); never above the base"
    )
    source: ClassVar[str] = "Wang, Balle, Kasiviswanathan 2019, Thm. 9 and 27; Balle, Barthe, Gaboardi 2018"
    adjacencies: ClassVar[frozenset[Adjacency]] = frozenset({Adjacency.replace_one})
    elsewhere: ClassVar[str] = (
        "the size of the population is public here: open the dataset with replace_one, or sample by "
        "Poisson and "
        "charge poisson_subsampled"
    )
    avoid: ClassVar[str] = "A plain loader that goes through shuffled data: shuffled_epochs."
    samples: ClassVar[bool] = True
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {
            "kind": "sampled_without_replacement",
            "base": {"kind": "gaussian", "noise_multiplier": 2.5},
            "batch_size": 100,
            "population": 10000,
        },
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.batch_size > self.population:
            raise ValueError(f"batch_size {self.batch_size} is above population {self.population}")
        _check_base(self, self.base, Adjacency.replace_one)
        return self

    def curve(self, grid: Grid) -> Curve:
        if self.batch_size == 0:
            return Curve.zero(grid)
        if self.batch_size == self.population:
            return self.base.curve(grid)
        rate = round_up(Fraction(self.batch_size, self.population))
        return _amplified(self.base, rate, grid, poisson=False)


class ShuffledEpochs(Around):
    """Whole passes over the data in batches: each unit is in one batch of each pass. Nothing is
    amplified.
    """

    kind: Literal["shuffled_epochs"] = "shuffled_epochs"
    base: Base
    """What each batch releases: a Gaussian, its noise over the sensitivity of one batch's sum under
    the dataset's
    adjacency (C under zero_out, 2C under replace_one)."""
    epochs: Annotated[Whole, Field(ge=1, le=1_000_000)]
    """Passes, each begun one counted: 1.2 epochs are 2; 1 to 1e6."""

    title: ClassVar[str] = "Shuffled epochs (a plain data loader)"
    purpose: ClassVar[str] = "Training on batches that a loader cuts from shuffled or ordered data."
    formula: ClassVar[str] = "one Gaussian an epoch: D_α = epochs·α/(2z²), ρ = epochs/(2z²), μ² = epochs/z²"
    source: ClassVar[str] = (
        "a unit moves one batch of each epoch, whatever the order; Dong, Roth, Su 2022, Cor. 3.3 "
        "(composition). A shuffle "
        "amplifies far less than a Poisson sample: Chua, Ghazi, Kamath, Kumar, Manurangsi, Sinha, Zhang "
        "2024"
    )
    adjacencies: ClassVar[frozenset[Adjacency]] = frozenset({Adjacency.zero_out, Adjacency.replace_one})
    elsewhere: ClassVar[str] = (
        "a unit that is added or removed shifts the batches of all others, and where their number follows "
        "from that of the units it adds or drops one, which nothing covers: open the dataset with zero_out "
        "or replace_one. Only where the number of batches and the divisor of each are fixed, whatever the "
        "number of units, and every epoch is shuffled afresh and uniformly, one gaussian an epoch with "
        "noise_multiplier z/√5 (μ = √5/z) covers it"
    )
    avoid: ClassVar[str] = (
        "A Poisson sampler (poisson_subsampled). A loader with a last partial batch belongs here."
    )
    instead_of_sampling: ClassVar[str] = (
        "epochs over shuffled batches are charged alone: nothing amplifies them"
    )
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"kind": "shuffled_epochs", "base": {"kind": "gaussian", "noise_multiplier": 4.0}, "epochs": 3},
    )

    @model_validator(mode="after")
    def _a_gaussian(self) -> Self:
        if not self.base.always_gaussian:
            raise ValueError(
                f"each batch releases a gaussian here, or adaptive_clipping: charge {self.base.kind} "
                f"once for each epoch"
            )
        return self

    def curve(self, grid: Grid) -> Curve:
        once = self.base.curve(grid)
        return Curve.zero(grid).plus(once, self.epochs)
