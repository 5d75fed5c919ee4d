"""Draws of a Poisson sampler: numbered when drawn, handed out with their batch, taken by one step each.

A loader with workers draws ahead of use, so a draw waits in a line of its iterator until the loop receives
the batch that was made of it. The memory manager splits a draw into pieces; a step takes one piece.
"""

import hashlib
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Self

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from odometer_client.base import UnsupportedPlan

_FLOATS: Final = (torch.float32, torch.float64)
"""Default types in which a random number has at least 24 bits."""


class Line(deque["Piece"]):
    """The pieces of one iterator of a loader that were drawn and not handed out yet."""

    def __init__(self) -> None:
        super().__init__()
        self.stepped = False
        """Whether a step took one of its pieces."""
        self.passed: list[Piece] = []
        """Pieces that were handed out, and followed by the next without a step."""


@dataclass(frozen=True, eq=False)
class Draw:
    """One draw of the sampler."""

    rate: float
    """What the sampler compared with when it drew."""
    records: int
    trouble: str | None
    """Why the draw cannot be charged as a fresh Poisson sample."""


@dataclass(eq=False)
class Piece:
    """A draw, or a part of one that the memory manager made: what a batch is made of."""

    draw: Draw
    part: int
    """Its place in the draw, from 0."""
    last: bool
    records: int
    line: Line
    owner: "Draws"
    taken: bool = False
    """A step took it: into its sum, or out of the optimizer."""
    dropped: bool = False
    """A step failed and its gradient was dropped: it may be used again."""


@dataclass(eq=False)
class Draws:
    """The draws of one guarded loader, and where they are."""

    seen: set[bytes] = field(default_factory=set)
    """States of random generators from which something was drawn already."""
    latest: Piece | None = None
    """What was handed out last."""
    summed: list[Piece] = field(default_factory=list)
    """Pieces of one draw that wait in the optimizer's sum for its last."""
    passed: list[Piece] = field(default_factory=list)
    """Pieces of finished passes that nobody stepped on."""
    opening: Line | None = None
    """The line of the iterator that is being made."""
    process: int = field(default_factory=os.getpid)

    def hand_out(self, piece: Piece, batch: Any) -> bool:
        """The loop receives a batch. True if an unfinished sum of another pass must be dropped."""
        self.latest = piece
        remember(batch, piece)
        unfinished = bool(self.summed) and piece.part == 0 and self.summed[0].line is not piece.line
        if unfinished:
            self.summed.clear()
        return unfinished

    def about_to_step(self) -> Piece:
        """The piece that the next step takes. Raises UnsupportedPlan where that is not certain."""
        piece = self.latest
        if os.getpid() != self.process:
            raise UnsupportedPlan(
                "this process was forked from the one whose loader is guarded: its draws would be the same "
                "as there. Call make_private in the process that trains"
            )
        if piece is None or piece.taken:
            raise UnsupportedPlan(
                "no batch was drawn for this step: since the last one the guarded loader handed out none. A "
                "second step on one draw, and a batch of another source, are not what is charged. Take one "
                "step for each batch of the loader that make_private returned (several models or losses on "
                "one batch: one optimizer over all their parameters)"
            )
        if self.passed or piece.line.passed:
            raise UnsupportedPlan(  # not of how many records: Poisson sampling keeps that private
                "batches of records were drawn and passed over without a step. "
                "Call optimizer.step() for each batch, also for empty ones and "
                "in place of `continue`; a pass may be ended early by `break`, and needs no skipping on "
                "resuming"
            )
        if piece.draw.trouble is not None:
            raise UnsupportedPlan(piece.draw.trouble)
        if piece.part != len(self.summed) or any(one.draw is not piece.draw for one in self.summed):
            raise UnsupportedPlan(
                "the optimizer's sum is not of this draw from its first part on: a part of it was left out "
                "or dropped. Call optimizer.step() for each physical batch of the memory manager; the next "
                "draw starts afresh"
            )
        return piece

    def take(self, piece: Piece) -> None:
        """A step took it."""
        piece.taken = piece.line.stepped = True
        if piece.last:
            self.summed.clear()
        else:
            self.summed.append(piece)

    def drop(self) -> None:
        """The optimizer's gradients were dropped: nothing that was handed out is in them."""
        self.summed.clear()
        self.passed.clear()
        if self.latest is not None:
            self.latest.dropped = True
            self.latest.line.passed.clear()

    def numbered(self, sampler: Any, batches: Iterator[Any], line: Line | None) -> Iterator[Any]:
        """The sampler's draws; each waits in `line` until its batch is handed out."""
        for draw, indices in self.drawn(sampler, batches):
            if line is not None:
                line.append(Piece(draw, 0, last=True, records=draw.records, line=line, owner=self))
            yield indices

    def drawn(self, sampler: Any, batches: Iterator[Any]) -> Iterator[tuple[Draw, Any]]:
        """Each draw with what the sampler has in it. Everything that decides on it is read at the draw."""
        while True:
            rate, state = float(sampler.sample_rate), generator_state(sampler.generator)
            trouble = self._trouble(state)
            try:
                indices = next(batches)
            except StopIteration:
                return
            if state is not None:
                self.seen.add(state)
            yield Draw(rate, len(indices), trouble), indices

    def _trouble(self, state: bytes | None) -> str | None:
        if torch.get_default_dtype() not in _FLOATS:
            return (
                f"the sampler drew random numbers of type {torch.get_default_dtype()}, which are so coarse "
                "that its rate is another. Leave torch's default dtype at float32 while batches are drawn"
            )
        if state is not None and state in self.seen:
            return (
                "the sampler drew from a random state that was used before, so this batch is one that was "
                "drawn already. Seed a generator once, not for each epoch or pass, and give no two loaders "
                "the same seed"
            )
        return None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a guarded loader is not pickled: call make_private in the process that trains")


class HandedOut:
    """An iterator of a guarded loader: says which draw each batch is made of."""

    def __init__(self, batches: Any, line: Line, draws: Draws, loader: Any) -> None:
        self._batches, self._line, self._draws, self._loader = batches, line, draws, loader
        self._now: Piece | None = None
        self._lost = False
        batches.odometer_line = line

    def __iter__(self) -> Self:
        return self

    def __len__(self) -> int:
        return len(self._batches)

    def __next__(self) -> Any:
        if self._lost or self._batches.odometer_line is not self._line:
            raise UnsupportedPlan("this pass over the loader cannot go on: start a new one")
        before, self._now = self._now, None
        passed_over = before is not None and not (before.taken or before.dropped)
        try:
            batch = next(self._batches)
        except StopIteration:
            left = [*self._line.passed, *([before] if passed_over and before is not None else [])]
            if self._line.stepped:  # a pass in which nothing was trained on is none of training
                self._draws.passed += left
            self._line.passed.clear()
            raise
        except BaseException:
            self._lost = True  # which draw it was made of is not known any more
            raise
        if passed_over and before is not None:
            self._line.passed.append(before)
        if not self._line:
            self._lost = True
            raise UnsupportedPlan("the loader's sampler was exchanged after the guard was made")
        self._now = self._line.popleft()
        self._loader.odometer_handed_out(self._now, batch)
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


def generator_state(generator: Any, device: str = "cpu") -> bytes | None:
    """A digest of where a random generator is; None where that cannot be read (the system's randomness)."""
    try:
        if generator is not None:
            state = generator.get_state()
        elif device == "cpu":
            state = torch.get_rng_state()
        else:
            state = torch.cuda.get_rng_state(device)
    except (AttributeError, NotImplementedError, RuntimeError):
        return None
    return hashlib.blake2b(state.numpy().tobytes(), digest_size=16).digest()


# -- which batch a tensor belongs to: by its storage, so that views and slices are known too

_storages: dict[int, tuple[StorageWeakRef, Piece]] = {}
_SWEEP_AT: Final = 512


def remember(batch: Any, piece: Piece) -> None:
    """Know the batch's tensors again."""
    if len(_storages) > _SWEEP_AT:
        for key in [key for key, (storage, _) in _storages.items() if storage.expired()]:
            del _storages[key]
    for tensor in tensors(batch):
        storage = _storage(tensor)
        if storage is not None:
            _storages[storage._cdata] = (StorageWeakRef(storage), piece)


def known(tensor: torch.Tensor) -> Piece | None:
    """The piece that a tensor's storage was handed out with; None for copies and everything else."""
    storage = _storage(tensor)
    found = None if storage is None else _storages.get(storage._cdata)
    return None if found is None or found[0].expired() else found[1]


def tensors(value: Any, depth: int = 6) -> Iterator[torch.Tensor]:
    """The tensors in nested tuples, lists and mappings."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, Mapping):
        for one in value.values():
            yield from tensors(one, depth - 1)
    elif depth and isinstance(value, Iterable) and isinstance(value, list | tuple):
        for one in value:
            yield from tensors(one, depth - 1)


def _storage(tensor: torch.Tensor) -> Any:
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None  # sparse, or inside a transformation
