"""How much computing a request asks for, from its document alone: before anything of it is computed.

An estimate, the same for the same document on every machine. Its unit is about a millisecond of one
processor core of 2020. Known curves are quick; what is slow is one release made of others (sampled, grouped,
tuned, composed), each of which evaluates its parts at many more orders. No curve is computed here, and forms
check some parameters by curves: so this comes before them too.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from odometer_accountant.errors import TooMuchToCompute

EFFORT_MAX: Final = 1000.0
"""What one request may ask for."""
QUICK_MAX: Final = 25.0
"""Up to so much is quick; what asks for more does not stand in the way of what is."""

LEAVES: Final[Mapping[str, float]] = {
    "above_threshold": 0.5,
    "adaptive_clipping": 0.1,
    "approximate": 0.15,
    "count_mean_sketch": 0.8,
    "discrete_gaussian": 0.1,
    "discrete_laplace": 1.3,
    "distributed_discrete_gaussian": 0.1,
    "exponential": 0.15,
    "gaussian": 0.1,
    "gdp": 0.1,
    "hadamard_response": 0.15,
    "laplace": 0.15,
    "local_hashing": 0.15,
    "non_private": 0.1,
    "pate_gnmax": 0.1,
    "pate_lnmax": 0.2,
    "permute_and_flip": 0.2,
    "pure": 0.1,
    "randomized_response": 0.15,
    "rappor": 0.8,
    "renyi_curve": 0.3,
    "report_noisy_max": 0.15,
    "shuffled": 0.2,
    "skellam": 0.2,
    "unary_encoding": 0.8,
    "zcdp": 0.1,
}
"""What the curve of one costs. Any other, and any that is new, costs `_OTHER`."""
_OTHER: Final = 2.0
_AN_ORDER: Final = 0.01
"""Of a stated curve, by the number of its orders."""
_GAUSSIAN: Final = frozenset({"gaussian", "adaptive_clipping"})
"""Any number of these is one Gaussian: no other order is asked for."""
_FLOATS: Final = frozenset({"exponential", "laplace", "pure", "renyi_curve", "report_noisy_max"})
"""The bounds of these are floats: their sums stay short."""
_SAMPLED: Final = frozenset({"poisson_subsampled", "sampled_without_replacement"})
_A_VALUE: Final = 0.002
"""Reading one value of the document."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a part of a document comes to."""

    cost: float
    leaves: int = 0
    """Mechanisms without parts."""
    fractions: int = 0
    """Those of them whose bounds are fractions: each sum has the denominators of all before it."""
    gaussian: bool = True
    """Whether all of these are Gaussians."""
    sampled: bool = False
    """Whether one of them runs on a sample."""


class TakesLongError(Exception):
    """The request may ask for so much, but not where it is worked on now (`at_most`)."""


_here: ContextVar[float] = ContextVar("effort", default=EFFORT_MAX)


@contextmanager
def at_most(effort: float) -> Iterator[None]:
    """In the block, `check_effort` raises TakesLongError for what asks for more.

    With infinity it refuses nothing.
    """
    before = _here.set(effort)
    try:
        yield
    finally:
        _here.reset(before)


def effort(document: Any) -> float:
    """How much computing the mechanisms in a JSON document ask for, wherever they stand in it."""
    return _asked(document).cost


def check_effort(document: Any) -> None:
    """Raise TooMuchToCompute above EFFORT_MAX, TakesLongError above what `at_most` says here."""
    asked, most = effort(document), _here.get()
    if asked <= most:
        return
    if asked <= EFFORT_MAX:
        raise TakesLongError
    raise TooMuchToCompute(
        f"the losses of these mechanisms take about {asked:.0f} ms to compute, and one request may ask for "
        f"{EFFORT_MAX:.0f}: send them in several requests; give equal ones once, with their count; compose "
        "inside of a sampling or a group, not around several",
        asked_ms=math.ceil(asked),
        most_ms=int(EFFORT_MAX),
    )


def _asked(node: Any) -> _Asked:
    if isinstance(node, list):
        return _together(node)
    if not isinstance(node, dict):
        return _Asked(0.0)
    kind = node.get("kind")
    if kind == "renyi_curve":
        orders = node.get("orders")
        points = len(orders) if isinstance(orders, list) else 0
        return _Asked(LEAVES["renyi_curve"] + _AN_ORDER * points, 1, 0, gaussian=False)
    parts = node.get("mechanisms") if kind == "composed" else node.get("base")
    if isinstance(kind, str) and isinstance(parts, dict | list):
        return _around(kind, node, _asked(parts))
    inside = _together(list(node.values()))
    if isinstance(kind, str) and not inside.leaves:
        return _Asked(LEAVES.get(kind, _OTHER) + inside.cost, 1, int(kind not in _FLOATS), kind in _GAUSSIAN)
    return inside


def _together(nodes: list[Any]) -> _Asked:
    found = [_asked(node) for node in nodes if isinstance(node, dict | list)]
    return _Asked(
        _A_VALUE * len(nodes) + sum(one.cost for one in found),
        sum(one.leaves for one in found),
        sum(one.fractions for one in found),
        all(one.gaussian for one in found),
        any(one.sampled for one in found),
    )


def _around(kind: str, node: Mapping[str, Any], base: _Asked) -> _Asked:
    """Of one release made of others, as measured: what its parts cost, and how often each is evaluated."""
    if kind == "composed":
        joining = 0.05 * base.leaves + 0.1 * base.fractions * (1 + base.fractions / 100)
        return _Asked(base.cost + joining, base.leaves, base.fractions, base.gaussian, base.sampled)
    if kind == "poisson_subsampled":
        cost = 1.5 + 0.02 * base.leaves if base.gaussian else 1.5 + 10 * base.cost
    elif kind == "sampled_without_replacement":
        cost = 1.5 + 10 * base.cost
    elif kind == "grouped":
        size = node.get("group_size")
        far = base.sampled and isinstance(size, int) and size > 2
        cost = 5 + (80 if far else 10) * base.cost
    elif kind == "tuned":
        cost = 1 + 2 * base.cost
    else:
        cost = _OTHER + 2 * base.cost
    return _Asked(cost, max(base.leaves, 1), 1, gaussian=False, sampled=base.sampled or kind in _SAMPLED)
