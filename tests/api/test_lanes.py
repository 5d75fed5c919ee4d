"""Lanes: threads that principals share fairly, and of which one principal never has all."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odometer_accountant.errors import StoreUnavailable, TooManyRequests
from privacy_odometer.lanes import Lane

Tasks = list["asyncio.Task[Any]"]


def in_a_loop(run: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await run()

    asyncio.run(main())


def begun(lane: Lane, who: str, number: int, work: Callable[[], Any], limit_s: float = 30) -> Tasks:
    """So many requests of one principal, begun in this order."""
    return [asyncio.ensure_future(lane.run(who, limit_s, work)) for _ in range(number)]


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_one_principal_has_at_most_half_of_the_threads() -> None:
    """However many requests of one wait, another's is worked on at once."""

    async def run() -> None:
        go, lane = threading.Event(), Lane(4)
        busy = begun(lane, "ann", 20, lambda: go.wait(30))
        await settled()
        assert await lane.run("ben", 10, lambda: "done") == "done"
        assert not any(task.done() for task in busy)
        go.set()
        assert all(await asyncio.gather(*busy))

    in_a_loop(run)


def test_whoever_had_least_is_next() -> None:
    """With one thread, the requests of two are done in turn, though all of one came first."""
    order: list[str] = []

    async def run() -> None:
        go, lane = threading.Event(), Lane(1)
        first = begun(lane, "cay", 1, lambda: go.wait(30))
        await settled()
        tasks = [*begun(lane, "ann", 3, lambda: order.append("ann")), *begun(lane, "ben", 3, lambda: None)]
        await settled()
        late = [asyncio.ensure_future(lane.run("ben", 30, order.append, "ben")) for _ in range(2)]
        await settled()
        go.set()
        await asyncio.gather(*first, *tasks, *late)

    in_a_loop(run)
    assert sorted(order) == ["ann"] * 3 + ["ben"] * 2


def test_who_used_much_waits_for_who_used_little() -> None:
    """It is the time that counts, not the number: after a long request, three short ones of others."""
    order: list[str] = []

    async def run() -> None:
        go, lane = threading.Event(), Lane(1)
        [long] = begun(lane, "ann", 1, lambda: go.wait(30))
        await settled()
        waiting = begun(lane, "ann", 3, lambda: order.append("ann"))
        waiting += begun(lane, "ben", 3, lambda: order.append("ben"))
        await settled()
        lane._had["ann"] = 5.0  # a request of five seconds, without waiting for it
        go.set()
        await asyncio.gather(long, *waiting)

    in_a_loop(run)
    assert order == ["ben"] * 3 + ["ann"] * 3


def test_more_than_may_wait_is_said_to_that_principal_alone() -> None:
    """It is 429, at once, with nothing done; another principal's request waits for its turn as ever."""
    done: list[str] = []

    async def run() -> None:
        go, lane = threading.Event(), Lane(1, waiting_max=3)
        busy = begun(lane, "ann", 4, lambda: go.wait(30))
        await settled()
        with pytest.raises(TooManyRequests):
            await lane.run("ann", 30, done.append, "ann")
        other = begun(lane, "ben", 1, lambda: done.append("ben"))
        await settled()
        go.set()
        await asyncio.gather(*busy, *other)

    in_a_loop(run)
    assert done == ["ben"]


def test_work_whose_turn_did_not_come_is_not_begun() -> None:
    """Its caller heard so: it must not be done afterwards, unseen. The lane goes on."""
    done: list[int] = []

    async def run() -> None:
        go, lane = threading.Event(), Lane(1)
        first = begun(lane, "ann", 1, lambda: go.wait(30))
        await settled()
        lane._began = dict.fromkeys(
            lane._began, time.monotonic() + 30
        )  # others' work comes one after another
        with pytest.raises(TooManyRequests):
            await lane.run("ben", 0.01, done.append, 1)
        go.set()
        await asyncio.gather(*first)
        await lane.run("ben", 10, done.append, 2)

    in_a_loop(run)
    assert done == [2]


def test_work_that_hangs_is_unsure_and_keeps_its_thread() -> None:
    """A store that answers nobody holds one thread a call; who waits behind it hears of the store."""

    async def run() -> None:
        go, lane = threading.Event(), Lane(1)
        with pytest.raises(StoreUnavailable):
            await lane.run("ann", 0.01, lambda: go.wait(30))
        with pytest.raises(StoreUnavailable):
            await lane.run("ben", 0.01, lambda: None)
        go.set()
        await lane.run("ben", 10, lambda: None)

    in_a_loop(run)


def test_a_fault_of_the_work_is_its_callers_and_frees_the_thread() -> None:
    async def run() -> None:
        lane = Lane(1)
        with pytest.raises(ZeroDivisionError):
            await lane.run("ann", 10, lambda: 1 / 0)
        assert await lane.run("ann", 10, lambda: "done") == "done"

    in_a_loop(run)


def test_a_caller_that_goes_away_leaves_its_place_to_others() -> None:
    """A wait that is cancelled is forgotten."""

    async def run() -> None:
        go, lane = threading.Event(), Lane(1)
        first = begun(lane, "ann", 1, lambda: go.wait(30))
        await settled()
        [gone] = begun(lane, "ben", 1, lambda: None)
        await settled()
        gone.cancel()
        await settled()
        assert not lane._waiting
        go.set()
        await asyncio.gather(*first)

    in_a_loop(run)


def test_principals_are_forgotten() -> None:
    """Of many that came once not all are remembered, also while the lane is never idle."""

    async def run() -> None:
        go, lane = threading.Event(), Lane(2)
        busy = begun(lane, "ann", 1, lambda: go.wait(30))
        for number in range(1500):
            await lane.run(f"p{number}", 10, lambda: None)
            assert len(lane._had) <= 1025
        go.set()
        await asyncio.gather(*busy)
        await settled()
        assert not lane._had

    in_a_loop(run)
