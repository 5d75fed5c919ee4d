"""What a writer counts while it works: plain integers, for whoever asks. No library, no labels, no names."""

import threading
from typing import Final

SIZES: Final = 9
"""Batches are counted by size up to 1, 2, 4, … 256, and above."""


class WriterStats:
    """Since the process began. The writer's thread writes, any thread may read: a number may be a moment old.

    `batch_sizes[i]` is how many batches took at most 2**i commands and more than half of that; its last
    item counts larger ones. `stale_heads` is how often others were faster, `appends_failed` how often
    the store did not say that an append is durable.
    """

    def __init__(self) -> None:
        self.batch_sizes = [0] * (SIZES + 1)
        self.commands = 0
        self.stale_heads = 0
        self.appends_failed = 0
        self.freezes = 0
        self._frozen: set[str] = set()
        self._lock = threading.Lock()

    def batch(self, size: int) -> None:
        """A batch of `size` commands, at least 1, was taken from the queue."""
        self.batch_sizes[min((size - 1).bit_length(), SIZES)] += 1
        self.commands += size

    def froze(self, stream: str) -> None:
        """A stream takes no more entries: its history changed, or contradicts itself. From any thread.

        Saying it again of a stream that is frozen already counts nothing.
        """
        with self._lock:
            if stream not in self._frozen:
                self._frozen.add(stream)
                self.freezes += 1

    def thawed(self, stream: str) -> None:
        """A person has looked, and the stream takes entries again. From any thread."""
        with self._lock:
            self._frozen.discard(stream)

    def frozen_streams(self) -> list[str]:
        """Which streams are frozen as far as this process knows. For any thread."""
        with self._lock:
            return list(self._frozen)

    @property
    def frozen(self) -> int:
        """How many streams are frozen as far as this process knows."""
        return len(self._frozen)
