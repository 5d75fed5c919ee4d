"""Guards broken on purpose, in one respect each: what the model test has to find.

Each stands around `optimizer.step()` of a guarded optimizer and lets some steps pass the guard by.
"""

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import opacus.optimizers

from guard_model.jobs import Head
from guard_model.world import World
from odometer_client.mechanisms import Gaussian, PoissonSubsampled

Step = Callable[..., Any]


def second_step_uncounted(world: World) -> None:
    """A step without a draw since the last release is not charged."""

    def broken(head: Head, guarded: Step) -> Step:
        released_at = -1

        def step(*closure: Step) -> Any:
            nonlocal released_at
            draws, releases = len(world.oracle.rates), len(world.oracle.releases)
            done = _pass_by(head, *closure) if released_at == draws else guarded(*closure)
            if len(world.oracle.releases) > releases:
                released_at = draws
            return done

        return step

    _stand_around(world, broken)


def skipped_batch_uncounted(world: World) -> None:
    """A step after skipped ones is charged as one draw, whatever was skipped."""

    def broken(head: Head, guarded: Step) -> Step:
        skipped = False

        def step(*closure: Step) -> Any:
            nonlocal skipped
            queue = head.optimizer._step_skip_queue
            if queue and queue[0]:
                skipped = True
                return _pass_by(head, *closure)
            if not skipped:
                return guarded(*closure)
            skipped = False
            _charge(world, head, head.loader.batch_sampler.sample_rate)
            return _pass_by(head, *closure)

        return step

    for head in world.heads:
        signal = _opacus_class(head.optimizer).signal_skip_step
        head.optimizer.signal_skip_step = partial(signal, head.optimizer)
    _stand_around(world, broken)


def rate_read_once(world: World) -> None:
    """A step is charged at the rate that the loader had at the first."""

    def broken(head: Head, guarded: Step) -> Step:
        first = head.loader.batch_sampler.sample_rate

        def step(*closure: Step) -> Any:
            if head.loader.batch_sampler.sample_rate == first:
                return guarded(*closure)
            _charge(world, head, first)
            return _pass_by(head, *closure)

        return step

    _stand_around(world, broken)


def _stand_around(world: World, broken: Callable[[Head, Step], Step]) -> None:
    for head in world.heads:
        head.optimizer.step = broken(head, head.optimizer.step)


@contextlib.contextmanager
def unguarded(head: Head) -> Iterator[None]:
    """Opacus's own optimizer, with nothing of the guard."""
    optimizer, inner = head.optimizer, head.inner
    guarded, hooks = type(optimizer), inner._optimizer_step_pre_hooks
    own = {name: value for name, value in vars(optimizer).items() if callable(value) or name == "step_hook"}
    for name in own:
        delattr(optimizer, name)
    optimizer.__class__ = _opacus_class(optimizer)
    optimizer.step_hook = None
    inner._optimizer_step_pre_hooks = OrderedDict()
    try:
        yield
    finally:
        optimizer.__class__ = guarded
        vars(optimizer).update(own)
        inner._optimizer_step_pre_hooks = hooks


def _pass_by(head: Head, *closure: Step) -> Any:
    with unguarded(head):
        return head.optimizer.step(*closure)


def _opacus_class(optimizer: Any) -> Any:
    kinds = type(optimizer).__mro__
    return next(kind for kind in kinds if getattr(opacus.optimizers, kind.__name__, None) is kind)


def _charge(world: World, head: Head, rate: float) -> None:
    noise = Gaussian(noise_multiplier=float(head.optimizer.noise_multiplier))
    world.client.charge(world.dataset, PoissonSubsampled(base=noise, sampling_rate=rate))
