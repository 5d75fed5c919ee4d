"""Stands around the steps of a DP optimizer and of the inner one: neither goes without the guard."""

import copy
import functools
import math
import weakref
from typing import Any

import torch
from opacus.optimizers import DPOptimizerFastGradientClipping

from odometer_client.base import UnsupportedPlan

_ONE_OPTIMIZERS = ("odometer_guard", "step_hook")
"""What a copy does not have."""


@functools.cache
def _guarded(base: Any) -> Any:
    """A subclass that asks the guard; called as its base is."""

    def pre_step(self: Any, closure: Any = None) -> Any:
        return _guard(self).stepping(self, functools.partial(base.pre_step, self, closure))

    def zero_grad(self: Any, *arguments: Any, **named: Any) -> None:
        base.zero_grad(self, *arguments, **named)
        _guard(self).cleared()

    def signal_skip_step(self: Any, do_skip: bool = True) -> None:  # noqa: ARG001
        raise UnsupportedPlan(
            "signal_skip_step adds up several draws for one step: a record may be in several of them, and "
            "the noise covers one. Call optimizer.step() for each batch. For large batches give "
            "BatchMemoryManager the loader and the optimizer of make_private, after make_private"
        )

    def copied(self: Any, memo: dict[int, Any]) -> Any:
        # torch's own way of copying would change the class of every later DP optimizer
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        own = {name: value for name, value in self.__dict__.items() if name not in _ONE_OPTIMIZERS}
        twin.__dict__.update(copy.deepcopy(own, memo), step_hook=None)
        _watch_inner(twin.original_optimizer, self.original_optimizer.odometer_permits.guards)
        return twin

    members = {
        "odometer_guard": None,
        "__deepcopy__": copied,
        "__copy__": lambda self: copied(self, {}),
        "pre_step": pre_step,
        "zero_grad": zero_grad,
        "signal_skip_step": signal_skip_step,
        "__module__": base.__module__,
        "__doc__": base.__doc__,
    }
    return type(base.__name__, (base,), members)


def _guard(optimizer: Any) -> Any:
    if optimizer.odometer_guard is None:
        raise UnsupportedPlan("this optimizer is a copy of a guarded one: call make_private for it")
    return optimizer.odometer_guard


def stand_around(optimizer: Any, guard: Any) -> None:
    """From here on the optimizer's steps go through `guard.stepping`."""
    kind: Any = type(optimizer)
    optimizer.__class__ = _guarded(kind)
    optimizer.odometer_guard = guard
    inner = optimizer.original_optimizer
    if not hasattr(inner, "odometer_permits"):
        _watch_inner(inner, weakref.WeakSet())
    inner.odometer_permits.guards.add(guard)


class _Permits:
    """Whether the inner optimizer may step."""

    def __init__(self, guards: "weakref.WeakSet[Any]") -> None:
        self.paid = False
        self.guards = guards


def _watch_inner(inner: Any, guards: "weakref.WeakSet[Any]") -> None:
    inner.odometer_permits = _Permits(guards)
    inner.register_step_pre_hook(_permitted)


def permit(optimizer: Any, *, paid: bool) -> None:
    """Let the inner optimizer take one step, or none."""
    optimizer.original_optimizer.odometer_permits.paid = paid


def _permitted(inner: Any, _arguments: Any, _named: Any) -> None:
    permits = getattr(inner, "odometer_permits", None)
    if permits is None or not permits.guards:
        return
    if not permits.paid:
        raise UnsupportedPlan(
            "the inner optimizer was told to step by itself: nothing of that is noised or charged. Call "
            "step() of the optimizer that make_private returned"
        )
    permits.paid = False


def is_ghost(optimizer: Any) -> bool:
    """Whether the model clips, and the optimizer only adds noise."""
    return isinstance(optimizer, DPOptimizerFastGradientClipping)


def clip_norm(optimizer: Any, module: Any) -> float:
    """The norm to which each record's gradient is clipped in the next step; not what the noise is scaled by.

    Raises UnsupportedPlan for what is no norm.
    """
    if hasattr(optimizer, "max_grad_norms"):
        each = [positive("max_grad_norm", one) for one in optimizer.max_grad_norms]
        return math.hypot(*each)
    if is_ghost(optimizer):
        if module is None:
            raise UnsupportedPlan(
                "in ghost clipping the model clips: give the guard module=, as made private"
            )
        return positive("the model's max_grad_norm", module.max_grad_norm)
    return positive("max_grad_norm", optimizer.max_grad_norm)


def positive(what: str, value: Any) -> float:
    """A number above 0 and finite. Raises UnsupportedPlan."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise UnsupportedPlan(f"{what} is {value!r}: give a finite number above 0")
    return number


def check_gradients(optimizer: Any, module: Any, records: int) -> None:
    """One gradient for each record of the piece, and none that the step would leave without noise."""
    noised = set(map(id, optimizer.params))
    for group in optimizer.original_optimizer.param_groups:
        if any(p.grad is not None and id(p) not in noised for p in group["params"]):
            raise UnsupportedPlan(
                "a parameter that is not trained any more (requires_grad=False) still has a gradient, which "
                "would go out without noise. Call optimizer.zero_grad() after freezing it"
            )
    for count in _counts(optimizer, module):
        if count != records:
            raise UnsupportedPlan(
                "the gradient has not as many parts as the batch that was drawn has records. Each "
                "record must have exactly one clipped gradient: train on the whole batch, one row for each "
                "record"
            )


def _counts(optimizer: Any, module: Any) -> set[int]:
    """How many clipped gradients there are, by parameter."""
    if is_ghost(optimizer):
        norms = getattr(module, "_per_sample_gradient_norms", None)
        return set() if norms is None else {len(norms)}
    samples = [getattr(p, "grad_sample", None) for p in optimizer.params]
    return {len(one) for one in samples if isinstance(one, torch.Tensor)} | {
        sum(map(len, one)) for one in samples if isinstance(one, list)
    }


def drop_gradients(optimizer: Any) -> None:
    """Forget what the step held: noised gradients, and the unnoised sums of virtual steps.

    Opacus keeps sums when the last step was virtual.
    """
    optimizer._is_last_step_skipped = False
    optimizer._step_skip_queue.clear()
    optimizer.zero_grad(set_to_none=True)
