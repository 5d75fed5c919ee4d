"""The accountant as a library: losses, mechanisms, budgets and the ledger, without HTTP.

from odometer_accountant import Accountant, Caller

with Accountant.open("sqlite:///ledger.sqlite") as accountant:
    body = {"mechanism": {"kind": "gaussian", "noise_multiplier": 8.0}, "count": 1}
    receipt, replayed = accountant.charge("census", body, "an-idempotency-key", Caller("ada"))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odometer_accountant.budgets import Budget
    from odometer_accountant.errors import BudgetExceeded, OdometerError, StoreUnavailable
    from odometer_accountant.ledger.commands import Caller
    from odometer_accountant.mechanisms import ANY_MECHANISM, Adjacency, Mechanism
    from odometer_accountant.mechanisms.charge import Charge
    from odometer_accountant.service.accountant import Accountant
    from odometer_accountant.stores import Store, open_store

_HOMES = {
    "ANY_MECHANISM": "mechanisms",
    "Accountant": "service.accountant",
    "Adjacency": "mechanisms",
    "Budget": "budgets",
    "BudgetExceeded": "errors",
    "Caller": "ledger.commands",
    "Charge": "mechanisms.charge",
    "Mechanism": "mechanisms",
    "OdometerError": "errors",
    "Store": "stores",
    "StoreUnavailable": "errors",
    "open_store": "stores",
}
__all__ = [
    "ANY_MECHANISM",
    "Accountant",
    "Adjacency",
    "Budget",
    "BudgetExceeded",
    "Caller",
    "Charge",
    "Mechanism",
    "OdometerError",
    "Store",
    "StoreUnavailable",
    "open_store",
]


def __getattr__(name: str) -> Any:
    """A public name, imported when it is first used: the command line reads `bounds` without numpy."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
