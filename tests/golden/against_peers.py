"""One release's Rényi curve against other accountants', at equal orders, with random parameters.

    python tests/golden/against_peers.py [--peer dp_accounting] [--kind laplace] [--draws 2000] [--seed 1]

Ours is never below the truth, and within 1e-6 of the peer's, relative. Where it is not, one of the two is
wrong or looser: that is accepted only where the truth at 50 digits sides with ours and the reason is listed
in `EXPLAINED`. Exit code 1 for anything else.
"""

import argparse
import math
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import mpmath as mp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from odometer_accountant.mechanisms import ANY_MECHANISM
from odometer_accountant.numerics.grid import GRID_V1, Grid
from odometer_accountant.queries import readings
from tests.support import oracles, peers
from tests.support.peers import Pair

Document = dict[str, Any]
CLOSE: Final = 1e-6
"""Relative: how far above the truth a curve of ours may be, and from a peer's without a word."""
UNIT: Final = 1e-12
GRIDS: Final = 4
"""Drawn per run: what depends on the orders alone is computed once for each."""


@dataclass(frozen=True)
class Point:
    """A release at an order, and the two answers."""

    document: Document
    order: Fraction
    exact: Fraction | None
    """Ours, before it is rounded to units; None for no bound."""
    theirs: float

    @property
    def ours(self) -> float:
        return math.inf if self.exact is None else float(self.exact)

    @property
    def whole(self) -> bool:
        return self.order.denominator == 1

    @property
    def gap(self) -> float:
        """Absolute; NaN where the peer has no answer."""
        return abs(self.ours - self.theirs)

    def apart(self) -> float:
        """Relative to ours, 0 where the peer has no answer."""
        return 0.0 if math.isnan(self.theirs) else self.gap / self.ours

    def __str__(self) -> str:
        return f"{self.document} order {float(self.order):g}: ours {self.ours:.9g}, theirs {self.theirs:.9g}"


@dataclass(frozen=True)
class Cause:
    """Why a peer differs from the truth, and where: a difference elsewhere is not explained."""

    name: str
    peers: str
    kinds: str
    """As in the names of pairs; `*` for all."""
    where: Callable[[Point], bool]

    def explains(self, peer: str, pair: Pair, point: Point) -> bool:
        named = self.kinds == "*" or pair.name in self.kinds.split()
        return peer in self.peers.split() and named and self.where(point)


SAMPLED: Final = "poisson_subsampled(gaussian) poisson_subsampled(composed)"
OTHERS: Final = "poisson_subsampled(laplace) poisson_subsampled(pure)"
BATCHES: Final = "sampled_without_replacement(gaussian) sampled_without_replacement(laplace)"


def _number(point: Point, name: str) -> float:
    """A parameter of the release, or of what is in it."""
    found = point.document.get(name, point.document.get("base", {}).get(name))
    return float(found)


EXPLAINED: Final = (
    Cause(
        "less than a unit apart: their logarithm is taken of a number near 1",
        " ".join(peers.PEERS),
        "*",
        lambda p: p.gap <= UNIT,
    ),
    Cause(
        "the series at fractional orders adds terms that alternate in sign",
        "dp_accounting opacus",
        SAMPLED,
        lambda p: not p.whole and p.theirs > p.ours,
    ),
    Cause(
        "fractional orders are interpolated between whole ones",
        "autodp",
        f"{SAMPLED} {OTHERS}",
        lambda p: not p.whole and p.theirs > p.ours,
    ),
    Cause(
        "one theorem for any base of the same curve; ours is exact for the worst base of the same ε",
        "autodp",
        "poisson_subsampled(pure)",
        lambda p: p.theirs > p.ours,
    ),
    Cause(
        "not capped by the unsampled curve, and coarser above order 256; ours is the least of the bounds",
        "dp_accounting autodp",
        BATCHES,
        lambda p: p.theirs > p.ours,
    ),
    Cause(
        "its forward differences alternate in sign and cancel: below the theorem's bound",
        "dp_accounting autodp",
        BATCHES,
        lambda p: p.whole and 32 < p.order <= 256 and 0 < p.ours - p.theirs < 0.05 * p.theirs,
    ),
    Cause(
        "made monotone, not convex, and without what the pure part and orders between say",
        "dp_accounting",
        "tuned(gaussian)",
        lambda p: p.theirs > p.ours,
    ),
    Cause(
        "no answer from order 1030 on: binomial coefficients overflow",
        "opacus",
        SAMPLED,
        lambda p: p.order >= 1030 and math.isnan(p.theirs),
    ),
    Cause(
        "the bound by zCDP and by pure ε; ours is the exact worst of bounded range",
        "autodp",
        "exponential",
        lambda p: p.theirs > p.ours,
    ),
    Cause(
        "the difference of two hyperbolic sines cancels",
        "autodp",
        "pure",
        lambda p: p.gap <= 1e-14 / (_number(p, "epsilon") * float(p.order - 1)),
    ),
)


@dataclass
class Result:
    """What one pair came to."""

    points: int = 0
    truths: int = 0
    excess: float = -math.inf
    """Largest of ours/theirs - 1 where the two agree."""
    deficit: float = -math.inf
    """Largest of 1 - ours/theirs where the two agree."""
    above: float = -math.inf
    """Largest of ours/truth - 1, wherever the truth was asked."""
    explained: Counter[str] = field(default_factory=Counter)
    worst: dict[str, Point] = field(default_factory=dict)
    """By cause: where the peer is furthest from us, relative."""
    failures: list[str] = field(default_factory=list)


# -- drawing -------------------------------------------------------------------------------------------


def grids(pair: Pair, rng: np.random.Generator) -> list[Grid]:
    """Grids of the ends, whole orders evenly in the logarithm, and a few fractional ones in sixteenths."""
    found = []
    if pair.grid is not None:
        return [pair.grid] * GRIDS
    for _ in range(GRIDS):
        logs = rng.uniform(math.log(2), math.log(pair.whole_max), 12)
        orders = {Fraction(2), Fraction(pair.whole_max), *(Fraction(round(math.exp(x))) for x in logs)}
        if pair.fractional_max:
            logs = rng.uniform(math.log(1 / 16), math.log(pair.fractional_max - 1), 5)
            orders |= {1 + Fraction(max(1, round(16 * math.exp(x))), 16) for x in logs}
        found.append(Grid(99, tuple(sorted(orders))))
    return found


def generator(peer: str, pair: Pair, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(f"{peer} {pair.name}".encode())])


# -- comparing -----------------------------------------------------------------------------------------


def compare(peer: str, pair: Pair, draws: int, seed: int) -> Result:
    """`draws` random documents of a pair. What is wrong is in the result's failures."""
    rng, result = generator(peer, pair, seed), Result()
    with mp.workdps(oracles.DIGITS):
        if pair.curve is None:
            for _ in range(draws):
                _judge_epsilon(pair, pair.draw(rng), rng, result)
            return result
        known = grids(pair, rng)
        for n in range(draws):
            for point in _points(pair, pair.draw(rng), known[n % GRIDS], rng):
                _judge(peer, pair, point, result)
    return result


def _points(pair: Pair, document: Document, grid: Grid, rng: np.random.Generator) -> Iterator[Point]:
    assert pair.curve is not None
    chosen = sorted(
        rng.choice(
            grid.n_orders, grid.n_orders if pair.grid else min(pair.points, grid.n_orders), replace=False
        )
    )
    amounts = ANY_MECHANISM.validate_python(document).curve(grid).amounts
    orders = [grid.exact_orders[place] for place in chosen]
    with peers.quiet():
        theirs = pair.curve(document, [peers.as_number(order) for order in orders])
    for place, order, value in zip(chosen, orders, theirs, strict=True):
        yield Point(document, order, amounts[place], float(value))


def _judge(peer: str, pair: Pair, point: Point, result: Result) -> None:
    result.points += 1
    ours, theirs = point.ours, point.theirs
    agree = ours == theirs or (math.isfinite(theirs) and point.gap <= CLOSE * theirs)
    if agree and math.isfinite(ours) and theirs > 0:
        result.excess = max(result.excess, ours / theirs - 1)
        result.deficit = max(result.deficit, 1 - ours / theirs)
    if agree and ours >= theirs:
        return
    wrong = _against_truth(pair, point, result)
    if wrong:
        result.failures.append(f"{wrong}: {point}")
    elif not agree:
        cause = next((cause.name for cause in EXPLAINED if cause.explains(peer, pair, point)), None)
        if cause is None:
            result.failures.append(f"the truth is ours, and why the peer differs is not listed: {point}")
        else:
            result.explained[cause] += 1
            result.worst[cause] = max(result.worst.get(cause, point), point, key=Point.apart)


def _against_truth(pair: Pair, point: Point, result: Result) -> str | None:
    """What is wrong with ours, None when the truth sides with it."""
    result.truths += 1
    truth = pair.truth(point.document, point.order)
    if mp.isinf(truth) or point.exact is None:
        return None if point.ours == truth else f"the truth is {mp.nstr(truth)}"
    if truth == 0:
        return None if point.exact == 0 else "the truth is 0"
    above = oracles.number(point.exact) / truth - 1
    tight = pair.tight(point.order)
    if tight:
        result.above = max(result.above, float(above))
    if above < -(mp.mpf(10) ** (5 - oracles.DIGITS)):
        return f"below the truth by {mp.nstr(-above, 5)}, relative"
    return f"above the truth by {mp.nstr(above, 5)}, relative" if tight and above > CLOSE else None


def _judge_epsilon(pair: Pair, document: Document, rng: np.random.Generator, result: Result) -> None:
    """Where the peer is tight and rounds down, ours is an upper bound of it; how far above is not judged."""
    assert pair.epsilon is not None
    delta = float(10 ** rng.uniform(-10, -2))
    loss = ANY_MECHANISM.validate_python(document).curve(GRID_V1).times(1)
    ours = readings.fixed_plan(loss, delta).value
    with peers.quiet():
        theirs = pair.epsilon(document, delta)
    result.points += 1
    if ours is None:
        return
    if theirs > 0:
        result.excess = max(result.excess, ours / theirs - 1)
    if not ours >= theirs:
        result.failures.append(
            f"epsilon {ours!r} at delta {delta!r} is below the tight {theirs!r}: {document}"
        )


# -- the command ---------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--peer", choices=peers.PEERS, action="append")
    parser.add_argument("--kind", action="append", help="a kind, or a pair's name; all by default")
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    compared = failed = 0
    for peer in args.peer or peers.PEERS:
        try:
            found = peers.pairs(peer)
        except ImportError as error:
            print(f"{peer}: left out ({error})")
            continue
        for pair in found:
            if args.kind and pair.kind not in args.kind and pair.name not in args.kind:
                continue
            result = compare(peer, pair, args.draws, args.seed)
            compared += 1
            failed += bool(result.failures)
            print(line(peer, pair, args.draws, result), flush=True)
    print(f"against_peers pairs={compared} failed={failed} draws={args.draws} seed={args.seed}")
    return 1 if failed or not compared else 0


def line(peer: str, pair: Pair, draws: int, result: Result) -> str:
    """One pair as text: a line of figures, then what was explained, then the first failures."""
    figures = (
        f"{peer} {pair.name}: draws={draws} points={result.points} excess={result.excess:.1e} "
        f"deficit={result.deficit:.1e} truths={result.truths} above_truth={result.above:.1e} "
        f"explained={sum(result.explained.values())} failures={len(result.failures)}"
    )
    causes = [
        f"    {count:6d} {name}\n           worst {result.worst[name]}"
        for name, count in result.explained.most_common()
    ]
    return "\n".join([figures, *causes, *(f"    FAILED {failure}" for failure in result.failures[:5])])


if __name__ == "__main__":
    sys.exit(main())
