"""What can be asked of a ledger: documents from outside, and the commands they become."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from accountant.budgets import COUNT_MAX, ITEMS_MAX, AnyBudget, Budget, Charge, Delta, Slug, Workload
from accountant.documents import invalid
from accountant.entries import canonical
from accountant.grid import CURRENT_GRID, Grid
from accountant.loss import Loss, total
from accountant.mechanisms import Adjacency, AnyMechanism, Document, Number, Whole
from accountant.mechanisms.base import EVERY_ADJACENCY, ONE_LINE, frozen
from accountant.scopes import EACH, EVERYBODY, KINDS, NAME, Composition, Touched, split
from accountant.stores import Head

Text = Annotated[str, Field(strict=True, min_length=1, max_length=64, pattern=ONE_LINE)]
"""One line of 1 to 64 characters without control characters."""
Reason = Annotated[str, Field(strict=True, min_length=1, max_length=500, pattern=ONE_LINE)]
"""One line of 1 to 500 characters without control characters."""
Name = Annotated[str, Field(strict=True, pattern=f"^{NAME}$")]
"""An opaque name of 1 to 64 letters, digits, and . _ : -"""
PARTITIONS_MAX: Final = 1024
UNITS_MAX: Final = 1000
SHARDS_MAX: Final = 4096
EXPIRY_MAX_S: Final = 366 * 86_400
Partitions = Annotated[tuple[Slug, ...], Field(min_length=1, max_length=PARTITIONS_MAX)]


class CreateDataset(Document):
    """Opens a dataset. Its unit, adjacency, δ and weights are fixed for good."""

    name: Slug
    """A slug; never changed, never used again."""
    unit: Text
    """What is protected: person, record, device, …"""
    adjacency: Adjacency
    """When two datasets are neighbours. Never defaulted: noise multipliers are relative to it."""
    delta: Delta
    """δ of the running readings, 0 < δ < 1, well below one over the number of units."""
    delta_add: Annotated[Number, Field(ge=0, lt=1)] | None = None
    """The part of δ kept for approximate charges; a tenth unless said."""
    workload: Workload | None = None
    """What the dataset is mostly for: focuses the running readings on it."""
    budgets: Annotated[tuple[AnyBudget, ...], Field(max_length=32)] = ()
    """Budgets from the first entry on; all must hold."""
    odometer_only: Annotated[bool, Field(strict=True)] = False
    """Count for life without limit. Needed without a budget for life of everybody (of the dataset, of each
    partition or unit): a dataset is never unlimited by oversight."""
    composition: Composition = "sequential"
    """How charges compose: sequential; by_partition (disjoint data, each unit in one partition for good; not
    under replace_one); by_unit (local model: an odometer for each unit, none for the dataset)."""
    partitions: Partitions | None = None
    """The first partitions, of a dataset that composes by partition; more can be added later."""
    shards: Annotated[Whole, Field(ge=1, le=SHARDS_MAX)] = 256
    """Over how many streams the odometers of a dataset that composes by unit are spread, for good."""

    @model_validator(mode="after")
    def _limited_or_said_so(self) -> Self:
        wanted = EVERYBODY[self.composition]
        limited = any(budget.window is None and budget.scope in wanted for budget in self.budgets)
        if not limited and not self.odometer_only:
            raise ValueError(
                f"give at least one budget for life on {' or '.join(wanted)}, "
                'or "odometer_only": true to count without a limit'
            )
        if limited and self.odometer_only:
            raise ValueError("odometer_only means no budget for life: leave one of the two out")
        names = [budget.name for budget in self.budgets]
        if len(set(names)) != len(names):
            raise ValueError(f"two budgets have the same name: {', '.join(sorted(names))}")
        if self.delta_add is not None and not self.delta_add < self.delta:
            raise ValueError("delta_add must be below delta")
        return self

    @model_validator(mode="after")
    def _composes(self) -> Self:
        if self.composition != "by_partition" and self.partitions is not None:
            raise ValueError("partitions: only a dataset that composes by_partition has them")
        if self.composition == "by_partition" and self.adjacency is Adjacency.replace_one:
            raise ValueError(
                "composition: by_partition holds under add_remove and zero_out; under replace_one a unit may "
                "be replaced by one of another partition, so that two partitions change"
            )
        if "shards" in self.model_fields_set and self.composition != "by_unit":
            raise ValueError("shards: only a dataset that composes by_unit has them")
        for budget in self.budgets:
            check_scope(budget, self.composition, self.partitions or ())
        return self


def check_scope(budget: Budget, composition: str, partitions: Sequence[str]) -> None:
    """Raise ValueError unless a dataset of this composition can have a budget on that scope."""
    kind, name = split(budget.scope)
    if kind not in KINDS[composition]:
        raise ValueError(
            f"scope: a dataset that composes {composition} has budgets on {', '.join(KINDS[composition])}, "
            f"not on {budget.scope}"
        )
    if kind == "partition" and name != EACH and name not in partitions:
        raise ValueError(f"scope: there is no partition {name}: add it first")
    if budget.reserved is not None and composition != "sequential":
        raise ValueError("reserved: shares are kept in a dataset that composes sequentially")


class Group(Document):
    """Runs that belong together, as those of a hyper-parameter sweep: charged at once, all or none."""

    name: Slug
    """What the runs are called together; it has an odometer of its own."""
    runs: Annotated[Whole, Field(ge=1, le=1_000_000)]
    """How many runs: the count of every charge is multiplied by it."""


class Asked(Document):
    """What one charge and a list of them have in common."""

    adjacency: Adjacency | None = None
    """The adjacency that the parameters were computed for; when given, it must be the dataset's."""
    partitions: Literal["all"] | Partitions | None = None
    """Of a dataset that composes by partition: the partitions that are read, or `all`, later ones too."""
    units: Annotated[tuple[Name, ...], Field(min_length=1, max_length=UNITS_MAX)] | None = None
    """Of a dataset that composes by unit: whose data it is, 1 to 1000 units that one shard keeps."""
    group: Group | None = None
    """Runs that belong together: every count is that of one run."""
    principal: Name | None = None
    """On whose behalf; left out, the key's own. Needs a key that may act for that principal."""

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        for name in ("partitions", "units"):
            names = getattr(self, name)
            if isinstance(names, tuple) and len(set(names)) < len(names):
                raise ValueError(f"{name}: one stands twice; each is charged once")
        if self.group is not None and any(
            charge.count * self.group.runs > COUNT_MAX for charge in self.items
        ):
            raise ValueError(f"group: count times runs is at most {COUNT_MAX}")
        return self

    @property
    def items(self) -> tuple[Charge, ...]:
        """The charges of one run."""
        raise NotImplementedError


class OneCharge(Asked):
    """A charge of one mechanism."""

    mechanism: AnyMechanism
    """What is about to run."""
    count: Annotated[Whole, Field(ge=1, le=COUNT_MAX)]
    """How many times, 1 to 1,000,000,000. Never defaulted."""

    @property
    def items(self) -> tuple[Charge, ...]:
        return (Charge(mechanism=self.mechanism, count=self.count),)


class ManyCharges(Asked):
    """All or nothing: every charge of the list, or none."""

    charges: Annotated[tuple[Charge, ...], Field(min_length=1, max_length=ITEMS_MAX)]
    """1 to 256 charges."""

    @property
    def items(self) -> tuple[Charge, ...]:
        return self.charges


Expiry = Annotated[Whole, Field(ge=1, le=EXPIRY_MAX_S)]


class OneHold(OneCharge):
    """A charge ahead of the work, of one mechanism."""

    expires_in_s: Expiry
    """Seconds until it can no longer be settled and is spent for good; at most a year. Never defaulted."""


class ManyHolds(ManyCharges):
    """A charge ahead of the work, of a list."""

    expires_in_s: Expiry
    """Seconds until it can no longer be settled and is spent for good; at most a year. Never defaulted."""


Used = Annotated[Whole, Field(ge=0, le=COUNT_MAX)]


class Settlement(Document):
    """What of a hold was used."""

    used: Used | Annotated[tuple[Used, ...], Field(min_length=1, max_length=ITEMS_MAX)]
    """How many releases went out, 0 to what was held; of a list, one number for each of its charges."""


class NewPartitions(Document):
    """Parts of a dataset that get odometers of their own."""

    partitions: Partitions
    """Their names. What was charged on all partitions counts for them too."""


class Unfreeze(Document):
    """A person's decision to go on after entries were lost."""

    reason: Reason
    """Why this is right: it becomes an entry."""


_ONE: TypeAdapter[OneCharge] = TypeAdapter(OneCharge)
_MANY: TypeAdapter[ManyCharges] = TypeAdapter(ManyCharges)
_ONE_HOLD: TypeAdapter[OneHold] = TypeAdapter(OneHold)
_MANY_HOLDS: TypeAdapter[ManyHolds] = TypeAdapter(ManyHolds)


def prepare(body: bytes, decoded: Any, *, hold: bool = False) -> "Prepared":
    """A charge request from its JSON bytes, which are also given decoded; with `hold` that of a hold.

    Raises InvalidRequest whose fields are those of the form that was meant (one, or a list).
    """
    many = isinstance(decoded, Mapping) and "charges" in decoded
    form: TypeAdapter[Any] = (_MANY_HOLDS if many else _ONE_HOLD) if hold else (_MANY if many else _ONE)
    try:
        request = form.validate_json(body)
    except ValidationError as error:
        invalid(error)
    group = request.group
    charges = request.items
    if group is not None:
        charges = tuple(item.model_copy(update={"count": item.count * group.runs}) for item in charges)
    return Prepared(
        charges,
        request.adjacency,
        group=group,
        partitions=request.partitions,
        units=request.units,
        on_behalf=request.principal,
        expires_in_s=request.expires_in_s if hold else None,
    )


@dataclass(frozen=True)
class Prepared:
    """A charge request, parsed, with everything about it that does not depend on the dataset's state."""

    charges: tuple[Charge, ...]
    """With the counts of all runs."""
    adjacency: Adjacency | None
    grid: Grid = CURRENT_GRID
    group: Group | None = None
    partitions: Literal["all"] | tuple[str, ...] | None = None
    units: tuple[str, ...] | None = None
    on_behalf: str | None = None
    expires_in_s: int | None = None
    """Of a hold."""
    _touched: dict[tuple[str, str | None], Touched] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def losses(self) -> tuple[Loss, ...]:
        """One per charge."""
        return tuple(charge.loss(self.grid) for charge in self.charges)

    @cached_property
    def loss(self) -> Loss:
        """All of it."""
        return self.losses[0] if len(self.losses) == 1 else total(self.grid, self.losses)

    @cached_property
    def kinds(self) -> list[str]:
        return [charge.mechanism.kind for charge in self.charges]

    @cached_property
    def documents(self) -> list[dict[str, Any]]:
        """The charges as they came, without what was not given; the counts are those of all runs."""
        return [{"mechanism": charge.mechanism.document(), "count": charge.count} for charge in self.charges]

    @cached_property
    def command(self) -> str:
        """The command as the ledger holds it: canonical JSON."""
        document: dict[str, Any] = {"charges": frozen(self.documents)}
        if self.group is not None:
            document["group"] = self.group.model_dump()
        if self.partitions is not None:
            document["partitions"] = frozen(self.partitions)
        if self.units is not None:
            document["units"] = list(self.units)
        if self.expires_in_s is not None:
            document["expires_in_s"] = self.expires_in_s
        return canonical(document).decode()

    @cached_property
    def losses_json(self) -> str:
        return json.dumps([loss.encode() for loss in self.losses], separators=(",", ":"))

    @cached_property
    def adjacencies(self) -> frozenset[Adjacency]:
        """Under which every mechanism of the charge is valid."""
        return EVERY_ADJACENCY.intersection(*(charge.mechanism.adjacencies for charge in self.charges))

    def touched(self, principal: str, team: str | None) -> Touched:
        """Whose odometers it moves, when `principal` of `team` asks."""
        known = self._touched.get((principal, team))
        if known is None:
            named = self.partitions if isinstance(self.partitions, tuple) else ()
            group = self.group.name if self.group else None
            known = Touched(principal, team, group, named, self.units or ())
            if len(self._touched) >= _TOUCHED_MAX:
                self._touched.clear()
            self._touched[principal, team] = known
        return known

    def warm(self) -> Self:
        """Compute what a decision needs, so that the teller never does."""
        _ = self.loss, self.kinds, self.command, self.losses_json, self.adjacencies
        return self


_TOUCHED_MAX: Final = 64


@dataclass(frozen=True)
class Caller:
    """Who asks: a principal, and for whom else it may ask."""

    principal: str
    team: str | None = None
    """The team whose odometer and budgets its charges count on."""
    acts_for: frozenset[str] = frozenset()
    """Principals on whose behalf it may charge; `*` for any."""
    admin: bool = False


@dataclass(frozen=True)
class ChargeCommand:
    """Charge a dataset, once per (caller, key); ahead of the work when what is prepared is a hold."""

    prepared: Prepared
    principal: str
    """Whose charge it is."""
    key: str
    by: str | None = None
    """Who asked on the principal's behalf."""
    team: str | None = None

    @property
    def touched(self) -> Touched:
        return self.prepared.touched(self.principal, self.team)

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

    @property
    def ledger_key(self) -> str:
        return settlement_key(self.hold)


def settlement_key(hold: int) -> str:
    """The key of a hold's settlement: there can be one. No principal has such a name."""
    return f"~settled/{hold}"


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


Command = (
    ChargeCommand
    | SettleCommand
    | OpenCommand
    | SetBudgetCommand
    | AddPartitionsCommand
    | CloseCommand
    | FreezeCommand
    | UnfreezeCommand
    | LookCommand
)
