"""What really happened in a training loop: which draws were in each update that left, and under what noise.

Two things are watched: Opacus's sampler, whose draws are numbered, and the inner optimizer, whose step is the
release. Every fetched record carries its number and its draw's: its input has a single 1, at the place of the
pair. The model is linear and its loss has the same slope everywhere, so a column of the summed gradient says
how often the record went in from that draw, in clip norms. The loop is not believed, the guard not asked.
"""

import contextlib
import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch import nn
from torch.utils.data import Dataset

from guard_model.truth import ORDERS, divergence, rate_of_coin

MOST_DRAWS = 48
"""Draws that a program may make; draw 0 stands for records that no sampler drew."""
OUTPUTS = 2


class TooLong(Exception):
    """The program has made all the draws that its records can carry."""


class Records(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """`n` records. An index holds the draw too: record + n × draw."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.columns = n * MOST_DRAWS

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        place = torch.zeros(self.columns)
        place[int(index)] = 1
        return place, torch.tensor(0.0)


class Slope(nn.Module):
    """A loss of constant slope, steep enough that every record is clipped."""

    def __init__(self, reduction: str) -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, outputs: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        each = 1000 * outputs.sum(dim=1)
        return each if self.reduction == "none" else each.mean() if self.reduction == "mean" else each.sum()


@dataclass(frozen=True)
class Release:
    """One step of the inner optimizer."""

    seen: torch.Tensor
    """Draws × records: the length that each put into the sum before noise."""
    clip: float
    """The clip norm."""
    deviation: float
    """Standard deviation of the noise."""
    empty: int | None
    """The draw without records that it stands for, if it has none."""
    finite: bool
    """Whether the update was made of numbers."""


@dataclass
class Oracle:
    """Counts draws and exposures while `watching`."""

    n: int
    rates: list[float] = field(default_factory=lambda: [1.0])
    """The rate of each draw, as the sampler was when it drew. Draw 0: no sampler, always there."""
    releases: list[Release] = field(default_factory=list)
    uncovered: set[str] = field(default_factory=set)
    """Why no charge at all covers a release that left."""
    nothing_covers: str | None = None
    """Why no charge would cover what is released from now on."""
    left_out: bool = False
    """Whether a step was left out because its batch was empty, and no step was refused since."""
    distance: float = 1.0
    """How far an empty draw may be from one with a lone record, in clip norms."""
    on_release: Callable[[], None] | None = None
    """Called at each release, before the weights move."""
    _states: set[bytes] = field(default_factory=set)
    _repeated: set[int] = field(default_factory=set)
    _noises: list[torch.Tensor] = field(default_factory=list)
    _fed: dict[int, int | None] = field(default_factory=dict)
    _private: dict[int, Any] = field(default_factory=dict)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Number the draws of every Poisson sampler."""
        drawn = UniformWithReplacementSampler.__iter__
        oracle = self

        def numbered(sampler: Any) -> Iterator[list[int]]:
            batches = drawn(sampler)
            while True:
                rate = sampler.sample_rate  # what the next draw is compared with
                oracle.draw_begins(sampler.generator)
                batch = next(batches, None)
                if batch is None:
                    return
                if len(oracle.rates) == MOST_DRAWS:
                    raise TooLong
                oracle.rates.append(rate)
                yield [record + oracle.n * (len(oracle.rates) - 1) for record in batch]

        UniformWithReplacementSampler.__iter__ = numbered
        try:
            yield
        finally:
            UniformWithReplacementSampler.__iter__ = drawn

    def draw_begins(self, generator: torch.Generator | None) -> None:
        """Random numbers that come a second time bring the same batch, and noise that cancels."""
        state = torch.get_rng_state() if generator is None else generator.get_state()
        digest = hashlib.blake2b(state.numpy().tobytes(), digest_size=16).digest()
        if digest in self._states:
            self._repeated.add(len(self.rates))
        self._states.add(digest)

    def watch(self, inner: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """See every step of this inner optimizer."""
        step = inner.step

        def released(*arguments: Any, **named: Any) -> Any:
            uncovered = set(self.uncovered)
            self._release(inner)
            try:
                return step(*arguments, **named)
            except BaseException:  # it did not leave
                self.releases.pop()
                self.uncovered = uncovered
                raise

        inner.step = released
        return inner

    def belongs(self, inner: torch.optim.Optimizer, private: Any) -> None:
        """`private` is Opacus's optimizer around `inner`: noise and clip norm are read at each release."""
        self._private[id(inner)] = private

    def fed(self, inner: torch.optim.Optimizer, draw: int | None) -> None:
        """A batch without records, of that draw, went backward: no column shows it. None: one with some."""
        self._fed[id(inner)] = draw

    def forget(self) -> None:
        """What was released so far is not this ledger's."""
        self.releases.clear()
        self.uncovered.clear()

    def refused(self) -> None:
        """A step was refused: it is seen that a step is missing, whatever the batch was."""
        self.left_out = False

    def truth(self) -> dict[int, float]:
        """A lower bound on what the releases cost, in nats, for each order."""
        if self.uncovered:
            return dict.fromkeys(ORDERS, math.inf)
        moves: dict[int, list[float]] = {}
        for draw in range(len(self.rates)):
            row = self._moves_of(draw)
            if any(row):
                moves[draw] = row
        coins = {draw: rate_of_coin(self.rates[draw]) for draw in moves}
        return {order: divergence(coins, moves, order) for order in ORDERS}

    def _moves_of(self, draw: int) -> list[float]:
        """How far each release moves with a record of this draw: the one for which it is most over all."""
        if not self.releases:
            return []
        deviations = torch.tensor([release.deviation for release in self.releases], dtype=torch.float64)
        seen = torch.stack([release.seen[draw] for release in self.releases]).double()
        moved = torch.where(seen > 0, seen / deviations[:, None].abs(), 0.0)
        row = moved[:, int(moved.square().sum(dim=0).argmax())].tolist()
        for k, release in enumerate(self.releases):
            if release.empty == draw:
                row[k] = max(row[k], self.distance * _ratio(abs(release.clip), release.deviation))
        return row

    def _release(self, inner: torch.optim.Optimizer) -> None:
        (weight,) = inner.param_groups[0]["params"]
        private = self._private[id(inner)]
        seen = weight.summed_grad.detach().norm(dim=0).reshape(MOST_DRAWS, self.n)
        clip = float(private.max_grad_norm)
        noise = float(private.noise_multiplier) * clip
        self._look_at_noise(weight, private, noise)
        empty = None if bool(seen.any()) else self._fed.get(id(inner))
        self.releases.append(Release(seen.clone(), clip, noise, empty, bool(weight.grad.isfinite().all())))
        if self.nothing_covers is not None:
            self.uncovered.add(self.nothing_covers)
        if self.left_out:
            self.uncovered.add("a step was left out because its batch was empty")
        if self._repeated & {empty, *seen.any(dim=1).nonzero().flatten().tolist()}:
            self.uncovered.add("the random numbers of an earlier draw came again")
        if self.on_release is not None:
            self.on_release()
        if not self.releases[-1].finite:
            self.uncovered.add("the update was not made of numbers")

    def _look_at_noise(self, weight: Any, private: Any, deviation: float) -> None:
        """The noise in the update is as large as its optimizer says, and not that of an earlier update."""
        divisor = 1
        if private.loss_reduction == "mean":
            divisor = private.expected_batch_size * private.accumulated_iterations
        noise = (weight.grad * divisor - weight.summed_grad).flatten()
        if not deviation or not bool(noise.isfinite().all()):
            return
        assert 0.8 < float(noise.std()) / deviation < 1.25, (float(noise.std()), deviation)
        noise = noise / noise.norm()
        if any(abs(float(noise @ earlier)) > 0.5 for earlier in self._noises):
            self.uncovered.add("the noise of an earlier update came again, and cancels")
        self._noises.append(noise)


def _ratio(distance: float, deviation: float) -> float:
    if not distance:
        return 0.0
    return distance / abs(deviation) if deviation else math.inf
