"""Tokens: the secrets of API keys, and their hashes."""

import hashlib
import re
import secrets
from typing import Final

_TOKEN: Final = re.compile(r"^\W*po_|po_[\w-]{16}", re.IGNORECASE)


def new_token() -> str:
    """A new key's secret: 256 random bits."""
    return f"po_{secrets.token_urlsafe(32)}"


def token_hash(token: str) -> str:
    """The stored form of a token: enough to recognise it, not to use it (tokens are 256 random bits)."""
    return hashlib.sha256(token.encode()).hexdigest()


def is_token(text: str) -> bool:
    """Whether it looks like a key's secret, which no message may repeat."""
    return _TOKEN.search(text) is not None
