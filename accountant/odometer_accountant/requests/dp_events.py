"""What another accountant calls an event, as charges: the JSON of a `DpEvent` of the library dp_accounting.

The library hands its events over as named tuples; their JSON is that of the tuple's fields, by name:

    {"class_name": "PoissonSampledDpEvent", "sampling_probability": 0.01,
     "event": {"class_name": "GaussianDpEvent", "noise_multiplier": 1.1}}

`module_name` may stand beside `class_name`. What is not known, or known only in part, is refused by its name
and its place in the tree: an event that is passed over would be a loss that nobody counts. An event says
nothing about adjacency: its numbers are taken as they are, and mean noise over the sensitivity under that of
the dataset.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, NoReturn

from pydantic import ValidationError

from odometer_accountant.errors import InvalidRequest
from odometer_accountant.mechanisms import ANY_MECHANISM, Mechanism, Model
from odometer_accountant.mechanisms.charge import COUNT_MAX, ITEMS_MAX
from odometer_accountant.numerics.grid import CURRENT_GRID
from odometer_accountant.numerics.rounding import decimal, shown_down, shown_up
from odometer_accountant.requests.json_input import invalid, validated
from odometer_accountant.requests.suggestions import instead

MODULES: Final = ("dp_accounting.dp_event", "dp_accounting")
"""Where the classes that are known come from; one of the same name from elsewhere is another class."""
DEPTH_MAX: Final = 24
"""Of events within events."""
EVENTS_MAX: Final = 100_000
_NOTES_MAX: Final = 20
_MOST: Final = 1e300
_MOST_GAMMA: Final = 0.999

Plan = dict[str, tuple[dict[str, Any], int]]
"""Mechanisms, each once, with how often it runs; by its document's text."""
Fields = Mapping[str, Any]


class DpEvents(Model):
    """An event of dp_accounting, to be told as charges."""

    dp_event: dict[str, Any]
    """The event: `class_name`, and its fields by name; an event within it is such an object again."""


def convert_event(body: bytes | Mapping[str, Any]) -> dict[str, Any]:
    """{"charges": [{"mechanism", "count"}, …]} of a request, and `notes` on what of it loses nothing.

    Raises InvalidRequest: what, and where.
    """
    notes: list[str] = []
    found = charges(validated(DpEvents, body).dp_event, notes)
    if not found:
        notes.insert(0, "this event loses nothing: there is nothing to charge")
    return {"charges": found, **({"notes": notes[:_NOTES_MAX]} if notes else {})}


def charges(event: Any, notes: list[str] | None = None) -> list[dict[str, Any]]:
    """What to charge for an event; nothing for one without a loss. Raises InvalidRequest.

    To `notes` is added, with its place, what loses nothing because it runs 0 times or is made of nothing.
    """
    plan = _Walk([] if notes is None else notes).plan(event, "dp_event", 1)
    if len(plan) > ITEMS_MAX:
        _refuse(
            "dp_event", f"is made of {len(plan)} different mechanisms: charge its parts, {ITEMS_MAX} at most"
        )
    return [{"mechanism": mechanism, "count": count} for mechanism, count in plan.values()]


@dataclass(frozen=True)
class _Kind:
    """How one class of events is read."""

    fields: Mapping[str, str]
    """Its fields: number, whole, event, events, numbers, steps or repeats."""
    plan: Callable[["_Here", Fields], Plan]
    optional: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Here:
    """An event's place in the tree."""

    walk: "_Walk"
    path: str
    name: str
    depth: int

    def under(self, event: Any, field: str) -> Plan:
        """The plan of an event within this one."""
        return self.walk.plan(event, f"{self.path}.{field}", self.depth + 1)

    def one(self, document: dict[str, Any]) -> Plan:
        """The plan of one mechanism that runs once, if this service takes its parameters."""
        if document["kind"] not in Mechanism.registry:
            self.refuse(f"this version of the service has no mechanism {document['kind']!r} to charge it as")
        try:
            mechanism = ANY_MECHANISM.validate_python(document)
        except ValidationError as error:
            try:
                invalid(error, document, ANY_MECHANISM)
            except InvalidRequest as said:
                self.refuse(f"as {document['kind']}, {said.detail.removeprefix('body: ')}")
        told = mechanism.document()
        return {repr(told): (told, 1)}

    def nothing(self, why: str) -> Plan:
        """No loss, which somebody may not have meant."""
        self.walk.notes.append(f"{self.path}: {self.name}: {why}: it loses nothing and is not charged")
        return {}

    def refuse(self, why: str) -> NoReturn:
        _refuse(self.path, f"{self.name}: {why}")


class _Walk:
    """One tree of events, read once."""

    def __init__(self, notes: list[str]) -> None:
        self._events = 0
        self.notes = notes

    def plan(self, event: Any, path: str, depth: int) -> Plan:
        self._events += 1
        if depth > DEPTH_MAX or self._events > EVENTS_MAX:
            _refuse(
                path, f"more than {DEPTH_MAX} events within each other, or {EVENTS_MAX} in all: charge parts"
            )
        if not isinstance(event, Mapping) or not isinstance(event.get("class_name"), str):
            _refuse(path, "must be an event: an object with a class_name and the fields of that class")
        name, module = event["class_name"], event.get("module_name", MODULES[0])
        if module not in MODULES:
            _refuse(path, f"{name} of module {module!r} is not known: those of {MODULES[0]} are")
        here = _Here(self, path, name, depth)
        if name in REFUSED:
            here.refuse(REFUSED[name])
        kind = KINDS.get(name)
        if kind is None:
            here.refuse(
                "this class of events is not known here, so its loss would not be counted: charge the "
                f"mechanism that it stands for, or what was proved of it. {instead(name, KINDS)}"
            )
        return kind.plan(here, _fields(here, kind, event))


def _fields(here: _Here, kind: _Kind, event: Mapping[str, Any]) -> Fields:
    """The fields of an event, each as it should be. Raises InvalidRequest."""
    given = {name: value for name, value in event.items() if name not in ("class_name", "module_name")}
    for name in given:
        if name not in kind.fields:
            here.refuse(
                f"its field {name[:60]!r} is not known here, and may change what the event costs: "
                f"{instead(name, kind.fields)}"
            )
    for name, what in kind.fields.items():
        if name not in given:
            if name not in kind.optional:
                here.refuse(f"its field {name!r} is missing")
        elif not _CHECKS[what](given[name]):
            _refuse(f"{here.path}.{name}", f"{here.name}: must be {_WORDS[what]}")
    return given


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -_MOST < value < _MOST  # false for NaN; whole numbers have no bound of their own


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


_CHECKS: Final[dict[str, Callable[[Any], bool]]] = {
    "number": lambda value: _is_number(value) and value >= 0,
    "whole": _is_whole,
    "shape": lambda value: value == "inf" or (_is_number(value) and value >= 0),
    "steps": lambda value: _is_whole(value) or (_is_list(value) and all(_is_whole(item) for item in value)),
    "event": lambda _: True,
    "events": _is_list,
}
_WORDS: Final = {
    "number": "a finite number from 0 on",
    "whole": "a whole number from 0 on",
    "shape": 'a number from 0 on, or "inf"',
    "steps": "a whole number from 0 on, or a list of them",
    "events": "a list of events",
}


def _refuse(path: str, why: str) -> NoReturn:
    raise InvalidRequest.of(path, why)


# -- plans


def _added(plans: Sequence[Plan], here: _Here) -> Plan:
    """One after the other: the same mechanism runs as often as in all of them."""
    total: Plan = {}
    for plan in plans:
        for text, (mechanism, count) in plan.items():
            before = total[text][1] if text in total else 0
            total[text] = (mechanism, _count(before + count, here))
    return total


def _repeated(plan: Plan, times: int, here: _Here) -> Plan:
    if times == 0:
        return here.nothing("runs 0 times")
    return {text: (mechanism, _count(count * times, here)) for text, (mechanism, count) in plan.items()}


def _count(count: int, here: _Here) -> int:
    if count > COUNT_MAX:
        here.refuse(
            f"a mechanism of it runs {count} times, and one charge has {COUNT_MAX} at most: charge parts"
        )
    return count


def _as_one(plan: Plan, here: _Here) -> dict[str, Any] | None:
    """What runs on one sample, or is repeated as a whole, as one mechanism; None for nothing.

    Never each part by itself: several releases of one sample cost more together than each sampled alone.
    """
    parts = list(plan.values())
    if not parts:
        return None
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]
    if all(mechanism["kind"] == "gaussian" and mechanism["noise_multiplier"] for mechanism, _ in parts):
        return next(iter(here.one(_one_gaussian(parts)).values()))[0]
    document = {
        "kind": "composed",
        "mechanisms": [mechanism for mechanism, _ in parts],
        "counts": [count for _, count in parts],
    }
    return next(iter(here.one(document).values()))[0]


def _one_gaussian(parts: Sequence[tuple[dict[str, Any], int]]) -> dict[str, Any]:
    """Gaussians one after the other are one, its 1/z² the sum of theirs (Dong, Roth, Su 2022, Cor. 2)."""
    mu_squared = sum(count / decimal(one["noise_multiplier"]) ** 2 for one, count in parts)
    exact = 1 / mu_squared
    z = math.sqrt(exact)
    while decimal(z) ** 2 > exact:
        z = math.nextafter(z, 0.0)
    return {"kind": "gaussian", "noise_multiplier": z}


def _around(
    document: Callable[[dict[str, Any], Fields], dict[str, Any]],
) -> Callable[[_Here, Fields], Plan]:
    """A mechanism around what runs within: nothing around nothing, no bound around what has none."""

    def plan(here: _Here, fields: Fields) -> Plan:
        inner = here.under(fields["event"], "event")
        for mechanism, _ in inner.values():
            if mechanism["kind"] == "non_private":
                return here.one(mechanism)
        base = _as_one(inner, here)
        return {} if base is None else here.one(document(base, fields))

    return plan


def _said(document: Callable[[Fields], dict[str, Any]]) -> Callable[[_Here, Fields], Plan]:
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


def _randomized_response(here: _Here, fields: Fields) -> Plan:
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
    tallest = max(steps, default=0) if _is_list(steps) else steps
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
    """The law of the number of runs; its γ is rounded down, towards more runs."""
    if shape == "inf" or mean < 1:  # below 1 it is refused for what it says
        return {"distribution": "poisson", "mean": mean}
    if shape == 1:
        return {"distribution": "geometric", "gamma": min(_MOST_GAMMA, _rounded_down(1 / decimal(mean)))}
    gamma = min(_MOST_GAMMA, _gamma(float(mean), float(shape)))
    if shape == 0:
        return {"distribution": "logarithmic", "gamma": gamma}
    return {"distribution": "negative_binomial", "gamma": gamma, "eta": float(shape)}


def _gamma(mean: float, shape: float) -> float:
    """γ of which the mean number of runs is a little above `mean` (Papernot, Steinke 2022, Def. 1)."""
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


# -- the classes


def _one_after_the_other(here: _Here, fields: Fields) -> Plan:
    plans = [here.under(event, f"events.{place}") for place, event in enumerate(fields["events"])]
    if not plans:
        return here.nothing("is made of no events")
    return _added(plans, here)


def _many_times(here: _Here, fields: Fields) -> Plan:
    return _repeated(here.under(fields["event"], "event"), fields["count"], here)


KINDS: Final[dict[str, _Kind]] = {
    "NoOpDpEvent": _Kind({}, lambda *_: {}),
    "NonPrivateDpEvent": _Kind({}, _said(lambda _: _non_private("NonPrivateDpEvent"))),
    "GaussianDpEvent": _Kind({"noise_multiplier": "number"}, _said(_gaussian)),
    "LaplaceDpEvent": _Kind({"noise_multiplier": "number"}, _said(_laplace)),
    "DiscreteGaussianDpEvent": _Kind({"sigma": "number", "sensitivity": "whole"}, _said(_discrete_gaussian)),
    "DiscreteLaplaceDpEvent": _Kind(
        {"noise_parameter": "number", "sensitivity": "whole"}, _said(_discrete_laplace)
    ),
    "RandomizedResponseDpEvent": _Kind(
        {"noise_parameter": "number", "num_buckets": "whole"}, _randomized_response
    ),
    "ZCDpEvent": _Kind({"rho": "number", "xi": "number"}, _said(_zcdp), frozenset({"xi"})),
    "EpsilonDeltaDpEvent": _Kind({"epsilon": "number", "delta": "number"}, _said(_epsilon_delta)),
    "SelfComposedDpEvent": _Kind({"event": "event", "count": "whole"}, _many_times),
    "ComposedDpEvent": _Kind({"events": "events"}, _one_after_the_other),
    "PoissonSampledDpEvent": _Kind({"sampling_probability": "number", "event": "event"}, _around(_poisson)),
    "SampledWithoutReplacementDpEvent": _Kind(
        {"source_dataset_size": "whole", "sample_size": "whole", "event": "event"},
        _around(_without_replacement),
    ),
    "SingleEpochTreeAggregationDpEvent": _Kind(
        {"noise_multiplier": "number", "step_counts": "steps"}, _said(_tree)
    ),
    "RepeatAndSelectDpEvent": _Kind({"event": "event", "mean": "number", "shape": "shape"}, _around(_tuned)),
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
"""Classes that are known and have no sound charge here, each with what would work."""
