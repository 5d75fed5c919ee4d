"""Google's dp_accounting: its Rényi accountant; its privacy-loss distributions where it has no curve."""

import math
from collections.abc import Sequence
from typing import Any, Final

import dp_accounting as dp
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.rdp import RdpAccountant

from odometer_accountant.numerics.grid import GRID_V1
from tests.support.peers import Order, Pair, draws, never, truths

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
        case "composed":
            counted = zip(document["mechanisms"], document["counts"], strict=True)
            return dp.ComposedDpEvent([dp.SelfComposedDpEvent(event_of(one), n) for one, n in counted])
        case "adaptive_clipping":
            count = dp.GaussianDpEvent(2 * document["count_standard_deviation"])  # of sensitivity ½
            return dp.ComposedDpEvent([dp.GaussianDpEvent(document["gradient_noise_multiplier"]), count])
    raise KeyError(document["kind"])


def plain(document: Document, orders: Sequence[Order]) -> Sequence[float]:
    return composed(event_of(document), orders)


def response(document: Document, orders: Sequence[Order]) -> Sequence[float]:
    """Its noise parameter is the probability of a redraw among all k answers, the true one included."""
    k = document["k"]
    redrawn = (1 - document["probability_of_truth"]) * k / (k - 1)
    return composed(dp.RandomizedResponseDpEvent(redrawn, k), orders, REPLACE)


def batch(document: Document, orders: Sequence[Order]) -> Sequence[float]:
    event = dp.SampledWithoutReplacementDpEvent(
        document["population"], document["batch_size"], event_of(document["base"])
    )
    return composed(event, orders, REPLACE)


def tuned(document: Document, orders: Sequence[Order]) -> Sequence[float]:
    """It takes the mean number of runs, and finds gamma from it."""
    law = document["repeats"]
    shape = {"geometric": 1.0, "logarithmic": 0.0, "poisson": math.inf}.get(
        law["distribution"], law.get("eta")
    )
    mean = law["mean"] if "mean" in law else _mean(law["gamma"], shape)
    return composed(dp.dp_event.RepeatAndSelectDpEvent(event_of(document["base"]), mean, shape), orders)


def _mean(gamma: float, eta: float) -> float:
    """Papernot, Steinke 2022, Definition 1."""
    if eta == 0:
        return (1 / gamma - 1) / math.log(1 / gamma)
    return eta * (1 - gamma) / (gamma * (1 - gamma**eta))


def tree(document: Document, orders: Sequence[Order]) -> Sequence[float]:
    """Each unit takes part once, in one of the trees: its only case with a Rényi curve."""
    steps = [document["steps"]] * document["trees"]
    event = dp.SingleEpochTreeAggregationDpEvent(document["noise_multiplier"], steps)
    return composed(event, orders, dp.NeighboringRelation.REPLACE_SPECIAL)


def tight(document: Document, delta: float) -> float:
    """The ε of a privacy-loss distribution, rounded down."""
    down = {"pessimistic_estimate": False, "value_discretization_interval": 1e-3}
    match document["kind"]:
        case "discrete_laplace":
            found = pld.from_discrete_laplace_mechanism(
                1 / document["scale"], sensitivity=document["sensitivity"], **down
            )
        case "discrete_gaussian":
            found = pld.from_discrete_gaussian_mechanism(document["noise_multiplier"], **down)
        case "pure" | "approximate":
            stated = DifferentialPrivacyParameters(document["epsilon"], document.get("delta", 0.0))
            # It knows no rounding down: a cell that ends at ε, and less than the width of one off.
            found = pld.from_privacy_parameters(stated, document["epsilon"] / 1000 * (1 + 1e-12))
            return float(found.get_epsilon_for_delta(delta)) * (1 - 1e-9)
        case kind:
            raise KeyError(kind)
    return float(found.get_epsilon_for_delta(delta))


PAIRS: Final = (
    Pair("gaussian", draws.gaussian, plain),
    Pair("laplace", draws.laplace, plain),
    Pair("zcdp", draws.zcdp, plain),
    Pair("randomized_response", draws.any_response, response),
    Pair("adaptive_clipping", draws.adaptive_clipping, plain),
    Pair("tree_aggregation", draws.tree, tree),
    Pair("discrete_laplace", draws.discrete_laplace, epsilon=tight),
    Pair("discrete_gaussian", draws.discrete_gaussian, epsilon=tight),
    Pair("pure", draws.pure, epsilon=tight),
    Pair("approximate", draws.approximate, epsilon=tight),
    Pair("poisson_subsampled(gaussian)", draws.sampled_gaussian, plain, fractional_max=16, points=5),
    Pair("composed", draws.several, plain),
    Pair("tuned(gaussian)", draws.tuned, tuned, grid=GRID_V1),
    Pair(
        "poisson_subsampled(composed)",
        draws.sampled_several,
        plain,
        truth=truths.sampled_gaussians,
        fractional_max=16,
        points=5,
    ),
    Pair(
        "sampled_without_replacement(gaussian)",
        draws.batch_gaussian,
        batch,
        truth=truths.batch,
        tight=never,
        whole_max=512,
        fractional_max=16,
        points=4,
    ),
)
