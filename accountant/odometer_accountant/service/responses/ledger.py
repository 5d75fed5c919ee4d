"""Pages of entries, derived artefacts and their lineage."""

from typing import Any

from odometer_accountant.service.responses.base import Reply
from odometer_accountant.service.responses.charges import ChargeReply


class LedgerEntry(Reply):
    """An entry as it was hashed."""

    sequence: int
    hash: str
    entry: dict[str, Any]


class LedgerReply(Reply):
    """A page of entries."""

    items: list[LedgerEntry]
    next: int | None


class DerivedReceipt(Reply):
    """It is on record what was made of a release. Nothing was charged."""

    dataset: str
    sequence: int
    hash: str
    time: str
    principal: str
    by: str | None = None
    """Who asked on the principal's behalf."""
    parent: int
    """Number of the entry that it was made of."""
    description: str
    depth: int
    """How many steps away from the charge that it comes of; 1 when the parent is one."""
    replayed: bool
    """This key was used before, for the same: nothing was recorded again."""


class KinReply(Reply):
    """An entry of a line of descent: a release, or what was made of one. The ledger has the whole of it."""

    sequence: int
    hash: str
    type: str
    """charged, held or derived."""
    time: str
    principal: str
    by: str | None
    """Who asked on the principal's behalf."""
    parent: int | None
    """The number of the entry that it was made of; null of a release."""
    description: str | None
    """What it is, as its maker said; null of a release."""
    charges: list[ChargeReply] | None
    """What the release was charged; null of what was made of one."""


class LineageReply(Reply):
    """The sources of an entry, and the artefacts derived from it."""

    dataset: str
    entry: KinReply
    ancestors: list[KinReply]
    """The nearest first; the last is the charge at the start."""
    descendants: list[KinReply]
    """Oldest first, at most 1000."""
    next: int | None
    """Where to go on looking for descendants (`after`); null when all entries were looked through."""
