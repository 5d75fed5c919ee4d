"""Sign-in and sign-out: the forms, and the cookie that keeps the sign-in."""

import re
from typing import Final, Protocol
from urllib.parse import parse_qs, quote, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from odometer_accountant.errors import BodyTooLarge, MalformedBody
from privacy_odometer.raw_request import COOKIE, SECURE_COOKIE, from_another_page, ticket

OLD_COOKIE: Final = "odometer_key"
"""A cookie of earlier versions, which held the API key itself. It is deleted."""

FORM_BYTES_MAX: Final = 4096
"""The sign-in form has one key and one path. A larger form is not ours."""
FORM_FIELDS_MAX: Final = 8

_TOKEN = re.compile(r"[A-Za-z0-9_.~-]{1,256}")
_LOCAL_PAGE = re.compile(r"/(?:datasets/[a-z0-9][a-z0-9_-]{0,63})?")
_FORM: Final = "application/x-www-form-urlencoded"
_PORTS: Final = {"http": ":80", "https": ":443"}


class Identity(Protocol):
    """The person who signed in, as the pages show them."""

    @property
    def principal(self) -> str:
        """The opaque id of the principal. It may be any text, so it is always escaped."""

    @property
    def role(self) -> str:
        """`reader`, `charger` or `admin`."""


class Doors(Protocol):
    """Tickets for browsers (`service.sign_ins`). Every method may block, or raise StoreUnavailable."""

    def open(self, token: str) -> str | None:
        """A new ticket for the API key with this token; None if the key is unknown or revoked."""

    def identify(self, ticket: str) -> Identity | None:
        """The holder of the ticket; None if the ticket is invalid or has ended."""

    def close(self, ticket: str) -> None:
        """End the ticket."""


def clean_token(raw: str) -> str | None:
    """The token without surrounding spaces; None if its form is wrong."""
    token = raw.strip()
    return token if _TOKEN.fullmatch(token) else None


def local_page(path: str | None) -> str:
    """`path` if it is a page of the dashboard, else "/". Sign-in redirects to no other place."""
    return path if path is not None and _LOCAL_PAGE.fullmatch(path) else "/"


def sign_in_url(path: str) -> str:
    """The URL of the sign-in page that leads to `path` afterwards."""
    page = local_page(path)
    return "/sign-in" if page == "/" else f"/sign-in?next={quote(page, safe='')}"


def from_own_page(request: Request, *, https: bool) -> bool:
    """Whether the browser says that a page of this service sent the form.

    Every browser does, in `Origin` or `Sec-Fetch-Site`. Another port of the same host counts as another
    site, and a form with neither header is refused.
    """
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    if from_another_page(request.scope["headers"]):
        return False
    if origin is None:
        return site == "same-origin"
    return _same(origin, request.headers.get("host", ""), https=https)


def _same(origin: str, host: str, *, https: bool) -> bool:
    """Whether an Origin header names this host and port."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    port = _PORTS.get(parts.scheme)
    if port is None or (https and parts.scheme != "https"):
        return False
    here, there = (name.lower().removesuffix(port) for name in (host, parts.netloc))
    return bool(here) and here == there


async def read_form(request: Request) -> dict[str, str]:
    """The urlencoded fields of a small form, the last value of each.

    Raises BodyTooLarge above FORM_BYTES_MAX, counted while reading, and MalformedBody for another kind of
    form or too many fields.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _FORM:
        raise MalformedBody(f"expected a sign-in form of type '{_FORM}'; use the page /sign-in")
    body = bytearray()
    more = True
    while more:
        message = await request.receive()
        if message["type"] != "http.request":
            raise MalformedBody("the form is incomplete: the connection ended early; send it again")
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > FORM_BYTES_MAX:
            raise BodyTooLarge(f"the sign-in form is larger than {FORM_BYTES_MAX} bytes; send one key")
    try:
        text = body.decode()
        fields = parse_qs(text, keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX, errors="strict")
    except ValueError as error:  # includes UnicodeDecodeError
        raise MalformedBody(
            f"expected UTF-8 text with at most {FORM_FIELDS_MAX} fields: a key, and the next page"
        ) from error
    return {name: values[-1] for name, values in fields.items()}


def given_ticket(request: Request, *, https: bool) -> str | None:
    """The ticket in the browser's cookie; None without one."""
    return ticket(request.scope["headers"], https=https or request.url.scheme == "https")


def set_cookie(response: Response, request: Request, value: str, *, https: bool) -> None:
    """Set the ticket's cookie, hidden from scripts and other sites; delete earlier cookies."""
    origin = request.headers.get("origin", "")
    secure = https or request.url.scheme == "https" or origin.startswith("https://")
    name = SECURE_COOKIE if secure else COOKIE
    response.set_cookie(name, value, path="/", httponly=True, samesite="strict", secure=secure)
    clear_cookies(response, request, but=name)


def clear_cookies(response: Response, request: Request, *, but: str | None = None) -> None:
    """Delete the sign-in cookies of this browser, except the cookie named `but`."""
    for name in {COOKIE, SECURE_COOKIE, OLD_COOKIE} & set(request.cookies) - {but}:
        secure = name == SECURE_COOKIE
        response.delete_cookie(name, path="/", httponly=True, samesite="strict", secure=secure)
