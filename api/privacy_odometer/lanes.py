"""Lanes: pools of worker threads that are shared fairly between principals.

Every request runs in a thread of a lane, except charges that were prepared before. One principal has at
most half of a lane's threads, and the principal that has used least of them is next. So one principal's work
delays another's by at most the work under way. `WAITING_MAX` requests of one principal may wait; further ones
of that principal are refused at once with 429.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar

from anyio import CapacityLimiter, to_thread

from odometer_accountant.errors import StoreUnavailable, TooManyRequests

T = TypeVar("T")
WAITING_MAX: Final = 64
"""Requests of one principal that may wait for one lane."""
_REMEMBERED: Final = 1024
"""Principals whose use a busy lane remembers: those that used most."""


class Lane:
    """A bounded number of threads for one sort of work. Used by one event loop, from its thread alone."""

    def __init__(self, threads: int, waiting_max: int = WAITING_MAX) -> None:
        self._free = threads
        self._each = max(1, threads // 2)
        self._waiting_max = waiting_max
        self._limiter = CapacityLimiter(threads)
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._running: dict[str, int] = {}
        self._had: dict[str, float] = {}
        """Seconds of thread time per principal, never less than the last one served had."""
        self._now = 0.0
        """The seconds that the principal served last had before."""
        self._began: dict[int, float] = {}
        """When each running piece of work began."""

    async def run(self, who: str, limit_s: float, work: Callable[..., T], *arguments: Any) -> T:
        """Run `work` in a thread when it is the turn of `who`, and return its result.

        Raises TooManyRequests (nothing was done) when too many requests of `who` wait or the wait exceeds
        `limit_s`; StoreUnavailable when the work itself exceeds `limit_s`. A thread that hangs on the store
        keeps its place, so that a store that does not answer holds a bounded number of threads.
        """
        await self._turn(who, limit_s)
        began = time.monotonic()
        task = asyncio.ensure_future(to_thread.run_sync(work, *arguments, limiter=self._limiter))
        self._began[id(task)] = began

        def left(_: object) -> None:
            del self._began[id(task)]
            self._leave(who, time.monotonic() - began)

        task.add_done_callback(left)
        await asyncio.wait({task}, timeout=limit_s)
        if task.done():
            return task.result()
        task.add_done_callback(lambda late: late.cancelled() or late.exception())  # nobody listens any more
        raise StoreUnavailable(
            f"no answer from the ledger for {limit_s:g} s: this may or may not have taken effect; retry"
        )

    async def _turn(self, who: str, limit_s: float) -> None:
        """Wait for a thread, and take it."""
        mine = self._waiting.get(who)
        if self._free and not mine and self._running.get(who, 0) < self._each:
            self._take(who)
            return
        if mine is None:
            mine = self._waiting[who] = deque()
        if len(mine) >= self._waiting_max:
            raise TooManyRequests(
                f"{len(mine)} requests of this key's principal are waiting: nothing was done for this one; "
                "send fewer at a time"
            )
        turn = asyncio.get_running_loop().create_future()
        mine.append(turn)
        try:
            await asyncio.wait({turn}, timeout=limit_s)
        except asyncio.CancelledError:
            if turn.done():  # it came at the same moment: give it back
                self._leave(who, 0.0)
            raise
        finally:
            if not turn.done():
                self._forget(who, turn)
        if not turn.done():
            raise self._too_late(limit_s)

    def _too_late(self, limit_s: float) -> Exception:
        """The reason that no turn came: the store hangs, or too many requests of one principal wait."""
        oldest = min(self._began.values(), default=time.monotonic())
        if time.monotonic() - oldest >= limit_s:
            return StoreUnavailable(f"no answer from the ledger for {limit_s:g} s: nothing was done; retry")
        return TooManyRequests(
            f"no free thread within {limit_s:g} s: nothing was done; retry, and send fewer at a time"
        )

    def _forget(self, who: str, turn: "asyncio.Future[None]") -> None:
        mine = self._waiting.get(who)
        if mine is not None and turn in mine:
            mine.remove(turn)
            if not mine:
                del self._waiting[who]

    def _take(self, who: str) -> None:
        self._free -= 1
        self._running[who] = self._running.get(who, 0) + 1
        self._now = self._had[who] = max(self._had.get(who, 0.0), self._now)

    def _leave(self, who: str, seconds: float) -> None:
        self._free += 1
        self._had[who] = self._had.get(who, self._now) + seconds
        if self._running[who] == 1:
            del self._running[who]
        else:
            self._running[who] -= 1
        while self._free and self._next():
            pass
        if not self._running and not self._waiting:
            self._had.clear()  # nobody waits: the shares start anew
            self._now = 0.0
        elif len(self._had) > _REMEMBERED:
            most = sorted(self._had, key=self._had.__getitem__)[-_REMEMBERED // 2 :]
            self._had = {one: self._had[one] for one in {*most, *self._running}}

    def _next(self) -> bool:
        """Give a free thread to the principal that used least; False when none may have one."""
        able = [who for who in self._waiting if self._running.get(who, 0) < self._each]
        if not able:
            return False
        who = min(able, key=lambda one: self._had.get(one, 0.0))
        turns = self._waiting[who]
        turn = turns.popleft()
        if not turns:
            del self._waiting[who]
        self._take(who)
        turn.set_result(None)
        return True


@dataclass(frozen=True)
class Lanes:
    """The lanes of one service."""

    quick: Lane = field(default_factory=lambda: Lane(4))
    """New charges, checks, conversions and advice that are quick to compute."""
    long: Lane = field(default_factory=lambda: Lane(1))
    """Those that need much computing, or have a large body."""
    surveying: Lane = field(default_factory=lambda: Lane(2))
    """Reads that evaluate much of a dataset: a page of scopes, a history."""
    reading: Lane = field(default_factory=lambda: Lane(8))
    """All other requests, which mostly wait for the store."""

    def __iter__(self) -> Iterator[Lane]:
        return (getattr(self, one.name) for one in fields(self))
