"""The commands that a stream of the ledger takes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from odometer_accountant.budgets.base import Budget
from odometer_accountant.errors import InvalidRequest
from odometer_accountant.ledger.entry_parts import end_key, settlement_key
from odometer_accountant.ledger.prepared import PreparedCharge
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.requests.bodies import CreateDataset
from odometer_accountant.scopes import AffectedScopes
from odometer_accountant.stores import Head


@dataclass(frozen=True)
class Caller:
    """The sender of a request: a principal, and the principals on whose behalf it may charge."""

    principal: str
    team: str | None = None
    """The team whose odometer and budgets its charges count on."""
    acts_for: frozenset[str] = frozenset()
    """Principals on whose behalf it may charge; `*` for any."""
    admin: bool = False
    against: Callable[[str, bool], str | None] | None = field(default=None, compare=False, repr=False)
    """(name, whether `acts_for` names it) -> why nobody can be charged under that name; None if one can."""


class Command:
    """A command. `decisions.decides` registers the function that decides on a type of command."""

    principal: str
    """Who sends it."""

    @property
    def entry_number(self) -> int | None:
        """The number of the earlier entry that the command names; None when it names none."""
        return None


class KeyedCommand(Command):
    """A command that is carried out once for each key."""

    @property
    def ledger_key(self) -> str:
        """The key under which the store finds the command's entry."""
        raise NotImplementedError


@dataclass(frozen=True)
class ChargeCommand(KeyedCommand):
    """Charge a dataset, once per (caller, key); before the work, where the prepared charge is a hold."""

    prepared: PreparedCharge
    principal: str
    """The principal that is charged."""
    key: str
    by: str | None = None
    """The caller, where it charges on the principal's behalf."""
    team: str | None = None
    barred: str | None = None
    """Why nobody can be charged under that name now; an earlier charge is still answered again."""

    @property
    def affected(self) -> AffectedScopes:
        return self.prepared.affected(self.principal, self.team)

    @property
    def ledger_key(self) -> str:
        return f"{self.by or self.principal}/{self.key}"


@dataclass(frozen=True)
class SettleCommand(KeyedCommand):
    """Settle a hold: charge the part that was used."""

    hold: int
    """The number of the entry that made it."""
    used: tuple[int, ...]
    """Releases that went out, one number per charge."""
    losses: tuple[Loss, ...]
    """Of the used part, one per charge."""
    principal: str
    admin: bool = False
    mark: str = ""
    """The start of the hash of that entry."""
    sanitised: Mapping[str, Any] | None = None
    """The sanitised figure that it is settled at, as the ledger holds it; the losses are lowered to it."""
    refused: InvalidRequest | None = None
    """Why a new settlement is refused; an earlier one is still answered again."""

    @property
    def ledger_key(self) -> str:
        return settlement_key(self.hold)

    @property
    def entry_number(self) -> int:
        return self.hold


@dataclass(frozen=True)
class EndCommand(KeyedCommand):
    """End a session without a charge: by its last above answer, or because no query follows."""

    session: int
    """The number of the entry that opened it."""
    mark: str
    """The start of the hash of that entry."""
    principal: str
    admin: bool = False
    run: int | None = None
    """Only for a last above answer: the run that it ends."""
    key: str | None = None
    """Only for a last above answer: its key."""
    opened: str = ""
    """Only for a last above answer: when the session was opened. "" is earlier than any time."""

    @property
    def ledger_key(self) -> str:
        return end_key(self.session)

    @property
    def entry_number(self) -> int:
        return self.session


@dataclass(frozen=True)
class DeriveCommand(KeyedCommand):
    """Record an artefact that was derived from a release, once per (caller, key)."""

    parent: int
    """The number of the entry that it was derived from."""
    description: str
    principal: str
    """The principal that the record names."""
    key: str
    by: str | None = None
    """The caller, where it records on the principal's behalf."""
    refused: InvalidRequest | None = None
    """Why a new record is refused; an earlier one is still answered again."""
    barred: str | None = None
    """Why nothing new can be recorded under that name."""

    @property
    def document(self) -> dict[str, Any]:
        """The command as the ledger holds it."""
        return {"parent": self.parent, "description": self.description}

    @property
    def ledger_key(self) -> str:
        return f"{self.by or self.principal}/{self.key}"

    @property
    def entry_number(self) -> int:
        return self.parent


@dataclass(frozen=True)
class OpenCommand(Command):
    """Open a dataset."""

    request: CreateDataset
    principal: str


@dataclass(frozen=True)
class SetBudgetCommand(Command):
    """Add a budget (no `if_match`), or change one (`if_match` is its etag)."""

    budget: Budget
    principal: str
    if_match: str | None = None


@dataclass(frozen=True)
class AddPartitionsCommand(Command):
    """Add partitions to a dataset."""

    partitions: tuple[str, ...]
    principal: str


@dataclass(frozen=True)
class CloseCommand(Command):
    """Close a dataset: it takes no more charges."""

    principal: str


@dataclass(frozen=True)
class FreezeCommand(Command):
    """Freeze a dataset: entries that were seen are gone, so nothing more is admitted."""

    seen: Head
    principal: str = "service"


@dataclass(frozen=True)
class UnfreezeCommand(Command):
    """Accept the loss of entries and go on, after a person has looked."""

    reason: str
    principal: str


@dataclass(frozen=True)
class LookCommand(Command):
    """Change nothing: only check that the entries that were seen are still there."""

    principal: str = "service"
