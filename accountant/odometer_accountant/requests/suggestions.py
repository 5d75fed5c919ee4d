"""Suggestions for a wrong name: what it may have meant, the nearest spelling, or all the names there are."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher, get_close_matches
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import BaseModel, TypeAdapter

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
"""For a common name of the field or of another library: the names used here, the likeliest first.

A kind that may cost less than the one meant is never suggested: truncated CDP is not zCDP, and the noise of
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
"""The meaning of a suggested name, where its number may differ from the one meant."""

_COMPARED: Final = 100
"""Characters of a name that are compared: the time grows with their square."""
_NEAR: Final = 0.8
"""Least similarity of a misspelt word and the right one, 0 to 1."""


def instead(name: str, names: Iterable[str]) -> str:
    """`did you mean …?`, or a list of all names when none is near. Upper and lower case are equal.

    For a common name of the field (`sigma`, `dpsgd`) the name used here is suggested before a similar
    spelling.
    """
    known = {each.casefold(): each for each in names}
    near = get_close_matches(name[:_COMPARED].casefold(), known, n=1)
    return _told(name, known, near)


def kind_instead(name: str, kinds: Iterable[str]) -> str:
    """As `instead`, for kinds: a similar spelling is suggested only where each word is nearly the same.

    A name with a further word means something else, which may cost more: `gaussian_svt` is not a Gaussian.
    """
    known = {each.casefold(): each for each in kinds}
    words = name[:_COMPARED].casefold().split("_")
    return _told(name, known, [kind for kind in known if _misspelt(words, kind.split("_"))])


def near(name: str, names: Iterable[str]) -> str | None:
    """The name with the nearest spelling; None when none is near."""
    known = {_plain(each): each for each in names}
    found = get_close_matches(_plain(name[:_COMPARED]), known, n=1, cutoff=_NEAR)
    return known[found[0]] if found else None


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_").replace(" ", "_")


def _told(name: str, known: Mapping[str, str], near: Sequence[str]) -> str:
    for meant in ALIASES.get(name.casefold() if len(name) <= _COMPARED else "", ()):
        if meant in known:
            said = f" ({MEANS[meant]})" if meant in MEANS else ""
            return f"did you mean {known[meant]}{said}?"
    if near:
        return f"did you mean {known[near[0]]}?"
    return f"there are {', '.join(sorted(known.values()))}" if known else "there are none"


def _misspelt(words: Sequence[str], kind: Sequence[str]) -> bool:
    """Whether each word of a name is nearly the word at the same place of a kind."""
    if len(words) != len(kind):
        return False
    return all(map(_alike, words, kind))


def _alike(word: str, right: str) -> bool:
    swapped = sorted(word) == sorted(right)  # zcpd means zcdp; tcdp is another notion
    return swapped or SequenceMatcher(None, word, right).ratio() >= _NEAR


def fields_at(kind: Any, location: Sequence[int | str]) -> set[str]:
    """The fields of the object at `location` (as in errors of pydantic) in a document of type `kind`."""
    kinds = list(_one_of(kind))
    for part in location:
        named = [one for one in kinds if _called(one, part)] if len(kinds) > 1 else []
        # The name of one type of a union, which is not in the document itself; or one level down.
        kinds = named or [below for one in kinds for below in _below(one, part)] or kinds
    return {name for one in kinds if _is_model(one) for name in one.model_fields}


def _one_of(kind: Any) -> Iterator[Any]:
    """The types that a union is made of."""
    if isinstance(kind, TypeAdapter):
        yield from _one_of(kind._type)
    elif get_origin(kind) is Annotated:
        yield from _one_of(get_args(kind)[0])
    elif get_args(kind) and get_origin(kind) not in (tuple, list, dict):
        for each in get_args(kind):
            yield from _one_of(each)
    else:
        yield kind


def _called(kind: Any, name: int | str) -> bool:
    return _is_model(kind) and "kind" in kind.model_fields and kind.model_fields["kind"].default == name


def _below(kind: Any, part: int | str) -> Iterator[Any]:
    if _is_model(kind) and part in kind.model_fields:
        yield from _one_of(kind.model_fields[part].annotation)
    elif isinstance(part, int) and get_origin(kind) in (tuple, list):
        yield from _one_of(get_args(kind)[0])


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
