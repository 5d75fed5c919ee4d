"""Plain counters of the writer's work, for the metrics. No library, no labels, no names."""

import threading
from typing import Final

SIZES: Final = 9
"""Batches are counted by size up to 1, 2, 4, … 256, and above."""


class WriterStats:
    """Counters since the process began. The writer's thread writes; any thread may read, a moment late.

    `batch_sizes[i]` counts the batches of at most 2**i commands and more than half of that; its last item
    counts larger ones. `stale_heads` counts lost append races, `appends_failed` the appends that the store
    did not confirm as durable.
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
        """Count a batch of `size` commands, at least 1, that was taken from the queue."""
        self.batch_sizes[min((size - 1).bit_length(), SIZES)] += 1
        self.commands += size

    def froze(self, stream: str) -> None:
        """Note that a stream takes no more entries because its history changed or contradicts itself.

        Counts a stream that is frozen already only once. For any thread.
        """
        with self._lock:
            if stream not in self._frozen:
                self._frozen.add(stream)
                self.freezes += 1

    def thawed(self, stream: str) -> None:
        """Note that a stream takes entries again after a person's decision. For any thread."""
        with self._lock:
            self._frozen.discard(stream)

    def frozen_streams(self) -> list[str]:
        """The streams that this process knows to be frozen. For any thread."""
        with self._lock:
            return list(self._frozen)

    @property
    def frozen(self) -> int:
        """How many streams this process knows to be frozen."""
        return len(self._frozen)
