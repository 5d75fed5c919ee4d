"""Estimates how much computing a request needs, from its JSON document, before any of it is computed.

The estimate is the same on every machine. Its unit is about a millisecond of one processor core of 2020. The
curve of a plain mechanism is quick (`Mechanism.curve_ms`). A release made of others (sampled, grouped, tuned,
composed) is slow: it evaluates its parts at many more orders. The check runs before validation, because
validation computes curves for some parameters.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from odometer_accountant.errors import TooMuchToCompute
from odometer_accountant.mechanisms import Mechanism

EFFORT_MAX: Final = 1000.0
"""The most that one request may need."""
QUICK_MAX: Final = 25.0
"""The most that counts as quick. Requests that need more wait in a lane of their own."""

_OTHER: Final = Mechanism.curve_ms
"""Cost of a mechanism around others that has no formula of its own here."""
_AN_ORDER: Final = 0.01
"""Cost of one order of a stated curve."""
_A_VALUE: Final = 0.002
"""Cost of reading one value of the document."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """The estimate for a part of a document."""

    cost: float
    leaves: int = 0
    """Mechanisms without parts."""
    fractions: int = 0
    """How many of them have fractions as bounds: the denominator of a sum grows with each."""
    gaussian: bool = True
    """Whether all of them are Gaussians: these are one Gaussian together, evaluated at no further orders."""
    sampled: bool = False
    """Whether one of them runs on a sample."""


class TakesLongError(Exception):
    """The request is allowed, but needs more than its caller set with `at_most`."""


_here: ContextVar[float] = ContextVar("effort", default=EFFORT_MAX)


@contextmanager
def at_most(effort: float) -> Iterator[None]:
    """In the block, `check_effort` raises TakesLongError for requests that need more than `effort`.

    With infinity it refuses none.
    """
    before = _here.set(effort)
    try:
        yield
    finally:
        _here.reset(before)


def effort(document: Any) -> float:
    """The estimate for all mechanisms in a JSON document, at any depth."""
    return _asked(document).cost


def check_effort(document: Any) -> None:
    """Raise TooMuchToCompute above EFFORT_MAX, TakesLongError above the limit set by `at_most`."""
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
        return _Asked(_facts(kind).curve_ms + _AN_ORDER * points, 1, 0, gaussian=False)
    parts = node.get("mechanisms") if kind == "composed" else node.get("base")
    if isinstance(kind, str) and isinstance(parts, dict | list):
        return _around(kind, node, _asked(parts))
    inside = _together(list(node.values()))
    if isinstance(kind, str) and not inside.leaves:
        facts = _facts(kind)
        fractions = int(not facts.float_bounds)
        return _Asked(facts.curve_ms + inside.cost, 1, fractions, facts.always_gaussian)
    return inside


def _facts(kind: str) -> type[Mechanism]:
    """The class of a kind; for sessions and unknown kinds `Mechanism`, whose facts are the defaults."""
    return Mechanism.registry.get(kind, Mechanism)


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
    """The measured cost of one release made of others: that of its parts, times how often each is
    evaluated.
    """
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
    return _Asked(cost, max(base.leaves, 1), 1, gaussian=False, sampled=base.sampled or _facts(kind).samples)
