"""What the routes answer: the schema that OpenAPI shows, and that the tests hold every answer to."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Reply(BaseModel):
    """A success body. Numbers shown as spent are rounded up, as left rounded down; null means no bound."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class BudgetState(BaseModel):
    """A budget as it was set, and how much of it is spent, in its own parameter."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    name: str
    kind: str
    version: int
    """Grows with each change."""
    etag: str
    """Send it as If-Match to change the budget."""
    covers: str
    """Which entries the promise is about."""
    scope: str
    """What it limits: the dataset, or one or each of a kind of scope."""
    window: str | None
    renews: str | None
    """When the window is over, and it starts anew."""
    limit: float
    spent: float | None
    """Null also for a budget that many scopes have: each of them has its own."""
    left: float | None
    used: float | None
    """0 to 1."""
    held: float | None = None
    """With an odometer: how much of `spent` would come back if no open hold were used."""
    warning: str | None = None


class DatasetReply(Reply):
    """What is protected, and its budgets."""

    name: str
    unit: str
    adjacency: Literal["add_remove", "replace_one", "zero_out"]
    delta: float
    delta_add: float
    grid_version: int
    created: str
    sequence: int
    """Number of the last entry."""
    closed: bool
    odometer_only: bool
    composition: Literal["sequential", "by_partition", "by_unit"]
    partitions: list[str]
    shards: int
    """Over how many streams the odometers of units are spread; 0 without any."""
    frozen: bool
    """Its ledger went back in time: nothing is admitted until a person has decided."""
    frozen_shards: list[int]
    """Shards whose ledger went back in time: only their units are refused.

    Those that this process has come upon since it started, not all that are frozen.
    """
    open_holds: int | None
    """Null by unit: they are counted where they are listed."""
    budgets: list[BudgetState]
    notes: list[str] | None = None
    """What whoever opened it should know of it, when it is opened; left out when there is nothing."""


class DatasetProblem(Reply):
    """Why a dataset cannot be read, as asking for it alone would say."""

    type: str
    title: str
    detail: str


class UnreadableDataset(Reply):
    """A dataset that is there, but whose ledger went back in time or contradicts itself."""

    name: str
    problem: DatasetProblem


class DatasetsReply(Reply):
    """A page of datasets, by name."""

    items: list[DatasetReply | UnreadableDataset]
    next: str | None


class BudgetsReply(Reply):
    """All budgets of a dataset."""

    items: list[BudgetState]
    next: None


class LossReply(Reply):
    """A loss in each notion that it has a number in."""

    pure: float | None
    rho: float | None
    mu: float | None
    delta: float | None


class LeftReply(Reply):
    """What is left of a budget: at one Rényi order where `order` is given, else in its own parameter."""

    budget: str
    scope: str
    """Whose: of a budget that many scopes have, the one touched that has used most of it."""
    window: str | None = None
    renews: str | None = None
    """When the window is over, and it starts anew."""
    kind: str
    order: float | None = None
    limit: float
    spent: float | None
    left: float
    used: float


class ChargeReply(Reply):
    """One charge of a receipt."""

    mechanism: dict[str, Any]
    count: int


class Receipt(Reply):
    """The charge is durable: what it is for may now be released."""

    dataset: str
    sequence: int
    hash: str
    time: str
    principal: str
    by: str | None = None
    """Who asked on the principal's behalf."""
    shard: int | None = None
    """Which shard keeps the units."""
    replayed: bool
    """This key was charged before, for the same: nothing was charged again."""
    charges: list[ChargeReply]
    loss: LossReply
    notes: list[str] | None = None
    """What the caller should know of how this is charged; left out when there is nothing."""
    left: list[LeftReply]


class Hold(Reply):
    """How a hold is called, and until when it can be settled."""

    id: str
    expires: str


class HoldReceipt(Receipt):
    """The hold is durable: up to so much may now be released."""

    hold: Hold


class OpenHold(Reply):
    """A hold that can still be settled."""

    id: str
    principal: str
    by: str | None
    team: str | None
    group: dict[str, Any] | None
    time: str
    expires: str
    charges: list[ChargeReply]
    loss: LossReply


class HoldsReply(Reply):
    """The open holds, oldest first."""

    items: list[OpenHold]
    next: None


class SettlementReply(Reply):
    """A hold is charged for what was used of it, once and for all."""

    dataset: str
    hold: str
    sequence: int
    hash: str
    used: list[int]
    held: list[int]
    replayed: bool
    """It was settled before, for the same."""
    left: list[LeftReply]


class SessionReply(Reply):
    """An interactive mechanism, open or closed."""

    id: str
    dataset: str
    session: dict[str, Any]
    """Its kind and parameters."""
    principal: str
    by: str | None
    """Who opened it on the principal's behalf."""
    team: str | None
    group: dict[str, Any] | None
    partitions: list[str] | Literal["all"] | None
    time: str
    """When it was opened."""
    open: bool
    """Whether it takes answers."""
    above: int
    """Above answers so far, of a closed one in all; of Confident-GNMax, answered queries."""
    run: int | None
    """Which paid step it is in, from 1; null when it is closed: it is in none."""
    above_left: int
    """How many more above answers it takes; 0 when it is closed."""


class AnswerReply(Reply):
    """A session after an answer, or its opening: what the next step costs is durable."""

    session: SessionReply
    receipt: Receipt | None
    """Of what was charged; null when it was free."""
    replayed: bool
    """This key was used before, for the same: nothing was charged again."""


class SessionsReply(Reply):
    """The open sessions, oldest first."""

    items: list[SessionReply]
    next: None


class ScopeReply(Reply):
    """What one scope has lost."""

    scope: str
    if_stopped_now: float | None
    delta: float
    totals: LossReply
    tightest: LeftReply | None
    """The budget that it has used most of; null when none limits it."""
    budgets: int
    """How many budgets limit it."""


class ScopesReply(Reply):
    """A page of scopes, by name."""

    items: list[ScopeReply]
    next: str | None


class Refusal(Reply):
    """Why one budget refuses, in its own parameter."""

    budget: str
    scope: str
    window: str | None
    renews: str | None
    kind: str
    limit: float
    spent: float | None
    asked: float | None
    after: float | None
    short_by: float | None
    order: float | None
    reason: str


class WouldFit(Reply):
    """What would fit instead."""

    largest_count: int | None
    least_noise: dict[str, Any] | None
    leading_items: int | None


class CheckReply(Reply):
    """A dry run: nothing was charged."""

    fits: bool
    left: list[LeftReply]
    refusals: list[Refusal]
    would_fit: WouldFit
    notes: list[str] | None = None
    """What the caller should know of how this is charged; left out when there is nothing."""


class ReadingReply(Reply):
    """One number, and when it holds."""

    name: str
    quantity: str
    value: float | None
    delta: float | None
    order: float | None
    holds: str
    what_if: bool
    warnings: list[str]
    budget: str | None


class OdometerReply(Reply):
    """Every reading of a dataset, or of one scope of it."""

    dataset: str
    scope: str
    known: bool
    """Whether the scope was ever charged, or is a partition, or is named by a budget. Else what reads zero
    may be a name with a fault in it."""
    notes: list[str] | None = None
    """Of a scope that is not known: which one may be meant; left out when there is nothing to say."""
    sequence: int
    time: str
    delta: float
    readings: list[ReadingReply]
    totals: LossReply
    held: LossReply
    """What open holds come to: it is part of the totals, and may be settled for less."""
    budgets: list[BudgetState]
    left: list[LeftReply]
    """Of a scope: what is left of each budget that it has."""


class Point(Reply):
    """A moment in a dataset's history."""

    sequence: int
    time: str
    if_stopped_now: float | None
    used: dict[str, float]


class HistoryReply(Reply):
    """Down-sampled, oldest first, ending now."""

    points: list[Point]


class PrincipalSpend(Reply):
    """What one principal spent, as a plan of its own."""

    principal: str
    name: str | None
    epsilon: float | None
    rho: float | None
    delta: float | None


class MechanismSpend(Reply):
    """What one kind of mechanism spent, as a plan of its own."""

    kind: str
    epsilon: float | None
    rho: float | None
    delta: float | None


class SpendReply(Reply):
    """Who and what spent: at most 1000 of each, by name."""

    by_principal: list[PrincipalSpend]
    by_mechanism: list[MechanismSpend]
    more: bool
    """Whether there are others, which `GET /v1/datasets/{dataset}/scopes` has in pages."""
    delta: float
    holds: str


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
    """What an entry comes of, and what was made of it."""

    dataset: str
    entry: KinReply
    ancestors: list[KinReply]
    """The nearest first; the last is the charge at the start."""
    descendants: list[KinReply]
    """Oldest first, at most 1000."""
    next: int | None
    """Where to go on looking for descendants (`after`); null when all entries were looked through."""


class MechanismReply(Reply):
    """A kind of mechanism: what it is for, where it is valid, what it costs and who proved it."""

    kind: str
    title: str
    summary: str
    formula: str
    source: str
    adjacency: list[str]
    elsewhere: str
    avoid: str
    schema_: dict[str, Any] = Field(alias="schema")
    """JSON schema of its parameters, with units and ranges."""
    examples: list[dict[str, Any]]


class MechanismsReply(Reply):
    """Every kind of mechanism."""

    items: list[MechanismReply]
    next: None


class ConvertReply(Reply):
    """The readings of charges as a plan."""

    readings: list[ReadingReply]
    totals: LossReply
    notes: list[str] | None = None
    """What the caller should know of how this is charged; left out when there is nothing."""


class ChargesReply(Reply):
    """What to charge, hold or check; nothing for an event without a loss."""

    charges: list[ChargeReply]
    notes: list[str] | None = None
    """What of it loses nothing, such as an event that runs 0 times; left out when there is nothing to say."""


class KeyReply(Reply):
    """An API key, without its token."""

    id: str
    role: str
    """What its principal may do."""
    principal: str
    name: str | None
    """What its principal is called; null without a name, and when it was erased."""
    revoked: bool
    team: str | None
    acts_for: list[str]
    created: str
    expires: str | None
    """From when on it is not taken; null: it is taken until it is revoked."""
    expired: bool
    """Whether its time is over."""
    rotated: str | None
    """When it last took the place of another key, or another took its own."""
    replaces: str | None
    """The key whose place it took."""
    replaced_by: str | None
    """The key that took its place."""


class KeysReply(Reply):
    """API keys, the oldest first."""

    items: list[KeyReply]
    next: None


class NewKeyReply(Reply):
    """A new key. The token is shown this once."""

    id: str
    token: str
    role: str
    principal: str
    name: str | None
    team: str | None
    acts_for: list[str]
    created: str
    expires: str | None
    """From when on it is not taken; null: it is taken until it is revoked."""
    replaces: str | None
    """The key whose place it takes."""


class PrincipalReply(Reply):
    """Who is charged, whatever keys it has."""

    id: str
    name: str | None
    """What it is called; null without a name, and when it was erased."""
    name_erased: bool
    """It had a name, which nobody else will have."""
    role: str
    team: str | None
    acts_for: list[str]
    created: str
    keys: int
    """How many keys are taken for it now."""
    etag: str
    """Send it as If-Match to change the principal."""


class PrincipalsReply(Reply):
    """All principals, the oldest first."""

    items: list[PrincipalReply]
    next: None


class MeReply(Reply):
    """Whose key this is."""

    key: str
    role: str
    principal: str
    team: str | None
    acts_for: list[str]
    expires: str | None
    """From when on the key is not taken."""


class StatusReply(Reply):
    """How the service is."""

    status: str
