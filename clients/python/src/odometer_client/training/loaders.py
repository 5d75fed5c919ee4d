"""Makes a loader and its sampler count their draws, by a subclass of each: they stay what they are."""

import functools
from collections.abc import Iterator
from typing import Any, Final

from opacus.utils import batch_memory_manager
from opacus.utils.batch_memory_manager import BatchSplittingSampler
from torch.utils.data import DataLoader

from odometer_client.base import UnsupportedPlan
from odometer_client.training.draws import Draw, Draws, HandedOut, Line, Piece
from odometer_client.training.sampling import poisson_sampler


@functools.cache
def _numbered(base: Any) -> Any:
    """A subclass of a Poisson sampler's class; called as its base is."""

    def indices(self: Any) -> Iterator[Any]:
        return iter(base.__iter__(self))

    def numbered(self: Any) -> Iterator[Any]:
        draws: Draws = self.odometer_draws
        return draws.numbered(self, indices(self), draws.opening)

    return type(
        base.__name__, (base,), {"__iter__": numbered, "odometer_indices": indices, **_as_called(base)}
    )


@functools.cache
def _handing_out(base: Any) -> Any:
    """A subclass of a loader's class, whose iterators say which draw a batch is made of."""

    def batches(self: Any) -> Iterator[Any]:
        draws, line = self.odometer_draws, Line()
        draws.opening = line
        try:
            made = base.__iter__(self)
        finally:
            draws.opening = None
        return HandedOut(made, line, draws, self)

    def handed_out(self: Any, piece: Piece, batch: Any) -> None:
        unfinished = self.odometer_draws.hand_out(piece, batch)
        guard = self.odometer_guard()
        if guard is not None:
            guard.handed_out(piece, unfinished)

    members = {"__iter__": batches, "odometer_handed_out": handed_out, **_as_called(base)}
    return type(base.__name__, (base,), members)


def _as_called(base: Any) -> dict[str, Any]:
    return {"__module__": base.__module__, "__doc__": base.__doc__}


class NumberedPieces(BatchSplittingSampler):
    """The memory manager's sampler: says which piece ends a draw to the guard, not to the optimizer.

    Opacus's own signals go out when a piece is drawn, and wait in a queue that is out of step as soon as a
    pass is left early or a batch is not stepped on.
    """

    def __iter__(self) -> Iterator[Any]:
        return self._numbered(self.sampler.odometer_draws.opening)

    def _numbered(self, line: Line | None) -> Iterator[Any]:
        draws: Draws = self.sampler.odometer_draws  # type: ignore[attr-defined]
        now: list[Draw] = []
        signals, part = _Signals(), 0

        def sampled() -> Iterator[Any]:
            for draw, indices in draws.drawn(self.sampler, self.sampler.odometer_indices()):
                now[:] = [draw]
                yield indices

        splitting = BatchSplittingSampler(
            sampler=sampled(),  # type: ignore[arg-type]
            max_batch_size=self.max_batch_size,
            optimizer=signals,  # type: ignore[arg-type]
        )
        before: Draw | None = None
        for indices in splitting:
            part = part + 1 if now[0] is before else 0
            before = now[0]
            if line is not None:
                line.append(Piece(now[0], part, not signals.skip, len(indices), line, draws))
            yield indices


class _Signals:
    """Stands for the optimizer that the splitting signals to."""

    skip = False

    def signal_skip_step(self, do_skip: bool = True) -> None:
        self.skip = do_skip


def count_draws(loader: Any, draws: Draws, guard: Any) -> None:
    """Let the loader and its sampler count. `guard` is a weak reference to who hears of batches."""
    sampler = poisson_sampler(loader)
    if hasattr(sampler, "odometer_draws"):
        raise UnsupportedPlan(
            "this loader has a guard already, of another optimizer: two optimizers on one draw are two "
            "releases of it. Train both models' parameters with one optimizer and one make_private, or "
            "give each model draws of its own: opacus.data_loader.DPDataLoader.from_data_loader(loader)"
        )
    if not getattr(loader, "in_order", True):
        raise UnsupportedPlan(
            "this loader hands out batches in another order than it drew them: in_order=False"
        )
    kind: Any = type(sampler)
    sampler.__class__ = _numbered(kind)
    sampler.odometer_draws = draws
    _watch(loader, draws, guard)
    _watch_memory_managers()


def _watch(loader: Any, draws: Draws, guard: Any) -> Any:
    kind: Any = type(loader)
    loader.__class__ = _handing_out(kind)
    loader.odometer_draws = draws
    loader.odometer_guard = guard
    return loader


_wrap_data_loader: Final = batch_memory_manager.wrap_data_loader


def _watch_memory_managers() -> None:
    """Opacus's memory manager makes a loader of its own by this function of its module: watch that, too.

    Loaders and optimizers without a guard go through it as before.
    """
    batch_memory_manager.wrap_data_loader = _wrapped


@functools.wraps(_wrap_data_loader)
def _wrapped(*, data_loader: Any, max_batch_size: int, optimizer: Any) -> DataLoader[Any]:
    physical = _wrap_data_loader(data_loader=data_loader, max_batch_size=max_batch_size, optimizer=optimizer)
    guard = getattr(optimizer, "odometer_guard", None)
    draws = getattr(data_loader, "odometer_draws", None)
    if guard is None and draws is None:
        return physical
    if guard is None or draws is None or not guard.owns(data_loader) or not guard.guards(optimizer):
        raise UnsupportedPlan(
            "BatchMemoryManager was given a loader and an optimizer of which not both are of one guard. "
            "Give it the two that one make_private returned"
        )
    if isinstance(data_loader.batch_sampler, NumberedPieces):
        raise UnsupportedPlan("one BatchMemoryManager inside another: give it make_private's own loader")
    physical.batch_sampler.__class__ = NumberedPieces  # type: ignore[union-attr]
    _watch(physical, draws, data_loader.odometer_guard)
    return physical
