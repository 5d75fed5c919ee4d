"""Every error that a caller can see: code, title, HTTP status, whether a retry can help.

OdometerError
 ├─ MalformedBody 400 · IdempotencyKeyRequired 400
 ├─ Unauthenticated 401 · Forbidden 403
 ├─ UnknownDataset · UnknownBudget · UnknownHold · UnknownSession · NotFound 404
 ├─ UnknownKey · UnknownPrincipal 404
 ├─ MethodNotAllowed 405
 ├─ BodyTooLarge 413 · InvalidRequest · SeveralShards · KeyReused · NotValidUnderAdjacency 422
 ├─ TooMuchToCompute 422 · TooManyRequests 429
 ├─ BudgetExceeded · DatasetExists · BudgetExists · DatasetClosed · PartitionExists 409
 ├─ SessionClosed · SessionMovedOn · TooManySessions 409
 ├─ NameTaken · KeyEnded 409
 ├─ HoldSettled · HoldExpired · TooManyHolds · NotFrozen 409 · EditConflict 412 · IfMatchRequired 428
 └─ StoreUnavailable · LedgerCorrupt · LedgerRolledBack · UpgradeNeeded · Overloaded 503
    InternalError 500

The client's error classes are generated from this registry.
"""

from typing import Any, ClassVar, Self

from odometer_accountant.plain_text import shown


class OdometerError(Exception):
    """Base of all errors. `detail` says what was wrong and what would work; `fields` are values.

    Titles and details begin in lower case, have no full stop, and quote names.

    Class attributes: `code` (slug, last part of the problem's type), `title`, `status` (HTTP),
    `retryable` (whether the same request with the same key may succeed later by itself).
    """

    code: ClassVar[str] = "error"
    title: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, detail: str, **fields: Any) -> None:
        self.detail = shown(detail)  # it may quote a request
        super().__init__(self.detail)
        if "errors" in fields:
            fields["errors"] = [{name: shown(text) for name, text in one.items()} for one in fields["errors"]]
        self.fields = fields

    def problem(self) -> dict[str, Any]:
        """The RFC 9457 body of this error."""
        return {
            "type": f"/problems/{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "retryable": self.retryable,
            **self.fields,
        }


class MalformedBody(OdometerError):
    """The body is not one well-formed JSON document (syntax, NaN, duplicate keys, encoding, depth, too many
    values).
    """

    code, title, status = "malformed-body", "body is not well-formed JSON", 400


class IdempotencyKeyRequired(OdometerError):
    """The Idempotency-Key header is missing or not usable (1 to 128 printable ASCII characters)."""

    code, title, status = "idempotency-key-required", "idempotency key required", 400


class Unauthenticated(OdometerError):
    """No key, or one that is unknown, revoked or expired."""

    code, title, status = "unauthenticated", "valid API key required", 401


class Forbidden(OdometerError):
    """The key's role does not allow this, or nobody may do it: the last admin key cannot be revoked."""

    code, title, status = "forbidden", "not allowed with this API key", 403


class NotFound(OdometerError):
    """No such path."""

    code, title, status = "not-found", "not found", 404


class UnknownDataset(NotFound):
    """No dataset of that name. Datasets are never created on the fly."""

    code, title = "unknown-dataset", "unknown dataset"


class UnknownBudget(NotFound):
    """The dataset has no budget of that name."""

    code, title = "unknown-budget", "unknown budget"


class UnknownHold(NotFound):
    """The dataset has no hold of that number."""

    code, title = "unknown-hold", "unknown hold"


class UnknownSession(NotFound):
    """The dataset has no session of that id."""

    code, title = "unknown-session", "unknown session"


class UnknownKey(NotFound):
    """No API key of that id."""

    code, title = "unknown-key", "unknown API key"


class UnknownPrincipal(NotFound):
    """No principal of that id. Names are not ids: a list says which id has which name."""

    code, title = "unknown-principal", "unknown principal"


class MethodNotAllowed(OdometerError):
    """The path exists, the method does not."""

    code, title, status = "method-not-allowed", "method not allowed on this path", 405


class BodyTooLarge(OdometerError):
    """The body is larger than the service reads."""

    code, title, status = "body-too-large", "body is too large", 413


class InvalidRequest(OdometerError):
    """Well-formed, but a field is wrong. `errors` lists each: field, message."""

    code, title, status = "invalid-request", "invalid field", 422

    @classmethod
    def of(cls, field: str, message: str) -> Self:
        """About one field."""
        return cls(f"{field}: {message}", errors=[{"field": field, "message": message}])


class SeveralShards(InvalidRequest):
    """The units of a charge are in several shards. `shards` lists the units of each: charge them apart."""

    code, title = "several-shards", "units are in several shards"


class TooMuchToCompute(InvalidRequest):
    """The mechanisms take more processor time than one request may ask for. Send them in several requests."""

    code, title = "too-much-to-compute", "too much to compute in one request"


class KeyReused(OdometerError):
    """The same idempotency key came with another command. Nothing was charged."""

    code, title, status = "key-reused", "idempotency key was used for another request", 422


class NotValidUnderAdjacency(OdometerError):
    """The mechanism's analysis does not hold under the dataset's adjacency."""

    code, title, status = "not-valid-under-adjacency", "not valid under this dataset's adjacency", 422


class BudgetExceeded(OdometerError):
    """The charge does not fit at least one budget. Nothing was charged; a smaller one may fit.

    `refusals` lists each budget that refuses; `would_fit` says what would fit; `notes` say how the charge was
    counted. Where only budgets with a window refuse, and a fresh window would admit the charge, it is
    retryable: Retry-After says when the window ends.
    """

    code, title, status = "budget-exceeded", "charge does not fit the budget", 409


class DatasetExists(OdometerError):
    """The name is taken. Names are never used twice."""

    code, title, status = "dataset-exists", "dataset name is taken", 409


class BudgetExists(OdometerError):
    """The dataset has a budget of that name already."""

    code, title, status = "budget-exists", "budget name is taken", 409


class DatasetClosed(OdometerError):
    """The dataset takes no more charges."""

    code, title, status = "dataset-closed", "dataset is closed", 409


class PartitionExists(OdometerError):
    """The dataset has a partition of that name already."""

    code, title, status = "partition-exists", "partition name is taken", 409


class NameTaken(OdometerError):
    """A principal has, or had, that name. `principals` lists its id: give that one another key."""

    code, title, status = "name-taken", "principal name is taken", 409


class KeyEnded(OdometerError):
    """The API key was revoked, has expired, or was rotated before."""

    code, title, status = "key-ended", "API key is no longer in use", 409


class HoldSettled(OdometerError):
    """The hold was settled before, for another number. A hold is settled once."""

    code, title, status = "hold-settled", "hold is already settled", 409


class HoldExpired(OdometerError):
    """The hold's time is over: it is spent for good."""

    code, title, status = "hold-expired", "hold has expired", 409


class TooManyHolds(OdometerError):
    """The dataset, or the caller, has the most open holds that it may have. Settle some, or charge."""

    code, title, status = "too-many-holds", "too many open holds", 409


class SessionClosed(OdometerError):
    """The session takes no more answers: its last above answer came, or it was closed. Open another one."""

    code, title, status = "session-closed", "session is closed", 409


class SessionMovedOn(OdometerError):
    """The answer is for another run than the session's present one. Nothing was charged."""

    code, title, status = "session-moved-on", "session is in another run", 409


class TooManySessions(OdometerError):
    """The dataset, or the caller, has the most open sessions that it may have. List and close some."""

    code, title, status = "too-many-sessions", "too many open sessions", 409


class NotFrozen(OdometerError):
    """The dataset is not frozen."""

    code, title, status = "not-frozen", "dataset is not frozen", 409


class EditConflict(OdometerError):
    """The budget or principal changed since it was read (If-Match does not match)."""

    code, title, status = "edit-conflict", "changed by someone else", 412


class IfMatchRequired(OdometerError):
    """A change of a budget or a principal needs If-Match with the etag of the version that it changes."""

    code, title, status = "if-match-required", "version to change required", 428


class TooManyRequests(OdometerError):
    """Too many requests of this key's principal are waiting. Nothing was done for this one. Other principals
    are not affected. Retry-After says when to ask again.
    """

    code, title, status, retryable = "too-many-requests", "too many requests at once", 429, True


class InternalError(OdometerError):
    """A fault of the service. Whether the request took effect is unknown: ask again with the same key."""

    code, title, status, retryable = "internal-error", "internal error", 500, True


class Unsure(OdometerError):
    """Base of the errors after which the ledger's state is not certain: release nothing."""

    status, retryable = 503, True


class StoreUnavailable(Unsure):
    """The store is unreachable, slow or unreadable."""

    code, title = "store-unavailable", "ledger cannot be reached"


class LedgerCorrupt(Unsure):
    """The stored entries contradict each other. An administrator has to look."""

    code, title, retryable = "ledger-corrupt", "ledger contradicts itself", False


class LedgerRolledBack(Unsure):
    """Entries that this process has seen are gone or differ. The stream is frozen."""

    code, title, retryable = "ledger-rolled-back", "ledger history was rolled back", False


class UpgradeNeeded(Unsure):
    """A later version of the service wrote this ledger. This worker must be upgraded before it takes part."""

    code, title, retryable = "upgrade-needed", "worker is too old for this ledger", False


class Overloaded(Unsure):
    """The service's queue is full."""

    code, title = "overloaded", "service is overloaded"


def registry() -> dict[str, type[OdometerError]]:
    """Every concrete error by its code."""
    found: dict[str, type[OdometerError]] = {}
    todo: list[type[OdometerError]] = [OdometerError]
    while todo:
        kind = todo.pop()
        todo.extend(kind.__subclasses__())
        if kind not in (OdometerError, Unsure):
            found[kind.code] = kind
    return dict(sorted(found.items()))
