"""Reports of local randomisers that a trusted shuffler mixes."""

import math
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from odometer_accountant.mechanisms.base import Adjacency, Mechanism
from odometer_accountant.mechanisms.stated import Approximate, Pure
from odometer_accountant.model import Number, Whole
from odometer_accountant.numerics.curve import Curve
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.rounding import next_up


class Shuffled(Mechanism):
    """One ε0-DP report of everybody, mixed by a shuffler so that nobody knows whose is whose."""

    kind: Literal["shuffled"] = "shuffled"
    epsilon0: Annotated[Number, Field(ge=0, le=100)]
    """Pure ε of the local randomiser in nats, 0 to 100; the same randomiser for everybody."""
    population: Annotated[Whole, Field(ge=1, le=1_000_000_000_000)]
    """n, the number of reports that are mixed, 1 to 1e12: public, and at most those that really arrive."""
    delta: Annotated[Number, Field(gt=0, lt=1)]
    """δ of the whole, above 0 and below 1. It counts against δ_add of approximate budgets."""

    title: ClassVar[str] = "Shuffled local reports"
    purpose: ClassVar[str] = "Local reports of many people through a trusted shuffler: less loss for each."
    formula: ClassVar[str] = (
        "(ε, δ) with ε = log(1 + (1−e^{−ε0})/(1+e^{−ε0}/(1+s))·s), s = 8√(e^{ε0}·log(4/δ)/n) + 8e^{ε0}/n, "
        "where ε0 ≤ log(n/(16·log(4/δ))) and ε < ε0; elsewhere the local ε0, without δ"
    )
    source: ClassVar[str] = (
        "Feldman, McMillan, Talwar 2021, Thm. III.1, in the form and range of its authors' code, the stricter"
    )
    adjacencies: ClassVar[frozenset[Adjacency]] = frozenset({Adjacency.replace_one})
    elsewhere: ClassVar[str] = (
        "who reports is public here, so the neighbours differ in one value: open the dataset with replace_one"
    )
    avoid: ClassVar[str] = (
        "A shuffler that is not trusted, or reports that carry who sent them: charge them as local."
    )
    curve_ms: ClassVar[float] = 0.2
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"kind": "shuffled", "epsilon0": 4.0, "population": 100_000, "delta": 1e-6},
        {"kind": "shuffled", "epsilon0": 1.0, "population": 100, "delta": 1e-6},
    )

    def curve(self, grid: Grid) -> Curve:
        epsilon = self.amplified()
        if epsilon is None:
            return Pure(epsilon=self.epsilon0).curve(grid)
        return Approximate(epsilon=epsilon, delta=self.delta).curve(grid)

    def amplified(self) -> float | None:
        """ε of the mixed reports, rounded up; None where shuffling is not known to help."""
        log_4 = math.log(4.0) - math.log(self.delta)
        if self.epsilon0 == 0 or self.epsilon0 > self._largest(log_4) * (1 - 2.0**-40):
            return None
        grown = math.exp(self.epsilon0)
        s = 8.0 * math.sqrt(grown * log_4 / self.population) + 8.0 * grown / self.population
        share = -math.expm1(-self.epsilon0) / (1.0 + math.exp(-self.epsilon0) / (1.0 + s))
        epsilon = next_up(math.log1p(share * s) * (1.0 + 2.0**-40))
        return epsilon if epsilon < self.epsilon0 else None

    def _largest(self, log_4: float) -> float:
        """The largest ε0 of the theorem's range; negative where there is none."""
        return math.log(self.population / (16.0 * log_4))

    def note(self) -> str | None:
        if self.epsilon0 == 0 or self.amplified() is not None:
            return None
        largest = self._largest(math.log(4.0) - math.log(self.delta))
        if self.epsilon0 <= largest:
            return (
                f"the bound on shuffling is no better than the local ε0 = {self.epsilon0:g} here: "
                "that is charged, without δ"
            )
        known = f"up to ε0 = {largest:.6g}" if largest > 0 else "for no ε0"
        return (
            f"with {self.population} reports and δ = {self.delta:g} shuffling is known to help {known}: "
            f"the local ε0 = {self.epsilon0:g} is charged, without δ"
        )

    def noisier(self, factor: float) -> Self | None:
        """With less ε0, while it stays on its side of the range: beyond, a δ would be new."""
        moved = self.model_copy(update={"epsilon0": min(self.epsilon0 / factor, 100.0)})
        before, after = self.amplified() is not None, moved.amplified() is not None
        return moved if before or not after or factor < 1 else None

    def less_delta(self, factor: float) -> Self | None:
        """While shuffling is known to help: beyond it is the local ε0 that would be charged."""
        moved = self.model_copy(update={"delta": self.delta / factor})
        return moved if moved.delta > 0 and moved.amplified() is not None else None
