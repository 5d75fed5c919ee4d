"""What every part of the client stands on: a transport, and each call through all its tries."""

import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self
from urllib.parse import urlsplit

from odometer_client.calls import Call, Done, TransportFailure, request_of
from odometer_client.plain import plain
from odometer_client.transport import HttpTransport, Transport

if TYPE_CHECKING:
    import httpx

DEFAULT_URL: Final = "http://127.0.0.1:8790"
"""Of a service that was started without options."""
LEDGERS: Final = ("sqlite", "memory", "redis", "rediss", "redis+sentinel", "redis+cluster")
"""Schemes of URLs that name a ledger rather than a service."""


class Connection:
    """Sends the requests of one service, or of an embedded ledger. Thread-safe."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout_s: float = 10.0,
        attempts: int = 5,
        http_transport: "httpx.BaseTransport | None" = None,
    ) -> None:
        if not 1 <= attempts <= 100:
            raise ValueError(f"attempts is {attempts}: give 1 to 100")
        if not timeout_s > 0:
            raise ValueError(f"timeout_s is {timeout_s}: give seconds above 0")
        self.url = url
        self._attempts = attempts
        self._transport = _transport(url, key, timeout_s, http_transport)
        self._sleep: Callable[[float], None] = time.sleep
        self._before_close: list[weakref.WeakMethod[Callable[[], None]]] = []

    def before_close(self, method: Callable[[], None]) -> None:
        """Call a bound method before the connections go, unless its object is gone by then."""
        self._before_close.append(weakref.WeakMethod(method))

    @classmethod
    def from_env(cls, **options: Any) -> Self:
        """A client of ODOMETER_URL (a service on this machine unless set), with the key in ODOMETER_KEY.

        options: `timeout_s` and `attempts`.
        """
        return cls(os.environ.get("ODOMETER_URL", DEFAULT_URL), os.environ.get("ODOMETER_KEY"), **options)

    def close(self) -> None:
        """Let go of the connections. What a training hook holds and did not use is given back first."""
        waiting, self._before_close = self._before_close, []
        for method in (reference() for reference in waiting):
            if method is not None:
                method()
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # a copy of a model or a configuration still talks through the same connections

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A Client holds connections and a key and is not pickled. "
            "Make one in each process: pass the URL, and the key by the environment."
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({without_password(self.url)!r})"

    def _get(
        self,
        operation: str,
        names: Mapping[str, str] | None = None,
        query: Mapping[str, str | int | float | None] | None = None,
    ) -> Any:
        """The document of an operation that reads. A member of `query` that is None is left out."""
        given = {name: value for name, value in (query or {}).items() if value is not None}
        return self._run(operation, names, query=given).document

    def _pages(
        self,
        operation: str,
        names: Mapping[str, str] | None = None,
        after: Any = None,
        limit: Any = None,
        **query: str,
    ) -> Iterator[Any]:
        """The items of a list, page by page."""
        while True:
            page = self._get(operation, names, {**query, "after": after, "limit": limit})
            yield from page["items"]
            after = page.get("next")
            if after is None:
                return

    def _run(self, operation: str, names: Mapping[str, str] | None = None, **parts: Any) -> Done:
        """Ask for an operation, through all its tries.

        names: the dataset, budget, … that its path has a place for; `parts`: body, query, key, if_match.
        """
        if parts.get("body") is not None:
            parts["body"] = plain(parts["body"])
        call = Call(request_of(operation, names or {}, **parts), self._attempts)
        while True:
            try:
                step = call.answered(self._transport.send(call.request))
            except TransportFailure as failure:
                step = call.failed(failure, without_password(self.url))
            if isinstance(step, Done):
                return step
            self._sleep(step.seconds)


def check_key(key: str) -> None:
    """Raise ValueError for what cannot be an API key, before anything is sent: the words hold none of it."""
    if not isinstance(key, str):
        raise TypeError(f"key is a {type(key).__name__}: give the text of an API key, or None")
    how = "An API key is one word, po_…, as it was shown when it was made"
    if not key:
        raise ValueError(f"key is empty: nothing was sent. {how}. Is the variable that it comes from set?")
    if not all("!" <= letter <= "~" for letter in key):
        where = "around it" if key.strip() and all("!" <= one <= "~" for one in key.strip()) else "in it"
        raise ValueError(
            f"key has a blank, a line end or a letter that no key has, {where}: nothing was sent. {how}"
        )


def without_password(url: str) -> str:
    """A URL as it may be shown: who signs in, and with what, left out."""
    if "@" not in url:
        return url
    parts = urlsplit(url)
    return parts._replace(netloc=f"…@{parts.netloc.rpartition('@')[2]}").geturl()


def _check_host(url: str) -> None:
    """Raise ValueError for a URL that leads nowhere, which would be found with the first request."""
    try:
        found = urlsplit(url)
        named = bool(found.hostname) and found.port != 0
    except ValueError:
        named = False
    if not named:
        raise ValueError(f"{without_password(url)!r} names no host: give http://host:port or https://host")


def _transport(
    url: str, key: str | None, timeout_s: float, http_transport: "httpx.BaseTransport | None"
) -> Transport:
    scheme = url.partition("://")[0].lower()
    if scheme in ("http", "https"):
        _check_host(url)
        if key is not None:
            check_key(key)
        return HttpTransport(url, key, timeout_s, http_transport)
    if scheme in LEDGERS:
        from odometer_client.embedded import EmbeddedTransport

        return EmbeddedTransport(url)
    raise ValueError(
        f"{without_password(url)!r} is no URL of a service or ledger: give http://host:port, https://host, "
        "sqlite:///path/to/ledger.sqlite, redis://host:6379 or memory://"
    )
