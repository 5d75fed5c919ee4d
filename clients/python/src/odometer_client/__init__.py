"""Privacy Odometer's client: ask before you release.

from odometer_client import Client
from odometer_client.mechanisms import Gaussian

with Client("http://127.0.0.1:8790", key) as client:
    client.charge("census", Gaussian(noise_multiplier=20))   # raises: do not release
"""

from importlib.metadata import version

from odometer_client import errors, mechanisms
from odometer_client.client import Client
from odometer_client.documents import Check, Dataset, Document, Odometer, Receipt
from odometer_client.errors import BudgetExceeded, OdometerError, OutcomeUnknown
from odometer_client.holds import Hold, OpenHold, Settlement
from odometer_client.mechanism import Mechanism
from odometer_client.sessions import Session
from odometer_client.sweeps import Sweep

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
    "Session",
    "Settlement",
    "Sweep",
    "__version__",
    "errors",
    "mechanisms",
]
