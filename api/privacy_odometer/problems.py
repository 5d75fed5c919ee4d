"""Turns every error, whatever raised it, into an RFC 9457 problem body."""

import json
import logging
from typing import Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from odometer_accountant.errors import (
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    OdometerError,
)

log = logging.getLogger("odometer.api")

MEDIA_TYPE = "application/problem+json"
NO_STORE: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
"""Headers of every answer, unless it sets its own: no cache keeps it, no browser guesses another type."""


_NO_STORE = [(name.encode(), text.encode()) for name, text in NO_STORE.items()]


class NoStore:
    """Adds the headers of `NO_STORE` to every answer of an app that does not set its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                chosen = {name.lower() for name, _ in given}
                message["headers"] = given + [pair for pair in _NO_STORE if pair[0] not in chosen]
            await send(message)

        await self._app(scope, receive, sealed if scope["type"] == "http" else send)


def problem_bytes(error: OdometerError) -> bytes:
    """The body of an error."""
    return json.dumps(error.problem(), ensure_ascii=False).encode()


def problem_headers(error: OdometerError) -> dict[str, str]:
    """The headers of an error beside its type and length."""
    headers = dict(NO_STORE)
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    if error.retryable or error.fields.get("retryable"):
        headers["retry-after"] = str(error.fields.get("retry_after_s", 1))
    return headers


def problem_response(error: OdometerError) -> Response:
    """The response of an error."""
    return Response(problem_bytes(error), error.status, problem_headers(error), MEDIA_TYPE)


def internal_error() -> InternalError:
    """The error for a fault of the service. The log has the cause."""
    return InternalError("unexpected fault; the cause is in the log. Retry a charge with the same key")


def _methods(app: FastAPI, request: Request) -> list[str]:
    """All methods of a path. Several routes may share it, and each knows only its own."""
    fitting = [route for route in app.routes if route.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in fitting for method in getattr(route, "methods", None) or ()})


def install(app: FastAPI) -> None:
    """Answer every error of `app` with a problem.

    The handlers are coroutines. Plain functions would need a worker thread, which may be missing.
    """

    async def ours(_: Request, error: Exception) -> Response:
        if isinstance(error, OdometerError):
            app.state.unsure_log.tell(error)
        return problem_response(error if isinstance(error, OdometerError) else internal_error())

    async def http(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        if status == 404:
            return problem_response(NotFound(f"no such path: {request.url.path[:200]!r}"))
        if status == 405:
            response = problem_response(
                MethodNotAllowed(f"method {request.method} is not allowed on {request.url.path[:200]!r}")
            )
            response.headers["Allow"] = ", ".join(_methods(app, request))
            return response
        return problem_response(internal_error())

    async def invalid(_: Request, error: Exception) -> Response:
        found = error.errors() if isinstance(error, RequestValidationError) else []
        errors = [{"field": ".".join(map(str, item["loc"][1:])), "message": item["msg"]} for item in found]
        return problem_response(InvalidRequest("invalid parameter: see errors", errors=errors))

    async def fault(_: Request, error: Exception) -> Response:
        log.error("unexpected fault", exc_info=error)
        return problem_response(internal_error())

    app.add_exception_handler(OdometerError, ours)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, fault)
