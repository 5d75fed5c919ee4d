"""The accountant: every operation of the service as a Python method."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from odometer_accountant.mechanisms import Mechanism
from odometer_accountant.queries.convert import convert
from odometer_accountant.requests.dp_events import convert_event
from odometer_accountant.service.datasets import Datasets
from odometer_accountant.service.derived import DerivedArtefacts
from odometer_accountant.service.holds import Holds
from odometer_accountant.service.reads import Reads
from odometer_accountant.service.request_checks import Body, mechanism_document
from odometer_accountant.service.sessions import Sessions


class Accountant(Datasets, Holds, Sessions, DerivedArtefacts, Reads):
    """One ledger store and its writer. Safe to call from several threads.

    Every method takes and returns what the HTTP route of the same name does, and raises an
    `OdometerError`. Methods that change something name their principal. Each noun has a module of its own,
    with a base class that has its methods; the constructor is that of `StateReader`.
    """

    @staticmethod
    def mechanisms() -> dict[str, Any]:
        """Every kind of mechanism, with its schema."""
        found: dict[str, Any] = json.loads(_mechanisms())
        return found

    @staticmethod
    def convert(body: Body | Mapping[str, Any]) -> dict[str, Any]:
        """The readings of charges as a fixed plan. Raises InvalidRequest."""
        return convert(body)

    @staticmethod
    def dp_events(body: Body | Mapping[str, Any]) -> dict[str, Any]:
        """The charges of an event of dp_accounting. Raises InvalidRequest for an unknown event."""
        return convert_event(body)


@cache
def _mechanisms() -> str:
    """The mechanisms as JSON. Cached: the schemas take long to compute and never change."""
    items = [mechanism_document(kind) for kind in Mechanism.registry.values()]
    return json.dumps({"items": items, "next": None})
