"""A TCP proxy between a service and its Redis, that cuts, stalls, swallows and delays what goes through.

with Proxy(redis.port) as proxy:
    store = open_store(proxy.url)
    proxy.cut(REPLIES, 7)  # seven more bytes of replies, then every connection is gone
"""

import contextlib
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import Self

REQUESTS, REPLIES = "requests", "replies"
_CHUNK = 65536
_TICK_S = 0.05
"""How often a stalled pump looks whether it may go on."""


@dataclass(eq=False)
class _Link:
    """One connection of the service, and ours to the server for it."""

    near: socket.socket
    far: socket.socket
    deaf: bool = False
    """Cut on the near side: what the service sent is still brought to the server, nothing comes back."""

    def reset(self) -> None:
        """End both at once, with a reset: nothing that is under way arrives."""
        for end in (self.near, self.far):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@dataclass(eq=False)
class Proxy:
    """Forwards 127.0.0.1:`port` to 127.0.0.1:`target`, as long as nothing else is asked of it."""

    target: int
    cuts: int = 0
    """Connections that were cut as `cut` or `lose_reply` asked."""
    _links: set[_Link] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _cut: dict[str, int] = field(default_factory=dict)
    _marked: tuple[bytes, float] | None = None
    _refusing_until: float = 0.0
    _stalled_until: float = 0.0
    _ended: bool = False

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def cut(self, direction: str, after_bytes: int) -> None:
        """Let so many more bytes go through in this direction, then reset the connection they went over."""
        with self._lock:
            self._cut[direction] = after_bytes

    def lose_reply(self, mark: bytes, late_s: float = 0.0) -> None:
        """Cut off the sender of the next request with `mark` in it, and deliver that `late_s` later."""
        with self._lock:
            self._marked = (mark, late_s)

    def refuse(self, for_s: float) -> None:
        """Reset every connection, and each new one for a while."""
        self._refusing_until = time.monotonic() + for_s
        self.reset()

    def stall(self, for_s: float) -> None:
        """Bring nothing to either side for a while. Nothing is lost: it is late."""
        self._stalled_until = time.monotonic() + for_s

    def reset(self) -> None:
        """Reset every connection, wherever it is."""
        with self._lock:
            links, self._links = self._links, set()
        for link in links:
            link.reset()

    @property
    def armed(self) -> bool:
        """Whether something was asked for that has not happened yet."""
        return bool(self._cut) or self._marked is not None

    def close(self) -> None:
        """Reset every connection and take no more."""
        self._ended = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.reset()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._ended:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                if time.monotonic() < self._refusing_until:
                    raise ConnectionRefusedError
                far = socket.create_connection(("127.0.0.1", self.target), timeout=5)
            except OSError:
                _Link(near, near).reset()
                continue
            far.settimeout(None)
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _Link(near, far)
            with self._lock:
                self._links.add(link)
            for direction in (REQUESTS, REPLIES):
                threading.Thread(target=self._pump, args=(link, direction), daemon=True).start()

    def _pump(self, link: _Link, direction: str) -> None:
        source, sink = (link.near, link.far) if direction == REQUESTS else (link.far, link.near)
        try:
            while data := source.recv(_CHUNK):
                while (wait := self._stalled_until - time.monotonic()) > 0:
                    time.sleep(min(wait, _TICK_S))
                if not self._pass(link, direction, sink, data):
                    return
        except OSError:
            pass
        finally:
            if not link.deaf:
                with self._lock:
                    self._links.discard(link)
                link.reset()

    def _pass(self, link: _Link, direction: str, sink: socket.socket, data: bytes) -> bool:
        """Bring the data on, or what is to happen to it instead. False: the link has ended."""
        late_s = None
        with self._lock:
            left = self._cut.get(direction)
            if left is not None and left > len(data):
                self._cut[direction] = left - len(data)
            elif left is not None:
                del self._cut[direction]
                data = data[:left]
            if self._marked is not None and direction == REQUESTS and self._marked[0] in data:
                late_s, self._marked = self._marked[1], None
                link.deaf = True
            cutting = left is not None and direction not in self._cut
            self.cuts += cutting or late_s is not None
        if late_s is not None:
            self._deliver_late(link, data, late_s)
            return False
        if direction == REPLIES and link.deaf:
            return True
        sink.sendall(data)
        if cutting:
            # In a moment: what is behind it may still be on its way out of the kernel.
            time.sleep(0.001)
        return not cutting

    def _deliver_late(self, link: _Link, data: bytes, late_s: float) -> None:
        with contextlib.suppress(OSError):
            link.near.shutdown(socket.SHUT_RDWR)
        time.sleep(late_s)
        with contextlib.suppress(OSError):
            link.far.sendall(data)
            time.sleep(0.2)  # for the server to read and run it, before its connection ends
        with self._lock:
            self._links.discard(link)
        link.reset()
