"""What cannot be told in full is refused, or said to be unknown: never told as less."""

from typing import Any

import pytest

from accountant.errors import InvalidRequest
from accountant.service import Accountant
from accountant.stores.memory import MemoryStore

OPENED = {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-6}
HALF = {"kind": "zcdp", "rho": 0.5}


def opened(*budgets: dict[str, Any], **more: Any) -> Accountant:
    accountant = Accountant(MemoryStore())
    accountant.create_dataset({**OPENED, "budgets": list(budgets), **more}, "root")
    return accountant


def rho(limit: float, scope: str = "dataset", **more: Any) -> dict[str, Any]:
    return {"name": "b", "kind": "zcdp", "rho": limit, "scope": scope, **more}


@pytest.mark.parametrize("scope", ["dataset/x", "dataset/", "mechanism/zcdp", "unit/x", "principal/"])
def test_a_scope_that_is_none_has_no_odometer(scope: str) -> None:
    """It would show nothing spent, whatever the dataset has spent."""
    with opened(rho(1)) as accountant:
        accountant.charge("d", {"mechanism": HALF, "count": 1}, "k", "p")
        with pytest.raises(InvalidRequest, match="scope: one of principal/…, team/…, group/…"):
            accountant.odometer("d", scope=scope)
