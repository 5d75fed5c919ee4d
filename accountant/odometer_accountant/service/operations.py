"""The routes, each said once: path, role, what it takes, answers and refuses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter

from odometer_accountant import errors
from odometer_accountant.budgets import AnyBudget
from odometer_accountant.budgets.base import LEAST_DELTA
from odometer_accountant.errors import OdometerError
from odometer_accountant.mechanisms import Model
from odometer_accountant.queries.convert import ConvertRequest
from odometer_accountant.requests.bodies import (
    CreateDataset,
    Derived,
    ManyCharges,
    ManyHolds,
    NewPartitions,
    OneCharge,
    OneHold,
    OpenSession,
    SessionAnswer,
    Settlement,
    Unfreeze,
)
from odometer_accountant.requests.dp_events import DpEvents
from odometer_accountant.requests.json_input import as_written, validated
from odometer_accountant.service import principals, responses
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.service.api_keys import Identity, KeyRing, Role
from odometer_accountant.service.request_checks import PAGE_MAX


class Nothing(Model):
    """An empty object."""


class DatasetPage(Model):
    """Which page of datasets."""

    after: Annotated[str, Field(max_length=64)] = ""
    """Names after this one."""
    limit: Annotated[int, Field(ge=1, le=100)] = 100
    """How many, 1 to 100."""


class LedgerPage(Model):
    """Which page of entries."""

    after: Annotated[int, Field(ge=0, lt=2**62)] = 0
    """Entries after this number."""
    limit: Annotated[int, Field(ge=1, le=PAGE_MAX)] = 100
    """How many, 1 to 1000."""
    order: Literal["asc", "desc"] = "asc"
    """Oldest or newest first."""
    before: Annotated[int, Field(ge=1, lt=2**62)] | None = None
    """With order=desc: entries before this number."""


class OdometerQuery(Model):
    """At which δ."""

    delta: (
        Annotated[float, Field(ge=LEAST_DELTA, lt=1, allow_inf_nan=False), BeforeValidator(as_written)] | None
    ) = None
    """Another δ than the dataset's, as what-if."""
    scope: Annotated[str, Field(max_length=80)] | None = None
    """Whose odometer: dataset (unless said), or partition/…, unit/…, principal/…, team/…, group/…"""


class ScopesPage(Model):
    """Which scopes."""

    kind: Literal["principal", "team", "group", "partition", "mechanism"]
    """Of which kind."""
    after: Annotated[str, Field(max_length=64)] = ""
    """Names after this one."""
    limit: Annotated[int, Field(ge=1, le=PAGE_MAX)] = 100
    """How many, 1 to 1000."""


class LineageQuery(Model):
    """Of which entry."""

    entry: Annotated[int, Field(ge=1, lt=2**53)]
    """Its number in the dataset's ledger."""
    after: Annotated[int, Field(ge=0, lt=2**53)] = 0
    """Descendants after this number: the `next` of the answer before."""


class HistoryQuery(Model):
    """How fine."""

    points: Annotated[int, Field(ge=2, le=1000)] = 200
    """At most so many moments, 2 to 1000."""


@dataclass(frozen=True)
class Call:
    """A request, after its body was read and its key recognised."""

    accountant: Accountant
    ring: KeyRing
    who: Identity
    path: Mapping[str, str]
    query: Any
    body: bytes
    if_match: str | None
    key: str | None = None
    """The Idempotency-Key header."""

    @property
    def dataset(self) -> str:
        return self.path["dataset"]


@dataclass(frozen=True)
class Again:
    """What was answered before, to be answered again: status 200."""

    document: Mapping[str, Any]


Handler = Callable[[Call], Any]
_ON_A_DATASET = (errors.UnknownDataset, errors.LedgerCorrupt, errors.LedgerRolledBack)
_WITH_A_BODY = (errors.MalformedBody, errors.BodyTooLarge, errors.InvalidRequest)
_ALWAYS = (errors.StoreUnavailable, errors.InternalError, errors.TooManyRequests)


@dataclass(frozen=True)
class Header:
    """A header that an operation reads."""

    text: str
    pattern: str
    required: bool = True


@dataclass(frozen=True)
class Operation:
    """One route. `run` takes a Call and returns a document (None: no content)."""

    method: str
    path: str
    role: Role
    summary: str
    run: Handler | None
    reply: type[BaseModel] | None
    body: Any = None
    query: type[Model] | None = None
    status: int = 200
    refuses: tuple[type[OdometerError], ...] = ()
    headers: Mapping[str, Header] = field(default_factory=dict)
    computes: bool = False
    """Whether a request may ask for seconds of computing: curves of mechanisms not met before."""
    counted: str = ""
    """What a refusal of it is counted and logged as; nothing where none is."""
    charges: bool = False
    """Whether it is a charge, made ahead of the work, and counted as one."""
    surveys: bool = False
    """Whether a request may evaluate many totals of a dataset, for seconds when it is large."""

    @property
    def errors(self) -> tuple[type[OdometerError], ...]:
        """Everything that it may refuse with."""
        found: tuple[type[OdometerError], ...] = (*self.refuses, *_ALWAYS, errors.Unauthenticated)
        if self.role is not Role.reader:
            found += (errors.Forbidden,)
        if "{dataset}" in self.path:
            found += _ON_A_DATASET
        if self.body is not None:
            found += _WITH_A_BODY
        if self.computes:
            found += (errors.TooMuchToCompute,)
        if self.query is not None:
            found += (errors.InvalidRequest,)
        return tuple(sorted(set(found), key=lambda kind: (kind.status, kind.code)))


def _ledger(call: Call) -> dict[str, Any]:
    query: LedgerPage = call.query
    return call.accountant.ledger(
        call.dataset, query.after, query.limit, query.before, newest_first=query.order == "desc"
    )


def _hold(call: Call) -> dict[str, Any] | Again:
    document, replayed = call.accountant.hold(call.dataset, call.body, call.key, call.who.caller)
    return Again(document) if replayed else document


def _derive(call: Call) -> dict[str, Any] | Again:
    document, replayed = call.accountant.derive(call.dataset, call.body, call.key, call.who.caller)
    return Again(document) if replayed else document


def _open_session(call: Call) -> dict[str, Any] | Again:
    document, replayed = call.accountant.open_session(call.dataset, call.body, call.key, call.who.caller)
    return Again(document) if replayed else document


def _answer(call: Call) -> dict[str, Any]:
    session = call.path["session"]
    return call.accountant.answer_session(call.dataset, session, call.body, call.key, call.who.caller)[0]


def _close_session(call: Call) -> dict[str, Any]:
    call.accountant.state(call.dataset)
    validated(Nothing, call.body)
    return call.accountant.close_session(call.dataset, call.path["session"], call.who.caller)[0]


def _settle(call: Call) -> dict[str, Any] | Again:
    return call.accountant.settle(call.dataset, call.path["hold"], call.body, call.who.caller)[0]


def _scopes(call: Call) -> dict[str, Any]:
    query: ScopesPage = call.query
    return call.accountant.scopes(call.dataset, query.kind, query.after, query.limit)


def _change_budget(call: Call) -> dict[str, Any]:
    return call.accountant.change_budget(
        call.dataset, call.path["budget"], call.body, call.if_match, call.who.principal
    )


def _close(call: Call) -> dict[str, Any]:
    call.accountant.state(call.dataset)
    validated(Nothing, call.body)
    return call.accountant.close_dataset(call.dataset, call.who.principal)


_D = "/v1/datasets/{dataset}"
BUDGET: TypeAdapter[Any] = TypeAdapter(AnyBudget)
CHARGES: TypeAdapter[Any] = TypeAdapter(OneCharge | ManyCharges)
HOLDS: TypeAdapter[Any] = TypeAdapter(OneHold | ManyHolds)
_KEY = r"^[\x21-\x7e]{1,128}$"
_KEYED = {
    "Idempotency-Key": Header(
        "1 to 128 printable ASCII characters: new for a new charge, the same for a retry", _KEY
    )
}

_CHARGING = (
    errors.IdempotencyKeyRequired,
    errors.KeyReused,
    errors.NotValidUnderAdjacency,
    errors.SeveralShards,
    errors.BudgetExceeded,
    errors.DatasetClosed,
    errors.Overloaded,
)
"""What a charge may be refused with, made now or ahead of the work."""

CHARGE = Operation(
    "POST",
    f"{_D}/charges",
    Role.charger,
    "Charge a dataset before anything is released: one mechanism, or a list, all or nothing",
    None,  # answered by the hot route of its own
    responses.Receipt,
    counted="charge",
    charges=True,
    body=CHARGES,
    computes=True,
    status=201,
    refuses=_CHARGING,
    headers=_KEYED,
)

_PRINCIPAL = "/v1/principals/{principal}"

PEOPLE: tuple[Operation, ...] = (
    Operation("GET", "/v1/keys", Role.admin, "List API keys", principals.list_keys, responses.KeysReply),
    Operation(
        "POST",
        "/v1/keys",
        Role.admin,
        "Make an API key of a new principal",
        principals.create_key,
        responses.NewKeyReply,
        body=principals.NewKey,
        status=201,
        refuses=(errors.NameTaken,),
    ),
    Operation(
        "DELETE",
        "/v1/keys/{key}",
        Role.admin,
        "Revoke an API key: its principal stays, with what it spent",
        lambda call: call.ring.revoke(call.path["key"], call.who.principal),
        None,
        status=204,
        refuses=(errors.UnknownKey,),
    ),
    Operation(
        "POST",
        "/v1/keys/{key}/rotation",
        Role.admin,
        "Make a key in place of another of the same principal, which is taken for a while longer",
        principals.rotate_key,
        responses.NewKeyReply,
        body=principals.Rotation,
        status=201,
        refuses=(errors.UnknownKey, errors.KeyEnded),
    ),
    Operation(
        "GET",
        "/v1/principals",
        Role.admin,
        "List principals",
        principals.list_principals,
        responses.PrincipalsReply,
    ),
    Operation(
        "POST",
        "/v1/principals",
        Role.admin,
        "Make a principal, who has no key yet",
        principals.create_principal,
        responses.PrincipalReply,
        body=principals.NewPrincipal,
        status=201,
        refuses=(errors.NameTaken,),
    ),
    Operation(
        "GET",
        _PRINCIPAL,
        Role.admin,
        "Show a principal",
        principals.principal,
        responses.PrincipalReply,
        refuses=(errors.UnknownPrincipal,),
    ),
    Operation(
        "PUT",
        _PRINCIPAL,
        Role.admin,
        "Change what a principal may do and which team it is of; what it was charged stays where it is",
        principals.change_principal,
        responses.PrincipalReply,
        body=principals.ChangedPrincipal,
        refuses=(errors.UnknownPrincipal, errors.EditConflict, errors.IfMatchRequired),
        headers={"If-Match": Header("The etag of the principal as you read it", r'^"v[0-9]+"$')},
    ),
    Operation(
        "DELETE",
        f"{_PRINCIPAL}/name",
        Role.admin,
        "Erase what a principal is called: nobody else will be called that",
        principals.erase_name,
        None,
        status=204,
        refuses=(errors.UnknownPrincipal,),
    ),
    Operation(
        "GET",
        f"{_PRINCIPAL}/keys",
        Role.admin,
        "List the API keys of a principal",
        principals.list_keys_of,
        responses.KeysReply,
        refuses=(errors.UnknownPrincipal,),
    ),
    Operation(
        "POST",
        f"{_PRINCIPAL}/keys",
        Role.admin,
        "Make one more API key of a principal",
        principals.add_key,
        responses.NewKeyReply,
        body=principals.MoreKey,
        status=201,
        refuses=(errors.UnknownPrincipal,),
    ),
    Operation("GET", "/v1/me", Role.reader, "Whose key this is", principals.me, responses.MeReply),
)

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        "/v1/datasets",
        Role.admin,
        "Open a dataset",
        lambda call: call.accountant.create_dataset(call.body, call.who.principal),
        responses.DatasetReply,
        body=CreateDataset,
        computes=True,
        status=201,
        refuses=(errors.DatasetExists,),
    ),
    Operation(
        "GET",
        "/v1/datasets",
        Role.reader,
        "List datasets",
        lambda call: call.accountant.datasets(call.query.after, call.query.limit),
        responses.DatasetsReply,
        query=DatasetPage,
    ),
    Operation(
        "GET",
        _D,
        Role.reader,
        "Show a dataset with its budgets",
        lambda call: call.accountant.dataset(call.dataset),
        responses.DatasetReply,
    ),
    Operation(
        "POST",
        f"{_D}/closure",
        Role.admin,
        "Close a dataset: it takes no more charges, and its ledger stays",
        _close,
        responses.DatasetReply,
        body=Nothing,
        refuses=(errors.DatasetClosed,),
    ),
    Operation(
        "POST",
        f"{_D}/partitions",
        Role.admin,
        "Add partitions to a dataset that composes by partition",
        lambda call: call.accountant.add_partitions(call.dataset, call.body, call.who.principal),
        responses.DatasetReply,
        body=NewPartitions,
        refuses=(errors.PartitionExists, errors.DatasetClosed),
    ),
    Operation(
        "POST",
        f"{_D}/unfreeze",
        Role.admin,
        "Go on with a dataset whose ledger went back in time, without what was lost",
        lambda call: call.accountant.unfreeze(call.dataset, call.body, call.who.principal),
        responses.DatasetReply,
        body=Unfreeze,
        refuses=(errors.NotFrozen,),
    ),
    Operation(
        "GET",
        f"{_D}/budgets",
        Role.reader,
        "List a dataset's budgets",
        lambda call: call.accountant.budgets(call.dataset),
        responses.BudgetsReply,
    ),
    Operation(
        "POST",
        f"{_D}/budgets",
        Role.admin,
        "Add a budget",
        lambda call: call.accountant.add_budget(call.dataset, call.body, call.who.principal),
        responses.BudgetState,
        body=BUDGET,
        computes=True,
        status=201,
        refuses=(errors.BudgetExists, errors.DatasetClosed),
    ),
    Operation(
        "PUT",
        f"{_D}/budgets/{{budget}}",
        Role.admin,
        "Change a budget: a new limit keeps its weights, anything else fixes new ones",
        _change_budget,
        responses.BudgetState,
        body=BUDGET,
        computes=True,
        refuses=(errors.UnknownBudget, errors.EditConflict, errors.IfMatchRequired, errors.DatasetClosed),
        headers={"If-Match": Header("The etag of the budget as you read it", r'^"v[0-9]+"$')},
    ),
    CHARGE,
    Operation(
        "POST",
        f"{_D}/checks",
        Role.reader,
        "Dry run: would it fit, what would be left, what is the most that fits",
        lambda call: call.accountant.check(call.dataset, call.body, call.who.caller),
        responses.CheckReply,
        counted="check",
        body=CHARGES,
        computes=True,
        refuses=(errors.NotValidUnderAdjacency, errors.SeveralShards, errors.Forbidden),
    ),
    Operation(
        "POST",
        f"{_D}/holds",
        Role.charger,
        "Charge ahead of the work: spent for good, unless it is settled in time for what was used",
        _hold,
        responses.HoldReceipt,
        counted="hold",
        charges=True,
        body=HOLDS,
        computes=True,
        status=201,
        refuses=(*_CHARGING, errors.HoldSettled, errors.TooManyHolds),
        headers=_KEYED,
    ),
    Operation(
        "GET",
        f"{_D}/holds",
        Role.reader,
        "The holds that can still be settled",
        lambda call: call.accountant.holds(call.dataset),
        responses.HoldsReply,
    ),
    Operation(
        "POST",
        f"{_D}/holds/{{hold}}/settlement",
        Role.charger,
        "Settle a hold for what was used of it: once, by its maker or an admin, before it expires",
        _settle,
        responses.SettlementReply,
        counted="settlement",
        body=Settlement,
        computes=True,
        refuses=(errors.UnknownHold, errors.HoldSettled, errors.HoldExpired, errors.Overloaded),
    ),
    Operation(
        "POST",
        f"{_D}/sessions",
        Role.charger,
        "Open an interactive mechanism, such as sparse vector: it is charged as its public answers come",
        _open_session,
        responses.AnswerReply,
        counted="session",
        charges=True,
        body=OpenSession,
        computes=True,
        status=201,
        refuses=(*_CHARGING, errors.TooManySessions),
        headers=_KEYED,
    ),
    Operation(
        "GET",
        f"{_D}/sessions",
        Role.reader,
        "The sessions that take answers",
        lambda call: call.accountant.sessions(call.dataset),
        responses.SessionsReply,
    ),
    Operation(
        "GET",
        f"{_D}/sessions/{{session}}",
        Role.reader,
        "One session, open or closed",
        lambda call: call.accountant.session(call.dataset, call.path["session"]),
        responses.SessionReply,
        refuses=(errors.UnknownSession,),
    ),
    Operation(
        "POST",
        f"{_D}/sessions/{{session}}/answers",
        Role.charger,
        "Charge what follows a public answer, before it goes out; a below answer of sparse vector is free",
        _answer,
        responses.AnswerReply,
        counted="answer",
        body=SessionAnswer,
        refuses=(*_CHARGING, errors.UnknownSession, errors.SessionClosed, errors.SessionMovedOn),
        headers={
            "Idempotency-Key": Header(
                "1 to 128 printable ASCII characters: new for a new answer, the same for a retry. A free "
                "answer, as one below in sparse vector, needs none",
                _KEY,
                required=False,
            )
        },
    ),
    Operation(
        "POST",
        f"{_D}/sessions/{{session}}/close",
        Role.charger,
        "Close a session: it takes no more answers, and what was paid stays paid",
        _close_session,
        responses.AnswerReply,
        counted="close",
        body=Nothing,
        refuses=(errors.UnknownSession, errors.Overloaded),
    ),
    Operation(
        "POST",
        f"{_D}/derived",
        Role.charger,
        "Record what was made of a release: it costs nothing, and the ledger says what it comes of",
        _derive,
        responses.DerivedReceipt,
        counted="derived",
        body=Derived,
        status=201,
        refuses=(errors.IdempotencyKeyRequired, errors.KeyReused, errors.Overloaded),
        headers=_KEYED,
    ),
    Operation(
        "GET",
        f"{_D}/lineage",
        Role.reader,
        "What an entry comes of, and what was made of it",
        lambda call: call.accountant.lineage(call.dataset, call.query.entry, call.query.after),
        responses.LineageReply,
        query=LineageQuery,
        surveys=True,
    ),
    Operation(
        "GET",
        f"{_D}/scopes",
        Role.reader,
        "Every principal, team, group, partition or kind of mechanism, with what it has lost",
        _scopes,
        responses.ScopesReply,
        query=ScopesPage,
        surveys=True,
    ),
    Operation(
        "GET",
        f"{_D}/odometer",
        Role.reader,
        "Every reading, each with when it holds",
        lambda call: call.accountant.odometer(call.dataset, call.query.delta, call.query.scope),
        responses.OdometerReply,
        query=OdometerQuery,
    ),
    Operation(
        "GET",
        f"{_D}/history",
        Role.reader,
        "The reading and the budgets over time, down-sampled",
        lambda call: call.accountant.history(call.dataset, call.query.points),
        responses.HistoryReply,
        query=HistoryQuery,
        surveys=True,
    ),
    Operation(
        "GET",
        f"{_D}/spend",
        Role.reader,
        "Who and what spent",
        lambda call: call.accountant.spend(call.dataset),
        responses.SpendReply,
        surveys=True,
    ),
    Operation(
        "GET",
        f"{_D}/ledger",
        Role.reader,
        "The entries, paged",
        _ledger,
        responses.LedgerReply,
        query=LedgerPage,
    ),
    Operation(
        "GET",
        "/v1/mechanisms",
        Role.reader,
        "Every kind of mechanism",
        lambda call: call.accountant.mechanisms(),
        responses.MechanismsReply,
    ),
    Operation(
        "POST",
        "/v1/convert",
        Role.reader,
        "What charges would cost as a plan fixed in advance; touches no dataset",
        lambda call: call.accountant.convert(call.body),
        responses.ConvertReply,
        body=ConvertRequest,
        computes=True,
        refuses=(errors.NotValidUnderAdjacency,),
    ),
    Operation(
        "POST",
        "/v1/dp-events",
        Role.reader,
        "A plan of the library dp_accounting as the charges that it comes to; touches no dataset",
        lambda call: call.accountant.dp_events(call.body),
        responses.ChargesReply,
        body=DpEvents,
        computes=True,
    ),
    *PEOPLE,
)
