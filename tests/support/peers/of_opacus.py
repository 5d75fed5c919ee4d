"""Opacus: the Rényi curve of the (Poisson-subsampled) Gaussian.

Its file is loaded alone where the package is installed: importing the package imports torch, for seconds.
"""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.support.peers import Order, Pair, draws

Document = dict[str, Any]


def _analysis() -> Any:
    package = importlib.util.find_spec("opacus")
    if package is None or package.origin is None:
        raise ImportError("Opacus is not installed here")
    path = Path(package.origin).parent / "accountants" / "analysis" / "rdp.py"
    spec = importlib.util.spec_from_file_location("opacus_rdp", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ANALYSIS: Final = _analysis()


def _one(rate: float, noise: float, order: Order) -> float:
    try:
        return float(ANALYSIS.compute_rdp(q=rate, noise_multiplier=noise, steps=1, orders=[order])[0])
    except (ValueError, OverflowError):
        return float("nan")  # it gives up: the logarithm of a difference that rounded below 0, and the like


def curve(document: Document, orders: Sequence[Order]) -> list[float]:
    rate = document.get("sampling_rate", 1.0)
    noise = document.get("base", document)["noise_multiplier"]
    return [_one(rate, noise, order) for order in orders]


PAIRS: Final = (
    Pair("gaussian", draws.gaussian, curve),
    Pair("poisson_subsampled(gaussian)", draws.sampled_gaussian, curve, fractional_max=16, points=5),
)
