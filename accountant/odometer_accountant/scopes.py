"""Names of scopes, and the scopes that a charge is added to. Pure."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

Composition = Literal["sequential", "by_partition", "by_unit"]
"""How the charges of a dataset compose.

sequential: each charge is about everybody. by_partition: disjoint parts, each unit in one of them for good,
so that a charge on one part costs the others nothing. by_unit: each unit randomises its own data (local
model), and has an odometer of its own.
"""

DATASET_SCOPE: Final = "dataset"
"""Everything that every unit is part of: all charges, or of a partitioned dataset those on all partitions."""
EACH: Final = "*"
SHARD_PREFIX: Final = "~units/"
"""Streams of unit odometers; not a slug, so no dataset can have such a name."""
NAME: Final = r"[A-Za-z0-9_.:-]{1,64}"
"""Pattern of an opaque name: of a principal, a unit."""
SCOPE: Final = rf"^(dataset|(principal|team|group|partition|unit)/(\*|{NAME}))$"
"""Pattern of what a budget applies to."""

KINDS: Final[dict[str, tuple[str, ...]]] = {
    "sequential": ("dataset", "principal", "team", "group"),
    "by_partition": ("dataset", "partition", "principal", "team", "group"),
    "by_unit": ("unit",),
}
"""Which kinds of scope can have budgets, by composition."""
EVERYBODY: Final[dict[str, tuple[str, ...]]] = {
    "sequential": ("dataset",),
    "by_partition": ("dataset", "partition/*"),
    "by_unit": ("unit/*",),
}
"""Scopes of which one limits what anybody can lose, by composition."""


def split(scope: str) -> tuple[str, str]:
    """(kind, name) of a scope; the dataset's name is empty."""
    kind, _, name = scope.partition("/")
    return kind, name


def shard_of(unit: str, shards: int) -> int:
    """The shard (of `shards`) of a unit's odometer: the first four bytes of its SHA-256, modulo."""
    return int.from_bytes(hashlib.sha256(unit.encode()).digest()[:4]) % shards


def shard_stream(dataset: str, shard: int) -> str:
    """The name of the stream that keeps one shard's odometers."""
    return f"{SHARD_PREFIX}{dataset}/{shard:04x}"


def shard_parent(stream: str) -> str | None:
    """The dataset that a shard's stream belongs to; None for any other stream."""
    return stream.removeprefix(SHARD_PREFIX).partition("/")[0] if stream.startswith(SHARD_PREFIX) else None


def shard_number(stream: str) -> int:
    """The shard number of a shard's stream: the inverse of `shard_stream`."""
    return int(stream.rpartition("/")[2], 16)


def in_window(scope: str, window: str) -> str:
    """Name of a scope's count within the current window of a kind."""
    return f"{scope}@{window}"


@dataclass(frozen=True)
class AffectedScopes:
    """The principal and the data of a charge; they determine all scopes that it is added to."""

    principal: str
    team: str | None = None
    group: str | None = None
    partitions: tuple[str, ...] = ()
    """The partitions it reads; none of a partitioned dataset means all, later ones too."""
    units: tuple[str, ...] = ()
    _scopes: dict[str, tuple[str, ...]] = field(default_factory=dict, compare=False, repr=False)

    def scopes(self, composition: str) -> tuple[str, ...]:
        """Every scope that the whole loss of the charge is added to."""
        known = self._scopes.get(composition)
        if known is None:
            known = self._scopes[composition] = tuple(self._each(composition))
        return known

    def _each(self, composition: str) -> Iterable[str]:
        if composition == "by_unit":
            # The stream's own total is no privacy loss here: it lets a lost count be noticed.
            yield DATASET_SCOPE
            yield from (f"unit/{unit}" for unit in self.units)
            return
        if composition == "by_partition" and self.partitions:
            yield from (f"partition/{name}" for name in self.partitions)
        else:
            yield DATASET_SCOPE
        yield f"principal/{self.principal}"
        if self.team is not None:
            yield f"team/{self.team}"
        if self.group is not None:
            yield f"group/{self.group}"


def holds_losses(stream: str) -> bool:
    """Whether a stream is a dataset or a shard of one, rather than something else that is kept as entries."""
    return not stream.startswith("~") or shard_parent(stream) is not None
