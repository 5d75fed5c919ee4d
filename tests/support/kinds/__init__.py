"""Truths of the mechanisms, a module per family, merged by name.

A module may define, each a dict by kind:

* `RENYI`: (document, alpha) -> D_alpha of one release at 50 digits, by its formula; every kind has one.
* `PURE`: document -> the largest loss, infinity (the default) where there is none.
* `DELTA`: document -> the probability that the bound does not cover; 0 by default.
* `WORST`: document -> delta(epsilon) of the mechanism, where it has a mu; None elsewhere (the default).
* `DRAWS`: a hypothesis strategy of documents, for kinds whose fields cannot be drawn one by one.
* `PLACES`: document -> the grid places whose truth is computed quickly; all by default.
"""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any


def _merged(name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for module in pkgutil.iter_modules(__path__):
        part = getattr(importlib.import_module(f"{__name__}.{module.name}"), name, {})
        assert not found.keys() & part.keys(), (module.name, name)
        found |= part
    return found


RENYI: dict[str, Callable[[dict[str, Any], Any], Any]] = _merged("RENYI")
PURE: dict[str, Callable[[dict[str, Any]], Any]] = _merged("PURE")
DELTA: dict[str, Callable[[dict[str, Any]], Any]] = _merged("DELTA")
WORST: dict[str, Callable[[dict[str, Any]], Any]] = _merged("WORST")
DRAWS: dict[str, Any] = _merged("DRAWS")
PLACES: dict[str, Callable[[dict[str, Any]], list[int]]] = _merged("PLACES")
