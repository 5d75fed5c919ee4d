"""Equal numbers fit: n charges of y fit in x where n times the decimal y is at most x, and no more ever do.

The oracle is a sum of fractions of the decimals; it knows nothing of units, grids or curves.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from amount import examples
from hypothesis import assume, example, given
from hypothesis import strategies as st

from odometer_accountant.errors import BudgetExceeded
from odometer_accountant.numerics.grid import CURRENT_GRID, GRID_V1, GRIDS
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores.memory import MemoryStore
from odometer_accountant.verify.walk import verify

Document = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A budget and a charge that are stated in the same parameter, whose `power` adds up."""

    budget: Document
    charge: Document
    limit: str
    cost: str
    power: int = 1

    def opening(self, limit: float) -> Document:
        budget = {"name": "life", **self.budget, self.limit: limit}
        return {
            "name": "d",
            "unit": "person",
            "adjacency": "replace_one",
            "delta": 0.5,
            "budgets": [budget],
        }

    def body(self, cost: float, count: int = 1) -> Document:
        return {"mechanism": {**self.charge, self.cost: cost}, "count": count}

    def fits(self, limit: float, costs: list[float]) -> bool:
        """In exact decimals."""
        total = sum((Fraction(repr(cost)) ** self.power for cost in costs), Fraction(0))
        return total <= Fraction(repr(limit)) ** self.power


PURE = {"kind": "pure"}
KINDS = {
    "pure": Kind(PURE, {"kind": "pure"}, "epsilon", "epsilon"),
    "pure laplace": Kind(PURE, {"kind": "laplace"}, "epsilon", "epsilon"),
    "pure exponential": Kind(PURE, {"kind": "exponential"}, "epsilon", "epsilon"),
    "pure permute and flip": Kind(PURE, {"kind": "permute_and_flip"}, "epsilon", "epsilon"),
    "pure noisy max": Kind(PURE, {"kind": "report_noisy_max", "noise": "laplace"}, "epsilon", "epsilon"),
    "pure response": Kind(PURE, {"kind": "randomized_response", "k": 3}, "epsilon", "epsilon"),
    "pure hashing": Kind(PURE, {"kind": "local_hashing", "buckets": 3}, "epsilon", "epsilon"),
    "pure optimized bits": Kind(PURE, {"kind": "unary_encoding"}, "epsilon", "optimized_epsilon"),
    "pure symmetric bits": Kind(PURE, {"kind": "unary_encoding"}, "epsilon", "symmetric_epsilon"),
    "pure too many reports": Kind(
        PURE, {"kind": "shuffled", "population": 1, "delta": 0.1}, "epsilon", "epsilon0"
    ),
    "zcdp": Kind({"kind": "zcdp"}, {"kind": "zcdp"}, "rho", "rho"),
    "gdp": Kind({"kind": "gdp"}, {"kind": "gdp"}, "mu", "mu", 2),
    "pure part": Kind(
        {"kind": "approximate", "delta": 1e-6, "delta_add": 0}, {"kind": "pure"}, "epsilon", "epsilon"
    ),
    "delta": Kind(
        {"kind": "approximate", "epsilon": 1, "delta": 0.5},
        {"kind": "approximate", "epsilon": 0},
        "delta_add",
        "delta",
    ),
}
EXACT = [name for name in KINDS if name != "pure part"]
"""Of the pure part of an approximate budget more may fit, by its Rényi rule."""

sixteen = st.builds(
    lambda digits, exponent: float(f"{digits}e{exponent}"),
    st.integers(10**15, 10**16 - 1),
    st.integers(-19, -16),
)
"""Numbers of 16 digits, 1e-4 to 1."""


@contextmanager
def opened(kind: Kind, limit: float) -> Iterator[Accountant]:
    with Accountant(MemoryStore()) as accountant:
        accountant.create_dataset(kind.opening(limit), "root")
        yield accountant


def taken(accountant: Accountant, body: Document, key: str) -> bool:
    try:
        accountant.charge("d", body, key, "ada")
    except BudgetExceeded:
        return False
    return True


@pytest.mark.parametrize("name", KINDS)
@examples(8)
@given(number=sixteen)
@example(number=0.4302585092994046)
@example(number=0.3333333333333333)
@example(number=0.30000000000000004)
def test_a_budget_takes_one_charge_of_its_own_size(name: str, number: float) -> None:
    kind = KINDS[name]
    assume(number < 0.5)
    with opened(kind, number) as accountant:
        assert accountant.check("d", kind.body(number))["fits"]
        assert taken(accountant, kind.body(number), "k")
        [budget] = accountant.budgets("d")["items"]
        if name in EXACT and name != "delta":
            assert (budget["spent"], budget["used"], budget["left"]) == (number, 1.0, 0.0)
            assert not taken(accountant, kind.body(1e-9), "more")


@pytest.mark.parametrize("name", KINDS)
@examples(8)
@given(limit=sixteen, shares=st.integers(1, 12))
@example(limit=0.3, shares=3)
@example(limit=0.4, shares=11)
@example(limit=0.1, shares=3)
def test_equal_shares_fit_as_far_as_their_decimals_do(name: str, limit: float, shares: int) -> None:
    """Charged one by one, with what is left told each time, and at once with their count."""
    kind = KINDS[name]
    assume(limit < 0.5)
    share = (limit**kind.power / shares) ** (1 / kind.power)
    with opened(kind, limit) as one_by_one, opened(kind, limit) as at_once:
        for number in range(1, shares + 2):
            fits = kind.fits(limit, [share] * number)
            found = taken(one_by_one, kind.body(share), f"k{number}")
            assert found == fits if name in EXACT else found >= fits
            assert found == at_once.check("d", kind.body(share, number))["fits"]
            if not found:
                break


@pytest.mark.parametrize("name", EXACT)
@examples(8)
@given(limit=sixteen, costs=st.lists(sixteen, min_size=1, max_size=8))
def test_no_more_than_the_limit_is_ever_admitted(name: str, limit: float, costs: list[float]) -> None:
    """Nor less than fits: of each charge the decimals decide."""
    kind = KINDS[name]
    assume(limit < 0.5)
    admitted: list[float] = []
    with opened(kind, limit) as accountant:
        for number, cost in enumerate(costs):
            fits = kind.fits(limit, [*admitted, cost])
            assert taken(accountant, kind.body(cost), f"k{number}") == fits
            admitted += [cost] if fits else []
        assert not any(verdict.findings for verdict in verify(accountant.store))


SHARES = [
    ("pure", 2.302585092994046, 2.302585092994046, 1),
    ("pure", 1.0, 1 / 3, 3),
    ("pure", 1.0, 1 / 6, 6),
    ("pure", 1.0, 1 / 9, 9),
    ("pure", 1.0, 1 / 11, 10),
    ("pure", 1.0, 0.1, 10),
    ("zcdp", 0.1, 0.03333333333333333, 3),
    ("gdp", 1.0, 0.5, 4),
    ("gdp", 0.3333333333333333, 0.3333333333333333, 1),
]
"""(kind, limit, share, how many fit): 11 times 0.09090909090909091 is more than 1."""


@pytest.mark.parametrize(("name", "limit", "share", "most"), SHARES)
def test_as_many_fit_as_by_hand(name: str, limit: float, share: float, most: int) -> None:
    kind = KINDS[name]
    with opened(kind, limit) as accountant:
        assert accountant.check("d", kind.body(share, most + 1))["would_fit"]["largest_count"] == most
        for number in range(most + 2):
            assert taken(accountant, kind.body(share), f"k{number}") == (number < most)


@pytest.mark.parametrize("point", [0.3333333333333333, 0.09090909090909091, 0.012345678901234567])
def test_a_stated_point_fits_a_budget_of_its_order(point: float) -> None:
    """Up to 18 digits after the point: so many the units at Rényi orders have."""
    budget = {"name": "life", "kind": "renyi", "order": 2, "epsilon": point}
    opening = {**KINDS["pure"].opening(1), "budgets": [budget]}
    curve = {"kind": "renyi_curve", "orders": [2], "epsilons": [point]}
    with Accountant(MemoryStore()) as accountant:
        accountant.create_dataset(opening, "root")
        assert taken(accountant, {"mechanism": curve, "count": 1}, "k")
        assert not taken(accountant, {"mechanism": {**curve, "epsilons": [1e-15]}, "count": 1}, "more")


def test_sampled_deltas_are_exact_shares_too() -> None:
    """A tenth of the records, ten times: their deltas come to the whole."""
    base = {"kind": "approximate", "epsilon": 0.1, "delta": 1e-6}
    sampled = {"kind": "poisson_subsampled", "base": base, "sampling_rate": 0.1}
    budget = {"name": "life", "kind": "approximate", "epsilon": 8, "delta": 1e-5, "delta_add": 1e-6}
    opening = {**KINDS["pure"].opening(1), "adjacency": "add_remove", "budgets": [budget]}
    with Accountant(MemoryStore()) as accountant:
        accountant.create_dataset(opening, "root")
        for number in range(11):
            assert taken(accountant, {"mechanism": sampled, "count": 1}, f"k{number}") == (number < 10)


def test_a_new_dataset_is_opened_with_grid_2_in_an_entry_that_older_workers_refuse() -> None:
    """Its other entries keep the usual format; the state beside them says which one is needed."""
    with opened(KINDS["pure"], 1.0) as accountant:
        assert accountant.dataset("d")["grid_version"] == 2
        taken(accountant, KINDS["pure"].body(0.25), "k")
        formats = [item["entry"]["v"] for item in accountant.ledger("d")["items"]]
        assert formats == [4, 3]
        assert accountant.state("d").version == 4
        [line] = accountant.ledger("d")["items"][1]["entry"]["losses"]
        assert line.split("|")[0].split(" ")[CURRENT_GRID.pure] == str(10**30 // 4)


def test_the_grids_have_the_same_orders_and_each_its_units() -> None:
    assert GRIDS == {1: GRID_V1, 2: CURRENT_GRID}
    assert CURRENT_GRID.exact_orders == GRID_V1.exact_orders
    n = GRID_V1.n_orders
    assert GRID_V1.units == (*[Fraction(1, 10**12)] * (n + 3), Fraction(1, 10**18))
    fine = Fraction(1, 10**30)
    assert CURRENT_GRID.units == (*[Fraction(1, 10**18)] * n, fine, fine, fine**2, fine)
