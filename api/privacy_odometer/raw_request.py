"""Reads a raw request: the body up to its bound, headers, the API key, the dashboard's cookie."""

from collections.abc import Sequence
from typing import Final

from starlette.types import Receive

from odometer_accountant.bounds import BODY_MAX
from odometer_accountant.errors import MalformedBody

COOKIE: Final = "odometer_session"
"""Name of the dashboard's cookie over plain HTTP. The API accepts it for GET only."""
SECURE_COOKIE: Final = f"__Host-{COOKIE}"
"""Its name over https. No other host, and nothing over plain HTTP, can set a cookie of this name."""


async def read_body(receive: Receive) -> bytes:
    """The request's body. Of a body above BODY_MAX bytes, a little more than BODY_MAX: enough to see it.

    Raises MalformedBody when the client disconnects before its end.
    """
    message = await receive()
    if not message.get("more_body") and message["type"] == "http.request":
        return bytes(message.get("body", b""))
    parts: list[bytes] = []
    size = 0
    while True:
        if message["type"] != "http.request":
            raise MalformedBody("the connection ended before the body did; send the whole body")
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if size > BODY_MAX or not message.get("more_body"):
            return b"".join(parts)
        message = await receive()


def header(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> str | None:
    """The header of that (lower-case) name, as latin-1 text.

    A header that came twice is joined with a comma (RFC 9110 section 5.3). No key or token has a comma, so
    two idempotency keys are refused: a retry could carry either one.
    """
    found = [value for key, value in headers if key == name]
    return b", ".join(found).decode("latin-1") if found else None


def bearer(authorization: str | None) -> str | None:
    """The token of an Authorization header."""
    if authorization is None or authorization[:7].lower() != "bearer ":
        return None
    return authorization[7:].strip()


def ticket(headers: Sequence[tuple[bytes, bytes]], *, https: bool) -> str | None:
    """The sign-in ticket in the dashboard's cookie (`odometer_accountant.service.sign_ins`).

    https: whether the browser came over https. Then only the secure cookie counts: any page on this host can
    set the other one.
    """
    found: dict[str, str] = {}
    for key, value in headers:
        if key == b"cookie":
            for part in value.decode("latin-1").split(";"):
                name, _, text = part.strip().partition("=")
                found.setdefault(name, text)
    return found.get(SECURE_COOKIE) or (None if https else found.get(COOKIE))


def from_another_page(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether the browser says that a page of another origin sent this, such as one on another port."""
    return (header(headers, b"sec-fetch-site") or "none") not in {"same-origin", "none"}
