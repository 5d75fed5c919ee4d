"""create_app(settings): the HTTP service over one accountant."""

import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from odometer_accountant.errors import registry
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.service.api_keys import KeyRing
from odometer_accountant.service.sign_ins import SignIns
from odometer_accountant.stores import open_store
from privacy_odometer import dashboard, problems
from privacy_odometer.authentication import Authenticator
from privacy_odometer.lanes import Lanes
from privacy_odometer.metrics import CONTENT_TYPE, page, registry_of
from privacy_odometer.openapi import describe
from privacy_odometer.readiness import Readiness
from privacy_odometer.refusal_log import UnsureLog
from privacy_odometer.routes.charges import CHARGE, ChargeEndpoint, ChargeShortcut
from privacy_odometer.routes.endpoint import endpoint
from privacy_odometer.routes.table import ROUTES, routed
from privacy_odometer.settings import Settings
from privacy_odometer.threads import LoopSink
from privacy_odometer.witness_setup import begin, keep, open_witness

log = logging.getLogger("odometer.api")

TITLE = "Privacy Odometer"
DESCRIPTION = (
    "Keeps, for each dataset, how much privacy has been lost, and refuses what would lose too much. "
    "Ask before each release. Errors are RFC 9457 problems; null in a loss means no bound."
)


def create_app(settings: Settings) -> FastAPI:
    """The service. It opens the store when it starts, and closes it when it ends.

    `app.state` then holds `accountant`, `ring` and `first_key` (the admin key of a first start, or None).
    """
    app = FastAPI(title=TITLE, docs_url=None, redoc_url=None, redirect_slashes=False, lifespan=_lifespan)
    app.state.settings = settings
    app.state.writer_died = False
    app.state.unsure_log = UnsureLog()
    problems.install(app)
    app.add_middleware(problems.NoStore)
    app.add_middleware(ChargeShortcut)  # added last, so it comes first
    for route, operation in routed():
        if operation.name != CHARGE:
            app.add_api_route(
                route.path,
                endpoint(operation),
                methods=[route.method],
                include_in_schema=False,
                response_model=None,
            )
    app.add_api_route("/healthz", _healthz, methods=["GET"], include_in_schema=False)
    app.add_api_route("/readyz", _readyz, methods=["GET"], include_in_schema=False, response_model=None)
    app.add_api_route("/metrics", _metrics, methods=["GET"], include_in_schema=False, response_model=None)
    app.add_api_route(
        "/problems/{code}", _problem, methods=["GET"], include_in_schema=False, response_model=None
    )

    app.include_router(dashboard.router(lambda: app.state.sign_ins, https=settings.https))
    description = describe(TITLE, _version(), DESCRIPTION)
    app.openapi = lambda: description  # type: ignore[method-assign]
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    store = await run_in_threadpool(open_store, settings.store, allow_volatile=settings.allow_volatile_store)

    def end(fault: BaseException) -> None:
        log.critical("shutting down: the ledger writer failed with %r", fault)
        app.state.writer_died = True
        os.kill(os.getpid(), signal.SIGTERM)

    # The process that answers opens the witness, before its first answer. `odometer serve` chose the file.
    witness = open_witness(settings.witness, settings.store)
    accountant = Accountant(store, on_death=end)
    keeper = None
    try:
        await run_in_threadpool(begin, store, witness)
        keeper = await run_in_threadpool(keep, store, witness, accountant.writer)
        ring = await run_in_threadpool(KeyRing, store, settings.key_refresh_s)
        app.state.first_key = await run_in_threadpool(ring.create_first)
        sink = LoopSink(accountant.writer, settings.slow_after_s)
        app.state.accountant, app.state.ring = accountant, ring
        app.state.sign_ins = SignIns(store, ring, settings.sign_in_s)
        app.state.authenticator, app.state.lanes = Authenticator(ring, settings.slow_after_s), Lanes()
        app.state.charges = ChargeEndpoint(
            accountant, app.state.authenticator, sink, app.state.lanes, app.state.unsure_log
        )
        app.state.readiness = Readiness(accountant, ring, settings.slow_after_s)
        app.state.metrics = registry_of(accountant.writer, app.state.charges.counts)
        # For the charges that `ChargeShortcut` lets pass.
        charge = Route(ROUTES[CHARGE].path, app.state.charges, methods=["POST"])
        app.router.routes.append(charge)
        try:
            yield
        finally:
            app.router.routes.remove(charge)
            sink.close()
    finally:
        if keeper is not None:
            await run_in_threadpool(keeper.close)
        await run_in_threadpool(accountant.close)


async def _healthz() -> dict[str, str]:
    """The process is alive."""
    return {"status": "ok"}


async def _readyz(request: Request) -> Response:
    """Whether a charge could be recorded now: the keys can be read and a write is durable."""
    error = await request.app.state.readiness.error()
    if error is None:
        return JSONResponse({"status": "ready"})
    request.app.state.unsure_log.tell(error)
    return problems.problem_response(error)


async def _metrics(request: Request) -> Response:
    """Numbers for Prometheus. They come from memory, so that they are there when the ledger is not."""
    return Response(page(request.app.state.metrics), media_type=CONTENT_TYPE)


def _problem(code: str) -> Response:
    """The meaning of a problem type."""
    kind = registry().get(code)
    if kind is None:
        return problems.problem_response(registry()["not-found"](f"unknown problem type {code[:80]!r}"))
    meaning: dict[str, Any] = {
        "type": f"/problems/{kind.code}",
        "title": kind.title,
        "status": kind.status,
        "retryable": kind.retryable,
        "meaning": " ".join((kind.__doc__ or "").split()),
    }
    return JSONResponse(meaning)


def _version() -> str:
    try:
        return version("privacy-odometer")
    except PackageNotFoundError:
        return "0"
