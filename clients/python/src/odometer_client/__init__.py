"""Privacy Odometer's client: ask before you release.

from odometer_client import Client
from odometer_client.mechanisms import Gaussian

with Client("http://127.0.0.1:8790", key) as client:
    client.charge("census", Gaussian(noise_multiplier=20))   # raises: do not release
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odometer_client import errors, mechanisms
    from odometer_client.client import Client
    from odometer_client.documents import Check, Dataset, Document, Odometer, Receipt, Reply
    from odometer_client.errors import BudgetExceeded, OdometerError, OutcomeUnknown
    from odometer_client.holds import Hold, OpenHold, Settlement
    from odometer_client.mechanism import Mechanism
    from odometer_client.sessions import Session
    from odometer_client.sweeps import Sweep

_HOMES = {
    "BudgetExceeded": "errors",
    "Check": "documents",
    "Client": "client",
    "Dataset": "documents",
    "Document": "documents",
    "Hold": "holds",
    "Mechanism": "mechanism",
    "Odometer": "documents",
    "OdometerError": "errors",
    "OpenHold": "holds",
    "OutcomeUnknown": "errors",
    "Receipt": "documents",
    "Reply": "documents",
    "Session": "sessions",
    "Settlement": "holds",
    "Sweep": "sweeps",
}
_MODULES = ("errors", "mechanisms")

__version__ = version("privacy-odometer-client")

__all__ = [
    "BudgetExceeded",
    "Check",
    "Client",
    "Dataset",
    "Document",
    "Hold",
    "Mechanism",
    "Odometer",
    "OdometerError",
    "OpenHold",
    "OutcomeUnknown",
    "Receipt",
    "Reply",
    "Session",
    "Settlement",
    "Sweep",
    "__version__",
    "errors",
    "mechanisms",
]


def __getattr__(name: str) -> Any:
    """A public name, imported when it is first used: the command line starts without the client."""
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
