"""Keeps the ledger in Redis: one server, a Sentinel service or a Redis Cluster.

An append is one Lua script in the slot of its stream. It returns when the server has it on disk; every new
connection checks the server's settings for that.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odometer_accountant.stores.redis.store import RedisStore


def open_url(url: str, *, allow_volatile: bool = False) -> "RedisStore":
    """Open the store at `url`; odometer_accountant.stores.redis.address lists the forms and the options.

    ValueError: the URL is not valid, the driver is not installed, or a server may lose acknowledged writes
    (not with `allow_volatile`, which logs a warning instead). StoreUnavailable: no server answers.
    """
    from odometer_accountant.stores.redis.address import parse

    address = parse(url)
    try:
        from odometer_accountant.stores.redis.store import RedisStore
    except ModuleNotFoundError as error:
        if error.name != "redis":
            raise
        raise ValueError(
            "A Redis store needs the driver of Redis, which is not installed here: "
            "pip install 'privacy-odometer[redis]'"
        ) from error
    return RedisStore(address, allow_volatile=allow_volatile)
