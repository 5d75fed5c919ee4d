"""One endpoint for every operation but the hot one: body, key, then the work in a thread."""

import json
from collections.abc import Awaitable, Callable

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from accountant.documents import BODY_MAX, invalid, read_json
from api.auth import Identity, allowed
from api.incoming import bearer, from_another_page, header, read_body, ticket
from api.operations import Again, Call, Operation
from api.waiting import COMPUTING, SURVEYING, in_thread


def endpoint(operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    """The handler of an operation. Order of refusals: 400, 401, 403, 404, 413, 422, 409."""

    async def handle(request: Request) -> Response:
        body = b""
        if operation.body is not None:
            body = await read_body(request.receive)
            if len(body) <= BODY_MAX:
                read_json(body)
        limit_s: float = request.app.state.settings.slow_after_s
        lane = COMPUTING if operation.computes else SURVEYING if operation.surveys else None
        return await in_thread(limit_s, _work, operation, request, body, lane=lane)

    return handle


def _work(operation: Operation, request: Request, body: bytes) -> Response:
    who = _identity(operation, request)
    document = operation.run(_call(operation, request, body, who)) if operation.run else None
    if document is None:
        return Response(status_code=operation.status)
    status = operation.status
    if isinstance(document, Again):
        document, status = document.document, 200
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    return Response(text, status, media_type="application/json")


def _identity(operation: Operation, request: Request) -> Identity:
    state, headers = request.app.state, request.scope["headers"]
    token = bearer(header(headers, b"authorization"))
    if token is None and request.method == "GET" and not from_another_page(headers):
        given = ticket(headers, https=state.settings.https or request.url.scheme == "https")
        if given is not None:
            return allowed(state.sign_ins.identify(given), operation.role)
    who: Identity = state.ring.require(token, operation.role)
    return who


def _call(operation: Operation, request: Request, body: bytes, who: Identity) -> Call:
    query = None
    state = request.app.state
    if operation.query is not None:
        try:
            query = operation.query.model_validate_strings(dict(request.query_params))
        except ValidationError as error:
            if "dataset" in request.path_params:
                state.accountant.state(request.path_params["dataset"])  # 404 comes before 422
            invalid(error, dict(request.query_params), operation.query)
    headers = request.headers
    return Call(
        state.accountant,
        state.ring,
        who,
        request.path_params,
        query,
        body,
        headers.get("if-match"),
        headers.get("idempotency-key"),
    )
