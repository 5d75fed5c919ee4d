"""How much faster is a new curve of the Poisson-subsampled Gaussian than dp_accounting's, at equal orders?

Cold: new noise and sampling rate in every call. Imports, and the tables that depend on the grid alone, are
excluded. Both run in turn in this process; medians. Exit code 1 below the bar, or where whole orders differ.

    python bench/curve.py [--draws 30]
"""

import argparse
import logging
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.rdp import RdpAccountant

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from accountant.grid import GRID_V1
from accountant.renyi import poisson_subsampled_gaussian

BAR = 50.0
WHOLE = np.array([order.denominator == 1 for order in GRID_V1.exact_orders])
ORDERS = [int(order) if order.denominator == 1 else float(order) for order in GRID_V1.exact_orders]


def theirs(noise: float, rate: float) -> Any:
    accountant = RdpAccountant(orders=ORDERS)
    accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)))
    return accountant._rdp


def ours(noise: float, rate: float) -> Any:
    return poisson_subsampled_gaussian(noise, rate, GRID_V1)


def timed(curve: Callable[[float, float], Any], noise: float, rate: float) -> tuple[Any, float]:
    start = time.perf_counter()
    values = curve(noise, rate)
    return values, (time.perf_counter() - start) * 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    logging.getLogger("absl").setLevel(logging.ERROR)  # it warns where its fractional series fails
    for curve in (ours, theirs):  # tables, lazy imports
        curve(1.0, 0.5)
    mine_ms, peer_ms, apart = [], [], 0.0
    for _ in range(args.draws):
        noise, rate = float(10 ** rng.uniform(-0.3, 1.0)), float(10 ** rng.uniform(-4.0, -0.5))
        mine, took = timed(ours, noise, rate)
        mine_ms.append(took)
        peer, took = timed(theirs, noise, rate)
        peer_ms.append(took)
        apart = max(apart, float(np.max(np.abs(mine / peer - 1.0)[WHOLE])))
    mine_median, peer_median = statistics.median(mine_ms), statistics.median(peer_ms)
    ratio = peer_median / mine_median
    print(f"{args.draws} draws of z in [0.5, 10], q in [1e-4, 0.32]; {len(ORDERS)} orders to {ORDERS[-1]}")
    print(f"ours          {mine_median:9.3f} ms per curve (slowest {max(mine_ms):.3f})")
    print(f"dp_accounting {peer_median:9.3f} ms per curve (fastest {min(peer_ms):.3f})")
    print(f"largest relative difference at whole orders: {apart:.1e}")
    print(f"curve ratio={ratio:.0f} bar={BAR:.0f}")
    return 0 if ratio >= BAR and apart < 1e-6 else 1


if __name__ == "__main__":
    sys.exit(main())
