"""What is asked of a ledger: a charge made ready to be decided, and every command."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from odometer_accountant.budgets.base import Budget
from odometer_accountant.errors import InvalidRequest
from odometer_accountant.ledger.prepared import PreparedCharge
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.requests.bodies import (
    CreateDataset,
)
from odometer_accountant.scopes import AffectedScopes
from odometer_accountant.stores import Head


@dataclass(frozen=True)
class Caller:
    """Who asks: a principal, and for whom else it may ask."""

    principal: str
    team: str | None = None
    """The team whose odometer and budgets its charges count on."""
    acts_for: frozenset[str] = frozenset()
    """Principals on whose behalf it may charge; `*` for any."""
    admin: bool = False
    against: Callable[[str, bool], str | None] | None = field(default=None, compare=False, repr=False)
    """What stands against charging on behalf of somebody, who may be named in `acts_for` or not."""


@dataclass(frozen=True)
class ChargeCommand:
    """Charge a dataset, once per (caller, key); ahead of the work when what is prepared is a hold."""

    prepared: PreparedCharge
    principal: str
    """Whose charge it is."""
    key: str
    by: str | None = None
    """Who asked on the principal's behalf."""
    team: str | None = None
    barred: str | None = None
    """Why nobody can be charged under that name, as of now: what was charged before is answered again."""

    @property
    def affected(self) -> AffectedScopes:
        return self.prepared.affected(self.principal, self.team)

    @property
    def ledger_key(self) -> str:
        return f"{self.by or self.principal}/{self.key}"


@dataclass(frozen=True)
class SettleCommand:
    """Settle a hold for what was used of it."""

    hold: int
    """The number of the entry that made it."""
    used: tuple[int, ...]
    losses: tuple[Loss, ...]
    """Of what was used, one per charge."""
    principal: str
    admin: bool = False
    mark: str = ""
    """What the hash of that entry starts with."""
    sanitised: Mapping[str, Any] | None = None
    """The figure that it is settled at, as the ledger holds it; the losses are lowered to it."""
    refused: InvalidRequest | None = None
    """Why it is not taken unless it was before."""

    @property
    def ledger_key(self) -> str:
        return settlement_key(self.hold)


def settlement_key(hold: int) -> str:
    """The key of a hold's settlement: there can be one. No principal has such a name."""
    return f"~settled/{hold}"


@dataclass(frozen=True)
class EndCommand:
    """End a session at no cost: by its last above answer, or because nothing more will be asked."""

    session: int
    """The number of the entry that opened it."""
    mark: str
    """What the hash of that entry starts with."""
    principal: str
    admin: bool = False
    run: int | None = None
    """Of a last above answer: the run that it ends."""
    key: str | None = None
    """Of a last above answer: its key."""
    opened: str = ""
    """Of a last above answer: when the session was opened; left out, before all else."""

    @property
    def ledger_key(self) -> str:
        return end_key(self.session)


def end_key(session: int) -> str:
    """The key of a session's end at no cost: there can be one. No principal has such a name."""
    return f"~ended/{session}"


@dataclass(frozen=True)
class DeriveCommand:
    """Record what was made of a release, once per (caller, key)."""

    parent: int
    """The number of the entry that it was made of."""
    description: str
    principal: str
    """Whose record it is."""
    key: str
    by: str | None = None
    """Who asked on the principal's behalf."""
    refused: InvalidRequest | None = None
    """Why it is not taken unless it was before."""
    barred: str | None = None
    """Why nothing new can be recorded under that name."""

    @property
    def document(self) -> dict[str, Any]:
        """The command as the ledger holds it."""
        return {"parent": self.parent, "description": self.description}

    @property
    def ledger_key(self) -> str:
        return f"{self.by or self.principal}/{self.key}"


@dataclass(frozen=True)
class OpenCommand:
    """Open a dataset."""

    request: CreateDataset
    principal: str


@dataclass(frozen=True)
class SetBudgetCommand:
    """Add a budget (no `if_match`) or change one (its etag)."""

    budget: Budget
    principal: str
    if_match: str | None = None


@dataclass(frozen=True)
class AddPartitionsCommand:
    """Give a dataset further partitions."""

    partitions: tuple[str, ...]
    principal: str


@dataclass(frozen=True)
class CloseCommand:
    """Take no more charges."""

    principal: str


@dataclass(frozen=True)
class FreezeCommand:
    """Admit nothing more: a history that was seen is gone."""

    seen: Head
    principal: str = "service"


@dataclass(frozen=True)
class UnfreezeCommand:
    """Go on after a person has looked."""

    reason: str
    principal: str


@dataclass(frozen=True)
class LookCommand:
    """Nothing is asked but whether the history that was seen is still there."""

    principal: str = "service"


Keyed = ChargeCommand | SettleCommand | EndCommand | DeriveCommand
"""What is done once for each key."""
Command = (
    ChargeCommand
    | SettleCommand
    | EndCommand
    | DeriveCommand
    | OpenCommand
    | SetBudgetCommand
    | AddPartitionsCommand
    | CloseCommand
    | FreezeCommand
    | UnfreezeCommand
    | LookCommand
)
