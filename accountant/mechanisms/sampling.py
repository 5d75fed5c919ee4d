"""Mechanisms run on a random sample. The sampling scheme is part of the mechanism, never assumed."""

import math
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from accountant import renyi
from accountant.grid import Grid
from accountant.loss import Curve
from accountant.mechanisms.base import Adjacency, Mechanism, Number
from accountant.mechanisms.noise import Gaussian
from accountant.rounding import decimal


class PoissonSubsampled(Mechanism):
    """A Gaussian on a Poisson sample: each unit is in the batch with probability q, independently."""

    kind: Literal["poisson_subsampled"] = "poisson_subsampled"
    base: Gaussian
    """What runs on the sample."""
    sampling_rate: Annotated[Number, Field(ge=0, le=1)]
    """q: the sampler's own probability, fixed before the draw, 0 to 1; never a realised batch size over n."""

    title: ClassVar[str] = "Poisson-subsampled Gaussian (DP-SGD)"
    purpose: ClassVar[str] = "One step of DP-SGD: a clipped, noised gradient of a Poisson-sampled batch."
    formula: ClassVar[str] = (
        "(α−1)D_α = log E_{x∼N(0,z²)}[(1 − q + q·e^{(2x−1)/(2z²)})^α]; ρ = 1/(2z²), the supremum of D_α/α"
    )
    source: ClassVar[str] = "Mironov, Talwar, Zhang 2019, Thm. 4 and section 3.3"
    adjacencies: ClassVar[frozenset[Adjacency]] = frozenset({Adjacency.add_remove, Adjacency.zero_out})
    elsewhere: ClassVar[str] = (
        "under replace_one the amplification is another: open the dataset with add_remove or zero_out, "
        "or charge an unsampled gaussian with the noise over the replace-one sensitivity (2C)"
    )
    avoid: ClassVar[str] = (
        "Shuffled or fixed-size batches; two vectors from one cohort (put gaussian(z/√2) inside instead)."
    )
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {
            "kind": "poisson_subsampled",
            "base": {"kind": "gaussian", "noise_multiplier": 1.1},
            "sampling_rate": 0.01,
        },
    )

    def curve(self, grid: Grid) -> Curve:
        rate, noise = self.sampling_rate, self.base.noise_multiplier
        if rate == 0:
            return Curve.zero(grid)
        if rate == 1 or noise == 0:
            return self.base.curve(grid)
        # D_alpha is at most the unsampled alpha/(2 z^2) and tends to that slope, so the supremum of
        # D_alpha/alpha over real orders is the Gaussian's own rho: sampling does not lower it.
        return Curve.of(
            grid,
            renyi.poisson_subsampled_gaussian(noise, rate, grid),
            pure=math.inf,
            rho=1 / (2 * decimal(noise) ** 2),
            mu_squared=math.inf,
        )

    def noisier(self, factor: float) -> Self | None:
        return self.model_copy(update={"base": self.base.noisier(factor)})
