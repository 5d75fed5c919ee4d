"""Units and the shards that keep them, where each unit has an odometer of its own.

A dataset that composes by unit spreads its units over a fixed number of shards. A charge is all or nothing
within one shard, so the units of one call are split here, and each shard is charged under a key of its own
that follows from the caller's: the same call again asks with the same keys, and nothing is charged twice.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

UNITS_MAX: Final = 1000
"""Units of one charge."""
KEY_MAX: Final = 112
"""Characters of a caller's key: the service takes 128, and a shard's suffix comes after it."""


def shard_of(unit: str, shards: int) -> int:
    """The shard of a unit: the first four bytes of SHA-256 of its UTF-8 name, big-endian, modulo `shards`."""
    return int.from_bytes(hashlib.sha256(unit.encode()).digest()[:4], "big") % shards


def parts(units: Sequence[str], shards: int) -> Iterator[tuple[str, list[str]]]:
    """(suffix of the key, units) of each charge to make, the same for the same set of units in any order.

    Raises ValueError when a unit stands twice: it would be charged once.
    """
    by_shard: dict[int, list[str]] = {}
    for unit in sorted(set(units)):
        by_shard.setdefault(shard_of(unit, shards), []).append(unit)
    if sum(map(len, by_shard.values())) < len(units):
        raise ValueError("a unit stands twice: give each once, and the number of its releases as the count")
    for shard, names in sorted(by_shard.items()):
        for start in range(0, len(names), UNITS_MAX):
            yield f"~{shard:04x}.{start // UNITS_MAX}", names[start : start + UNITS_MAX]
