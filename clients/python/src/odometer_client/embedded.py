"""The ledger inside this process, without a server. Needs the package `privacy-odometer`, imported late.

Whoever may open the ledger's file may do everything: there are no API keys. All charges are of one principal.
"""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from odometer_client.calls import Answer, Request
from odometer_client.errors import BY_CODE, ProblemError

if TYPE_CHECKING:
    from accountant.service import Accountant

PRINCIPAL: Final = "embedded"
_NO_KEYS: Final = {
    "type": "/problems/not-found",
    "title": "There is nothing here",
    "status": 404,
    "detail": "an embedded ledger has no API keys: start `odometer serve` to give them out",
    "retryable": False,
}


class EmbeddedTransport:
    """Takes requests to an `Accountant` over a store that this process opens.

    Args:
        url: `sqlite:///relative/path`, `sqlite:////absolute/path` or `memory://`.
    """

    def __init__(self, url: str) -> None:
        try:
            from accountant.errors import OdometerError
            from accountant.service import Accountant
        except ImportError as error:
            raise ImportError(
                f"A ledger at {url!r} needs the package privacy-odometer in this environment (pip install "
                "privacy-odometer), and no other package named `accountant`. To ask a service, give http://..."
            ) from error
        self._process = os.getpid()
        self._refusals = OdometerError
        try:
            self._accountant = Accountant.open(url)
        except OdometerError as error:
            raise BY_CODE.get(error.code, ProblemError)(error.problem()) from error

    def send(self, request: Request) -> Answer:
        """The answer that the HTTP service would give."""
        if os.getpid() != self._process:
            raise RuntimeError("this ledger was opened before a fork: open one in each process")
        try:
            return _OPERATIONS[request.operation](self._accountant, request)
        except self._refusals as error:
            return Answer(error.status, error.problem())

    def close(self) -> None:
        self._accountant.close()


def _charge(accountant: "Accountant", request: Request) -> Answer:
    receipt, replayed = accountant.charge(_dataset(request), _body(request), request.key, PRINCIPAL)
    return Answer(200 if replayed else 201, receipt)


def _page(read: Callable[..., Any], request: Request, *names: str) -> Answer:
    """A page of a list; only what was given is passed on, so that defaults stay the accountant's."""
    return Answer(200, read(*names, **request.query))


def _dataset(request: Request) -> str:
    return str(request.arguments["dataset"])


def _body(request: Request) -> Mapping[str, Any]:
    return request.body or {}


_OPERATIONS: Final[dict[str, Callable[["Accountant", Request], Answer]]] = {
    "charge": _charge,
    "check": lambda it, request: Answer(200, it.check(_dataset(request), _body(request))),
    "odometer": lambda it, request: Answer(200, it.odometer(_dataset(request), **request.query)),  # type: ignore[arg-type]
    "create_dataset": lambda it, request: Answer(201, it.create_dataset(_body(request), PRINCIPAL)),
    "datasets": lambda it, request: _page(it.datasets, request),
    "dataset": lambda it, request: Answer(200, it.dataset(_dataset(request))),
    "add_budget": lambda it, request: Answer(
        201, it.add_budget(_dataset(request), _body(request), PRINCIPAL)
    ),
    "set_budget": lambda it, request: Answer(
        200,
        it.change_budget(
            _dataset(request), request.arguments["name"], _body(request), request.arguments["etag"], PRINCIPAL
        ),
    ),
    "close_dataset": lambda it, request: Answer(200, it.close_dataset(_dataset(request), PRINCIPAL)),
    "ledger": lambda it, request: _page(it.ledger, request, _dataset(request)),
    "history": lambda it, request: _page(it.history, request, _dataset(request)),
    "spend": lambda it, request: Answer(200, it.spend(_dataset(request))),
    "mechanisms": lambda it, request: Answer(200, it.mechanisms()),  # noqa: ARG005
    "convert": lambda it, request: Answer(200, it.convert(_body(request))),
    "create_key": lambda it, request: Answer(404, _NO_KEYS),  # noqa: ARG005
    "keys": lambda it, request: Answer(404, _NO_KEYS),  # noqa: ARG005
    "revoke_key": lambda it, request: Answer(404, _NO_KEYS),  # noqa: ARG005
    "me": lambda it, request: Answer(200, {"key": None, "role": "admin", "principal": PRINCIPAL}),  # noqa: ARG005
}
"""What each operation of the client is here."""
