"""One principal cannot take the places that a dataset has for open holds from all others."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from odometer_accountant.errors import OdometerError, TooManyHolds
from odometer_accountant.ledger import charges, hold_owners
from odometer_accountant.ledger.commands import Caller
from odometer_accountant.service.accountant import Accountant

ONE = {"mechanism": {"kind": "zcdp", "rho": 1e-9}, "count": 1, "expires_in_s": 31_536_000}


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places for eight, three of them of one principal."""
    monkeypatch.setattr(charges, "HOLDS_MAX", 8)
    monkeypatch.setattr(hold_owners, "HOLDS_OF_ONE_MAX", 3)


@contextmanager
def ledger(url: str = "memory://") -> Iterator[Accountant]:
    with Accountant.open(url) as accountant:
        if not accountant.datasets()["items"]:
            document = {"name": "d", "unit": "p", "adjacency": "add_remove", "delta": 1e-6}
            accountant.create_dataset({**document, "odometer_only": True}, "p")
        yield accountant


def hold(accountant: Accountant, who: Caller | str, key: str) -> str:
    found: dict[str, Any] = accountant.hold("d", ONE, key, who)[0]
    return str(found["hold"]["id"])


def test_one_has_so_many_and_others_have_theirs() -> None:
    """What is refused is one principal's, says so, and changes nothing; settling one makes room."""
    with ledger() as accountant:
        ids = [hold(accountant, "ann", f"{number}") for number in range(3)]
        before = accountant.dataset("d")["sequence"]
        with pytest.raises(TooManyHolds, match="ann has 3 open holds"):
            hold(accountant, "ann", "more")
        assert accountant.dataset("d")["sequence"] == before
        hold(accountant, "ben", "more")
        accountant.settle("d", ids[0], {"used": 1}, "ann")
        hold(accountant, "ann", "more")
        with pytest.raises(TooManyHolds):
            hold(accountant, "ann", "and-more")


def test_a_retry_of_a_hold_that_is_open_is_answered() -> None:
    """The key is looked for before places are counted."""
    with ledger() as accountant:
        ids = [hold(accountant, "ann", f"{number}") for number in range(3)]
        assert [hold(accountant, "ann", f"{number}") for number in range(3)] == ids


def test_it_is_who_asks_that_counts() -> None:
    """A service that charges on behalf of many has the places of one, whoever it names."""
    service = Caller("service", acts_for=frozenset("*"))
    with ledger() as accountant:
        for number in range(3):
            accountant.hold("d", {**ONE, "principal": f"user-{number}"}, f"{number}", service)
        with pytest.raises(TooManyHolds, match="service has"):
            accountant.hold("d", {**ONE, "principal": "user-9"}, "9", service)
        hold(accountant, "user-0", "own")


def test_charges_are_no_holds() -> None:
    """Who may not hold may charge."""
    with ledger() as accountant:
        for number in range(3):
            hold(accountant, "ann", f"{number}")
        accountant.charge("d", {name: ONE[name] for name in ("mechanism", "count")}, "charge", "ann")


def test_holds_that_are_above_the_bound_already_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were taken when there was none: they can be settled, and no new one is taken meanwhile."""
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    monkeypatch.setattr(hold_owners, "HOLDS_OF_ONE_MAX", 100)
    with ledger(url) as accountant:
        ids = [hold(accountant, "ann", f"{number}") for number in range(5)]
    monkeypatch.setattr(hold_owners, "HOLDS_OF_ONE_MAX", 3)
    with ledger(url) as accountant:
        for number in range(3):
            with pytest.raises(TooManyHolds):
                hold(accountant, "ann", "more")
            accountant.settle("d", ids[number], {"used": 0}, "ann")
        hold(accountant, "ann", "more")


def test_many_at_a_time_get_no_more_places() -> None:
    """Also those that are decided in one batch, of which none is stored yet."""
    with ledger() as accountant:
        told: list[str] = []

        def ask(number: int) -> None:
            try:
                told.append(hold(accountant, f"p{number % 2}", f"{number}"))
            except OdometerError as error:
                told.append(error.code)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert told.count("too-many-holds") == 10
        assert len(accountant.holds("d")["items"]) == 6
