"""How much faster is a new curve of each mechanism than the peers', at equal orders? And is any of ours slow?

Cold: new parameters in every call. Imports, and the tables that depend on the grid alone, are excluded.
Both run in turn in this process, five calls each, so that neither finds the other's data in the processor's
caches at every call; medians. One line per kind and peer that has it (dp_accounting, autodp, and Opacus
where it is installed): a sampled kind must be many times faster, any other not slower. Two lines for ours
alone: the slowest closed form takes at most 0.2 ms, the slowest of all 2 ms. The last line has the result
that is furthest below its bar. Exit code 1 below a bar.

    python bench/curve.py [--draws 30] [--peer autodp] [--kind laplace]
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from odometer_accountant.mechanisms import ANY_MECHANISM, Mechanism
from odometer_accountant.numerics.grid import GRID_V1
from tests.support import peers
from tests.support.peers import Pair

BAR = 1.0
"""Of what has no sample in it: a user feels no difference between such curves."""
SAMPLED_BAR = 10.0
TRAINING_BAR = 50.0
"""Of the curve that training jobs ask for, against dp_accounting."""
TRAINING = "poisson_subsampled(gaussian)"
SAMPLED = ("poisson_subsampled", "sampled_without_replacement")
CLOSED_MS, ANY_MS = 0.2, 2.0
"""The most that a curve may take: of a closed form, of any kind."""
WRAPPERS = ("composed", "grouped", "tuned", *SAMPLED)
"""Kinds whose curve is computed from those of other kinds; the others are closed forms."""
ORDERS = [peers.as_number(order) for order in GRID_V1.exact_orders]
TURN = 5
"""Calls of one side before the other's."""
PATIENCE_S = 4.0
"""After so long with one pair, and one turn, its peer is not asked again."""


def timed(call: Callable[[], Any]) -> float:
    """CPU time in ms: what else runs on the machine counts for neither side."""
    start = time.process_time()
    call()
    return (time.process_time() - start) * 1e3


def medians(pair: Pair, draws: int, rng: np.random.Generator) -> tuple[float, float]:
    """Ours and the peer's, in ms per curve."""
    ask = pair.curve
    assert ask is not None
    mine_ms: list[float] = []
    peer_ms: list[float] = []
    start = time.perf_counter()
    ANY_MECHANISM.validate_python(pair.draw(rng)).curve(GRID_V1)  # tables, lazy imports
    for _ in range(0, draws, TURN):
        documents = [pair.draw(rng) for _ in range(TURN)]
        mechanisms = [ANY_MECHANISM.validate_python(document) for document in documents]
        mine_ms += [timed(lambda one=one: one.curve(GRID_V1)) for one in mechanisms]
        if not peer_ms or time.perf_counter() - start < PATIENCE_S:
            with peers.quiet():
                peer_ms += [timed(lambda one=one: ask(one, ORDERS)) for one in documents]
    return statistics.median(mine_ms), statistics.median(peer_ms)


def against(
    peer: str, kinds: Iterable[str], draws: int, rng: np.random.Generator
) -> list[tuple[str, float, float]]:
    """(name, ratio, bar) of every kind that a peer has with a Rényi curve."""
    try:
        found = peers.pairs(peer)
    except ImportError as error:
        print(f"{peer}: left out ({error})")
        return []
    results = []
    for pair in found:
        if pair.curve is None or (kinds and pair.kind not in kinds):
            continue
        mine, theirs = medians(pair, draws, rng)
        print(f"{pair.name:38} ours {mine:9.3f} ms   {peer} {theirs:9.3f} ms", flush=True)
        bar = SAMPLED_BAR if pair.kind in SAMPLED else BAR
        bar = TRAINING_BAR if (peer, pair.name) == ("dp_accounting", TRAINING) else bar
        results.append((f"{pair.name}:{peer}", theirs / mine, bar))
    return results


def ours(documents: Iterable[dict[str, Any]], draws: int, rng: np.random.Generator) -> float:
    """Our median in ms, over documents with the noise changed at random."""
    examples = [ANY_MECHANISM.validate_python(document) for document in documents]
    taken = []
    for n in range(draws + len(examples)):
        example = examples[n % len(examples)]
        mechanism = example.noisier(float(rng.uniform(0.7, 3))) or example
        took = timed(lambda mechanism=mechanism: mechanism.curve(GRID_V1))
        if n >= len(examples):  # the first of each fills tables
            taken.append(took)
    return statistics.median(taken)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--draws", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--peer", choices=peers.PEERS, action="append")
    parser.add_argument("--kind", action="append", help="all by default")
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    print(f"{args.draws} draws each; {len(ORDERS)} orders to {ORDERS[-1]}")
    results = []
    for peer in args.peer or peers.PEERS:
        results += against(peer, args.kind or (), args.draws, rng)
    cold = {
        f"{kind}[{n}]": ours([example], args.draws, rng)
        for kind in args.kind or sorted(Mechanism.registry)
        for n, example in enumerate(Mechanism.registry[kind].examples)
    }
    print("ours alone, ms:", ", ".join(f"{kind} {took:.3f}" for kind, took in sorted(cold.items())))
    closed = {name: took for name, took in cold.items() if name.partition("[")[0] not in WRAPPERS}
    for what, most, among in (("closed", CLOSED_MS, closed), ("any", ANY_MS, cold)):
        if among:
            slowest = max(among, key=lambda name: among[name])
            results.append((f"{what}:{slowest}", most / among[slowest], 1.0))
    results.sort(key=lambda result: result[1] / result[2], reverse=True)
    for name, ratio, bar in results:
        print(f"curve:{name} ratio={ratio:.3g} bar={bar:g}")
    return 0 if all(ratio >= bar for _, ratio, bar in results) else 1


if __name__ == "__main__":
    sys.exit(main())
