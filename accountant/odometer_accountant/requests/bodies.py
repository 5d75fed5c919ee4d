"""Request bodies of the accountant: opening, charging, holding, settling."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from odometer_accountant.budgets import AnyBudget
from odometer_accountant.budgets.approximate import Workload
from odometer_accountant.budgets.base import Budget, Delta, Slug
from odometer_accountant.mechanisms import Adjacency, AnyMechanism, Model, Number, Whole
from odometer_accountant.mechanisms.base import PLAIN
from odometer_accountant.mechanisms.charge import COUNT_MAX, ITEMS_MAX, Charge
from odometer_accountant.mechanisms.sessions import AnySession
from odometer_accountant.mechanisms.stated import RenyiCurve
from odometer_accountant.scopes import EACH, EVERYBODY, KINDS, NAME, Composition, split

Text = Annotated[str, Field(strict=True, min_length=1, max_length=64), PLAIN]
"""One line of 1 to 64 characters that can be seen, and spaces between them."""
Reason = Annotated[str, Field(strict=True, min_length=1, max_length=500), PLAIN]
"""One line of 1 to 500 characters that can be seen, and spaces between them."""
Line = Annotated[str, Field(strict=True, min_length=1, max_length=200), PLAIN]
"""One line of 1 to 200 characters that can be seen, and spaces between them."""
Name = Annotated[str, Field(strict=True, pattern=f"^{NAME}$")]
"""An opaque name of 1 to 64 letters, digits, and . _ : -"""
PARTITIONS_MAX: Final = 1024
UNITS_MAX: Final = 1000
SHARDS_MAX: Final = 4096
EXPIRY_MAX_S: Final = 366 * 86_400
Partitions = Annotated[tuple[Slug, ...], Field(min_length=1, max_length=PARTITIONS_MAX)]


class CreateDataset(Model):
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
        if self.delta_add is not None and not self.delta_add <= self.delta:
            raise ValueError("delta_add must be at most delta, of which it is a part")
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


class Group(Model):
    """Runs that belong together, as those of a hyper-parameter sweep: charged at once, all or none."""

    name: Slug
    """What the runs are called together; it has an odometer of its own."""
    runs: Annotated[Whole, Field(ge=1, le=1_000_000)]
    """How many runs: the count of every charge is multiplied by it."""


class Asked(Model):
    """The fields that one charge and a list of charges share."""

    adjacency: Adjacency | None = None
    """The adjacency that the parameters were computed for; when given, it must be the dataset's."""
    partitions: Literal["all"] | Partitions | None = None
    """For a dataset that composes by partition: the partitions that are read, or `all`, later ones too."""
    units: Annotated[tuple[Name, ...], Field(min_length=1, max_length=UNITS_MAX)] | None = None
    """For a dataset that composes by unit: whose data it is, 1 to 1000 units that one shard keeps."""
    group: Group | None = None
    """Runs that belong together: every count is that of one run."""
    principal: Name | None = None
    """On whose behalf; left out, the key's own. Needs a key that may act for that principal."""

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        for name in ("partitions", "units"):
            names = getattr(self, name)
            if isinstance(names, tuple) and len(set(names)) < len(names):
                raise ValueError(f"{name}: duplicate name: give each once")
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
        # Both are valid already, by the rules of the time at which they were taken.
        return (Charge.model_construct(mechanism=self.mechanism, count=self.count),)


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


class Sanitised(Model):
    """Upper bounds on what PATE charges cost on the votes that were cast, sanitised: they may be told."""

    curves: Annotated[tuple[RenyiCurve | None, ...], Field(min_length=1, max_length=ITEMS_MAX)]
    """One for each charge of the hold: the curve of all its used releases together, or null."""
    failure_probability: Annotated[Number, Field(gt=0, lt=1)]
    """That a bound is too low. The hold has an approximate charge of ε 0 and so much δ, used in full."""


class Settlement(Model):
    """The part of a hold that was used."""

    used: Used | Annotated[tuple[Used, ...], Field(min_length=1, max_length=ITEMS_MAX)]
    """How many releases went out, 0 to what was held; of a list, one number for each of its charges."""
    sanitised: Sanitised | None = None
    """For a hold of PATE queries: a data-dependent figure that may be told. A raw one is never sent."""


class OpenSession(Asked):
    """Opens an interactive mechanism: its first step is charged now, the others as its answers come."""

    session: AnySession
    """What is about to run."""

    @property
    def items(self) -> tuple[Charge, ...]:
        return self.session.opening()

    @model_validator(mode="after")
    def _alone(self) -> Self:
        if self.group is not None and self.group.runs != 1:
            raise ValueError("group: a session is one run, so that `runs` is 1; open one for each run")
        return self


class SessionAnswer(Model):
    """A public answer of a session, to be charged before it goes out."""

    above: Annotated[bool, Field(strict=True)]
    """Whether it was above the threshold; of Confident-GNMax, whether the query passed its check."""
    run: Annotated[Whole, Field(ge=1, lt=2**53)] | None = None
    """The run that it was given in, as the reply before said it: refused when the session is in another.
    Left out, the present one."""


class Derived(Model):
    """A derived artefact of a release: it costs nothing, and the ledger records its sources."""

    parent: Annotated[Whole, Field(ge=1, lt=2**53)]
    """Number of the entry that it was made of: a charge, a hold, or another derived one. Of a dataset that
    composes by unit: an entry of the dataset's own ledger, not of a shard."""
    description: Line
    """What it is, one line of 1 to 200 characters."""
    principal: Name | None = None
    """On whose behalf; left out, the key's own. Needs a key that may act for that principal."""


class NewPartitions(Model):
    """Parts of a dataset that get odometers of their own."""

    partitions: Partitions
    """Their names. What was charged on all partitions counts for them too."""


class Unfreeze(Model):
    """A person's decision to go on after entries were lost."""

    reason: Reason
    """Why this is right: it becomes an entry."""
