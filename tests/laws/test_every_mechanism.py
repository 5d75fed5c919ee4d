"""Every mechanism of the registry, held to the same laws; a new one is tested by being registered.

Parameters are drawn from the fields' own bounds. Truths are mpmath's at 50 digits (tests/support/oracles.py).
"""

import json
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from amount import examples
from annotated_types import Ge, Gt, Le, Lt
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from odometer_accountant.budgets.base import Budget
from odometer_accountant.mechanisms import ANY_MECHANISM, Adjacency, Mechanism
from odometer_accountant.mechanisms.charge import COUNT_MAX, Charge
from odometer_accountant.model import Model, floats_to_text, text_to_floats
from odometer_accountant.numerics.grid import CURRENT_GRID
from odometer_accountant.numerics.loss import Loss
from tests.support import oracles
from tests.support.kinds import DRAWS, PLACES
from tests.support.oracles import DIGITS
from tests.support.serving import Live, live

Document = dict[str, Any]
KINDS = sorted(Mechanism.registry)
EXAMPLES = [(kind, example) for kind in KINDS for example in Mechanism.registry[kind].examples]
ORDERS = CURRENT_GRID.orders
each_kind = pytest.mark.parametrize("kind", KINDS)
each_example = pytest.mark.parametrize(
    ("kind", "example"), EXAMPLES, ids=[f"{kind}-{n}" for n, (kind, _) in enumerate(EXAMPLES)]
)
counts = st.one_of(st.integers(1, 100), st.integers(1, COUNT_MAX // 2))


# -- documents, from the fields ------------------------------------------------------------------------


def bounds(metadata: list[Any]) -> tuple[float, float]:
    """The least and largest that a field takes; open ends moved in a little."""
    least, most = 0.0, 1e9
    for item in [found for entry in metadata for found in getattr(entry, "metadata", [entry])]:
        if isinstance(item, Ge):
            least = float(item.ge)  # type: ignore[arg-type]
        elif isinstance(item, Gt):
            least = math.nextafter(float(item.gt), math.inf)  # type: ignore[arg-type]
        elif isinstance(item, Le):
            most = float(item.le)  # type: ignore[arg-type]
        elif isinstance(item, Lt):
            most = math.nextafter(float(item.lt), -math.inf)  # type: ignore[arg-type]
    return least, most


def numbers(least: float, most: float) -> st.SearchStrategy[float]:
    """Anywhere in the range, evenly in the logarithm, and both ends."""
    low = math.log10(max(least, 1e-12))
    logs = st.floats(low, math.log10(most)).map(lambda x: min(max(10.0**x, least), most))
    inside = st.floats(least, min(most, least + 10))
    return st.one_of(logs, inside, st.sampled_from([least, most]))


def field(name: str, info: Any) -> st.SearchStrategy[Any]:
    """A strategy for one field, by its type and bounds."""
    least, most = bounds(info.metadata)
    if name == "k":
        return st.one_of(st.integers(2, 50), st.integers(int(least), int(most)))
    if name == "base":
        return documents("gaussian")
    if name == "what":
        return st.text(
            st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_categories=["Cc", "Cs"]),
            min_size=1,
            max_size=200,
        )
    found = next(
        (arg for arg in getattr(info.annotation, "__args__", ()) if hasattr(arg, "__metadata__")), None
    )
    if found is not None:
        least, most = bounds(list(found.__metadata__))
    return numbers(least, most)


def documents(kind: str) -> st.SearchStrategy[Document]:
    """Valid documents of a kind: of fields that may be left out, exactly one is given."""
    if kind in DRAWS:
        return DRAWS[kind]  # type: ignore[no-any-return]
    fields = {name: info for name, info in Mechanism.registry[kind].model_fields.items() if name != "kind"}
    if kind == "renyi_curve":
        return curves()
    required = {name: field(name, info) for name, info in fields.items() if info.is_required()}
    choices = {name: field(name, info) for name, info in fields.items() if not info.is_required()}
    given_one = [
        st.fixed_dictionaries({"kind": st.just(kind), **required, name: strategy})
        for name, strategy in choices.items()
    ] or [st.fixed_dictionaries({"kind": st.just(kind), **required})]
    return st.one_of(given_one).filter(is_valid)


@st.composite
def curves(draw: st.DrawFn) -> Document:
    orders = sorted(draw(st.lists(st.floats(1.001, 1e6), min_size=1, max_size=20, unique=True)))
    first = draw(st.one_of(st.just(0.0), st.floats(1e-6, 1e2)))
    more = draw(st.lists(st.floats(0, 1e2), min_size=len(orders), max_size=len(orders)))
    slopes = first + np.cumsum(more) * (first > 0)
    moments = np.cumsum(slopes * np.diff([1.0, *orders]))
    epsilons = np.minimum(np.maximum.accumulate(moments / (np.array(orders) - 1.0)), 1e6)
    return {"kind": "renyi_curve", "orders": orders, "epsilons": [float(x) for x in epsilons]}


def is_valid(document: Document) -> bool:
    try:
        parse(document)
    except ValidationError:
        return False
    return True


def parse(document: Document) -> Mechanism:
    return ANY_MECHANISM.validate_json(json.dumps(document))


def amounts(mechanism: Mechanism) -> list[Fraction | None]:
    return list(mechanism.curve(CURRENT_GRID).amounts)


def floats(mechanism: Mechanism) -> np.ndarray[Any, np.dtype[np.float64]]:
    """D_alpha of one release, unrounded, infinity for no bound."""
    found = amounts(mechanism)[: CURRENT_GRID.n_orders]
    return np.array([math.inf if amount is None else float(amount) for amount in found])


# -- documents -------------------------------------------------------------------------------------------


def test_every_kind_has_an_oracle() -> None:
    """A new mechanism comes with a truth to hold it to."""
    assert set(KINDS) == oracles.kinds()


@each_kind
def test_its_facts_are_stated(kind: str) -> None:
    """Title, purpose, formula, source, where it holds, examples, and a sentence for every parameter."""
    found = Mechanism.registry[kind]
    assert all([found.title, found.purpose, found.formula, found.source, found.adjacencies, found.examples])
    assert found.adjacencies == frozenset(Adjacency) or found.elsewhere
    for name, info in found.model_fields.items():
        assert name == "kind" or info.description, name


@each_kind
def test_its_formula_can_be_read_at_a_glance(kind: str) -> None:
    """No wall of text: what is long is in the source that it names."""
    assert len(Mechanism.registry[kind].formula) <= 280


@each_example
def test_an_example_is_a_document(kind: str, example: Document) -> None:
    """It validates, and reads back as it was written."""
    mechanism = parse(example)
    assert mechanism.document() == {**example, "kind": kind}


@each_kind
@examples(40)
@given(data=st.data())
def test_it_reads_back(kind: str, data: st.DataObject) -> None:
    """From JSON, and from a ledger, where numbers are decimal strings; nowhere else are they."""
    document = data.draw(documents(kind))
    mechanism = parse(document)
    assert parse(mechanism.document()) == mechanism
    kept = floats_to_text(mechanism.document())
    assert ANY_MECHANISM.validate_python(text_to_floats(json.loads(json.dumps(kept)))) == mechanism
    if kept != mechanism.document():
        with pytest.raises(ValidationError):
            parse(kept)
    with pytest.raises(ValidationError):
        parse({**document, "another": 1})


@each_kind
@examples(30)
@given(
    data=st.data(),
    wrong=st.sampled_from([math.nan, math.inf, -math.inf, -0.0, -1.0, -5e-324, 1e308, "1", True, None]),
)
def test_no_parameter_takes_what_is_no_number(kind: str, data: st.DataObject, wrong: Any) -> None:
    """NaN, infinities, negative zero, negative and huge numbers, text, booleans: refused, in every field."""
    document = data.draw(documents(kind))
    numeric = [name for name, value in document.items() if isinstance(value, int | float)]
    for name in numeric:
        with pytest.raises(ValidationError):
            ANY_MECHANISM.validate_python({**document, name: wrong})


# -- curves -------------------------------------------------------------------------------------------------


@each_kind
@examples(40)
@given(data=st.data())
def test_its_curve_is_one(kind: str, data: st.DataObject) -> None:
    """Never negative, never falling with the order; (alpha-1) D_alpha convex; never above the pure part."""
    mechanism = parse(data.draw(documents(kind)))
    curve, found = floats(mechanism), amounts(mechanism)
    assert len(found) == CURRENT_GRID.size
    live = curve[np.isfinite(curve)]
    assert np.all(live >= 0)
    assert np.all(np.isinf(curve[live.size :]))  # no bound from some order on
    assert np.all(np.diff(live) >= -1e-8 * live[1:])
    pure = found[CURRENT_GRID.pure]
    if pure is not None:
        assert np.all(live <= float(pure) * (1 + 1e-9) + 1e-300)
    # Steps, stated elsewhere; the lesser of two bounds.
    if kind not in ("renyi_curve", "above_threshold", "distributed_discrete_gaussian", "skellam"):
        alpha = np.array([1.0, *ORDERS[: live.size]])
        scaled = np.array([0.0, *((alpha[1:] - 1) * live)])
        slopes = np.diff(scaled) / np.diff(alpha)
        assert np.all(np.diff(slopes) >= -1e-6 * np.abs(slopes[1:]) - 1e-300)


@each_kind
@examples(40)
@given(data=st.data())
def test_rho_is_above_every_order(kind: str, data: st.DataObject) -> None:
    """Rho is at least D_alpha / alpha, mu^2/2 too (the curve that is compared is itself rounded up)."""
    mechanism = parse(data.draw(documents(kind)))
    curve, found = floats(mechanism), amounts(mechanism)
    rho = found[CURRENT_GRID.rho]
    if rho is not None:
        assert np.all(curve / ORDERS <= float(rho) * (1 + 1e-8) + 1e-300)
    squared = found[CURRENT_GRID.mu_squared]
    if squared is not None:  # mu-GDP implies mu^2/2-zCDP: the curve of the worst case is below
        assert np.all(curve <= ORDERS * float(squared) / 2 * (1 + 1e-8) + 1e-300)


@each_kind
@examples(12)
@given(data=st.data(), m=counts, n=counts)
def test_its_curve_is_the_truth_rounded_up(kind: str, data: st.DataObject, m: int, n: int) -> None:
    """times(m) + times(n) >= times(m+n) >= truth, in every coordinate; 1e-6 and a unit apart at most."""
    document = data.draw(documents(kind))
    curve = parse(document).curve(CURRENT_GRID)
    whole, parts = curve.times(m + n), curve.times(m).plus(curve.times(n))
    assert parts.unbounded == whole.unbounded
    assert all(0 <= part - one <= 1 for part, one in zip(parts.values, whole.values, strict=True))
    with mp.workdps(DIGITS):
        for place in data.draw(places(document)):
            truth = (
                oracles.renyi(document, CURRENT_GRID.exact_orders[place])
                if place < CURRENT_GRID.n_orders
                else (oracles.pure(document) if place == CURRENT_GRID.pure else oracles.delta(document))
            )
            assert_just_above(whole, place, truth * (m + n))


def places(document: Document) -> st.SearchStrategy[list[int]]:
    """Three orders to look at, the pure part and delta. Of sampled ones, orders that are summed quickly."""
    orders = range(CURRENT_GRID.n_orders)
    if document["kind"] in PLACES:
        orders = PLACES[document["kind"]](document)  # type: ignore[assignment]
    elif document["kind"] == "poisson_subsampled":
        fast = document["base"]["noise_multiplier"] >= 0.3
        orders = [n for n in orders if ORDERS[n] <= 128 and (fast or ORDERS[n] == int(ORDERS[n]))]  # type: ignore[assignment]
    some = st.lists(st.sampled_from(list(orders)), min_size=1, max_size=3)
    return some.map(lambda found: [*found, CURRENT_GRID.pure, CURRENT_GRID.delta])


def assert_just_above(loss: Loss, place: int, truth: Any) -> None:
    units = loss.units(place)
    if mp.isinf(truth):
        assert units is None
        return
    assert units is not None
    exact = truth * CURRENT_GRID.units[place].denominator
    # What 50 digits leave open: a tiny loss cancels up to twelve of them. Far less than a unit.
    slop = mp.mpf(10) ** (12 - DIGITS) * (1 + abs(exact))
    assert exact - slop <= units <= exact * (1 + mp.mpf(10) ** -6) + 1 + slop


@each_kind
@examples(15)
@given(data=st.data())
def test_mu_is_a_gaussian_that_is_worse(kind: str, data: st.DataObject) -> None:
    """At any epsilon its delta is within that of mu; at the one that touches, nearly all of it."""
    document = data.draw(documents(kind))
    squared = amounts(parse(document))[CURRENT_GRID.mu_squared]
    worst = oracles.worst_pair(document)
    if kind == "gaussian" and document["noise_multiplier"]:
        assert squared == 1 / Fraction(repr(document["noise_multiplier"])) ** 2
    if kind == "gdp":
        assert squared == Fraction(repr(document["mu"])) ** 2
    if squared is None or not squared or worst is None:
        return
    with mp.workdps(DIGITS + 50):
        mu = mp.sqrt(oracles.number(squared))
        assert mu > 0
        top = min(oracles.pure(document), mp.mpf(50))
        for share in (0, 0.01, 0.3, 0.9, 0.999):
            epsilon = top * share
            assert worst(epsilon) <= oracles.gdp_delta(mu, epsilon) * (1 + mp.mpf(10) ** -20)
        if kind in ("laplace", "pure", "approximate") and mu > 1e-40:  # touches at 0; the oracle has digits
            assert oracles.gdp_delta(mu * (1 - mp.mpf(10) ** -6), mp.mpf(0)) <= worst(mp.mpf(0))


@each_kind
@examples(40)
@given(data=st.data(), factor=st.floats(1.001, 1e6))
def test_more_noise_never_costs_more(kind: str, data: st.DataObject, factor: float) -> None:
    """In any coordinate; and the noisier one is a document that would be accepted."""
    mechanism = parse(data.draw(documents(kind)))
    noisier = mechanism.noisier(factor)
    if noisier is None:
        return
    assert parse(noisier.document()) == noisier
    for less, more in zip(amounts(noisier), amounts(mechanism), strict=True):
        assert more is None or (less is not None and less <= more)


@each_kind
@examples(40)
@given(data=st.data(), factor=st.floats(1e-6, 1))
def test_less_noise_is_a_document_too(kind: str, data: st.DataObject, factor: float) -> None:
    """The search for the least noise that fits goes below what was asked: never outside the field's range."""
    noisier = parse(data.draw(documents(kind))).noisier(factor)
    if noisier is not None:
        assert parse(noisier.document()) == noisier
        assert len(amounts(noisier)) == CURRENT_GRID.size


# -- through HTTP ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served() -> Iterator[Live]:
    with live() as running:
        yield running


@each_example
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_an_example_charges(served: Live, kind: str, example: Document, adjacency: Adjacency) -> None:
    """Through the service: charged where it is valid, to the unit; elsewhere refused with a hint."""
    name = f"{kind}-{Mechanism.registry[kind].examples.index(example)}-{adjacency}"
    document = {"name": name, "unit": "person", "adjacency": adjacency, "delta": 1e-6, "odometer_only": True}
    assert served.ask("POST", "/v1/datasets", json=document).status_code == 201
    reply = served.charge(name, "k", {"mechanism": example, "count": 3})
    loss = Charge(mechanism=parse(example), count=3).loss(CURRENT_GRID)  # type: ignore[arg-type]
    if adjacency in Mechanism.registry[kind].adjacencies:
        assert reply.status_code == 201, reply.text
        assert reply.json()["charges"] == [{"mechanism": example, "count": 3}]
        [entry] = served.ask("GET", f"/v1/datasets/{name}/ledger?after=1").json()["items"]
        assert entry["entry"]["losses"] == [loss.encode()]
        assert Loss.decode(CURRENT_GRID, entry["entry"]["losses"][0]) == loss
    else:
        assert reply.status_code == 422
        assert Mechanism.registry[kind].elsewhere in reply.json()["detail"]
        assert served.ask("GET", f"/v1/datasets/{name}").json()["sequence"] == 1


def test_the_service_lists_every_mechanism(served: Live) -> None:
    listed = served.ask("GET", "/v1/mechanisms").json()["items"]
    assert sorted(item["kind"] for item in listed) == KINDS


def test_a_field_name_holds_numbers_in_every_document_of_a_ledger_or_in_none() -> None:
    """Reading a ledger back goes by the name of a field: it must not mean text elsewhere."""
    todo: list[type[Model]] = [Mechanism, Budget, Charge]
    texts = set()
    while todo:
        kind = todo.pop()
        todo.extend(kind.__subclasses__())
        texts.update(name for name, field in kind.model_fields.items() if field.annotation is str)
    assert texts == {"name", "scope", "what"}
    assert "noise_multiplier" in Model.numbers
    assert not texts & Model.numbers
