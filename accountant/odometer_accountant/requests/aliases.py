"""What the field calls things that have another name here: letters, short forms, names of other libraries."""

from collections.abc import Mapping
from typing import Final

_NOISE: Final = ("noise_multiplier", "standard_deviation_of_counts", "scale_over_sensitivity", "scale")
_SCALE: Final = ("scale_over_sensitivity", "noise_multiplier", "scale")
_RATE: Final = ("sampling_rate",)
_EPSILON: Final = ("epsilon", "epsilon0", "optimized_epsilon", "epsilons")
_SIZE: Final = ("population", "clients")
_MANY: Final = ("count", "steps", "epochs", "counts")
_SAMPLED: Final = ("poisson_subsampled",)
_UNDER: Final = ("adjacency",)

ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    # parameters
    **dict.fromkeys(("sigma", "σ", "z", "noise", "std", "stddev", "standard_deviation"), _NOISE),
    **dict.fromkeys(("scale", "b", "noise_scale", "sensitivity"), (*_SCALE, "batch_size")),
    **dict.fromkeys(("n", "size", "dataset_size", "num_examples", "records"), _SIZE),
    **dict.fromkeys(("q", "p", "rate", "sample_rate", "sampling_probability", "probability"), _RATE),
    **dict.fromkeys(("eps", "ε", "epsilon", "e"), _EPSILON),
    **dict.fromkeys(("eps0", "ε0", "local_epsilon"), ("epsilon0", "epsilon")),
    **dict.fromkeys(("δ", "d"), ("delta",)),
    **dict.fromkeys(("ρ", "r"), ("rho",)),
    **dict.fromkeys(("μ", "m"), ("mu", "buckets")),
    **dict.fromkeys(("g", "k"), ("group_size", "buckets", "k", "participations", "repeats")),
    **dict.fromkeys(("alpha", "α", "alphas"), ("order", "orders")),
    **dict.fromkeys(("steps", "times", "number", "num", "iterations", "rounds"), _MANY),
    **dict.fromkeys(("categories", "domain_size", "values"), ("k", "buckets")),
    **dict.fromkeys(("batch", "lot_size"), ("batch_size",)),
    **dict.fromkeys(("neighbours", "neighbors", "neighboring", "neighboring_relation"), _UNDER),
    **dict.fromkeys(("privacy_unit", "protects"), ("unit",)),
    # kinds
    **dict.fromkeys(("dpsgd", "dp_sgd", "dp-sgd", "sgd", "subsampled_gaussian"), _SAMPLED),
    **dict.fromkeys(("sampled_gaussian", "subsampled", "poisson", "poisson_sampled"), _SAMPLED),
    **dict.fromkeys(("normal", "gauss", "gaussian_mechanism", "gaussian_noise"), ("gaussian",)),
    **dict.fromkeys(("laplace_mechanism", "laplace_noise"), ("laplace",)),
    **dict.fromkeys(("geometric", "geometric_mechanism", "two_sided_geometric"), ("discrete_laplace",)),
    **dict.fromkeys(("rr", "krr", "grr", "k_rr"), ("randomized_response",)),
    **dict.fromkeys(("svt", "sparse_vector", "sparse"), ("sparse_vector", "above_threshold")),
    **dict.fromkeys(("rnm", "noisy_max"), ("report_noisy_max",)),
    **dict.fromkeys(("pate", "gnmax"), ("pate_gnmax", "confident_gnmax")),
    **dict.fromkeys(("lnmax", "pate_laplace"), ("pate_lnmax",)),
    **dict.fromkeys(("ftrl", "dp_ftrl", "dp-ftrl", "tree"), ("tree_aggregation",)),
    **dict.fromkeys(("oue", "sue"), ("unary_encoding",)),
    **dict.fromkeys(("olh", "blh"), ("local_hashing",)),
    **dict.fromkeys(("cms",), ("count_mean_sketch",)),
    **dict.fromkeys(("epsilon_dp", "pure_dp", "dp"), ("pure",)),
    **dict.fromkeys(("adp", "approx", "approx_dp", "eps_delta"), ("approximate",)),
    **dict.fromkeys(("cdp",), ("zcdp",)),
    **dict.fromkeys(("rdp", "renyi_dp", "renyi"), ("renyi", "renyi_curve")),
}
"""What a name may have meant, the likeliest first: only one that is there is told.

Never a kind that may cost less than what the name stands for: a truncated CDP is no zCDP, and the noise of
GNMax is on counts.
"""

MEANS: Final[Mapping[str, str]] = {
    "noise_multiplier": "standard deviation of the noise over the sensitivity",
    "scale_over_sensitivity": "scale of the noise over the sensitivity",
    "standard_deviation_of_counts": "of the noise on each count",
    "poisson_subsampled": "of a gaussian: base.kind=gaussian, where each record is drawn by itself",
    "above_threshold": "one run; a session charges each run",
    "sampling_rate": "0 to 1",
}
"""What has to be said with a name that is told for another: the two may not be the same number."""
