"""An attribute that is computed when it is first asked for, without a lock."""

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class once(Generic[T]):  # noqa: N801  (used as a decorator, like property)
    """A method whose value is kept on its object after the first call.

    Python 3.11's `functools.cached_property` holds one lock per attribute for all objects of a class while it
    computes: somebody's slow curve would keep everyone else's waiting. Here two threads that ask at the same
    moment may both compute. The value must therefore depend on the object alone.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        value = self._compute(instance)
        # The first value stays, whoever computed it. Found there from now on, without a call.
        kept: T = instance.__dict__.setdefault(self._name, value)
        return kept
