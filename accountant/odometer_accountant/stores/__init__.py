"""Back-ends that keep ledgers. `open_store(url)` picks the back-end by the URL's scheme."""

from importlib import import_module
from typing import cast

from odometer_accountant.stores.base import (
    EMPTY_HEAD,
    Examined,
    Head,
    NewEntry,
    Note,
    Row,
    Store,
    View,
    Write,
)

__all__ = [
    "EMPTY_HEAD",
    "SCHEMES",
    "Examined",
    "Head",
    "NewEntry",
    "Note",
    "Row",
    "Store",
    "View",
    "Write",
    "open_store",
]

# The one table of back-ends: scheme → (module with `open_url(url) -> Store`, an example to show).
# Modules are imported when first asked for, so that a driver is needed only by those who use it.
SCHEMES: dict[str, tuple[str, str]] = {
    "sqlite": ("odometer_accountant.stores.sqlite", "sqlite:///data/ledger.sqlite"),
    "memory": ("odometer_accountant.stores.memory", "memory://"),
    "redis": ("odometer_accountant.stores.redis", "redis://:password@host:6379/0"),
    "rediss": ("odometer_accountant.stores.redis", "rediss://:password@host:6379/0"),
    "redis+sentinel": ("odometer_accountant.stores.redis", "redis+sentinel://host:26379,host:26379/service"),
    "redis+cluster": ("odometer_accountant.stores.redis", "redis+cluster://host:6379,host:6379"),
}


def open_store(url: str, *, allow_volatile: bool = False) -> Store:
    """Open the store at `url`, making it first where there is none.

    `sqlite:///relative/path`, `sqlite:////absolute/path`, `memory://` (lost when closed; for tests), or Redis
    (stores.redis.address has the forms). `allow_volatile` opens a Redis that may lose what it
    acknowledged; other stores have no such state.
    Raises ValueError for a URL that cannot name a store and for a Redis that is not set up to keep what it
    acknowledges, StoreUnavailable or LedgerCorrupt for a store that cannot be used.
    """
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in SCHEMES:
        examples = ", ".join(example for _, example in SCHEMES.values())
        # A URL may hold a password: show no more of it than the scheme.
        named = f"{scheme}://…" if separator else "a URL without '://'"
        raise ValueError(f"There is no kind of store for {named}. A store is named like: {examples}")
    module = import_module(SCHEMES[scheme][0])
    options = {"allow_volatile": True} if allow_volatile and scheme.startswith("redis") else {}
    return cast(Store, module.open_url(url, **options))
