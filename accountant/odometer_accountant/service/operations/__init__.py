"""The operations of the service: one row each. Routes, OpenAPI, the client and the embedded client follow.

A row has the operation's name, role, body, query, reply, errors and handler, and says whether a request
may be repeated. To add one, see docs/extending.md.
"""

from typing import Final

from odometer_accountant.service.operations import (
    charges,
    datasets,
    holds,
    ledger,
    plans,
    principals,
    sessions,
)
from odometer_accountant.service.operations.operation import Again, Call, Operation

__all__ = ["OPERATIONS", "Again", "Call", "Operation"]

OPERATIONS: Final[dict[str, Operation]] = {
    row.name: row
    for module in (datasets, charges, holds, sessions, ledger, plans, principals)
    for row in module.ROWS
}
"""Every operation by its name, in the order of the reference."""
