"""Checkpoints: entries that also state the dataset's total for life."""

from typing import Final

CHECKPOINT_EVERY: Final = 128
"""Every so many entries one also carries the dataset's totals: history without folding everything."""
