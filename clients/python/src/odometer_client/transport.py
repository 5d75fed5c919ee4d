"""How requests travel: the protocol, and HTTP over httpx."""

import contextlib
import json
import os
import socket
from typing import TYPE_CHECKING, Any, Protocol

from odometer_client.calls import Answer, Request, TransportFailure

if TYPE_CHECKING:
    import httpx  # loaded when the first client is made: the command line shows its help without it

_JSON = {"Content-Type": "application/json"}


class Transport(Protocol):
    """Takes one request to the service and brings the answer. Safe to use from many threads."""

    def send(self, request: Request) -> Answer:
        """The answer, or `TransportFailure` when there is none."""
        ...

    def close(self) -> None:
        """Let go of connections and threads."""
        ...


class HttpTransport:
    """HTTP/1.1 with kept connections. TCP_NODELAY, because a charge is small and waited for:
    without it Nagle's algorithm and delayed acknowledgements cost about 40 ms per charge.
    """

    def __init__(
        self, url: str, key: str | None, timeout_s: float, transport: "httpx.BaseTransport | None" = None
    ) -> None:
        headers = {"Accept": "application/json, application/problem+json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        self._options: dict[str, Any] = {"base_url": url, "headers": headers, "timeout": timeout_s}
        self._given = transport
        self._connect()

    def _connect(self) -> None:
        import httpx

        nodelay = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
        self._process = os.getpid()
        self._http = httpx.Client(
            **self._options,
            follow_redirects=False,  # a redirect would carry the key and the charge elsewhere
            transport=self._given or httpx.HTTPTransport(socket_options=nodelay),
        )

    def send(self, request: Request) -> Answer:
        """The answer, whatever its status. Raises TransportFailure."""
        import httpx

        if os.getpid() != self._process:
            self._connect()  # after a fork: the parent's connections carry the parent's answers
        try:
            response = self._http.request(
                request.method,
                request.path,
                params=dict(request.query) or None,
                content=_encoded(request),
                headers=_JSON | request.headers,
            )
        except httpx.TransportError as error:
            reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            never_sent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
            raise TransportFailure(reason, may_have_arrived=not never_sent) from error
        return Answer(response.status_code, _json(response), _retry_after_s(response))

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()


def _encoded(request: Request) -> bytes | None:
    """The body as JSON, floats in their shortest exact form. Raises ValueError before anything is sent."""
    if request.body is None:
        return None
    try:
        return json.dumps(request.body, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"{request.operation}: {error}; nothing was sent. Body: {request.body!r}") from error


def _json(response: "httpx.Response") -> Any:
    with contextlib.suppress(ValueError):
        return response.json() if response.content else None
    return None


def _retry_after_s(response: "httpx.Response") -> float | None:
    """Retry-After in seconds; its date form is not used by this service and read as absent."""
    with contextlib.suppress(KeyError, ValueError):
        return max(0.0, float(response.headers["Retry-After"]))
    return None
