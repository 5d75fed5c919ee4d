"""Google's dp_accounting: its Rényi accountant; its privacy-loss distributions where it has no curve."""

from collections.abc import Sequence
from typing import Any, Final

import dp_accounting as dp
from dp_accounting.rdp import RdpAccountant

from tests.support.peers import Order, Pair, draws

Document = dict[str, Any]
ADD = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = dp.NeighboringRelation.REPLACE_ONE


def composed(event: dp.DpEvent, orders: Sequence[Order], relation: Any = ADD) -> Sequence[float]:
    """The accountant's curve after one event. It tells whole orders by their value, not by their type."""
    accountant = RdpAccountant(orders=list(orders), neighboring_relation=relation)
    accountant.compose(event)
    return accountant.rdp  # type: ignore[no-any-return]


def event_of(document: Document) -> dp.DpEvent:
    match document["kind"]:
        case "gaussian":
            return dp.GaussianDpEvent(document["noise_multiplier"])
        case "laplace":
            return dp.LaplaceDpEvent(document["scale_over_sensitivity"])
        case "zcdp":
            return dp.ZCDpEvent(document["rho"])
        case "poisson_subsampled":
            return dp.PoissonSampledDpEvent(document["sampling_rate"], event_of(document["base"]))
    raise KeyError(document["kind"])


def plain(document: Document, orders: Sequence[Order]) -> Sequence[float]:
    return composed(event_of(document), orders)


def response(document: Document, orders: Sequence[Order]) -> Sequence[float]:
    """Its noise parameter is the probability of a redraw among all k answers, the true one included."""
    k = document["k"]
    redrawn = (1 - document["probability_of_truth"]) * k / (k - 1)
    return composed(dp.RandomizedResponseDpEvent(redrawn, k), orders, REPLACE)


PAIRS: Final = (
    Pair("gaussian", draws.gaussian, plain),
    Pair("laplace", draws.laplace, plain),
    Pair("zcdp", draws.zcdp, plain),
    Pair("randomized_response", draws.any_response, response),
    Pair("poisson_subsampled(gaussian)", draws.sampled_gaussian, plain, fractional_max=16, points=5),
)
