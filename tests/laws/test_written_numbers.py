"""A number is the one that was written, or it is refused: it is never charged as less than that."""

import contextlib
import json
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from odometer_accountant.errors import InvalidRequest, MalformedBody
from odometer_accountant.mechanisms import ANY_MECHANISM
from odometer_accountant.mechanisms.charge import Charge
from odometer_accountant.numerics.grid import CURRENT_GRID
from odometer_accountant.requests import json_input
from odometer_accountant.requests.json_input import read_json
from odometer_accountant.requests.written_numbers import Misread, misread, number_of
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.service.operations.ledger import OdometerQuery
from odometer_accountant.stores.memory import MemoryStore
from odometer_accountant.verify.walk import verify
from privacy_odometer.cli import parsing

OPENING = (
    '{"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-6, '
    '"budgets": [{"name": "life", "kind": "pure", "epsilon": %s}]}'
)
CHARGE = '{"mechanism": {"kind": "pure", "epsilon": %s}, "count": 1}'

UNLIKE = [
    ("1e-400", "0.0", "5e-324"),
    ("0.1e-399", "0.0", "5e-324"),
    ("1e-99999999999999999999999", "0.0", "5e-324"),
    ("0." + "0" * 330 + "1", "0.0", "5e-324"),
    ("3e-324", "0.0", "5e-324"),
    ("0.1000000000000000000000001", "0.1", "0.10000000000000002"),
    ("0.10000000000000001", "0.1", "0.10000000000000002"),
    ("0.09999999999999999999999", "0.09999999999999999", "0.1"),
    ("1.00000000000000000001", "1.0", "1.0000000000000002"),
    ("9007199254740993", "9007199254740992.0", "9007199254740994.0"),
]
"""(a number between two floats, the float below, the float above)"""
LIKE = [
    "0",
    "0.0",
    "0e-999999999999999999999999",
    "1",
    "1.0",
    "10e-1",
    "0.10",
    "1E-6",
    "5e-324",
    "123.456e-2",
]
"""The same numbers as the floats that they are read as, in other words."""


@pytest.fixture
def accountant() -> Iterator[Accountant]:
    with Accountant(MemoryStore()) as found:
        found.create_dataset((OPENING % 1).encode(), "root")
        yield found


@pytest.mark.parametrize(("text", "below", "above"), UNLIKE)
def test_a_number_between_two_floats_is_refused_and_both_are_named(
    accountant: Accountant, text: str, below: str, above: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        accountant.charge("d", (CHARGE % text).encode(), "k", "ada")
    detail = refused.value.detail
    assert detail.startswith("mechanism.epsilon: ")
    if float(text) < 1e6:  # what is above the field's own bound is told that
        assert f"write {below} or {above}" in detail
    assert accountant.dataset("d")["sequence"] == 1


@pytest.mark.parametrize("text", [text for text, _, _ in UNLIKE if float(text) < 1])
def test_it_is_refused_wherever_a_body_is_read(accountant: Accountant, text: str) -> None:
    charge = (CHARGE % text).encode()
    budget = '{"name": "b", "kind": "approximate", "epsilon": 1, "delta": %s}'
    convert = '{"mechanism": {"kind": "pure", "epsilon": 1}, "count": 1, "delta": %s}'
    event = '{"dp_event": {"class_name": "ZCDpEvent", "rho": 1, "xi": %s}}'
    asks = [
        lambda: accountant.check("d", charge),
        lambda: accountant.hold("d", charge[:-1] + b', "expires_in_s": 60}', "k", "ada"),
        lambda: accountant.charge("d", b'{"charges": [' + charge + b"]}", "k", "ada"),
        lambda: accountant.create_dataset(OPENING.replace('"d"', '"e"').encode() % text.encode(), "root"),
        lambda: accountant.add_budget("d", (budget % text).encode(), "root"),
        lambda: accountant.change_budget(
            "d", "life", b'{"kind": "pure", "epsilon": %s}' % text.encode(), '"v1"', "root"
        ),
        lambda: accountant.convert((convert % text).encode()),
        lambda: accountant.dp_events((event % text).encode()),
    ]
    for ask in asks:
        with pytest.raises(InvalidRequest, match=r"a 64-bit float cannot hold|must be at least 1e-290"):
            ask()
    assert accountant.dataset("d")["sequence"] == 1


@pytest.mark.parametrize("text", LIKE)
def test_other_words_for_the_same_number_are_taken(accountant: Accountant, text: str) -> None:
    accountant.check("d", (CHARGE % text).encode())


def test_what_was_taken_before_is_answered_again(
    accountant: Accountant, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = (CHARGE % "1e-400").encode()
    with monkeypatch.context() as before:
        before.setattr(json_input, "misread", lambda _: None)
        receipt, _ = accountant.charge("d", body, "old", "ada")
    again, replayed = accountant.charge("d", body, "old", "ada")
    assert replayed
    assert again["hash"] == receipt["hash"]
    with pytest.raises(InvalidRequest, match="cannot hold"):
        accountant.charge("d", body, "new", "ada")
    assert not any(verdict.findings for verdict in verify(accountant.store))


def test_a_number_above_every_float_is_no_finite_number(accountant: Accountant) -> None:
    for text in ("1e400", "-1e400", "1" + "0" * 400, "1e99999999999999999999"):
        with pytest.raises((InvalidRequest, MalformedBody)):
            accountant.charge("d", (CHARGE % text).encode(), "k", "ada")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_in_its_own_words_is_itself(value: float) -> None:
    assert type(number_of(json.dumps(value))) is float
    assert number_of(json.dumps(value)) == value


@given(st.decimals(allow_nan=False, allow_infinity=False, places=40, min_value=-10, max_value=10))
def test_a_decimal_is_read_as_itself_or_marked(number: Decimal) -> None:
    found = number_of(str(number))
    assert isinstance(found, Misread) == (Decimal(repr(float(found))) != number)


@given(st.integers(-(10**30), 10**30))
def test_a_whole_number_is_marked_where_floats_are_sparse(number: int) -> None:
    document: Any = read_json(b"[%d]" % number)
    assert (misread(document) is not None) == (Decimal(repr(float(number))) != number)
    assert math.isclose(document[0], number)


@pytest.mark.parametrize("text", [text for text, _, _ in UNLIKE])
def test_no_word_of_a_command_line_and_no_query_is_read_as_another_number(text: str) -> None:
    """Whole numbers of more digits than a float has go to the service as they are: it refuses them."""
    found = None
    with contextlib.suppress(typer.BadParameter):
        found = parsing.number(text)
    assert found is None or (isinstance(found, int) and str(found) == text)
    with pytest.raises(ValueError, match="a 64-bit float cannot hold"):
        OdometerQuery.model_validate_strings({"delta": text})


def test_a_query_takes_every_float() -> None:
    for text in ("1e-6", "0.000001", "1E-6"):
        assert OdometerQuery.model_validate_strings({"delta": text}).delta == 1e-6
    for text in ("nan", "x", "", "0", "1"):
        with pytest.raises(ValueError, match="delta"):
            OdometerQuery.model_validate_strings({"delta": text})


@pytest.mark.parametrize("text", ["1e-400", "0.10000000000000001", "0.10", "1e400"])
def test_a_ledger_with_a_number_that_is_none_is_found(accountant: Accountant, text: str) -> None:
    """As in a file to import: such an entry is not read as a charge of 0."""
    accountant.charge("d", (CHARGE % "0.125").encode(), "k", "ada")
    row = accountant.store.entries("d", 1, 1)[0]
    body = row.body.replace(b'"0.125"', f'"{text}"'.encode())
    [item] = json.loads(body)["command"]["charges"]
    with pytest.raises(ValueError, match=r"is no number as a ledger holds it|finite"):
        Charge.of_ledger(item)


G = {"kind": "gaussian", "noise_multiplier": 1.0}
LEAST: list[dict[str, Any]] = [
    *({"kind": kind, "epsilon": 5e-324} for kind in ("pure", "exponential", "permute_and_flip")),
    {"kind": "report_noisy_max", "noise": "laplace", "epsilon": 5e-324},
    {"kind": "randomized_response", "k": 2, "epsilon": 5e-324},
    {"kind": "randomized_response", "k": 10**6, "epsilon": 5e-324},
    {"kind": "local_hashing", "buckets": 3, "epsilon": 5e-324},
    {"kind": "unary_encoding", "optimized_epsilon": 5e-324},
    {"kind": "unary_encoding", "symmetric_epsilon": 5e-324},
    {"kind": "count_mean_sketch", "epsilon": 5e-324},
    {"kind": "shuffled", "epsilon0": 5e-324, "population": 10**12, "delta": 1e-6},
    {"kind": "zcdp", "rho": 5e-324},
    {"kind": "gdp", "mu": 5e-324},
    {"kind": "renyi_curve", "orders": [2], "epsilons": [5e-324]},
    {"kind": "poisson_subsampled", "base": G, "sampling_rate": 5e-324},
    {"kind": "grouped", "base": {"kind": "pure", "epsilon": 5e-324}, "group_size": 2},
]


@pytest.mark.parametrize("mechanism", LEAST, ids=lambda one: str(one["kind"]))
def test_no_parameter_above_zero_is_charged_as_nothing(mechanism: dict[str, Any]) -> None:
    """Down to the least float: at every coordinate but delta a unit at least, or no bound."""
    loss = ANY_MECHANISM.validate_python(mechanism).curve(CURRENT_GRID).times(1)
    for place in range(CURRENT_GRID.delta):
        assert loss.values[place] > 0 or loss.unbounded[place] > 0


def test_the_least_delta_is_a_unit() -> None:
    mechanism = {"kind": "approximate", "epsilon": 0.0, "delta": 5e-324}
    assert (
        ANY_MECHANISM.validate_python(mechanism).curve(CURRENT_GRID).times(1).values[CURRENT_GRID.delta] == 1
    )
