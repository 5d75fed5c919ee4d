"""What came in: the body, read to its bound, and whose key came with it."""

from collections.abc import Sequence
from typing import Final

from starlette.types import Receive

from odometer_accountant.bounds import BODY_MAX
from odometer_accountant.errors import MalformedBody

COOKIE: Final = "odometer_session"
"""Name of the dashboard's cookie over plain HTTP; the API honours it for GET only."""
SECURE_COOKIE: Final = f"__Host-{COOKIE}"
"""Its name over https: no other host, and nothing that came over plain HTTP, can set one of that name."""


async def read_body(receive: Receive) -> bytes:
    """The request's body; of one above BODY_MAX, the first BODY_MAX + 1 bytes or a little more.

    Raises MalformedBody when the client went away in the middle.
    """
    message = await receive()
    if not message.get("more_body") and message["type"] == "http.request":
        return bytes(message.get("body", b""))
    parts: list[bytes] = []
    size = 0
    while True:
        if message["type"] != "http.request":
            raise MalformedBody("the request ended before its body did")
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if size > BODY_MAX or not message.get("more_body"):
            return b"".join(parts)
        message = await receive()


def header(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> str | None:
    """The header of that (lower-case) name, as latin-1 text.

    One that came twice is one with a comma (RFC 9110 section 5.3), which no key or token has: of two
    idempotency keys nobody knows which one a retry will carry.
    """
    found = [value for key, value in headers if key == name]
    return b", ".join(found).decode("latin-1") if found else None


def bearer(authorization: str | None) -> str | None:
    """The token of an Authorization header."""
    if authorization is None or authorization[:7].lower() != "bearer ":
        return None
    return authorization[7:].strip()


def ticket(headers: Sequence[tuple[bytes, bytes]], *, https: bool) -> str | None:
    """What the dashboard keeps in a browser (`odometer_accountant.service.sign_ins`), from its cookie.

    https: whether the browser is known to have come that way; the cookie that any page on this host can set
    is then no cookie of ours.
    """
    found: dict[str, str] = {}
    for key, value in headers:
        if key == b"cookie":
            for part in value.decode("latin-1").split(";"):
                name, _, text = part.strip().partition("=")
                found.setdefault(name, text)
    return found.get(SECURE_COOKIE) or (None if https else found.get(COOKIE))


def from_another_page(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether a browser says that a page which is not ours sent this, such as one on another port."""
    return (header(headers, b"sec-fetch-site") or "none") not in {"same-origin", "none"}
