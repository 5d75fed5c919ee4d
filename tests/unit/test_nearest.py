"""A name that does not exist is refused with the nearest that does, or with all of them."""

from typing import Any

import pytest

from odometer_accountant.budgets import ANY_BUDGET
from odometer_accountant.budgets.base import Budget
from odometer_accountant.errors import InvalidRequest
from odometer_accountant.mechanisms import Mechanism
from odometer_accountant.mechanisms.sessions import Session
from odometer_accountant.requests.bodies import CreateDataset, ManyCharges, OneCharge, OpenSession
from odometer_accountant.requests.dp_event_kinds import KINDS as EVENTS
from odometer_accountant.requests.dp_events import charges
from odometer_accountant.requests.json_input import validated
from odometer_accountant.requests.suggestions import ALIASES, MEANS, fields_at, instead

GAUSSIAN = {"kind": "gaussian", "noise_multiplier": 1.0}


def said(kind: Any, document: dict[str, Any]) -> dict[str, str]:
    """What is wrong with each field."""
    with pytest.raises(InvalidRequest) as caught:
        validated(kind, document)
    return {error["field"]: error["message"] for error in caught.value.fields["errors"]}


def test_the_nearest_name_is_told_or_all_of_them() -> None:
    names = ("laplace", "gaussian", "Zcdp")
    assert instead("gausian", names) == "did you mean gaussian?"
    assert instead("ZCDP", names) == "did you mean Zcdp?"
    assert instead("skellam", names) == "there are Zcdp, gaussian, laplace"
    assert instead("x", ()) == "there are none"


def test_a_long_name_is_not_compared_for_long() -> None:
    assert instead("a" * 200_000, ("laplace",)) == "there are laplace"


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        ("gaussian", "sigma", "noise_multiplier"),
        ("gaussian", "Z", "noise_multiplier"),
        ("gaussian", "scale", "noise_multiplier"),
        ("laplace", "scale", "scale_over_sensitivity"),
        ("laplace", "eps", "epsilon"),
        ("shuffled", "eps", "epsilon0"),
        ("sampled_without_replacement", "n", "population"),
        ("poisson_subsampled", "q", "sampling_rate"),
        ("grouped", "k", "group_size"),
        ("local_hashing", "g", "buckets"),
    ],
)
def test_a_letter_of_the_field_is_told_by_its_name_here(kind: str, name: str, meant: str) -> None:
    assert instead(name, Mechanism.registry[kind].model_fields).startswith(f"did you mean {meant}")


def test_every_alias_stands_for_a_name_that_exists() -> None:
    """A name that was changed would leave an alias that helps nobody."""
    models = [*Mechanism.registry.values(), *Budget.__subclasses__(), *Session.registry.values()]
    fields = {
        name for model in [*models, ManyCharges, OneCharge, CreateDataset] for name in model.model_fields
    }
    kinds = {model.model_fields["kind"].default for model in models}
    assert {name for names in ALIASES.values() for name in names} <= fields | kinds
    assert set(MEANS) <= fields | kinds
    assert all(name == name.casefold() for name in ALIASES)


@pytest.mark.parametrize("kind", sorted(Mechanism.registry))
def test_the_fields_of_every_mechanism_are_found_at_any_depth(kind: str) -> None:
    fields = set(Mechanism.registry[kind].model_fields)
    assert fields_at(OneCharge, ("mechanism", kind)) == fields
    assert fields_at(ManyCharges, ("charges", 3, "mechanism", "tuned", "base", kind)) == fields
    assert fields_at(OneCharge, ("mechanism", "composed", "mechanisms", 0, kind)) == fields


def test_the_fields_of_every_budget_and_session_are_found() -> None:
    for budget in Budget.__subclasses__():
        assert fields_at(ANY_BUDGET, (budget.model_fields["kind"].default,)) == set(budget.model_fields)
    for kind, session in Session.registry.items():
        assert fields_at(OpenSession, ("session", kind)) == set(session.model_fields)


@pytest.mark.parametrize(
    ("kind", "document", "field", "message"),
    [
        (OneCharge, {"mechanism": GAUSSIAN, "count": 1, "cuont": 1}, "cuont", "did you mean count?"),
        (
            OneCharge,
            {"mechanism": GAUSSIAN | {"sigma": 1.0}, "count": 1},
            "mechanism.sigma",
            "did you mean noise_multiplier (standard deviation of the noise over the sensitivity)?",
        ),
        (
            OneCharge,
            {"mechanism": GAUSSIAN | {"clip": 1.0}, "count": 1},
            "mechanism.clip",
            "there are kind, noise_multiplier",
        ),
        (
            OneCharge,
            {"mechanism": {"kind": "grouped", "base": {"kind": "lapalce"}, "group_size": 2}, "count": 1},
            "mechanism.base",
            "did you mean laplace?",
        ),
        (ANY_BUDGET, {"name": "life", "kind": "zcpd"}, "body", "did you mean zcdp?"),
        (ANY_BUDGET, {"name": "life", "kind": "moments"}, "body", "there are approximate, gdp, pure"),
        (ANY_BUDGET, {"name": "life", "kind": "zcdp", "rho": 1, "windw": "day"}, "windw", "mean window?"),
        (
            OneCharge,
            {"mechanism": {"kind": "DPSGD"}, "count": 1},
            "mechanism",
            "mean poisson_subsampled (of a",
        ),
        (ANY_BUDGET, {"name": "life", "kind": "rdp"}, "body", "did you mean renyi?"),
        (OpenSession, {"session": {"kind": "sparse_vectors"}}, "session", "did you mean sparse_vector?"),
    ],
)
def test_an_unknown_name_comes_with_what_was_meant(
    kind: Any, document: dict[str, Any], field: str, message: str
) -> None:
    assert message in said(kind, document)[field]


def test_an_unknown_event_or_field_of_one_comes_with_what_was_meant() -> None:
    faults = {
        "did you mean GaussianDpEvent?": {"class_name": "GausianDpEvent"},
        f"there are {', '.join(sorted(EVENTS))}": {"class_name": "Shuffle"},
        "did you mean noise_multiplier?": {"class_name": "GaussianDpEvent", "noise_multiplyer": 2.0},
        "there are none": {"class_name": "NoOpDpEvent", "events": []},
    }
    for message, event in faults.items():
        with pytest.raises(InvalidRequest) as caught:
            charges(event)
        assert message in caught.value.detail


@pytest.mark.parametrize(
    "name", ["gaussian_svt", "laplace_svt", "tcdp", "fdp", "truncated_laplace", "noisy_max_gaussian", "gnmax"]
)
def test_a_mechanism_that_could_cost_less_is_never_told(name: str) -> None:
    """A name that stands for something else is not answered with the name of a cheaper mechanism."""
    cheap = ("gaussian", "laplace", "zcdp", "gdp", "discrete_laplace", "discrete_gaussian")
    message = said(OneCharge, {"mechanism": {"kind": name}, "count": 1})["mechanism"]
    assert not any(f"did you mean {kind}?" in message for kind in cheap)


def test_a_misspelt_choice_is_told() -> None:
    found = said(OneCharge, {"mechanism": GAUSSIAN, "count": 1, "adjacency": "add-remove"})
    assert "did you mean add_remove?" in found["adjacency"]
