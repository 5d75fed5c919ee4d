"""The ledger inside this process, without a server. Needs the package `privacy-odometer`, imported late.

Whoever may open the ledger may do everything: there are no API keys. Charges are of one principal, or of
the one that they name.
"""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from odometer_client.calls import Answer, Request
from odometer_client.errors import BY_CODE, ProblemError

if TYPE_CHECKING:
    from odometer_accountant.ledger.commands import Caller
    from odometer_accountant.service.accountant import Accountant

PRINCIPAL: Final = "embedded"
_ME: Final = {"key": None, "role": "admin", "principal": PRINCIPAL, "team": None, "acts_for": ["*"]}
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
        url: `sqlite:///relative/path`, `sqlite:////absolute/path`, `redis://host:port` and its like, or
            `memory://`.
    """

    def __init__(self, url: str) -> None:
        try:
            from odometer_accountant.errors import OdometerError
            from odometer_accountant.ledger.commands import Caller
            from odometer_accountant.service.accountant import Accountant
        except ImportError as error:
            raise ImportError(
                f"A ledger at {url.partition('://')[0]}://… needs the package privacy-odometer in this "
                "environment (pip install privacy-odometer). To ask a service, give http://..."
            ) from error
        self._process = os.getpid()
        self._refusals = OdometerError
        self._caller = Caller(PRINCIPAL, acts_for=frozenset({"*"}), admin=True)
        try:
            self._accountant = Accountant.open(url)
        except OdometerError as error:
            raise BY_CODE.get(error.code, ProblemError)(error.problem()) from error

    def send(self, request: Request) -> Answer:
        """The answer that the HTTP service would give."""
        if os.getpid() != self._process:
            raise RuntimeError("this ledger was opened before a fork: open one in each process")
        try:
            if request.operation in _CALLS:
                return _CALLS[request.operation](self._accountant, request, self._caller)
            return _OPERATIONS[request.operation](self._accountant, request)
        except self._refusals as error:
            return Answer(error.status, error.problem())

    def close(self) -> None:
        self._accountant.close()


def _charge(accountant: "Accountant", request: Request, caller: "Caller") -> Answer:
    receipt, replayed = accountant.charge(_dataset(request), _body(request), request.key, caller)
    return Answer(200 if replayed else 201, receipt)


def _hold(accountant: "Accountant", request: Request, caller: "Caller") -> Answer:
    receipt, replayed = accountant.hold(_dataset(request), _body(request), request.key, caller)
    return Answer(200 if replayed else 201, receipt)


def _derive(accountant: "Accountant", request: Request, caller: "Caller") -> Answer:
    receipt, replayed = accountant.derive(_dataset(request), _body(request), request.key, caller)
    return Answer(200 if replayed else 201, receipt)


def _settle(accountant: "Accountant", request: Request, caller: "Caller") -> Answer:
    hold = str(request.arguments["hold"])
    return Answer(200, accountant.settle(_dataset(request), hold, _body(request), caller)[0])


def _open_session(accountant: "Accountant", request: Request, caller: "Caller") -> Answer:
    document, replayed = accountant.open_session(_dataset(request), _body(request), request.key, caller)
    return Answer(200 if replayed else 201, document)


def _answer_session(accountant: "Accountant", request: Request, caller: "Caller") -> Answer:
    session = str(request.arguments["session"])
    body = _body(request)
    return Answer(200, accountant.answer_session(_dataset(request), session, body, request.key, caller)[0])


def _close_session(accountant: "Accountant", request: Request, caller: "Caller") -> Answer:
    session = str(request.arguments["session"])
    return Answer(200, accountant.close_session(_dataset(request), session, caller)[0])


def _page(read: Callable[..., Any], request: Request, *names: str) -> Answer:
    """A page of a list; only what was given is passed on, so that defaults stay the accountant's."""
    return Answer(200, read(*names, **request.query))


def _dataset(request: Request) -> str:
    return str(request.arguments["dataset"])


def _body(request: Request) -> Mapping[str, Any]:
    return request.body or {}


_OF_KEYS: Final = (
    "add_key",
    "create_key",
    "create_principal",
    "erase_name",
    "keys",
    "principal",
    "principals",
    "revoke_key",
    "rotate_key",
    "set_principal",
)
_CALLS: Final[dict[str, Callable[["Accountant", Request, "Caller"], Answer]]] = {
    "charge": _charge,
    "hold": _hold,
    "settle": _settle,
    "derive": _derive,
    "open_session": _open_session,
    "answer_session": _answer_session,
    "close_session": _close_session,
    "check": lambda it, request, caller: Answer(200, it.check(_dataset(request), _body(request), caller)),
}
"""What depends on who asks."""
_OPERATIONS: Final[dict[str, Callable[["Accountant", Request], Answer]]] = {
    "holds": lambda it, request: Answer(200, it.holds(_dataset(request))),
    "sessions": lambda it, request: Answer(200, it.sessions(_dataset(request))),
    "session": lambda it, request: Answer(200, it.session(_dataset(request), request.arguments["session"])),
    "scopes": lambda it, request: _page(it.scopes, request, _dataset(request)),
    "add_partitions": lambda it, request: Answer(
        200, it.add_partitions(_dataset(request), _body(request), PRINCIPAL)
    ),
    "unfreeze": lambda it, request: Answer(200, it.unfreeze(_dataset(request), _body(request), PRINCIPAL)),
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
    "lineage": lambda it, request: _page(it.lineage, request, _dataset(request)),
    "history": lambda it, request: _page(it.history, request, _dataset(request)),
    "spend": lambda it, request: Answer(200, it.spend(_dataset(request))),
    "mechanisms": lambda it, request: Answer(200, it.mechanisms()),  # noqa: ARG005
    "dp_events": lambda it, request: Answer(200, it.dp_events(_body(request))),
    "convert": lambda it, request: Answer(200, it.convert(_body(request))),
    **dict.fromkeys(_OF_KEYS, lambda it, request: Answer(404, _NO_KEYS)),  # noqa: ARG005
    "me": lambda it, request: Answer(200, _ME),  # noqa: ARG005
}
"""What each operation of the client is here."""
