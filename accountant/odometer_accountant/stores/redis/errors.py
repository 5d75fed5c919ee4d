"""Translates errors of redis-py and of the network into StoreUnavailable or LedgerCorrupt."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from redis.exceptions import AuthenticationError, RedisError, ResponseError

from odometer_accountant.errors import LedgerCorrupt, StoreUnavailable
from odometer_accountant.stores.redis.scripts import DAMAGED

# Error replies that mean damaged content, not an unreachable server.
_DAMAGE: Final = (
    DAMAGED,
    "WRONGTYPE",
    "Invalid stream ID",
    "The ID specified in XADD is equal or smaller",
)


class UnsafeServer(Exception):
    """A server that may lose acknowledged writes, or that does not show its settings."""


@contextmanager
def translate_errors(doing: str, *, unsafe_is_usage: bool = False) -> Iterator[None]:
    """Raise errors of redis-py and of the network as StoreUnavailable or LedgerCorrupt.

    `doing` completes the message "Could not …". `unsafe_is_usage`: raise ValueError for an unsafe server.
    """
    try:
        yield
    except ResponseError as error:
        if any(sign in str(error) for sign in _DAMAGE):
            said = str(error).partition(DAMAGED)[2].split(" script:")[0].strip() or str(error)
            raise LedgerCorrupt(f"Could not {doing}: the ledger is damaged ({said})") from error
        raise StoreUnavailable(f"Could not {doing}: the Redis server said: {error}") from error
    except UnicodeDecodeError:
        raise LedgerCorrupt(f"Could not {doing}: a name is damaged (not UTF-8)") from None
    except UnsafeServer as error:
        if unsafe_is_usage:
            raise ValueError(str(error)) from error
        raise StoreUnavailable(f"Could not {doing}. {error}") from error
    except AuthenticationError as error:
        raise StoreUnavailable(
            f"Could not {doing}: the Redis server refused the login ({error}). "
            "Check the user and the password in the store's URL."
        ) from error
    except RedisError as error:
        raise StoreUnavailable(f"Could not {doing}: {error}") from error
    except OSError as error:
        raise StoreUnavailable(f"Could not {doing}: {error.strerror or error}") from error
