"""The ledger inside this process, without a server. Needs the package `privacy-odometer`, imported late.

Whoever may open the ledger may do everything: there are no API keys. Charges count for one principal, or for
the one that they name.
"""

import os
from typing import Final

from odometer_client.calls import Answer, Request
from odometer_client.errors import BY_CODE, ProblemError

PRINCIPAL: Final = "embedded"


class EmbeddedTransport:
    """Runs each operation on an `Accountant` over a store that this process opens.

    Args:
        url: `sqlite:///relative/path`, `sqlite:////absolute/path`, `redis://host:port` and its like, or
            `memory://`.
    """

    def __init__(self, url: str) -> None:
        try:
            from odometer_accountant.errors import OdometerError
            from odometer_accountant.service.accountant import Accountant
            from odometer_accountant.service.api_keys import Identity, Role
            from odometer_accountant.service.operations import OPERATIONS
        except ImportError as error:
            raise ImportError(
                f"A ledger at {url.partition('://')[0]}://… needs the package privacy-odometer in this "
                "environment (pip install privacy-odometer). To ask a service, give http://..."
            ) from error
        self._process = os.getpid()
        self._refusals = OdometerError
        self._operations = OPERATIONS
        self._who = Identity("", Role.admin, PRINCIPAL, acts_for=frozenset({"*"}))
        try:
            self._accountant = Accountant.open(url)
        except OdometerError as error:
            raise BY_CODE.get(error.code, ProblemError)(error.problem()) from error

    def send(self, request: Request) -> Answer:
        """The answer that the HTTP service would give."""
        from odometer_accountant.service.operations import Again, Call

        if os.getpid() != self._process:
            raise RuntimeError("this ledger was opened before a fork: open one in each process")
        operation = self._operations[request.operation]
        try:
            query = operation.parsed_query({name: str(value) for name, value in request.query.items()})
            about = (self._who, request.names, query, request.body or {}, request.if_match, request.key)
            document = operation.run(Call(self._accountant, None, *about))
        except self._refusals as error:
            return Answer(error.status, error.problem())
        if isinstance(document, Again):
            return Answer(200, document.document)
        return Answer(operation.status, document)

    def close(self) -> None:
        """Close the ledger."""
        self._accountant.close()
