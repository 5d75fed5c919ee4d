"""The operations that read a ledger (odometer, history, scopes, …), and the record of derived artefacts."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from odometer_accountant import errors
from odometer_accountant.budgets.base import LEAST_DELTA
from odometer_accountant.model import Model
from odometer_accountant.requests.bodies import Derived
from odometer_accountant.requests.written_numbers import as_written
from odometer_accountant.service.operations.operation import (
    KEYED,
    ON_DATASET,
    Again,
    Call,
    Operation,
    again,
    charger,
    read,
)
from odometer_accountant.service.request_checks import PAGE_MAX
from odometer_accountant.service.responses.history import HistoryReply, SpendReply
from odometer_accountant.service.responses.ledger import DerivedReceipt, LedgerReply, LineageReply
from odometer_accountant.service.responses.readings import OdometerReply, ScopesReply


class LedgerPage(Model):
    """Selects a page of entries."""

    after: Annotated[int, Field(ge=0, lt=2**62)] = 0
    """Entries after this number."""
    limit: Annotated[int, Field(ge=1, le=PAGE_MAX)] = 100
    """How many, 1 to 1000."""
    order: Literal["asc", "desc"] = "asc"
    """Oldest or newest first."""
    before: Annotated[int, Field(ge=1, lt=2**62)] | None = None
    """With order=desc: entries before this number."""


class OdometerQuery(Model):
    """Selects an odometer and δ."""

    delta: (
        Annotated[float, Field(ge=LEAST_DELTA, lt=1, allow_inf_nan=False), BeforeValidator(as_written)] | None
    ) = None
    """Another δ than the dataset's, as what-if."""
    scope: Annotated[str, Field(max_length=80)] | None = None
    """Whose odometer: dataset (the default), or partition/…, unit/…, principal/…, team/…, group/…"""


class ScopesPage(Model):
    """Selects scopes."""

    kind: Literal["principal", "team", "group", "partition", "mechanism"]
    """The kind of scope."""
    after: Annotated[str, Field(max_length=64)] = ""
    """Names after this one."""
    limit: Annotated[int, Field(ge=1, le=PAGE_MAX)] = 100
    """How many, 1 to 1000."""


class LineageQuery(Model):
    """Selects an entry."""

    entry: Annotated[int, Field(ge=1, lt=2**53)]
    """Its number in the dataset's ledger."""
    after: Annotated[int, Field(ge=0, lt=2**53)] = 0
    """Descendants after this number: the `next` of the answer before."""


class HistoryQuery(Model):
    """How fine."""

    points: Annotated[int, Field(ge=2, le=1000)] = 200
    """Most moments in the answer, 2 to 1000."""


def _derive(call: Call) -> Mapping[str, Any] | Again:
    return again(*call.accountant.derive(call.dataset, call.body, call.key, call.who.caller))


def _scopes(call: Call) -> dict[str, Any]:
    page: ScopesPage = call.query
    return call.accountant.scopes(call.dataset, page.kind, page.after, page.limit)


def _ledger(call: Call) -> dict[str, Any]:
    page: LedgerPage = call.query
    return call.accountant.ledger(
        call.dataset, page.after, page.limit, page.before, newest_first=page.order == "desc"
    )


ROWS: Final[tuple[Operation, ...]] = (
    charger(
        "derive",
        "Record an artefact that was made from a release: it costs nothing, and the ledger keeps its origin",
        _derive,
        DerivedReceipt,
        names=ON_DATASET,
        body=Derived,
        headers=KEYED,
        status=201,
        refuses=(errors.IdempotencyKeyRequired, errors.KeyReused, errors.Overloaded),
        repeat="with key",
        counted="derived",
    ),
    read(
        "lineage",
        "Show the ancestors and the descendants of an entry",
        lambda call: call.accountant.lineage(call.dataset, call.query.entry, call.query.after),
        LineageReply,
        names=ON_DATASET,
        query=LineageQuery,
        surveys=True,
    ),
    read(
        "scopes",
        "List every principal, team, group, partition or kind of mechanism, with its loss",
        _scopes,
        ScopesReply,
        names=ON_DATASET,
        query=ScopesPage,
        surveys=True,
    ),
    read(
        "odometer",
        "Show every reading, and when each holds",
        lambda call: call.accountant.odometer(call.dataset, call.query.delta, call.query.scope),
        OdometerReply,
        names=ON_DATASET,
        query=OdometerQuery,
    ),
    read(
        "history",
        "Show the reading and the budgets over time, down-sampled",
        lambda call: call.accountant.history(call.dataset, call.query.points),
        HistoryReply,
        names=ON_DATASET,
        query=HistoryQuery,
        surveys=True,
    ),
    read(
        "spend",
        "Show how much each principal and each kind of mechanism spent",
        lambda call: call.accountant.spend(call.dataset),
        SpendReply,
        names=ON_DATASET,
        surveys=True,
    ),
    read(
        "ledger",
        "List the entries, in pages",
        _ledger,
        LedgerReply,
        names=ON_DATASET,
        query=LedgerPage,
    ),
)
