"""The endpoint of every operation except the charge: check the key, read the body, work in a thread."""

import json
from collections.abc import Awaitable, Callable
from functools import partial
from time import perf_counter
from typing import Any, Final

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from odometer_accountant.bounds import BODY_MAX
from odometer_accountant.errors import InvalidRequest, OdometerError
from odometer_accountant.requests.json_input import JsonBody
from odometer_accountant.service.api_keys import Identity, allowed
from odometer_accountant.service.operations import Again, Call, Operation
from privacy_odometer.lanes import Lanes
from privacy_odometer.metrics import outcome_of
from privacy_odometer.raw_request import bearer, from_another_page, header, read_body, ticket
from privacy_odometer.refusal_log import refused
from privacy_odometer.routes.scheduling import QUICK_BYTES, computed

QUERY_MAX: Final = 2048
"""Longest query string, in characters."""
_BROWSERS: Final = "~browsers"
"""The name under which sign-in tickets are looked up. No principal can have it."""


def endpoint(operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    """The handler of an operation. Order of refusals: 401, 403, 429, 400, 404, 413, 422, 409."""

    async def handle(request: Request) -> Response:
        if not operation.counted:
            return await _answer(operation, request)
        started, counts = perf_counter(), request.app.state.charges.counts
        outcome = "admitted"
        try:
            response = await _answer(operation, request)
            outcome = "admitted" if response.status_code == operation.status else "replayed"
        except OdometerError as error:
            outcome = outcome_of(error)
            counts.refuse(operation.counted, error)
            raise
        except Exception:
            outcome = "unsure"
            raise
        finally:
            if operation.charges:
                counts.add(outcome, perf_counter() - started)
        return response

    return handle


async def _answer(operation: Operation, request: Request) -> Response:
    state = request.app.state
    # The key comes first: without one, nothing is read and nothing computed.
    limit_s: float = state.settings.slow_after_s
    who = await _identity(operation, request, limit_s)
    body = await read_body(request.receive) if operation.body is not None else b""
    lanes: Lanes = state.lanes
    work = partial(_work, operation, request, body, who)
    try:
        if operation.computes:
            return await computed(lanes, who.principal, limit_s, len(body), work)
        lane = lanes.surveying if operation.surveys or len(body) > QUICK_BYTES else lanes.reading
        return await lane.run(who.principal, limit_s, work)
    except OdometerError as error:
        if operation.counted and error.status in (403, 409):
            refused(operation.counted, who.principal, request.path_params.get("dataset", ""), error)
        raise


def _work(operation: Operation, request: Request, body: bytes, who: Identity) -> Response:
    if operation.body is not None and len(body) <= BODY_MAX:
        body = JsonBody.parse(body)
    document = operation.run(_call(operation, request, body, who))
    if document is None:
        return Response(status_code=operation.status)
    status = operation.status
    if isinstance(document, Again):
        document, status = document.document, 200
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    return Response(text, status, media_type="application/json")


async def _identity(operation: Operation, request: Request, limit_s: float) -> Identity:
    state, headers = request.app.state, request.scope["headers"]
    token = bearer(header(headers, b"authorization"))
    if token is None and request.method == "GET" and not from_another_page(headers):
        given = ticket(headers, https=state.settings.https or request.url.scheme == "https")
        if given is not None:
            lanes: Lanes = state.lanes
            found = await lanes.reading.run(_BROWSERS, limit_s, state.sign_ins.identify, given)
            return allowed(found, operation.role)
    who: Identity = await state.authenticator.admit(token, operation.role)
    return who


def _call(operation: Operation, request: Request, body: bytes, who: Identity) -> Call:
    state = request.app.state
    headers = request.headers
    return Call(
        state.accountant,
        state.ring,
        who,
        request.path_params,
        _query(operation, request),
        body,
        headers.get("if-match"),
        headers.get("idempotency-key"),
    )


def _query(operation: Operation, request: Request) -> Any:
    """The query of an operation. Raises InvalidRequest, or UnknownDataset before it."""
    if operation.query is None:
        return None
    try:
        if len(request.scope["query_string"]) > QUERY_MAX:
            raise InvalidRequest(f"query string is too long: send at most {QUERY_MAX} characters")
        return operation.parsed_query(_each_once(request.query_params))
    except InvalidRequest:
        if "dataset" in request.path_params:
            request.app.state.accountant.state(request.path_params["dataset"])  # 404 comes before 422
        raise


def _each_once(parameters: QueryParams) -> dict[str, str]:
    """The parameters of a query. Raises InvalidRequest for one given twice, of which one would be lost."""
    found: dict[str, str] = {}
    for name, value in parameters.multi_items():
        if name in found:
            raise InvalidRequest.of(name[:80], "given twice: give it once")
        found[name] = value
    return found
