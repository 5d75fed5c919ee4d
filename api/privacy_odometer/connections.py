"""Bounds on connections: how many there are, how long each may wait, and how much it may send ahead.

uvicorn closes connections that are idle between two requests, and no others. This protocol also closes those
whose head, body or answer does not make progress. When the most connections are open, the one that has done
nothing for longest is closed for a new one.
"""

import asyncio
import contextlib
import logging
import time
from typing import Any, Final

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from odometer_accountant.errors import MalformedBody
from privacy_odometer.problems import MEDIA_TYPE, problem_bytes

log = logging.getLogger("odometer.api")

HEAD_S: Final = 10.0
"""Seconds from the connection, or from the first byte of a further request, to the end of the head."""
BODY_S: Final = 30.0
"""Seconds from the end of the head to the end of the body."""
ANSWER_S: Final = 60.0
"""Seconds from an answer until the client has read it all."""
LOOK_S: Final = 1.0
"""Seconds between two looks at all connections."""
HEAD_BYTES: Final = 64 * 1024
"""About the largest head of a request. It is kept in memory until its end arrives."""
REST_BYTES: Final = 16 * 1024 * 1024
"""Bytes that are read and discarded of a body that was answered before it was read."""

_LAST: Final = b"connection: close\r\ncache-control: no-store\r\nx-content-type-options: nosniff\r\n"
"""Headers of the last answer on a connection."""
_EMPTY: Final = _LAST + b"content-length: 0\r\n\r\n"
_TOO_LATE: Final = b"HTTP/1.1 408 Request Timeout\r\n" + _EMPTY
_TOO_LONG: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\n" + _EMPTY
_FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n" + _EMPTY
_LIMITS: Final = {"head": HEAD_S, "body": BODY_S, "answer": ANSWER_S}
_MAKES_ROOM: Final = ("head", "idle", "body", "answer")
"""Which connections are closed first for a new one. One whose request is being worked on never is."""


class Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """One connection. `most` is set by `bounded`."""

    most = 1000
    """Connections at a time."""

    _doing: tuple[str, object] = ("head", None)
    _since = 0.0
    _ahead = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._since = time.monotonic()
        if len(self.connections) > self.most and not self._makes_room():
            transport.write(_FULL)
            transport.close()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        answered = before is not None and before.response_complete
        rest = answered and before.more_body
        ahead = before is None or answered or not before.more_body
        super().data_received(data)
        if self.cycle is not before:
            self._ahead = 0
        elif ahead:
            self._ahead += len(data)
            if self._ahead > (REST_BYTES if rest else HEAD_BYTES) and not self.transport.is_closing():
                self.transport.write(_TOO_LONG)
                self.transport.close()

    def send_400_response(self, _msg: str) -> None:
        """Answer with a problem body, as for every other error."""
        body = problem_bytes(MalformedBody("not a valid HTTP/1.1 request"))
        kind = f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + _LAST + kind + body)
        self.transport.close()

    def doing(self) -> str:
        """head, body, answer: waits for the client; idle between two requests; work: the client waits."""
        cycle = self.cycle
        if self.transport.get_write_buffer_size():
            return "answer"
        if self.timeout_keep_alive_task is not None:
            return "idle"
        if cycle is None or cycle.response_complete:
            return "head"
        return "body" if cycle.more_body else "work"

    def look(self, now: float) -> None:
        """Close the connection when it has waited for its client for too long."""
        if self.transport.is_closing():
            if now - self._since > HEAD_S:
                self.transport.abort()  # the client does not read the last answer
            return
        doing = (self.doing(), self.cycle)
        if doing != self._doing:
            self._doing, self._since = doing, now
        elif now - self._since > _LIMITS.get(doing[0], float("inf")):
            self._end()

    def _end(self) -> None:
        self._since = time.monotonic()
        if self.cycle is not None:  # nothing more is written to it
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self.flow.resume_writing()
        if self._doing[0] == "answer":
            self.transport.abort()
            return
        if self._doing[0] == "head" or (self._doing[0] == "body" and not self.cycle.response_started):
            self.transport.write(_TOO_LATE)
        self.transport.close()

    def _makes_room(self) -> bool:
        """Close another connection for this one: the longest idle. False when all are being worked on."""
        others = [one for one in self.connections if one is not self and not one.transport.is_closing()]
        for wanted in _MAKES_ROOM:
            found = [one for one in others if one.doing() == wanted]
            if found:
                oldest = min(found, key=lambda one: one._since)
                oldest._doing = (wanted, oldest.cycle)
                oldest._end()
                return True
        return False


def bounded(most: int) -> type[Connection]:
    """The protocol of a server with at most `most` connections."""
    return type("Connection", (Connection,), {"most": most})


@contextlib.asynccontextmanager
async def watched(connections: set[Any]) -> Any:
    """While in the block, close connections that wait for their clients for too long."""

    async def watch() -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            now = time.monotonic()
            for one in list(connections):
                try:
                    one.look(now)
                except Exception:
                    log.exception("could not check a connection")

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
