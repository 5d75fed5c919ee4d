"""The shape of one operation, and of the call that it answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

from pydantic import BaseModel, ValidationError

from odometer_accountant import errors
from odometer_accountant.errors import NotFound, OdometerError
from odometer_accountant.model import Model
from odometer_accountant.requests.validation_errors import invalid
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.service.api_keys import Identity, KeyRing, Role

Repeat = Literal["safe", "with key", "once", "never"]
"""Whether the same request may be sent again after a lost answer.

safe: it changes nothing. with key: its idempotency key makes it the same request. once: doing it twice is the
same as doing it once. never: a second try may do it a second time, or be refused by the first.
"""


@dataclass(frozen=True)
class Call:
    """One request: who asks, for what, with which body. The caller's key was checked before."""

    accountant: Accountant
    keys: KeyRing | None
    """The API keys of the service; None for an embedded ledger, which has none."""
    who: Identity
    names: Mapping[str, str]
    """The dataset, budget, hold, session, key or principal that the request is about."""
    query: Any = None
    body: bytes | Mapping[str, Any] = b""
    if_match: str | None = None
    key: str | None = None
    """The idempotency key."""

    @property
    def dataset(self) -> str:
        """The name of the dataset."""
        return self.names["dataset"]

    @property
    def ring(self) -> KeyRing:
        """The API keys. Raises NotFound for an embedded ledger."""
        if self.keys is None:
            raise NotFound("an embedded ledger has no API keys: start `odometer serve` to make some")
        return self.keys


@dataclass(frozen=True)
class Again:
    """The answer that an earlier request with the same key got. Nothing was done a second time."""

    document: Mapping[str, Any]


Handler = Callable[[Call], Any]
"""Takes a call; returns a document, an `Again`, or None for no content."""


@dataclass(frozen=True)
class Header:
    """A header that an operation reads."""

    text: str
    pattern: str
    required: bool = True


_ALWAYS: Final = (
    errors.StoreUnavailable,
    errors.InternalError,
    errors.TooManyRequests,
    errors.Unauthenticated,
)
_ON_A_DATASET: Final = (errors.UnknownDataset, errors.LedgerCorrupt, errors.LedgerRolledBack)
_WITH_A_BODY: Final = (errors.MalformedBody, errors.BodyTooLarge, errors.InvalidRequest)


@dataclass(frozen=True)
class Operation:
    """One operation of the service. Its method and path are in `privacy_odometer.routes.table`."""

    name: str
    """The same in the route table and in the client."""
    summary: str
    run: Handler
    reply: type[BaseModel] | None
    """The answer; None for no content."""
    role: Role = field(kw_only=True)
    """The least role that may ask."""
    names: tuple[str, ...] = ()
    """The places of its path: `dataset`, `budget`, `hold`, …"""
    body: Any = None
    """The model or type adapter of its body; None for no body."""
    query: type[Model] | None = None
    headers: Mapping[str, Header] = field(default_factory=dict)
    status: int = 200
    """The status of a success; one that was `Again` has 200."""
    refuses: tuple[type[OdometerError], ...] = ()
    """Its errors, besides those that `errors` adds."""
    repeat: Repeat = "never"
    """Whether the client may send it again. The default is the careful one."""
    computes: bool = False
    """Whether it may compute for seconds: curves of mechanisms that were not met before."""
    surveys: bool = False
    """Whether it may evaluate many totals of a dataset, for seconds when the dataset is large."""
    charges: bool = False
    """Whether the metrics of charges count it."""
    counted: str = ""
    """The name of its refusals in the metrics and the log; empty for those that are not counted."""

    @property
    def errors(self) -> tuple[type[OdometerError], ...]:
        """Every error that it may answer, by status and code."""
        found: tuple[type[OdometerError], ...] = (*self.refuses, *_ALWAYS)
        if self.role is not Role.reader:
            found += (errors.Forbidden,)
        if "dataset" in self.names:
            found += _ON_A_DATASET
        if self.body is not None:
            found += _WITH_A_BODY
        if self.computes:
            found += (errors.TooMuchToCompute,)
        if self.query is not None:
            found += (errors.InvalidRequest,)
        return tuple(sorted(set(found), key=lambda kind: (kind.status, kind.code)))

    def parsed_query(self, given: Mapping[str, str]) -> Any:
        """The query as this operation's model; None where it takes none. Raises InvalidRequest."""
        if self.query is None:
            return None
        try:
            return self.query.model_validate_strings(given)
        except ValidationError as error:
            invalid(error, given, self.query)


read: Final = partial(Operation, role=Role.reader, repeat="safe")
"""A row that changes nothing, for every key."""
charger: Final = partial(Operation, role=Role.charger)
"""A row for keys that may charge."""
admin: Final = partial(Operation, role=Role.admin)
"""A row for keys of administrators."""

ON_DATASET: Final = ("dataset",)
KEY_PATTERN: Final = r"^[\x21-\x7e]{1,128}$"
KEYED: Final = {
    "Idempotency-Key": Header(
        "1 to 128 printable ASCII characters: new for a new charge, the same for a retry", KEY_PATTERN
    )
}
CHARGE_ERRORS: Final = (
    errors.IdempotencyKeyRequired,
    errors.KeyReused,
    errors.NotValidUnderAdjacency,
    errors.SeveralShards,
    errors.BudgetExceeded,
    errors.DatasetClosed,
    errors.Overloaded,
)
"""The errors of a charge, made now or ahead of the work."""


def if_match(noun: str) -> dict[str, Header]:
    """The header that names the version to change."""
    return {"If-Match": Header(f"The etag of the {noun} as you read it", r'^"v[0-9]+"$')}


def again(document: Mapping[str, Any], replayed: bool) -> Mapping[str, Any] | Again:
    """The answer of a request that has an idempotency key."""
    return Again(document) if replayed else document


class Nothing(Model):
    """An empty object."""
