"""autodp: mechanisms of its zoo and its amplification by sampling, evaluated as Rényi curves."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from autodp import mechanism_zoo as zoo
from autodp import rdp_bank, transformer_zoo

from tests.support.peers import Order, Pair, draws, never, truths, whole_to_64

Document = dict[str, Any]


def mechanism_of(document: Document) -> Any:
    match document["kind"]:
        case "gaussian":
            return zoo.ExactGaussianMechanism(document["noise_multiplier"])
        case "laplace":
            return zoo.LaplaceMechanism(document["scale_over_sensitivity"])
        case "randomized_response":
            return zoo.RandresponseMechanism(document["probability_of_truth"])
        case "pure":
            return zoo.PureDP_Mechanism(document["epsilon"])
        case "zcdp":
            return zoo.zCDP_Mechanism(document["rho"])
        case "discrete_gaussian":
            return zoo.DiscreteGaussianMechanism(document["noise_multiplier"])
        case "exponential":
            return zoo.ExponentialMechanism(document["epsilon"])
        case "above_threshold":
            # One run, of any length: their query noise is twice the threshold's, as with both ε equal here.
            scale = 1 / document["epsilon_threshold"]
            return zoo.LaplaceSVT_Mechanism({"b": scale, "k": math.inf, "c": 1})
    raise KeyError(document["kind"])


def curve(document: Document, orders: Sequence[Order]) -> list[float]:
    mechanism = mechanism_of(document)
    return [float(mechanism.RenyiDP(order)) for order in orders]


def votes(document: Document, orders: Sequence[Order]) -> list[float]:
    """Of noisy votes it takes the paper's σ: the deviation of the noise on a count."""
    params = {"sigma": document["standard_deviation_of_counts"]}
    return [float(rdp_bank.RDP_inde_pate_gaussian(params, order)) for order in orders]


def sampled(improved: bool, poisson: bool = True) -> Callable[[Document, Sequence[Order]], list[float]]:
    """Sampling by its theorem for any mechanism, or the tighter one that needs conditions."""

    def of(document: Document, orders: Sequence[Order]) -> list[float]:
        amplify = transformer_zoo.AmplificationBySampling(PoissonSampling=poisson)
        base = mechanism_of(document["base"])
        if not poisson:
            base.neighboring = "replace_one"  # as ours: the noise is over that sensitivity
        rate = document["sampling_rate"] if poisson else document["batch_size"] / document["population"]
        mechanism = amplify(base, rate, improved_bound_flag=improved)
        return [float(mechanism.RenyiDP(order)) for order in orders]

    return of


PAIRS: Final = (
    Pair("gaussian", draws.gaussian, curve),
    Pair("laplace", draws.laplace, curve),
    Pair("randomized_response", draws.binary_response, curve),
    Pair("pure", draws.pure, curve),
    Pair("zcdp", draws.zcdp, curve),
    Pair("discrete_gaussian", draws.discrete_gaussian, curve),
    Pair("pate_gnmax", draws.votes, votes),
    Pair("exponential", draws.exponential, curve),
    Pair("above_threshold", draws.above_threshold, curve),
    Pair("poisson_subsampled(gaussian)", draws.sampled_gaussian, sampled(True), fractional_max=16, points=5),
    Pair(
        "poisson_subsampled(laplace)",
        draws.sampled_laplace,
        sampled(True),
        truth=truths.sampled_laplace,
        tight=whole_to_64,
        whole_max=512,
        points=4,
    ),
    Pair(
        "poisson_subsampled(pure)",
        draws.sampled_pure,
        sampled(False),
        truth=truths.sampled_pure,
        whole_max=2048,
        points=5,
    ),
    Pair(
        "sampled_without_replacement(gaussian)",
        draws.batch_gaussian,
        sampled(True, False),
        truth=truths.batch,
        tight=never,
        whole_max=512,
        fractional_max=16,
        points=4,
    ),
    Pair(
        "sampled_without_replacement(laplace)",
        draws.batch_laplace,
        sampled(False, False),
        truth=truths.batch,
        tight=never,
        whole_max=512,
        points=4,
    ),
)
