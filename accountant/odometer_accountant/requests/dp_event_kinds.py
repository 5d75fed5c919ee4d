"""How each class of dp_accounting events is charged: `KINDS`, and `REFUSED` for those that are not."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from odometer_accountant.numerics.grid import CURRENT_GRID
from odometer_accountant.numerics.rounding import decimal, shown_down, shown_up
from odometer_accountant.requests.dp_event_plans import Event, Fields, Plan, added, as_one, repeated

_MOST_GAMMA: Final = 0.999


@dataclass(frozen=True)
class EventKind:
    """How one class of events is read and charged."""

    fields: Mapping[str, str]
    """Its fields: number, whole, event, events, numbers, steps or repeats."""
    plan: Callable[[Event, Fields], Plan]
    optional: frozenset[str] = frozenset()


def _around(
    document: Callable[[dict[str, Any], Fields], dict[str, Any]],
) -> Callable[[Event, Fields], Plan]:
    """A mechanism around its inner event: nothing around nothing, no bound around an event without one."""

    def plan(here: Event, fields: Fields) -> Plan:
        inner = here.under(fields["event"], "event")
        for mechanism, _ in inner.values():
            if mechanism["kind"] == "non_private":
                return here.one(mechanism)
        base = as_one(inner, here)
        return {} if base is None else here.one(document(base, fields))

    return plan


def _said(document: Callable[[Fields], dict[str, Any]]) -> Callable[[Event, Fields], Plan]:
    """One mechanism, from the fields alone."""
    return lambda here, fields: here.one(document(fields))


def _non_private(what: str) -> dict[str, Any]:
    return {"kind": "non_private", "what": what}


def _gaussian(fields: Fields) -> dict[str, Any]:
    return {"kind": "gaussian", "noise_multiplier": fields["noise_multiplier"]}


def _laplace(fields: Fields) -> dict[str, Any]:
    if fields["noise_multiplier"] == 0:
        return _non_private("LaplaceDpEvent without noise")
    return {"kind": "laplace", "scale_over_sensitivity": fields["noise_multiplier"]}


def _randomized_response(here: Event, fields: Fields) -> Plan:
    buckets, noise = fields["num_buckets"], decimal(fields["noise_parameter"])
    if buckets < 2 or noise > 1:
        here.refuse("num_buckets must be at least 2, and noise_parameter a probability")
    truth = _rounded_up(1 - noise + noise / buckets)
    return here.one({"kind": "randomized_response", "k": buckets, "probability_of_truth": truth})


def _zcdp(fields: Fields) -> dict[str, Any]:
    xi, rho = fields.get("xi", 0), fields["rho"]
    if xi == 0:
        return {"kind": "zcdp", "rho": rho}
    orders = CURRENT_GRID.exact_orders
    return {
        "kind": "renyi_curve",
        "orders": [float(order) for order in orders],
        "epsilons": [_rounded_up(decimal(xi) + decimal(rho) * order) for order in orders],
    }


def _epsilon_delta(fields: Fields) -> dict[str, Any]:
    if fields["delta"] == 0:
        return {"kind": "pure", "epsilon": fields["epsilon"]}
    return {"kind": "approximate", "epsilon": fields["epsilon"], "delta": fields["delta"]}


def _discrete_gaussian(fields: Fields) -> dict[str, Any]:
    multiplier = _rounded_down(decimal(fields["sigma"]) / max(1, fields["sensitivity"]))
    return {"kind": "discrete_gaussian", "noise_multiplier": multiplier}


def _discrete_laplace(fields: Fields) -> dict[str, Any]:
    noise, sensitivity = decimal(fields["noise_parameter"]), fields["sensitivity"]
    if noise == 0:  # a flat law on all integers: there is no such noise
        return {"kind": "discrete_laplace", "scale": 0.0, "sensitivity": sensitivity}
    return {"kind": "discrete_laplace", "scale": _rounded_down(1 / noise), "sensitivity": sensitivity}


def _tree(fields: Fields) -> dict[str, Any]:
    steps = fields["step_counts"]
    # A record is in one tree at most, so the tallest tree is what it may lose.
    tallest = steps if isinstance(steps, int) else max(steps, default=0)
    return {
        "kind": "tree_aggregation",
        "noise_multiplier": fields["noise_multiplier"],
        "steps": tallest,
        "trees": 1,
        "participations": 1,
    }


def _poisson(base: dict[str, Any], fields: Fields) -> dict[str, Any]:
    return {"kind": "poisson_subsampled", "base": base, "sampling_rate": fields["sampling_probability"]}


def _without_replacement(base: dict[str, Any], fields: Fields) -> dict[str, Any]:
    return {
        "kind": "sampled_without_replacement",
        "base": base,
        "batch_size": fields["sample_size"],
        "population": fields["source_dataset_size"],
    }


def _tuned(base: dict[str, Any], fields: Fields) -> dict[str, Any]:
    return {"kind": "tuned", "base": base, "repeats": _repeats(fields["mean"], fields["shape"])}


def _repeats(mean: float, shape: float | str) -> dict[str, Any]:
    """The distribution of the number of runs; its γ is rounded down, towards more runs."""
    if shape == "inf" or mean < 1:  # below 1 it is refused for what it says
        return {"distribution": "poisson", "mean": mean}
    if shape == 1:
        return {"distribution": "geometric", "gamma": min(_MOST_GAMMA, _rounded_down(1 / decimal(mean)))}
    gamma = min(_MOST_GAMMA, _gamma(float(mean), float(shape)))
    if shape == 0:
        return {"distribution": "logarithmic", "gamma": gamma}
    return {"distribution": "negative_binomial", "gamma": gamma, "eta": float(shape)}


def _gamma(mean: float, shape: float) -> float:
    """The γ whose mean number of runs is slightly above `mean` (Papernot, Steinke 2022, Def. 1)."""
    low, high = math.log(1e-12), 0.0
    for _ in range(100):
        middle = (low + high) / 2
        runs = math.expm1(-middle)  # 1/γ − 1
        expected = runs / -middle if shape == 0 else shape * runs / -math.expm1(shape * middle)
        low, high = (middle, high) if expected >= mean * (1 + 1e-9) else (low, middle)
    return math.exp(low)


def _rounded_up(exact: Fraction) -> float:
    """A number whose shortest decimal is not below `exact`."""
    return shown_up(exact.numerator, exact.denominator)


def _rounded_down(exact: Fraction) -> float:
    """A number whose shortest decimal is not above `exact`."""
    return shown_down(exact.numerator, exact.denominator)


def _one_after_the_other(here: Event, fields: Fields) -> Plan:
    plans = [here.under(event, f"events.{place}") for place, event in enumerate(fields["events"])]
    if not plans:
        return here.nothing("is made of no events")
    return added(plans, here)


def _many_times(here: Event, fields: Fields) -> Plan:
    return repeated(here.under(fields["event"], "event"), fields["count"], here)


KINDS: Final[dict[str, EventKind]] = {
    "NoOpDpEvent": EventKind({}, lambda *_: {}),
    "NonPrivateDpEvent": EventKind({}, _said(lambda _: _non_private("NonPrivateDpEvent"))),
    "GaussianDpEvent": EventKind({"noise_multiplier": "number"}, _said(_gaussian)),
    "LaplaceDpEvent": EventKind({"noise_multiplier": "number"}, _said(_laplace)),
    "DiscreteGaussianDpEvent": EventKind(
        {"sigma": "number", "sensitivity": "whole"}, _said(_discrete_gaussian)
    ),
    "DiscreteLaplaceDpEvent": EventKind(
        {"noise_parameter": "number", "sensitivity": "whole"}, _said(_discrete_laplace)
    ),
    "RandomizedResponseDpEvent": EventKind(
        {"noise_parameter": "number", "num_buckets": "whole"}, _randomized_response
    ),
    "ZCDpEvent": EventKind({"rho": "number", "xi": "number"}, _said(_zcdp), frozenset({"xi"})),
    "EpsilonDeltaDpEvent": EventKind({"epsilon": "number", "delta": "number"}, _said(_epsilon_delta)),
    "SelfComposedDpEvent": EventKind({"event": "event", "count": "whole"}, _many_times),
    "ComposedDpEvent": EventKind({"events": "events"}, _one_after_the_other),
    "PoissonSampledDpEvent": EventKind(
        {"sampling_probability": "number", "event": "event"}, _around(_poisson)
    ),
    "SampledWithoutReplacementDpEvent": EventKind(
        {"source_dataset_size": "whole", "sample_size": "whole", "event": "event"},
        _around(_without_replacement),
    ),
    "SingleEpochTreeAggregationDpEvent": EventKind(
        {"noise_multiplier": "number", "step_counts": "steps"}, _said(_tree)
    ),
    "RepeatAndSelectDpEvent": EventKind(
        {"event": "event", "mean": "number", "shape": "shape"}, _around(_tuned)
    ),
}
"""How each class of events is charged."""

REFUSED: Final = {
    "UnsupportedDpEvent": "it says itself that nothing is known of what it costs",
    "SampledWithReplacementDpEvent": (
        "a record may be in a batch several times, and no curve for that is built here: sample without "
        "replacement, or charge what runs on the batch unsampled, with the noise over the sensitivity of a "
        "record that is in it as often as it can be"
    ),
    "MixtureOfGaussiansDpEvent": (
        "its sensitivity is itself random, and no curve for that is built here: charge a gaussian with the "
        "noise over the largest sensitivity"
    ),
    "TruncatedSubsampledGaussianDpEvent": (
        "which records a truncated batch keeps depends on the others, and no curve for that is built here: "
        "do not truncate batches, or charge the gaussian unsampled, with the noise over twice the clip norm"
    ),
}
"""Known classes without a sound charge here, each with what to do instead."""
