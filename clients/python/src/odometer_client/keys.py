"""Idempotency keys: UUID version 7 (RFC 9562), so that keys of one caller sort by time."""

import os
import time
import uuid
from typing import Final

_TIMESTAMP_BITS: Final = 48
_RANDOM_BITS: Final = 74


def uuid7() -> uuid.UUID:
    """A new UUIDv7: 48 bits of Unix milliseconds, then 74 bits from the operating system.

    Python has one of its own from 3.14; this is for those before. Safe across threads and forks,
    because the randomness is asked of the system each time.
    """
    milliseconds = (time.time_ns() // 1_000_000) & ((1 << _TIMESTAMP_BITS) - 1)
    random = int.from_bytes(os.urandom(10)) & ((1 << _RANDOM_BITS) - 1)
    high, low = random >> 62, random & ((1 << 62) - 1)
    return uuid.UUID(int=(milliseconds << 80) | (0x7 << 76) | (high << 64) | (0b10 << 62) | low)


def new_key() -> str:
    """A fresh idempotency key, as text."""
    return str(uuid7())
