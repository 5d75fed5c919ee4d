"""The registry of entry types: how each type changes the state, what it counts, and which key it answers.

A module registers its types with the decorator `entry_type` on the function that applies them. Importing
`odometer_accountant.ledger` imports all of these modules.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from odometer_accountant.ledger.entry_parts import Entry, affected_by
from odometer_accountant.ledger.state import State
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.stores import Head

Apply = Callable[[Any, Head, Entry], State]
"""(state before, head after, entry) -> state after. The state before is None for the first entry alone.

Raises KeyError, TypeError or ValueError for an entry that contradicts the state.
"""


class LossChange(NamedTuple):
    """How an entry changes the totals for life of its scopes."""

    scopes: tuple[str, ...]
    """Without those of kinds of mechanisms."""
    gained: Loss
    """Added to each scope."""
    taken: Loss | None = None
    """Subtracted from each scope before `gained` is added: a settlement replaces what was held."""

    def after(self, spent: Loss) -> Loss:
        """The total of one of the scopes after the entry, from the total before."""
        return (spent if self.taken is None else spent.minus(self.taken)).plus(self.gained)


@dataclass(frozen=True)
class EntryType:
    """All that the ledger knows of one type of entry."""

    name: str
    apply: Apply
    first: bool = False
    """Whether a ledger starts with it."""
    losses: Callable[[Grid, Entry], tuple[Entry, Loss, Loss | None]] | None = None
    """(part that names the scopes, loss gained, loss taken); None for a type that changes no total."""
    key: Callable[[Entry], str] | None = None
    """The key under which the store finds it; None for a type that has none."""
    releases: bool = False
    """Whether something about the data went out with it."""


ENTRY_TYPES: Final[dict[str, EntryType]] = {}
"""By name. Filled by `entry_type`."""


def entry_type(
    name: str,
    *,
    first: bool = False,
    losses: Callable[[Grid, Entry], tuple[Entry, Loss, Loss | None]] | None = None,
    key: Callable[[Entry], str] | None = None,
    releases: bool = False,
) -> Callable[[Apply], Apply]:
    """Register the decorated function as what applies entries of type `name`."""

    def register(apply: Apply) -> Apply:
        if name in ENTRY_TYPES:
            raise ValueError(f"entry type {name!r} is registered twice")
        ENTRY_TYPES[name] = EntryType(name, apply, first, losses, key, releases)
        return apply

    return register


def loss_change(grid: Grid, composition: str, entry: Entry) -> LossChange | None:
    """How an entry changes totals for life; None when it changes none.

    Raises KeyError or ValueError for an entry that does not state what its type must.
    """
    known = ENTRY_TYPES.get(entry["type"])
    if known is None or known.losses is None:
        return None
    about, gained, taken = known.losses(grid, entry)
    return LossChange(affected_by(about).scopes(composition), gained, taken)


def stated_key(entry: Entry) -> str | None:
    """The key under which the store must find an entry, from what the entry states; None when it has none."""
    known = ENTRY_TYPES.get(str(entry.get("type")))
    try:
        return None if known is None or known.key is None else known.key(entry)
    except (KeyError, TypeError):
        return None


def is_release(entry: Entry) -> bool:
    """Whether something about the data went out with an entry."""
    known = ENTRY_TYPES.get(entry["type"])
    return known is not None and known.releases
