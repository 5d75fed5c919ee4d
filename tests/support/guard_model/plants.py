"""Guards broken on purpose, in one respect each: what the model test has to find.

Each stands around `optimizer.step()` of a guarded optimizer and lets some steps pass the guard by.
"""

from collections import OrderedDict
from collections.abc import Callable
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
            done = pass_by(head, *closure) if released_at == draws else guarded(*closure)
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
                return pass_by(head, *closure)
            if not skipped:
                return guarded(*closure)
            skipped = False
            _charge(world, head, head.loader.batch_sampler.sample_rate)
            return pass_by(head, *closure)

        return step

    _stand_around(world, broken)


def rate_read_once(world: World) -> None:
    """A step is charged at the rate that the loader had at the first."""

    def broken(head: Head, guarded: Step) -> Step:
        first = head.loader.batch_sampler.sample_rate

        def step(*closure: Step) -> Any:
            if head.loader.batch_sampler.sample_rate == first:
                return guarded(*closure)
            _charge(world, head, first)
            return pass_by(head, *closure)

        return step

    _stand_around(world, broken)


def _stand_around(world: World, broken: Callable[[Head, Step], Step]) -> None:
    for head in world.heads:
        head.optimizer.step = broken(head, head.optimizer.step)


def pass_by(head: Head, *closure: Step) -> Any:
    """Opacus's own step, with nothing of the guard."""
    for again in closure:
        again()
    optimizer = head.optimizer
    guarded = type(optimizer)
    own = {name: value for name, value in vars(optimizer).items() if callable(value) or name == "step_hook"}
    optimizer.__class__ = next(
        kind for kind in guarded.__mro__ if getattr(opacus.optimizers, kind.__name__, None) is kind
    )
    for name in own:
        delattr(optimizer, name)
    hooks, head.inner._optimizer_step_pre_hooks = head.inner._optimizer_step_pre_hooks, OrderedDict()
    optimizer.step_hook = None
    try:
        return head.leave() if optimizer.pre_step() else None
    finally:
        optimizer.__class__ = guarded
        vars(optimizer).update(own)
        head.inner._optimizer_step_pre_hooks = hooks


def _charge(world: World, head: Head, rate: float) -> None:
    noise = Gaussian(noise_multiplier=float(head.optimizer.noise_multiplier))
    world.client.charge(world.dataset, PoissonSubsampled(base=noise, sampling_rate=rate))
