"""Who is looking: the forms that sign in and out, and the cookie between them."""

import re
from typing import Final, Protocol
from urllib.parse import parse_qs, quote, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from odometer_accountant.errors import BodyTooLarge, MalformedBody
from privacy_odometer.raw_request import COOKIE, SECURE_COOKIE, from_another_page, ticket

OLD_COOKIE: Final = "odometer_key"
"""Earlier versions kept the API key itself in it: forgotten where it is met."""

FORM_BYTES_MAX: Final = 4096
"""The sign-in form holds one key and one path: anything larger is not our form."""
FORM_FIELDS_MAX: Final = 8

_TOKEN = re.compile(r"[A-Za-z0-9_.~-]{1,256}")
_LOCAL_PAGE = re.compile(r"/(?:datasets/[a-z0-9][a-z0-9_-]{0,63})?")
_FORM: Final = "application/x-www-form-urlencoded"
_PORTS: Final = {"http": ":80", "https": ":443"}


class Identity(Protocol):
    """What the pages show of whoever signed in."""

    @property
    def principal(self) -> str:
        """Opaque id of the principal; arbitrary text, always escaped."""

    @property
    def role(self) -> str:
        """`reader`, `charger` or `admin`."""


class Doors(Protocol):
    """Tickets for browsers (`service.sign_ins`). Every method may block, or raise StoreUnavailable."""

    def open(self, token: str) -> str | None:
        """A new ticket for the key of this token, None if unknown or revoked."""

    def identify(self, ticket: str) -> Identity | None:
        """Whose ticket it is, None when it is none or has ended."""

    def close(self, ticket: str) -> None:
        """End it."""


def clean_token(raw: str) -> str | None:
    """The token as it may be looked up, or None if it cannot be one of ours."""
    token = raw.strip()
    return token if _TOKEN.fullmatch(token) else None


def local_page(path: str | None) -> str:
    """`path` if it is a page of the dashboard, else "/": sign-in never redirects to anywhere else."""
    return path if path is not None and _LOCAL_PAGE.fullmatch(path) else "/"


def sign_in_url(path: str) -> str:
    """Where to send someone who has to sign in before seeing `path`."""
    page = local_page(path)
    return "/sign-in" if page == "/" else f"/sign-in?next={quote(page, safe='')}"


def from_own_page(request: Request, *, https: bool) -> bool:
    """Whether the browser says that a page of this service sent the form.

    Every browser says so, by `Origin` or `Sec-Fetch-Site`. Another port of the same host is another site
    here, and a form of which nothing is known is not taken.
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
        raise MalformedBody(f"The sign-in form is sent as {_FORM}.")
    body = bytearray()
    more = True
    while more:
        message = await request.receive()
        if message["type"] != "http.request":
            raise MalformedBody("The form ended before all of it was sent.")
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > FORM_BYTES_MAX:
            raise BodyTooLarge(f"The sign-in form is larger than {FORM_BYTES_MAX} bytes. Send one key.")
    try:
        text = body.decode()
        fields = parse_qs(text, keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX, errors="strict")
    except ValueError as error:  # of UnicodeDecodeError too
        raise MalformedBody(
            f"The sign-in form is UTF-8 text with at most {FORM_FIELDS_MAX} fields: a key, and where to go."
        ) from error
    return {name: values[-1] for name, values in fields.items()}


def given_ticket(request: Request, *, https: bool) -> str | None:
    """What the browser kept of its sign-in."""
    return ticket(request.scope["headers"], https=https or request.url.scheme == "https")


def set_cookie(response: Response, request: Request, value: str, *, https: bool) -> None:
    """Keep the ticket where no script can read it and no other site can send it, and no earlier one."""
    origin = request.headers.get("origin", "")
    secure = https or request.url.scheme == "https" or origin.startswith("https://")
    name = SECURE_COOKIE if secure else COOKIE
    response.set_cookie(name, value, path="/", httponly=True, samesite="strict", secure=secure)
    clear_cookies(response, request, but=name)


def clear_cookies(response: Response, request: Request, *, but: str | None = None) -> None:
    """Forget in this browser whatever it kept of a sign-in, but for the cookie of that name."""
    for name in {COOKIE, SECURE_COOKIE, OLD_COOKIE} & set(request.cookies) - {but}:
        secure = name == SECURE_COOKIE
        response.delete_cookie(name, path="/", httponly=True, samesite="strict", secure=secure)
