"""What is computed once for an object is computed without a lock that other objects share."""

import ast
import threading
from pathlib import Path

from odometer_accountant.once import once

SOURCES = [path for root in ("accountant", "api") for path in Path(root).rglob("*.py")]


class Counted:
    def __init__(self, before: threading.Event | None = None) -> None:
        self.calls = 0
        self._before = before
        self.begun = threading.Event()

    @once
    def value(self) -> list[int]:
        """A new list at each call."""
        self.begun.set()
        if self._before is not None:
            assert self._before.wait(10)
        self.calls += 1
        return [self.calls]


def test_the_value_is_computed_once_and_stays() -> None:
    """The second question gets the same object."""
    counted = Counted()
    assert counted.value is counted.value
    assert counted.calls == 1


def test_it_says_what_it_is() -> None:
    """On the class it is the descriptor, with the method's words."""
    assert isinstance(Counted.value, once)
    assert Counted.value.__doc__ == "A new list at each call."


def test_a_slow_value_of_one_object_holds_no_other_up() -> None:
    """While one object computes, the same attribute of another is there at once."""
    go = threading.Event()
    slow = Counted(go)
    waiting = threading.Thread(target=lambda: slow.value)
    waiting.start()
    try:
        assert slow.begun.wait(10)
        quick: list[list[int]] = []
        other = threading.Thread(target=lambda: quick.append(Counted().value), daemon=True)
        other.start()
        other.join(10)
        assert quick == [[1]]
    finally:
        go.set()
        waiting.join()


def test_two_at_a_time_get_the_same_value() -> None:
    """Both may compute, and one value is kept for both."""
    go = threading.Event()
    both = Counted(go)
    found: list[list[int]] = []
    threads = [threading.Thread(target=lambda: found.append(both.value)) for _ in range(2)]
    for thread in threads:
        thread.start()
    go.set()
    for thread in threads:
        thread.join()
    assert found[0] is found[1]


def test_no_source_uses_the_one_with_a_lock() -> None:
    """functools.cached_property of Python 3.11 has one lock per attribute for all objects."""
    users = [
        str(path)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and any(one.name == "cached_property" for one in node.names)
    ]
    assert not users
