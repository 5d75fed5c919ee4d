"""Local randomisers that report a person's value as bits, buckets or sketches."""

import math
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, model_validator

from odometer_accountant.curves import basic, local_bits
from odometer_accountant.mechanisms.base import Adjacency, Mechanism, bounded
from odometer_accountant.mechanisms.local import RandomizedResponse
from odometer_accountant.mechanisms.stated import Pure
from odometer_accountant.model import STORED, Number, Whole
from odometer_accountant.numerics.curve import Amount, Curve
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.rounding import decimal, half_up, next_up, round_up

MOST_EPSILON = 100.0

Epsilon = Annotated[Number, Field(ge=0, le=MOST_EPSILON)]
Probability = Annotated[Number, Field(gt=0, lt=1)]
_ONLY_REPLACE = frozenset({Adjacency.replace_one})
_ELSEWHERE = (
    "who reports is public here, so the neighbours differ in one value: open the dataset with replace_one"
)


class UnaryEncoding(Mechanism):
    """Reports one bit per possible value, each randomised: SUE, OUE, basic one-time RAPPOR."""

    kind: Literal["unary_encoding"] = "unary_encoding"
    p: Probability | None = None
    """Probability of reporting 1 for the bit of the true value, 0 to 1, at least q; given with q."""
    q: Probability | None = None
    """Probability of reporting 1 for the bit of any other value, 0 to 1."""
    optimized_epsilon: Epsilon | None = None
    """In place of p and q: the pure ε of OUE in nats, 0 to 100 (p = 1/2, q = 1/(e^ε + 1))."""
    symmetric_epsilon: Epsilon | None = None
    """In place of p and q: the pure ε of SUE in nats, 0 to 100 (p = e^{ε/2}/(e^{ε/2} + 1), q = 1 − p)."""

    title: ClassVar[str] = "Unary encoding"
    purpose: ClassVar[str] = "Frequencies of a category, from one noisy bit vector of each person."
    formula: ClassVar[str] = (
        "D_α = D_α(Bern p ‖ Bern q) + D_α(Bern q ‖ Bern p), D_∞ = ε = log(p(1−q)/(q(1−p))), "
        "ρ = min{ε²/4, ε·tanh(ε/2)}, μ² = 2·[2Φ⁻¹(e^{ε/2}/(1+e^{ε/2}))]² or that of pure ε if less"
    )
    source: ClassVar[str] = "Wang, Blocki, Li, Jha 2017, section 4.3; two bits differ, each of range ε"
    adjacencies: ClassVar[frozenset[Adjacency]] = _ONLY_REPLACE
    elsewhere: ClassVar[str] = _ELSEWHERE
    avoid: ClassVar[str] = "Several values of one person in one vector: more than two bits differ."
    local: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 0.8
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"kind": "unary_encoding", "p": 0.5, "q": 0.25},
        {"kind": "unary_encoding", "optimized_epsilon": 1.0},
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.p is None) != (self.q is None):
            raise ValueError("p and q come together: give both, or an epsilon in their place")
        given = [self.p, self.optimized_epsilon, self.symmetric_epsilon]
        if sum(value is not None for value in given) != 1:
            raise ValueError("give exactly one of: p with q, optimized_epsilon, symmetric_epsilon")
        if self.p is not None and self.q is not None and self.p < self.q:
            raise ValueError("p, for the bit of the true value, is at least q, for every other bit")
        return self

    def curve(self, grid: Grid) -> Curve:
        pure: Amount
        if self.symmetric_epsilon is not None:
            return _fair_coins(2, decimal(self.symmetric_epsilon) / 2, grid)
        if self.optimized_epsilon is not None:
            epsilon, p = self.optimized_epsilon, Fraction(1, 2)
            # Near 1/2 by the difference, in the tail by the tail: either keeps its relative accuracy.
            near = Fraction(1, 2) - Fraction(math.tanh(half_up(epsilon))) / 2
            q = near if epsilon < 1 else Fraction(1 / (1 + math.exp(epsilon)))
            pure = decimal(epsilon)
        else:
            p, q = decimal(self.p or 0.0), decimal(self.q or 0.0)
            pure = epsilon = local_bits.log_odds(p, q)
        return _coins(1, p, q, epsilon, pure, grid)

    def noisier(self, factor: float) -> Self | None:
        for name in ("optimized_epsilon", "symmetric_epsilon"):
            if (epsilon := getattr(self, name)) is not None:
                return self.model_copy(update={name: bounded(epsilon / factor, 0.0, MOST_EPSILON)})
        p, q = self.p or 0.0, self.q or 0.0
        less = local_bits.log_odds(decimal(p), decimal(q)) / factor
        moved = 1 / (1 + (1 - p) / p * math.exp(min(less, 600.0)))
        return self.model_copy(update={"q": bounded(moved, q if factor >= 1 else 1e-300, p)})


class LocalHashing(Mechanism):
    """Hashes the value into g buckets by a public hash of one's own, and randomises the bucket: OLH, BLH."""

    kind: Literal["local_hashing"] = "local_hashing"
    buckets: Annotated[Whole, Field(ge=2, le=1_000_000_000)]
    """g, the range of the hash, 2 to 1e9 (OLH: e^ε + 1, rounded)."""
    epsilon: Epsilon
    """Pure ε of a report in nats, 0 to 100: the hashed bucket is told with probability e^ε/(e^ε + g − 1)."""

    title: ClassVar[str] = "Local hashing"
    purpose: ClassVar[str] = "Frequencies over a large set of values, from one noisy bucket of each person."
    formula: ClassVar[str] = "as randomised response over g values: two values that hash alike lose nothing"
    source: ClassVar[str] = "Wang, Blocki, Li, Jha 2017, section 4.4"
    adjacencies: ClassVar[frozenset[Adjacency]] = _ONLY_REPLACE
    elsewhere: ClassVar[str] = _ELSEWHERE
    avoid: ClassVar[str] = "A hash that is chosen by looking at the value."
    local: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 0.15
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"kind": "local_hashing", "buckets": 4, "epsilon": 1.0},
    )

    def curve(self, grid: Grid) -> Curve:
        return RandomizedResponse(k=self.buckets, epsilon=self.epsilon).curve(grid)

    def noisier(self, factor: float) -> Self | None:
        return self.model_copy(update={"epsilon": bounded(self.epsilon / factor, 0.0, MOST_EPSILON)})


class CountMeanSketch(Mechanism):
    """Reports a hashed vector with one bit set, every entry flipped with probability 1/(e^{ε/2} + 1)."""

    kind: Literal["count_mean_sketch"] = "count_mean_sketch"
    epsilon: Epsilon
    """Pure ε of one report in nats, 0 to 100."""

    title: ClassVar[str] = "Count-mean sketch"
    purpose: ClassVar[str] = "Frequencies over a large set of values, by a hashed and noisy vector."
    formula: ClassVar[str] = (
        "twice binary randomised response of ε/2: two entries differ; D_∞ = ε, ρ = ε·tanh(ε/4)"
    )
    source: ClassVar[str] = "Differential Privacy Team, Apple 2017, section 3.2"
    adjacencies: ClassVar[frozenset[Adjacency]] = _ONLY_REPLACE
    elsewhere: ClassVar[str] = _ELSEWHERE
    avoid: ClassVar[str] = "The one-bit variant: hadamard_response."
    local: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 0.8
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"kind": "count_mean_sketch", "epsilon": 4.0},)

    def curve(self, grid: Grid) -> Curve:
        return _fair_coins(2, decimal(self.epsilon) / 2, grid)

    def noisier(self, factor: float) -> Self | None:
        return self.model_copy(update={"epsilon": bounded(self.epsilon / factor, 0.0, MOST_EPSILON)})


class HadamardResponse(Mechanism):
    """Reports one random coordinate of the Hadamard transform, flipped with probability 1/(e^ε + 1)."""

    kind: Literal["hadamard_response"] = "hadamard_response"
    epsilon: Epsilon
    """Pure ε of one report in nats, 0 to 100."""

    title: ClassVar[str] = "Hadamard response"
    purpose: ClassVar[str] = "Frequencies over a large set of values, from a single noisy bit of each person."
    formula: ClassVar[str] = "binary randomised response: D_∞ = ε, ρ = ε·tanh(ε/2), μ = 2Φ⁻¹(e^ε/(1+e^ε))"
    source: ClassVar[str] = (
        "Differential Privacy Team, Apple 2017, section 3.3 (exact); Acharya, Sun, Zhang 2019 (a bound)"
    )
    adjacencies: ClassVar[frozenset[Adjacency]] = _ONLY_REPLACE
    elsewhere: ClassVar[str] = _ELSEWHERE
    avoid: ClassVar[str] = "Several coordinates in one report: charge each."
    local: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 0.15
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"kind": "hadamard_response", "epsilon": 1.0},)

    def curve(self, grid: Grid) -> Curve:
        return Pure(epsilon=self.epsilon).curve(grid)

    def noisier(self, factor: float) -> Self | None:
        return self.model_copy(update={"epsilon": bounded(self.epsilon / factor, 0.0, MOST_EPSILON)})


class Rappor(Mechanism):
    """Bloom-filter bits, randomised once for ever and again for each report."""

    kind: Literal["rappor"] = "rappor"
    h: Annotated[Whole, Field(ge=1, le=1000)]
    """Number of hash functions of the Bloom filter, 1 to 1000 (basic RAPPOR: 1)."""
    f: Annotated[Number, Field(ge=0, le=1)]
    """Share of bits that the permanent randomisation replaces by a fair coin, 0 to 1 (0: none)."""
    p: Annotated[Number, Field(ge=0, le=1)] | None = None
    """Instantaneous randomisation: probability of reporting 1 where the permanent bit is 0."""
    q: Annotated[Number, Field(ge=0, le=1)] | None = None
    """Instantaneous randomisation: probability of reporting 1 where the permanent bit is 1, at least p."""
    permanent_bits: Literal["kept", "fresh"]
    """kept: drawn once for each value of a person and kept, so that ONE charge covers all reports of that
    value, for ever, and p and q do not lower it. fresh: drawn anew for every report, so that each report is a
    charge of its own; p and q are needed. Reports of kept bits are never charged as fresh: they are not
    independent."""

    title: ClassVar[str] = "RAPPOR"
    purpose: ClassVar[str] = "Frequencies of strings, from repeated noisy reports of each person."
    formula: ClassVar[str] = (
        "kept: 2h times binary randomised response of log((1−f/2)/(f/2)), D_∞ = 2h·log((1−f/2)/(f/2)). "
        "fresh: h times D_α(Bern q* ‖ Bern p*) + D_α(Bern p* ‖ Bern q*), D_∞ = h·log(q*(1−p*)/(p*(1−q*))), "
        "q* = f(p+q)/2 + (1−f)q, p* = f(p+q)/2 + (1−f)p"
    )
    source: ClassVar[str] = "Erlingsson, Pihur, Korolova 2014, Thm. 1, section 3.2 (one report)"
    adjacencies: ClassVar[frozenset[Adjacency]] = _ONLY_REPLACE
    elsewhere: ClassVar[str] = _ELSEWHERE
    avoid: ClassVar[str] = (
        "A value that changes over time as if it were one: each new value is another charge."
    )
    local: ClassVar[bool] = True
    curve_ms: ClassVar[float] = 0.8
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"kind": "rappor", "h": 2, "f": 0.5, "p": 0.5, "q": 0.75, "permanent_bits": "kept"},
        {"kind": "rappor", "h": 2, "f": 0.5, "p": 0.5, "q": 0.75, "permanent_bits": "fresh"},
    )

    @model_validator(mode="after")
    def _complete(self, info: ValidationInfo) -> Self:
        if (self.p is None) != (self.q is None):
            raise ValueError("p and q come together: give both or neither")
        if self.permanent_bits == "fresh" and self.p is None:
            raise ValueError("with fresh permanent bits p and q are needed (none: p = 0, q = 1)")
        # The loss is the same, but whoever swaps the two by the names of unary encoding may mean other ones.
        if self.p is not None and self.q is not None and self.p > self.q and info.context is not STORED:
            raise ValueError(
                "q, for a bit that is 1, is at least p, for one that is 0: are the two swapped? In "
                "unary_encoding p is that of the true value's bit"
            )
        return self

    def curve(self, grid: Grid) -> Curve:
        f = decimal(self.f)
        if self.permanent_bits == "kept":
            if f == 0:
                return Curve.no_bound(grid)
            bit = local_bits.log_odds(1 - f / 2, Fraction(1, 2)) if f < 1 else 0.0
            return _fair_coins(2 * self.h, Fraction(bit), grid)
        both = f * (decimal(self.p or 0.0) + decimal(self.q or 0.0)) / 2
        ones = [both + (1 - f) * decimal(instant or 0.0) for instant in (self.p, self.q)]
        low, high = min(ones), max(ones)
        if low == high:
            return Curve.zero(grid)
        if low == 0 or high == 1:
            return Curve.no_bound(grid)
        epsilon = local_bits.log_odds(high, low)
        return _coins(self.h, high, low, epsilon, epsilon, grid)

    def noisier(self, factor: float) -> Self | None:
        if self.f in (0, 1):
            return None
        odds = local_bits.log_odds(1 - decimal(self.f) / 2, Fraction(1, 2)) / factor
        moved = 2 / (1 + math.exp(min(odds, 600.0)))
        return self.model_copy(update={"f": bounded(moved, self.f if factor >= 1 else 0.0, 1.0)})


def _fair_coins(count: int, epsilon: Fraction, grid: Grid) -> Curve:
    """`count` bits that differ, each by binary randomised response of `epsilon`."""
    # One float up, whose decimal is above too.
    each = Pure(epsilon=next_up(round_up(epsilon)) if epsilon else 0.0).curve(grid)
    whole = count * epsilon
    found = each.repeated(count).never_above(whole)
    return Curve(grid, (*found.bounds[: grid.pure], whole.as_integer_ratio(), *found.bounds[grid.rho :]))


def _coins(count: int, p: Fraction, q: Fraction, epsilon: float, pure: Amount, grid: Grid) -> Curve:
    """`count` pairs of bits that differ, reported as 1 with probability p where they are 1 and q where not.

    epsilon, pure: the loss of one pair. Its two losses are epsilon apart for either bit, so each has range
    epsilon: rho = epsilon^2/8 and the mu of half of it (see `exponential`); a pair is pure epsilon too.
    """
    each = Fraction(pure)
    half, whole = Fraction(basic.pure_mu(half_up(epsilon))) ** 2, Fraction(basic.pure_mu(epsilon)) ** 2
    pair = Curve.of(
        grid,
        local_bits.coins(p, q, grid),
        pure=each,
        rho=min(each**2 / 4, Fraction(basic.pure_rho(epsilon))),
        mu_squared=min(2 * half, whole),
    )
    return pair.never_above(each).repeated(count)
