"""Events of dp_accounting become charges that cost what its own accountant says, or are refused by name."""

import importlib
import inspect
import json
import math
import pkgutil
import random
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting import dp_event as events
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from odometer_accountant.errors import InvalidRequest, MalformedBody
from odometer_accountant.mechanisms.charge import COUNT_MAX, Charge
from odometer_accountant.numerics.grid import CURRENT_GRID
from odometer_accountant.numerics.loss import Loss, total
from odometer_accountant.requests.dp_event_kinds import KINDS, REFUSED
from odometer_accountant.requests.dp_events import DEPTH_MAX, charges, convert_event
from odometer_accountant.service.accountant import Accountant
from odometer_client.dp_events import event_document

WHOLE = [(place, float(order)) for place, order in enumerate(CURRENT_GRID.exact_orders) if order % 1 == 0]
PLACES = [place for place, order in WHOLE if 2 <= order <= 64]
ORDERS = [order for _, order in WHOLE if 2 <= order <= 64]
RELATIONS = dp_accounting.NeighboringRelation
GAUSSIAN = events.GaussianDpEvent(2.0)


def told(event: Any) -> list[dict[str, Any]]:
    """The charges of a live event, by way of JSON."""
    body = json.dumps({"dp_event": event_document(event)}).encode()
    found: list[dict[str, Any]] = convert_event(body)["charges"]
    return found


def lost(found: list[dict[str, Any]]) -> Loss:
    return total(CURRENT_GRID, [Charge.model_validate(item).loss(CURRENT_GRID) for item in found])


def refused(event: Any) -> str:
    with pytest.raises(InvalidRequest) as caught:
        told(event)
    return caught.value.detail


def rdp(event: Any, relation: Any = RELATIONS.REPLACE_SPECIAL) -> Any:
    accountant = RdpAccountant(ORDERS, relation).compose(event)
    return accountant._rdp  # the only way to the curve itself


# -- every class


def classes() -> list[type]:
    """Every class of events of the library, wherever it is."""
    names = [module.name for module in pkgutil.walk_packages(dp_accounting.__path__, "dp_accounting.")]
    modules = [importlib.import_module(name) for name in names if not name.endswith("_test")]
    found = {kind for module in modules for _, kind in inspect.getmembers(module, inspect.isclass)}
    known = {kind for kind in found if issubclass(kind, events.DpEvent)} - {events.DpEvent}
    return sorted(known, key=str)


def test_every_class_is_charged_or_refused_by_name() -> None:
    """One that a newer library has fails here: it has to be looked at."""
    names = {kind.__name__ for kind in classes()}
    assert len(names) >= 17
    assert names <= KINDS.keys() | REFUSED.keys(), "charge these classes, or say why not"
    assert not KINDS.keys() & REFUSED.keys()


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_the_fields_of_a_class_are_the_librarys(kind: type) -> None:
    if kind.__name__ in KINDS:
        assert list(KINDS[kind.__name__].fields) == [
            field.name for field in getattr(kind, "__attrs_attrs__", ())
        ]


EXAMPLES = [
    (events.NoOpDpEvent(), []),
    (events.NonPrivateDpEvent(), ["non_private"]),
    (GAUSSIAN, ["gaussian"]),
    (events.GaussianDpEvent(0.0), ["gaussian"]),
    (events.LaplaceDpEvent(2.0), ["laplace"]),
    (events.LaplaceDpEvent(0.0), ["non_private"]),
    (events.DiscreteLaplaceDpEvent(0.3, 2), ["discrete_laplace"]),
    (events.RandomizedResponseDpEvent(0.3, 5), ["randomized_response"]),
    (events.RandomizedResponseDpEvent(0.0, 5), ["randomized_response"]),
    (events.ZCDpEvent(0.1), ["zcdp"]),
    (events.ZCDpEvent(0.1, 0.05), ["renyi_curve"]),
    (events.SelfComposedDpEvent(GAUSSIAN, 7), ["gaussian"]),
    (events.SelfComposedDpEvent(GAUSSIAN, 0), []),
    (events.ComposedDpEvent([GAUSSIAN, events.LaplaceDpEvent(1.0)]), ["gaussian", "laplace"]),
    (events.PoissonSampledDpEvent(0.01, GAUSSIAN), ["poisson_subsampled"]),
    (events.PoissonSampledDpEvent(0.01, events.NoOpDpEvent()), []),
    (events.PoissonSampledDpEvent(0.01, events.NonPrivateDpEvent()), ["non_private"]),
    (events.SampledWithoutReplacementDpEvent(1000, 10, GAUSSIAN), ["sampled_without_replacement"]),
    (events.SingleEpochTreeAggregationDpEvent(3.0, 100), ["tree_aggregation"]),
    (events.SingleEpochTreeAggregationDpEvent(3.0, [10, 100, 20]), ["tree_aggregation"]),
    (events.RepeatAndSelectDpEvent(GAUSSIAN, 10.0, 1.0), ["tuned"]),
    (events.RepeatAndSelectDpEvent(GAUSSIAN, 10.0, math.inf), ["tuned"]),
    (events.RepeatAndSelectDpEvent(GAUSSIAN, 10.0, 0.0), ["tuned"]),
    (events.RepeatAndSelectDpEvent(GAUSSIAN, 10.0, 2.5), ["tuned"]),
]


@pytest.mark.parametrize(("event", "kinds"), EXAMPLES, ids=str)
def test_what_it_is_charged_as(event: Any, kinds: list[str]) -> None:
    assert [item["mechanism"]["kind"] for item in told(event)] == kinds


@pytest.mark.parametrize(
    ("event", "place"),
    [
        (events.SelfComposedDpEvent(GAUSSIAN, 0), "dp_event: SelfComposedDpEvent: runs 0 times"),
        (events.ComposedDpEvent([]), "dp_event: ComposedDpEvent: is made of no events"),
        (
            events.PoissonSampledDpEvent(0.1, events.SelfComposedDpEvent(GAUSSIAN, 0)),
            "dp_event.event: SelfComposedDpEvent: runs 0 times",
        ),
    ],
    ids=str,
)
def test_a_plan_that_loses_nothing_says_so_and_why(event: Any, place: str) -> None:
    """A number of steps that came out as 0 is mostly a mistake: no empty list without a word."""
    said = convert_event({"dp_event": event_document(event)})
    assert said["charges"] == []
    assert "this event loses nothing: there is nothing to charge" in said["notes"][0]
    assert said["notes"][1].startswith(place)
    part = convert_event({"dp_event": event_document(events.ComposedDpEvent([GAUSSIAN, event]))})
    assert len(part["charges"]) == 1
    assert [note.startswith(place.replace("dp_event", "dp_event.events.1", 1)) for note in part["notes"]] == [
        True
    ]


def test_a_plan_with_a_loss_has_no_notes() -> None:
    assert "notes" not in convert_event({"dp_event": event_document(GAUSSIAN)})
    said = convert_event({"dp_event": event_document(events.NoOpDpEvent())})
    assert (said["charges"], len(said["notes"])) == ([], 1)


REFUSALS = [
    events.UnsupportedDpEvent(),
    events.SampledWithReplacementDpEvent(100, 10, GAUSSIAN),
    events.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.9, 0.1]),
    events.TruncatedSubsampledGaussianDpEvent(1000, 0.01, 20, 1.0),
]


@pytest.mark.parametrize("event", REFUSALS, ids=str)
def test_what_has_no_sound_charge_is_refused_by_name_and_place(event: Any) -> None:
    name = type(event).__name__
    assert refused(event).startswith(f"dp_event: {name}: ")
    nested = events.ComposedDpEvent([GAUSSIAN, events.SelfComposedDpEvent(event, 3)])
    assert refused(nested).startswith(f"dp_event.events.1.event: {name}: ")
    sampled = events.PoissonSampledDpEvent(0.1, event)
    assert refused(sampled).startswith(f"dp_event.event: {name}: ")


# -- what it costs


def agrees(event: Any, relation: Any = RELATIONS.REPLACE_SPECIAL, within: float = 1e-6) -> None:
    ours = lost(told(event)).renyi()[PLACES]
    theirs = rdp(event, relation)
    assert (ours >= theirs * (1 - 1e-9)).all(), "less is charged than the library says"
    assert ours == pytest.approx(theirs, rel=within)


def leaf(draw: random.Random, sampled: bool) -> Any:
    kinds = [
        lambda: events.GaussianDpEvent(draw.uniform(0.8, 20)),
        events.NoOpDpEvent,
        lambda: events.LaplaceDpEvent(draw.uniform(0.5, 20)),
        lambda: events.ZCDpEvent(draw.uniform(0, 0.3), draw.choice([0.0, 0.01])),
        lambda: events.SingleEpochTreeAggregationDpEvent(draw.uniform(2, 20), draw.randint(1, 1000)),
    ]
    return draw.choice(kinds[:2] if sampled else kinds)()


def tree(draw: random.Random, depth: int, sampled: bool = False) -> Any:
    """A random event. Within a sample: what the library's own accountant can compose there."""
    choice = draw.randrange(4 if sampled else 5) if depth else 0
    if choice <= 1:
        return leaf(draw, sampled)
    if choice == 2:
        return events.SelfComposedDpEvent(tree(draw, depth - 1, sampled), draw.randint(1, 30))
    if choice == 3:
        return events.ComposedDpEvent([tree(draw, depth - 1, sampled) for _ in range(draw.randint(1, 3))])
    inner = events.ComposedDpEvent([events.GaussianDpEvent(draw.uniform(2, 20)), tree(draw, depth - 1, True)])
    return events.PoissonSampledDpEvent(draw.uniform(0.001, 0.2), inner)


def without_nothing(event: Any) -> Any:
    """Without events that lose nothing, which the library takes only outside of samples."""
    if isinstance(event, events.NoOpDpEvent):
        return None
    if isinstance(event, events.ComposedDpEvent):
        kept = [one for item in event.events if (one := without_nothing(item)) is not None]
        return events.ComposedDpEvent(kept) if kept else None
    if isinstance(event, events.SelfComposedDpEvent):
        inner = without_nothing(event.event)
        return inner and events.SelfComposedDpEvent(inner, event.count)
    if isinstance(event, events.PoissonSampledDpEvent):
        inner = without_nothing(event.event)
        return inner and events.PoissonSampledDpEvent(event.sampling_probability, inner)
    return event


@pytest.mark.parametrize("seed", range(60))
def test_a_random_tree_costs_what_the_library_says(seed: int) -> None:
    event = tree(random.Random(seed), 4)
    bare = without_nothing(event)
    if bare is None:
        assert told(event) == []
        return
    assert told(event) == told(bare)
    agrees(bare)


def test_composed_inside_of_a_sample_is_never_split() -> None:
    """The wrong habit: to charge two vectors of one cohort each by itself costs 9.9 in place of 22.9.

    By privacy-loss distributions; by Rényi divergences, as here, 11.3 in place of 26.6.
    """
    one = events.GaussianDpEvent(0.6)
    both = events.PoissonSampledDpEvent(0.01, events.ComposedDpEvent([one, one]))
    (step,) = told(both)
    assert step["count"] == 1
    plan = events.SelfComposedDpEvent(both, 1000)
    split = events.SelfComposedDpEvent(events.PoissonSampledDpEvent(0.01, one), 2000)

    def epsilon(event: Any) -> float:
        request = {"charges": told(event), "delta": 1e-5, "adjacency": "add_remove"}
        readings = Accountant.convert(request)["readings"]
        return float(next(one["value"] for one in readings if one["name"] == "fixed_plan"))

    assert (epsilon(plan), epsilon(split)) == pytest.approx((26.56, 11.32), abs=0.01)
    # The library's own has no composition within a sample: it is asked for what is charged here.
    charged = events.GaussianDpEvent(step["mechanism"]["base"]["noise_multiplier"])
    as_charged = events.SelfComposedDpEvent(events.PoissonSampledDpEvent(0.01, charged), 1000)
    tight = [PLDAccountant(value_discretization_interval=1e-2) for _ in range(2)]
    composed = [one.compose(event) for one, event in zip(tight, (as_charged, split), strict=True)]
    assert [one.get_epsilon(1e-5) for one in composed] == pytest.approx([22.9, 9.99], abs=0.05)
    twice = events.PoissonSampledDpEvent(0.01, events.SelfComposedDpEvent(one, 2))
    assert told(events.SelfComposedDpEvent(twice, 1000)) == told(plan)


def test_of_different_mechanisms_on_one_sample_one_is_made() -> None:
    inside = events.ComposedDpEvent([GAUSSIAN, events.SelfComposedDpEvent(events.LaplaceDpEvent(3.0), 2)])
    (step,) = told(events.PoissonSampledDpEvent(0.01, inside))
    assert step["mechanism"]["kind"] == "poisson_subsampled"
    base = step["mechanism"]["base"]
    assert [one["kind"] for one in base["mechanisms"]] == ["gaussian", "laplace"]
    assert base["counts"] == [1, 2]


def test_counts_multiply() -> None:
    event = events.SelfComposedDpEvent(
        events.ComposedDpEvent([GAUSSIAN, events.SelfComposedDpEvent(GAUSSIAN, 4)]), 10
    )
    assert told(event) == [{"mechanism": {"kind": "gaussian", "noise_multiplier": 2.0}, "count": 50}]
    large = events.SelfComposedDpEvent(events.SelfComposedDpEvent(GAUSSIAN, COUNT_MAX), 2)
    assert f"{2 * COUNT_MAX} times" in refused(large)


def test_a_record_is_in_one_tree_of_an_epoch() -> None:
    """The tallest tree counts, not their sum; wrapped in a composition, each run counts."""
    agrees(events.SingleEpochTreeAggregationDpEvent(3.0, [10, 100, 20]))
    agrees(events.SelfComposedDpEvent(events.SingleEpochTreeAggregationDpEvent(3.0, 64), 5))


def test_batches_without_replacement_cost_no_less_than_the_library_says() -> None:
    """Both are bounds of one theorem; ours may only be the larger one by what is interpolated."""
    event = events.SampledWithoutReplacementDpEvent(10_000, 100, events.GaussianDpEvent(1.5))
    agrees(event, RELATIONS.REPLACE_ONE, within=1e-3)


def test_randomised_response_is_not_taken_for_less_truthful() -> None:
    for noise, buckets in ((0.3, 5), (0.1, 3), (1.0, 3), (0.7, 7)):
        (found,) = told(events.RandomizedResponseDpEvent(noise, buckets))
        assert found["mechanism"]["probability_of_truth"] >= 1 - noise + noise / buckets
    agrees(events.RandomizedResponseDpEvent(0.3, 5), RELATIONS.REPLACE_ONE)
    assert "at least 2" in refused(events.RandomizedResponseDpEvent(0.3, 1))
    assert lost(told(events.RandomizedResponseDpEvent(0.0, 5))).unbounded[CURRENT_GRID.pure] == 1


def test_the_noise_on_integers_is_not_rounded_up() -> None:
    (found,) = told(events.DiscreteLaplaceDpEvent(0.3, 2))
    assert found["mechanism"]["scale"] <= 1 / 0.3
    named = {"class_name": "DiscreteGaussianDpEvent", "sigma": 1.0, "sensitivity": 3}
    (found,) = charges(named)
    assert found["mechanism"]["noise_multiplier"] <= 1 / 3


@pytest.mark.parametrize("shape", [1.0, 0.0, 2.5, math.inf])
def test_the_best_of_some_runs_costs_about_what_the_library_says(shape: float) -> None:
    """Never less than by the theorem at the orders that both look at."""
    event = events.RepeatAndSelectDpEvent(events.GaussianDpEvent(4.0), 10.0, shape)
    ours = lost(told(event)).renyi()[PLACES]
    # A curve never decreases: of Poisson repeats the library leaves it higher at low orders. Of one run's
    # total variation it knows √(1 − e^{−KL}); ours also √(KL/2) (Pinsker), lower where KL is small.
    theirs = np.minimum.accumulate(rdp(event)[::-1])[::-1]
    assert ours == pytest.approx(theirs, rel=0.06)


def test_the_law_of_runs_has_no_smaller_mean() -> None:
    for mean in (1.0, 1.5, 10.0, 1e4):
        for shape in (0.0, 0.5, 3.0):
            (found,) = told(events.RepeatAndSelectDpEvent(GAUSSIAN, mean, shape))
            gamma = found["mechanism"]["repeats"]["gamma"]
            runs = 1 / gamma - 1
            expected = runs / -math.log(gamma) if shape == 0 else shape * runs / (1 - gamma**shape)
            assert expected >= mean
            assert expected == pytest.approx(mean, rel=5e-3)


def test_several_runs_to_choose_from_are_one_mechanism() -> None:
    run = events.SelfComposedDpEvent(events.PoissonSampledDpEvent(0.01, GAUSSIAN), 100)
    (found,) = told(events.RepeatAndSelectDpEvent(run, 10.0, 1.0))
    assert found["count"] == 1
    assert found["mechanism"]["base"]["kind"] == "composed"
    assert found["mechanism"]["base"]["counts"] == [100]


# -- what is not known


def test_what_is_not_known_is_refused_by_name() -> None:
    gaussian = {"class_name": "GaussianDpEvent", "noise_multiplier": 2.0}
    faults = {
        "dp_event: PrivacyIdSampledDpEvent: this class": gaussian | {"class_name": "PrivacyIdSampledDpEvent"},
        "dp_event: GaussianDpEvent of module 'other'": gaussian | {"module_name": "other"},
        "dp_event: GaussianDpEvent: its field 'tail'": gaussian | {"tail": 1},
        "dp_event: GaussianDpEvent: its field 'noise_multiplier' is missing": {
            "class_name": "GaussianDpEvent"
        },
        "dp_event: must be an event": {"event": gaussian},
        "dp_event.events.0: must be an event": {"class_name": "ComposedDpEvent", "events": [3]},
        "dp_event.events: ComposedDpEvent: must be a list": {
            "class_name": "ComposedDpEvent",
            "events": gaussian,
        },
        "dp_event.count: SelfComposedDpEvent: must be a whole number": {
            "class_name": "SelfComposedDpEvent",
            "event": gaussian,
            "count": 2.5,
        },
    }
    for said, event in faults.items():
        with pytest.raises(InvalidRequest) as caught:
            charges(event)
        assert caught.value.detail.startswith(said), caught.value.detail


@pytest.mark.parametrize("noise", [-1.0, math.nan, math.inf, True, "2", None, [2.0], 10**400, 1e-3])
def test_a_number_that_is_none_is_refused(noise: Any) -> None:
    with pytest.raises(InvalidRequest, match="GaussianDpEvent"):
        charges({"class_name": "GaussianDpEvent", "noise_multiplier": noise})


def test_nan_is_no_json() -> None:
    with pytest.raises(MalformedBody):
        convert_event({"dp_event": {"class_name": "GaussianDpEvent", "noise_multiplier": math.nan}})


def test_a_tree_has_bounds() -> None:
    event: dict[str, Any] = {"class_name": "NoOpDpEvent"}
    for _ in range(DEPTH_MAX):
        event = {"class_name": "SelfComposedDpEvent", "event": event, "count": 1}
    with pytest.raises(InvalidRequest, match=f"more than {DEPTH_MAX} events within each other"):
        charges(event)
    many = [{"class_name": "GaussianDpEvent", "noise_multiplier": 1 + n / 100} for n in range(300)]
    with pytest.raises(InvalidRequest, match="300 different mechanisms"):
        charges({"class_name": "ComposedDpEvent", "events": many})


# -- how the client writes them


def test_live_events_named_tuples_and_their_json_are_the_same() -> None:
    event = events.ComposedDpEvent(
        [events.SelfComposedDpEvent(events.PoissonSampledDpEvent(0.01, GAUSSIAN), 3), events.NoOpDpEvent()]
    )
    document = event_document(event)
    assert event_document(event.to_named_tuple()) == document == event_document(document)
    assert document["module_name"] == "dp_accounting.dp_event"
    assert events.DpEvent.from_named_tuple(event.to_named_tuple()) == event


def test_numbers_of_arrays_are_numbers() -> None:
    event = events.SelfComposedDpEvent(events.GaussianDpEvent(np.float32(0.5)), np.int64(3))
    assert told(event) == [{"mechanism": {"kind": "gaussian", "noise_multiplier": 0.5}, "count": 3}]
    mixed = events.MixtureOfGaussiansDpEvent(1.0, np.array([0.0, 1.0]), (0.5, 0.5))
    assert event_document(mixed)["sensitivities"] == [0.0, 1.0]
    assert event_document(events.RepeatAndSelectDpEvent(GAUSSIAN, 2.0, math.inf))["shape"] == "inf"


def test_what_is_no_event_is_said() -> None:
    for thing in (3, "GaussianDpEvent", [GAUSSIAN], object(), {"event": 1}):
        with pytest.raises(TypeError):
            event_document(thing)
