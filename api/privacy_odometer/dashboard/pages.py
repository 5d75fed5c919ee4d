"""The routes of the dashboard. They are not part of the API, so its schema leaves them out."""

import re
from collections.abc import Callable
from typing import Final

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from odometer_accountant.errors import MalformedBody, OdometerError
from privacy_odometer.dashboard import assets, docs
from privacy_odometer.dashboard.render import CHART_POLICY, HEADERS, page
from privacy_odometer.dashboard.session import (
    OLD_COOKIE,
    Doors,
    Identity,
    clean_token,
    clear_cookies,
    from_own_page,
    given_ticket,
    local_page,
    read_form,
    set_cookie,
    sign_in_url,
)

WRONG_KEY: Final = "That key is not valid here. Check that it is complete and not revoked."
"""The same text for a malformed, an unknown and a revoked key."""

_SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def router(doors: Callable[[], Doors], *, https: bool = False) -> APIRouter:
    """All pages, assets and `/docs`. The app that includes them needs `docs_url=None`.

    doors: returns the service's tickets, once it has started. https: browsers use HTTPS, whatever the proxy
    says. Raises RuntimeError if a library whose files the pages need is not installed.
    """
    assets.check()
    routes = APIRouter(include_in_schema=False)
    routes.add_api_route("/assets/{build}/{name}", _asset, methods=["GET"])
    routes.add_api_route("/favicon.ico", _favicon, methods=["GET"])
    routes.add_api_route("/docs", docs.page_of_docs, methods=["GET"])
    _add_sign_in(routes, doors, https)

    def guarded(request: Request, show: Callable[[Identity], Response]) -> Response:
        """The answer of `show` for a signed-in person; for others a redirect to the sign-in page."""
        ticket = given_ticket(request, https=https)
        try:
            who = doors().identify(ticket) if ticket else None
        except OdometerError as error:
            return _failed(error)
        return show(who) if who is not None else _to(sign_in_url(request.url.path))

    def overview(request: Request) -> Response:
        return guarded(request, lambda who: page("overview.html", who=who))

    def dataset(request: Request, name: str) -> Response:
        if not _SLUG.fullmatch(name):
            return _not_found()
        return guarded(request, lambda who: page("dataset.html", policy=CHART_POLICY, who=who, name=name))

    routes.add_api_route("/", overview, methods=["GET"])
    routes.add_api_route("/datasets/{name}", dataset, methods=["GET"])
    return routes


def _add_sign_in(routes: APIRouter, doors: Callable[[], Doors], https: bool) -> None:
    def form(request: Request) -> Response:
        response = page("sign_in.html", next=local_page(request.query_params.get("next")), error=None)
        if OLD_COOKIE in request.cookies:
            clear_cookies(response, request)
        return response

    async def submit(request: Request) -> Response:
        try:
            return await _sign_in(request, doors(), https)
        except MalformedBody as error:
            return _message(400, "This form cannot be read", _sentence(error.detail))
        except OdometerError as error:
            return _failed(error)

    def leave(request: Request) -> Response:
        return _sign_out(request, doors(), https)

    routes.add_api_route("/sign-in", form, methods=["GET"])
    routes.add_api_route("/sign-in", submit, methods=["POST"])
    routes.add_api_route("/sign-out", leave, methods=["POST"])


async def _sign_in(request: Request, doors: Doors, https: bool) -> Response:
    if not from_own_page(request, https=https):
        return _foreign()
    fields = await read_form(request)
    target = local_page(fields.get("next"))
    token = clean_token(fields.get("key", ""))
    ticket = await run_in_threadpool(doors.open, token) if token else None
    if ticket is None:
        return page("sign_in.html", status=401, next=target, error=WRONG_KEY)
    earlier = given_ticket(request, https=https)
    if earlier:
        await run_in_threadpool(doors.close, earlier)
    response = _to(target)
    set_cookie(response, request, ticket, https=https)
    return response


def _sign_out(request: Request, doors: Doors, https: bool) -> Response:
    if not from_own_page(request, https=https):
        return _foreign()
    ticket = given_ticket(request, https=https)
    response = _to("/sign-in")
    try:
        if ticket:
            doors.close(ticket)
    except OdometerError as error:  # the browser's cookies are deleted anyway
        response = _failed(error)
    clear_cookies(response, request)
    return response


def _to(path: str) -> Response:
    """A redirect to another page of the dashboard."""
    return RedirectResponse(path, status_code=303, headers=HEADERS)


def _asset(request: Request, build: str, name: str) -> Response:
    return assets.serve(request, build, name) or _not_found()


def _favicon() -> Response:
    """The icon that browsers request beside JSON pages, such as the schema."""
    return RedirectResponse(assets.url("mark.svg"), status_code=307, headers=HEADERS)


def _not_found() -> Response:
    return _message(
        404,
        "There is no such page",
        "The overview lists every dataset. A name has lower-case letters, digits, - and _.",
    )


def _foreign() -> Response:
    return _message(
        403,
        "This form came from another site",
        "Only a page of this service can sign in or out. Open that page and try again. A proxy in front of "
        "the service must pass on the Host header.",
    )


def _failed(error: OdometerError) -> Response:
    return _message(error.status, _sentence(error.title).removesuffix("."), _sentence(error.detail))


def _sentence(text: str) -> str:
    """A text of an error as a sentence: with a capital first letter and a full stop."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?", "…")) else ".")


def _message(status: int, title: str, text: str) -> Response:
    return page("message.html", status=status, title=title, text=text)
