"""A store that misbehaves on demand, in front of a real one."""

from collections.abc import Callable
from threading import Event
from typing import Any

from odometer_accountant.errors import StoreUnavailable
from odometer_accountant.stores.memory import MemoryStore

READS = ("load", "entries", "find", "view", "blobs", "streams", "notes", "ping")
Action = Callable[..., Any]


class FaultyStore:
    """Passes everything on to `sound`, except the verbs that `faults` names."""

    def __init__(self) -> None:
        self.sound = MemoryStore()
        self.faults: dict[str, Action] = {}
        self.called = Event()
        """Set when a fault was run into."""
        self.go = Event()
        """What a hanging verb waits for."""

    def __getattr__(self, name: str) -> Action:
        verb: Action = getattr(self.sound, name)

        def call(*arguments: Any) -> Any:
            fault = self.faults.get(name)
            if fault is None:
                return verb(*arguments)
            self.called.set()
            return fault(verb, *arguments)

        return call

    def fail(self, fault: Action, *verbs: str) -> None:
        self.faults = dict.fromkeys(verbs, fault)
        self.called.clear()

    def heal(self) -> None:
        self.faults = {}
        self.go.set()

    def hang(self, verb: Action, *arguments: Any) -> Any:
        """A fault: does what was asked, once it is let go."""
        assert self.go.wait(30), "a hanging store was never let go"
        return verb(*arguments)


def before(_verb: Action, *_arguments: Any) -> Any:
    """A fault: away, and nothing was done."""
    raise StoreUnavailable("the store is away")


def after(verb: Action, *arguments: Any) -> Any:
    """A fault: done, but the answer is lost."""
    verb(*arguments)
    raise StoreUnavailable("the store's answer was lost")


def stale(_verb: Action, writes: Any) -> list[bool]:
    """A fault of append: someone else is faster, each time."""
    return [False] * len(writes)
