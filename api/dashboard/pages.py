"""The routes of the dashboard. None of them is part of the API, so none is in its schema."""

import re
from collections.abc import Callable
from typing import Final

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from accountant.errors import OdometerError
from api.dashboard import assets, docs
from api.dashboard.render import CHART_POLICY, page
from api.dashboard.session import (
    COOKIE,
    Identify,
    Identity,
    clean_token,
    clear_cookie,
    from_elsewhere,
    local_page,
    read_form,
    set_cookie,
    sign_in_url,
)

WRONG_KEY: Final = "That key is not valid here. Check that it is complete and has not been revoked."
"""The same words for a malformed, an unknown and a revoked key."""

_SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def router(identify: Identify) -> APIRouter:
    """All pages, assets and `/docs`. The service that includes this makes FastAPI with `docs_url=None`.

    Raises RuntimeError if a library whose files the pages serve is not installed.
    """
    assets.check()
    routes = APIRouter(include_in_schema=False)
    routes.add_api_route("/assets/{build}/{name}", _asset, methods=["GET"])
    routes.add_api_route("/favicon.ico", _favicon, methods=["GET"])
    routes.add_api_route("/docs", docs.page_of_docs, methods=["GET"])
    _add_sign_in(routes, identify)

    def overview(request: Request) -> Response:
        return _guarded(request, identify, lambda who: page("overview.html", who=who))

    def dataset(request: Request, name: str) -> Response:
        if not _SLUG.fullmatch(name):
            return _not_found()
        return _guarded(
            request, identify, lambda who: page("dataset.html", policy=CHART_POLICY, who=who, name=name)
        )

    routes.add_api_route("/", overview, methods=["GET"])
    routes.add_api_route("/datasets/{name}", dataset, methods=["GET"])
    return routes


def _add_sign_in(routes: APIRouter, identify: Identify) -> None:
    def form(request: Request) -> Response:
        return page("sign_in.html", next=local_page(request.query_params.get("next")), error=None)

    async def submit(request: Request) -> Response:
        try:
            fields = await read_form(request)
            target = local_page(fields.get("next"))
            token = clean_token(fields.get("key", ""))
            who = await run_in_threadpool(identify, token) if token else None
        except OdometerError as error:
            return _failed(error)
        if token is None or who is None or from_elsewhere(request):
            return page("sign_in.html", status=401, next=target, error=WRONG_KEY)
        response = RedirectResponse(target, status_code=303)
        set_cookie(response, request, token)
        return response

    def leave(request: Request) -> Response:
        response = RedirectResponse("/sign-in", status_code=303)
        if not from_elsewhere(request):
            clear_cookie(response, request)
        return response

    routes.add_api_route("/sign-in", form, methods=["GET"])
    routes.add_api_route("/sign-in", submit, methods=["POST"])
    routes.add_api_route("/sign-out", leave, methods=["POST"])


def _guarded(request: Request, identify: Identify, show: Callable[[Identity], Response]) -> Response:
    """`show` to whoever is signed in; a redirect to the sign-in page for everybody else."""
    token = clean_token(request.cookies.get(COOKIE, ""))
    try:
        who = identify(token) if token else None
    except OdometerError as error:
        return _failed(error)
    if who is None:
        return RedirectResponse(sign_in_url(request.url.path), status_code=303)
    return show(who)


def _asset(request: Request, build: str, name: str) -> Response:
    return assets.serve(request, build, name) or _not_found()


def _favicon() -> Response:
    """Browsers ask for this on pages that are not ours, such as the schema."""
    return RedirectResponse(assets.url("mark.svg"), status_code=307)


def _not_found() -> Response:
    return page(
        "message.html",
        status=404,
        title="There is no such page",
        text="The overview lists every dataset. Names are lower-case letters, digits, - and _.",
    )


def _failed(error: OdometerError) -> Response:
    return page("message.html", status=error.status, title=error.title, text=error.detail)
