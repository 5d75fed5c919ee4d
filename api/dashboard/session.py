"""Who is looking: the sign-in cookie, and the little the dashboard asks of the service's keys."""

import re
from collections.abc import Callable
from typing import Final, Protocol
from urllib.parse import parse_qs, quote

from starlette.requests import Request
from starlette.responses import Response

from accountant.errors import BodyTooLarge

COOKIE: Final = "odometer_key"
"""Name of the cookie that holds the API key. The API honours it for GET only."""

FORM_BYTES_MAX: Final = 4096
"""The sign-in form holds one key and one path: anything larger is not our form."""

_TOKEN = re.compile(r"[A-Za-z0-9_.~-]{1,256}")
_LOCAL_PAGE = re.compile(r"/(?:datasets/[a-z0-9][a-z0-9_-]{0,63})?")


class Identity(Protocol):
    """What the pages show of whoever signed in."""

    @property
    def principal(self) -> str:
        """Opaque id of the principal; arbitrary text, always escaped."""

    @property
    def role(self) -> str:
        """`reader`, `charger` or `admin`."""


Identify = Callable[[str], Identity | None]
"""Looks a token up (`KeyRing.identify`): its identity, None if unknown or revoked.

May block; may raise StoreUnavailable."""


def clean_token(raw: str) -> str | None:
    """The token as it may be looked up and put in a cookie, or None if it cannot be one of ours."""
    token = raw.strip()
    return token if _TOKEN.fullmatch(token) else None


def local_page(path: str | None) -> str:
    """`path` if it is a page of the dashboard, else "/": sign-in never redirects to anywhere else."""
    return path if path is not None and _LOCAL_PAGE.fullmatch(path) else "/"


def sign_in_url(path: str) -> str:
    """Where to send someone who has to sign in before seeing `path`."""
    page = local_page(path)
    return "/sign-in" if page == "/" else f"/sign-in?next={quote(page, safe='')}"


def from_elsewhere(request: Request) -> bool:
    """Whether another site made the browser send this form (so nobody is signed in with a foreign key)."""
    return request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}


async def read_form(request: Request) -> dict[str, str]:
    """The urlencoded fields of a small form, the last value of each.

    Raises BodyTooLarge above FORM_BYTES_MAX, counted while reading.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES_MAX:
            raise BodyTooLarge(f"The sign-in form is larger than {FORM_BYTES_MAX} bytes. Send one key.")
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=8)
    return {name: values[-1] for name, values in fields.items()}


def set_cookie(response: Response, request: Request, token: str) -> None:
    """Keep the key where no script can read it and no other site can send it."""
    response.set_cookie(
        COOKIE, token, path="/", httponly=True, samesite="strict", secure=request.url.scheme == "https"
    )


def clear_cookie(response: Response, request: Request) -> None:
    """Forget the key in this browser. The key itself stays valid until it is revoked."""
    response.delete_cookie(
        COOKIE, path="/", httponly=True, samesite="strict", secure=request.url.scheme == "https"
    )
