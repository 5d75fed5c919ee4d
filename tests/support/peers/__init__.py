"""Other accountants, each behind the same face: a Rényi curve of one release of one of our documents.

A module per peer exports `PAIRS`; none is imported before it is asked for, as its package may be missing.
"""

import importlib
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np

from odometer_accountant.mechanisms import Mechanism
from odometer_accountant.numerics.grid import Grid
from tests.support import oracles

Document = dict[str, Any]
Rng = np.random.Generator
Order = int | float
PEERS: Final = ("dp_accounting", "autodp", "opacus")


@dataclass(frozen=True)
class Pair:
    """A kind of ours, and how a peer computes it."""

    name: str
    """The kind, and what is in it: poisson_subsampled(laplace)."""
    draw: Callable[[Rng], Document]
    """A document with random parameters."""
    curve: Callable[[Document, Sequence[Order]], Sequence[float]] | None = None
    """The peer's Rényi curve of one release in nats, at whole orders (int) and fractional ones (float)."""
    epsilon: Callable[[Document, float], float] | None = None
    """Where the peer has no Rényi curve: its tight ε at a δ, rounded down. Ours is never below."""
    whole_max: int = 8192
    """The largest whole order that the peer can do in reasonable time."""
    fractional_max: float = 64.0
    """The largest fractional order to compare; 0 for none."""
    truth: Callable[[Document, Fraction], Any] = oracles.renyi
    """D_α at 50 digits."""
    tight: Callable[[Fraction], bool] = lambda _order: True
    """Where ours is the truth; elsewhere it is a bound, of which no more is asked than to be above."""
    grid: Grid | None = None
    """The grid to compare on, all of it, where a curve depends on which orders there are; None: drawn."""
    points: int = 8
    """Orders compared per draw, of a grid drawn once per run."""

    @property
    def kind(self) -> str:
        return self.name.partition("(")[0]


@contextmanager
def quiet() -> Iterator[None]:
    """A peer's own warnings, of NumPy and absl, are its business: what counts is what it answers."""
    level = logging.getLogger("absl").level
    logging.getLogger("absl").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger("absl").setLevel(level)


def pairs(peer: str) -> list[Pair]:
    """What `peer` and we both have. Raises ImportError when the peer is not installed."""
    with quiet():
        found: Sequence[Pair] = importlib.import_module(f"tests.support.peers.of_{peer}").PAIRS
    return [pair for pair in found if pair.kind in Mechanism.registry and pair.kind in oracles.kinds()]


def whole_to_64(order: Fraction) -> bool:
    """Where a base's curve is asked at every order that the sum over a sample needs; above, chords of it."""
    return order.denominator == 1 and order <= 64


def never(_order: Fraction) -> bool:
    return False


def as_number(order: Fraction) -> Order:
    """An order as peers take it: whole ones choose another formula by their type."""
    return int(order) if order.denominator == 1 else float(order)
