"""Random documents over wide ranges: evenly in the logarithm, as short decimals."""

import math
from typing import Any

import numpy as np

Document = dict[str, Any]
Rng = np.random.Generator


def number(rng: Rng, least: float, most: float) -> float:
    """Between the two, evenly in the logarithm, with six digits."""
    return float(f"{math.exp(rng.uniform(math.log(least), math.log(most))):.6g}")


def whole(rng: Rng, least: int, most: int) -> int:
    return round(number(rng, least, most))


def gaussian(rng: Rng) -> Document:
    return {"kind": "gaussian", "noise_multiplier": number(rng, 0.3, 100)}


def laplace(rng: Rng) -> Document:
    return {"kind": "laplace", "scale_over_sensitivity": number(rng, 0.05, 1000)}


def pure(rng: Rng) -> Document:
    return {"kind": "pure", "epsilon": number(rng, 1e-4, 20)}


def zcdp(rng: Rng) -> Document:
    return {"kind": "zcdp", "rho": number(rng, 1e-9, 100)}


def approximate(rng: Rng) -> Document:
    return {"kind": "approximate", "epsilon": number(rng, 1e-3, 10), "delta": number(rng, 1e-12, 1e-3)}


def exponential(rng: Rng) -> Document:
    return {"kind": "exponential", "epsilon": number(rng, 1e-4, 20)}


def above_threshold(rng: Rng) -> Document:
    epsilon = number(rng, 1e-3, 10)
    return {"kind": "above_threshold", "epsilon_threshold": epsilon, "epsilon_answers": epsilon}


def discrete_gaussian(rng: Rng) -> Document:
    return {"kind": "discrete_gaussian", "noise_multiplier": number(rng, 0.3, 100)}


def discrete_laplace(rng: Rng) -> Document:
    # By their quotient: of 1,000 over 0.1 nobody would compute a distribution.
    sensitivity = whole(rng, 1, 100)
    scale = float(f"{sensitivity * number(rng, 0.1, 100):.6g}")
    return {"kind": "discrete_laplace", "scale": scale, "sensitivity": sensitivity}


def adaptive_clipping(rng: Rng) -> Document:
    noises = {
        "gradient_noise_multiplier": number(rng, 0.1, 100),
        "count_standard_deviation": number(rng, 1, 100),
    }
    return {"kind": "adaptive_clipping", **noises}


def tree(rng: Rng) -> Document:
    shape = {
        "steps": whole(rng, 1, 100_000),
        "trees": whole(rng, 1, 20),
        "participations": 1,
        "separation": 0,
    }
    return {"kind": "tree_aggregation", "noise_multiplier": number(rng, 0.1, 100), **shape}


def votes(rng: Rng) -> Document:
    return {"kind": "pate_gnmax", "standard_deviation_of_counts": number(rng, 0.1, 1000)}


def response(rng: Rng, k: int) -> Document:
    """Randomised response by its probability of the truth: ε between 0.001 and 20."""
    truth = 1 / (1 + (k - 1) * math.exp(-number(rng, 1e-3, 20)))
    return {"kind": "randomized_response", "k": k, "probability_of_truth": float(f"{truth:.15g}")}


def binary_response(rng: Rng) -> Document:
    return response(rng, 2)


def any_response(rng: Rng) -> Document:
    return response(rng, whole(rng, 2, 1000))


def rate(rng: Rng) -> float:
    """A sampling rate, tiny ones too."""
    return number(rng, 1e-9, 0.95)


def sampled(rng: Rng, base: Document) -> Document:
    return {"kind": "poisson_subsampled", "base": base, "sampling_rate": rate(rng)}


def sampled_gaussian(rng: Rng) -> Document:
    return sampled(rng, gaussian(rng))


def sampled_laplace(rng: Rng) -> Document:
    return sampled(rng, laplace(rng))


def sampled_pure(rng: Rng) -> Document:
    return sampled(rng, pure(rng))


def several(rng: Rng) -> Document:
    """A Gaussian and a Laplace release, each several times."""
    counts = [whole(rng, 1, 1000), whole(rng, 1, 1000)]
    return {"kind": "composed", "mechanisms": [gaussian(rng), laplace(rng)], "counts": counts}


def sampled_several(rng: Rng) -> Document:
    """Two Gaussians from one sample."""
    noises = [{"kind": "gaussian", "noise_multiplier": number(rng, 0.8, 100)} for _ in range(2)]
    return sampled(rng, {"kind": "composed", "mechanisms": noises, "counts": [whole(rng, 1, 4), 1]})


def batch(rng: Rng, base: Document) -> Document:
    population = whole(rng, 2, 10_000_000)
    size = {"batch_size": whole(rng, 1, population - 1) if population > 2 else 1, "population": population}
    return {"kind": "sampled_without_replacement", "base": base, **size}


def batch_gaussian(rng: Rng) -> Document:
    return batch(rng, {"kind": "gaussian", "noise_multiplier": number(rng, 0.5, 100)})


def batch_laplace(rng: Rng) -> Document:
    return batch(rng, laplace(rng))


def tuned(rng: Rng) -> Document:
    """The best of a random number of Gaussians, its law one of four."""
    gamma = number(rng, 1e-3, 0.9)
    laws = (
        {"distribution": "geometric", "gamma": gamma},
        {"distribution": "logarithmic", "gamma": gamma},
        {"distribution": "negative_binomial", "gamma": gamma, "eta": number(rng, 0.01, 10)},
        {"distribution": "poisson", "mean": number(rng, 1, 1000)},
    )
    return {"kind": "tuned", "base": gaussian(rng), "repeats": laws[rng.integers(len(laws))]}
