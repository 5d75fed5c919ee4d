"""The method and path of each operation, by its name."""

from typing import Final, NamedTuple

from odometer_accountant.service.operations import OPERATIONS, Operation


class Route(NamedTuple):
    """How an operation is asked over HTTP."""

    method: str
    path: str


_DATASET: Final = "/v1/datasets/{dataset}"
_SESSION: Final = f"{_DATASET}/sessions/{{session}}"
_PRINCIPAL: Final = "/v1/principals/{principal}"

ROUTES: Final[dict[str, Route]] = {
    "create_dataset": Route("POST", "/v1/datasets"),
    "datasets": Route("GET", "/v1/datasets"),
    "dataset": Route("GET", _DATASET),
    "close_dataset": Route("POST", f"{_DATASET}/closure"),
    "add_partitions": Route("POST", f"{_DATASET}/partitions"),
    "unfreeze": Route("POST", f"{_DATASET}/unfreeze"),
    "budgets": Route("GET", f"{_DATASET}/budgets"),
    "add_budget": Route("POST", f"{_DATASET}/budgets"),
    "set_budget": Route("PUT", f"{_DATASET}/budgets/{{budget}}"),
    "charge": Route("POST", f"{_DATASET}/charges"),
    "check": Route("POST", f"{_DATASET}/checks"),
    "hold": Route("POST", f"{_DATASET}/holds"),
    "holds": Route("GET", f"{_DATASET}/holds"),
    "settle": Route("POST", f"{_DATASET}/holds/{{hold}}/settlement"),
    "open_session": Route("POST", f"{_DATASET}/sessions"),
    "sessions": Route("GET", f"{_DATASET}/sessions"),
    "session": Route("GET", _SESSION),
    "answer_session": Route("POST", f"{_SESSION}/answers"),
    "close_session": Route("POST", f"{_SESSION}/close"),
    "derive": Route("POST", f"{_DATASET}/derived"),
    "lineage": Route("GET", f"{_DATASET}/lineage"),
    "scopes": Route("GET", f"{_DATASET}/scopes"),
    "odometer": Route("GET", f"{_DATASET}/odometer"),
    "history": Route("GET", f"{_DATASET}/history"),
    "spend": Route("GET", f"{_DATASET}/spend"),
    "ledger": Route("GET", f"{_DATASET}/ledger"),
    "mechanisms": Route("GET", "/v1/mechanisms"),
    "convert": Route("POST", "/v1/convert"),
    "dp_events": Route("POST", "/v1/dp-events"),
    "keys": Route("GET", "/v1/keys"),
    "create_key": Route("POST", "/v1/keys"),
    "revoke_key": Route("DELETE", "/v1/keys/{key}"),
    "rotate_key": Route("POST", "/v1/keys/{key}/rotation"),
    "principals": Route("GET", "/v1/principals"),
    "create_principal": Route("POST", "/v1/principals"),
    "principal": Route("GET", _PRINCIPAL),
    "set_principal": Route("PUT", _PRINCIPAL),
    "erase_name": Route("DELETE", f"{_PRINCIPAL}/name"),
    "principal_keys": Route("GET", f"{_PRINCIPAL}/keys"),
    "add_key": Route("POST", f"{_PRINCIPAL}/keys"),
    "me": Route("GET", "/v1/me"),
}


def routed() -> list[tuple[Route, Operation]]:
    """Every operation with its route, in the order of the operations."""
    return [(ROUTES[name], operation) for name, operation in OPERATIONS.items()]
