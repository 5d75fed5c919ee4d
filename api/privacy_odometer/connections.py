"""Connections have bounds: on how many there are, on how long one may wait, and on what it may send ahead.

uvicorn ends a connection that is idle between two requests, and no other. Here one whose request, body or
reading of the answer does not get on is ended too; and where there are as many as can be, whoever is doing
nothing makes room for whoever comes.
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
"""From the connection, or from the first byte of a further request, to the end of the request's head."""
BODY_S: Final = 30.0
"""From there to the end of its body."""
ANSWER_S: Final = 60.0
"""From an answer to when its last byte was taken."""
LOOK_S: Final = 1.0
"""How often connections are looked at."""
HEAD_BYTES: Final = 64 * 1024
"""Of a request's head, about: all of it is kept until its end is there."""
REST_BYTES: Final = 16 * 1024 * 1024
"""Of a body that was answered before it was read: it is thrown away, up to so much."""

_LAST: Final = b"connection: close\r\ncache-control: no-store\r\nx-content-type-options: nosniff\r\n"
"""Headers of an answer after which nothing more is said."""
_EMPTY: Final = _LAST + b"content-length: 0\r\n\r\n"
_TOO_LATE: Final = b"HTTP/1.1 408 Request Timeout\r\n" + _EMPTY
_TOO_LONG: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\n" + _EMPTY
_FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n" + _EMPTY
_LIMITS: Final = {"head": HEAD_S, "body": BODY_S, "answer": ANSWER_S}
_MAKES_ROOM: Final = ("head", "idle", "body", "answer")
"""Who gives way first to a new connection; who is worked for never does."""


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
        """What is no HTTP is answered as every other error is."""
        body = problem_bytes(MalformedBody("this is not a request that HTTP/1.1 knows"))
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
        """End the connection when it has been waiting for its client for too long."""
        if self.transport.is_closing():
            if now - self._since > HEAD_S:
                self.transport.abort()  # what was to be written last is not taken
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
        """Whether another connection was ended for this one: of those that do least, the oldest at it."""
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
    """The protocol of a server with at most so many connections."""
    return type("Connection", (Connection,), {"most": most})


@contextlib.asynccontextmanager
async def watched(connections: set[Any]) -> Any:
    """In the block, connections that wait for their clients for too long are ended."""

    async def watch() -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            now = time.monotonic()
            for one in list(connections):
                try:
                    one.look(now)
                except Exception:
                    log.exception("a connection could not be looked at")

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
