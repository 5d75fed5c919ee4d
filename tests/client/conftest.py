"""What the client's tests of holds and scopes share: the two faces of one client."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odometer_client import Client
from odometer_client.testing import Service, serve

_numbers = itertools.count()


@pytest.fixture(scope="session")
def running() -> Iterator[Service]:
    """A service in a process of its own, one for the session."""
    with serve() as service:
        yield service


@pytest.fixture(scope="session", params=["service", "embedded"])
def both(request: pytest.FixtureRequest) -> Iterator[Client]:
    """An admin's client of a service, and one of a ledger in this process."""
    if request.param == "embedded":
        with Client("memory://") as client:
            yield client
        return
    running: Service = request.getfixturevalue("running")
    with Client(running.url, running.admin_key) as client:
        yield client


@pytest.fixture
def opened(both: Client) -> Callable[..., str]:
    """Opens a dataset with a pure budget of 1 for life, unless told, and says its name."""

    def open_one(*budgets: dict[str, Any], **more: Any) -> str:
        name = f"h{next(_numbers)}"
        life = {"name": "life", "kind": "pure", "epsilon": 1.0}
        both.create_dataset(
            name, unit="person", adjacency="add_remove", delta=1e-6, budgets=budgets or [life], **more
        )
        return name

    return open_one
