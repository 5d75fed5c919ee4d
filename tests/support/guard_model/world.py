"""What programs do: what training scripts do to Opacus, and to each other's state."""

import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from opacus.data_loader import DPDataLoader
from opacus.schedulers import ExponentialGradClip, ExponentialNoise
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch.utils.data import DataLoader

from guard_model.jobs import PAST, Interrupted, Jobs

STRANGE = ("shuffled", "foreign", "another", "another, guarded")
"""Sources that are not the guarded loader."""


class World(Jobs):
    """The state of a running program. Each method here is an operation of programs."""

    # Batches

    _skipped: Iterator[Any] | None = None
    """The pass whose last batch was empty and left out."""

    def fetch(self) -> None:
        """The next batch of the source; of its next epoch at the end of one."""
        if self._skipped is not None and self._skipped is self._batches:
            self.oracle.left_out = (
                True  # within a pass it can be seen; before a new one it looks like `break`
            )
        self._skipped = None
        batch = next(self._batches, None)
        if batch is None:
            self._batches = self._source()
            batch = next(self._batches, None)
        if batch is None:
            raise Interrupted("the source gives no batches: the guard has stopped")
        self.batch = batch
        if isinstance(self.batch, list) and not self.batch:
            raise Interrupted("a batch without tensors")
        self._draw = None if self.setup.workers else len(self.oracle.rates) - 1
        if self._first is None:
            self._first = self.batch, self._draw

    def source(self, kind: str, size: int = 2, head: int = 0) -> None:
        """Where `fetch` takes its batches from now on."""
        if kind in STRANGE and not all(at.familiar for at in (*self.heads, *self._past)):
            return
        self._strange = kind in STRANGE
        own = self._head(head).loader
        loader: Iterable[Any] = own
        if kind == "managed":
            loader = BatchMemoryManager(
                data_loader=own, max_physical_batch_size=size, optimizer=self._head(head).optimizer
            ).__enter__()
        elif kind in ("shuffled", "foreign"):
            loader = DataLoader(self._records, batch_size=2, shuffle=True)
        elif kind.startswith("another"):
            loader = DPDataLoader(self._records, sample_rate=0.5)
        if kind in ("guarded", "shuffled", "another, guarded"):
            guard = self.engines[-1].guard
            self._take_from(lambda: iter(guard.batches(loader)))
        else:
            self._take_from(lambda: iter(loader))

    def stale(self) -> None:
        """The first batch of the program once more, though others were fetched since."""
        if self._first is not None:
            self.batch, self._draw = self._first

    def join(self) -> None:
        """Two batches in one."""
        self.fetch()
        first = self.batch
        self.fetch()
        self.batch = [torch.cat(parts) for parts in zip(first, self.batch, strict=True)]

    def first_half(self) -> None:
        """Keep the first half of the batch alone."""
        if self.batch is not None:
            self.batch = [part[: len(part) // 2] for part in self.batch]

    def doubled(self) -> None:
        """Every record of the batch twice."""
        if self.batch is not None:
            self.batch = [torch.cat([part, part]) for part in self.batch]

    def first_repeated(self) -> None:
        """As many records as before, all of them the first."""
        if self.batch is not None and all(at.familiar for at in (*self.heads, *self._past)):
            self.batch = [part[:1].repeat(len(part), *[1] * (part.dim() - 1)) for part in self.batch]

    # Steps

    def backward(self, head: int = 0) -> None:
        if self.batch is None:
            return
        at = self._head(head)
        inputs, targets = self.batch
        at.criterion(at.model(inputs), targets).backward()
        self.oracle.fed(at.inner, None if len(inputs) else self._draw)

    def zero(self, head: int = 0) -> None:
        self._head(head).optimizer.zero_grad()

    def step(self, head: int = 0) -> None:
        self._head(head).optimizer.step()

    def step_by_parts(self, head: int = 0) -> None:
        """What `step` is made of, called by hand."""
        optimizer = self._head(head).optimizer
        if optimizer.pre_step():
            optimizer.original_optimizer.step()

    def zero_model(self, head: int = 0) -> None:
        self._head(head).model.zero_grad()

    def closure(self, head: int = 0) -> None:
        """A step that is given the closure which makes its gradient."""
        self.fetch()
        self.zero(head)
        self._head(head).optimizer.step(lambda: self.backward(head))

    def one_loss(self, draws: int, head: int = 0) -> None:
        """One loss of several forward passes: of one batch (draws = 1), or of two."""
        at = self._head(head)
        self.fetch()
        first = self.batch
        if draws > 1:
            self.fetch()
        self.zero(head)
        losses = [at.criterion(at.model(inputs), targets) for inputs, targets in (first, self.batch)]
        (losses[0] + losses[1]).backward()
        if not len(first[0]) and not len(self.batch[0]) and self._draw is not None:
            self.oracle.fed(at.inner, self._draw)
        self.step(head)

    def interleave(self, batches: int, head: int = 0) -> None:
        """Two iterators of one loader in turn."""
        both = [self._source(), self._source()]
        for number in range(2 * batches):
            self._batches = both[number % 2]
            self.loop(1, head)

    def old(self, batches: int) -> None:
        """Train what an earlier `make_private` made, with the batches of now."""
        if self._past:
            for _ in range(batches):
                self.fetch()
                self._train(PAST)

    def skip(self, flag: bool, head: int = 0) -> None:
        self._head(head).optimizer.signal_skip_step(do_skip=flag)

    def loop(self, batches: int, head: int = 0, zero: str = "first") -> None:
        """The usual loop."""
        if zero == "last":
            self.zero(head)
        for _ in range(batches):
            self.fetch()
            self._train(head, zero)

    def both(self, batches: int) -> None:
        """Every batch trains every head."""
        for _ in range(batches):
            self.fetch()
            for head in range(len(self.heads)):
                self._train(head)

    def managed(
        self, size: int, head: int = 0, stop_after: int | None = None, clip: float | None = None
    ) -> None:
        """An epoch of physical batches, or so many of them. The clip norm may change after the first."""
        self.source("managed", size, head)
        for number, batch in enumerate(self._batches):
            if number == stop_after:
                break
            self.batch = batch
            self._draw = None if self.setup.workers else len(self.oracle.rates) - 1
            self._train(head)
            if clip is not None:
                self.clip(clip, head)
        self.source("own", head=head)

    def repeat(self, times: int, head: int = 0, zero: str = "first") -> None:
        """One batch, several steps."""
        self.fetch()
        for _ in range(times):
            self._train(head, zero)

    def skipped(self, batches: int, head: int = 0) -> None:
        """That many batches by `signal_skip_step`, and one step with them."""
        for number in range(batches):
            self.fetch()
            self._head(head).optimizer.signal_skip_step(do_skip=number < batches - 1)
            self._train(head)

    def skip_empties(self, batches: int, head: int = 0) -> None:
        """No step for a batch without records: whether one is made then tells of a record.

        The last batch of a pass that is left out looks like a `break`, and no guard can tell: not counted.
        """
        for _ in range(batches):
            self.fetch()
            if not len(self.batch[0]):
                self._skipped = self._batches
                continue
            self._train(head)

    def fresh(self, batches: int, head: int = 0) -> None:
        """`next(iter(loader))` for every step."""
        for _ in range(batches):
            self._batches = self._source()
            self.loop(1, head)

    def break_late(self, batches: int, head: int = 0) -> None:
        """`for number, batch in enumerate(loader): if number == batches: break`."""
        self._batches = self._source()
        self.loop(batches, head)
        self.fetch()
        self._batches = self._source()

    def interrupt(self, head: int = 0) -> None:
        """An exception between `backward` and `step`; the loop starts anew."""
        self.fetch()
        self.zero(head)
        self.backward(head)
        self._batches = self._source()

    # What changes on the way

    def rate(self, rate: float, head: int = 0) -> None:
        self._head(head).loader.batch_sampler.sample_rate = rate

    def noise(self, noise: float, head: int = 0) -> None:
        self._head(head).optimizer.noise_multiplier = noise

    def clip(self, clip: float, head: int = 0) -> None:
        self._head(head).optimizer.max_grad_norm = clip

    def layer_clip(self, clip: float, head: int = 0) -> None:
        """The norms that clipping layer by layer keeps beside `max_grad_norm`."""
        if self.setup.mode == "per layer":
            self._head(head).optimizer.max_grad_norms = [clip]

    def divisor(self, size: int, head: int = 0) -> None:
        self._head(head).optimizer.expected_batch_size = size

    def scheduler(self, kind: str, head: int = 0) -> None:
        """One step of a scheduler of the noise, of the clip norm, or of the learning rate."""
        optimizer = self._head(head).optimizer
        if kind == "noise":
            ExponentialNoise(optimizer, gamma=0.8).step()
        elif kind == "clip":
            ExponentialGradClip(optimizer, gamma=0.8).step()
        else:
            for group in optimizer.param_groups:
                group["lr"] *= 0.9

    def unhook(self, hook: str, head: int = 0) -> None:
        """Put another hook, or none, in Opacus's one place for it."""
        if hook == "none":
            self._head(head).optimizer.step_hook = None
        else:
            self._head(head).optimizer.attach_step_hook(lambda _: None)

    def reseed(self, seed: int) -> None:
        """Start the random numbers anew: batches and noise may come a second time."""
        torch.manual_seed(seed)

    def reseed_noise(self, seed: int) -> None:
        if self._noise_generator is not None:
            self._noise_generator.manual_seed(seed)

    # Ends and beginnings

    def save(self) -> None:
        file = io.BytesIO()
        first = self.heads[0]
        self.engines[-1].save_checkpoint(path=file, module=first.model, optimizer=first.optimizer)
        self._saved = file.getvalue()

    def load(self) -> None:
        """Back to what was saved, in the same process."""
        if self._saved is not None:
            self._restore(self._saved)

    def resume(self, clean: bool = True, seed: int | None = None) -> None:
        """A new process: a new engine, and what was saved. Not clean: the old one was never closed."""
        if clean:
            self.close()
        if seed is not None:
            self.reseed(seed)
        self._make()
        self.load()

    def close(self) -> None:
        if self.engines:
            self.engines[-1].close()

    def _train(self, head: int, zero: str = "first") -> None:
        if zero == "first":
            self.zero(head)
        self.backward(head)
        self._head(head).familiar |= bool(len(self.batch[0])) and not self._strange
        self.step(head)
        if zero == "last":
            self.zero(head)

    def _take_from(self, source: Callable[[], Iterator[Any]]) -> None:
        self._source = source
        self._batches = source()
