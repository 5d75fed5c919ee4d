"""What came in: the body, read to its bound, and whose key came with it."""

from collections.abc import Sequence

from starlette.types import Receive

from accountant.documents import BODY_MAX
from accountant.errors import MalformedBody

COOKIE = b"odometer_key="


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


def cookie_token(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """The dashboard's cookie; honoured for GET only."""
    for key, value in headers:
        if key == b"cookie":
            for part in value.split(b";"):
                if part.strip().startswith(COOKIE):
                    return part.strip()[len(COOKIE) :].decode("latin-1")
    return None
