"""Every error that a caller can see, each said once: code, HTTP status, whether a retry can help.

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
    """Base of all. `detail` tells a person what was wrong and what would work; `fields` are values.

    Class attributes: `code` (slug, last part of the problem's type), `title`, `status` (HTTP),
    `retryable` (whether the same request with the same key may succeed later by itself).
    """

    code: ClassVar[str] = "error"
    title: ClassVar[str] = "Something went wrong"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, detail: str, **fields: Any) -> None:
        self.detail = shown(detail)  # it may repeat what came from outside
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

    code, title, status = "malformed-body", "The body is not well-formed JSON", 400


class IdempotencyKeyRequired(OdometerError):
    """A charge came without a usable Idempotency-Key header (1 to 128 printable ASCII characters)."""

    code, title, status = "idempotency-key-required", "A charge needs an idempotency key", 400


class Unauthenticated(OdometerError):
    """No key, or one that is unknown, revoked or expired."""

    code, title, status = "unauthenticated", "A valid API key is needed", 401


class Forbidden(OdometerError):
    """The key's role does not allow this, or nobody may do it: the last admin key stays."""

    code, title, status = "forbidden", "This key may not do that", 403


class NotFound(OdometerError):
    """No such path."""

    code, title, status = "not-found", "There is nothing here", 404


class UnknownDataset(NotFound):
    """No dataset of that name. Datasets are never created on the fly."""

    code, title = "unknown-dataset", "There is no such dataset"


class UnknownBudget(NotFound):
    """The dataset has no budget of that name."""

    code, title = "unknown-budget", "There is no such budget"


class UnknownHold(NotFound):
    """The dataset has no hold of that number."""

    code, title = "unknown-hold", "There is no such hold"


class UnknownSession(NotFound):
    """The dataset has no session of that id."""

    code, title = "unknown-session", "There is no such session"


class UnknownKey(NotFound):
    """No API key of that id."""

    code, title = "unknown-key", "There is no such API key"


class UnknownPrincipal(NotFound):
    """No principal of that id. Names are not ids: a list says which id has which name."""

    code, title = "unknown-principal", "There is no such principal"


class MethodNotAllowed(OdometerError):
    """The path exists, the method does not."""

    code, title, status = "method-not-allowed", "This path does not take that method", 405


class BodyTooLarge(OdometerError):
    """The body is larger than the service reads."""

    code, title, status = "body-too-large", "The body is too large", 413


class InvalidRequest(OdometerError):
    """Well-formed, but a field is wrong. `errors` lists each: field, message."""

    code, title, status = "invalid-request", "A field is not valid", 422

    @classmethod
    def of(cls, field: str, message: str) -> Self:
        """About one field."""
        return cls(f"{field}: {message}", errors=[{"field": field, "message": message}])


class SeveralShards(InvalidRequest):
    """The units of a charge are kept in several shards. `shards` lists those of each: charge each alone."""

    code, title = "several-shards", "These units are kept in several shards"


class TooMuchToCompute(InvalidRequest):
    """The mechanisms take more processor time than one request may ask for. Send them in several requests."""

    code, title = "too-much-to-compute", "This is too much to compute at once"


class KeyReused(OdometerError):
    """The same idempotency key came with another command. Nothing was charged."""

    code, title, status = "key-reused", "This idempotency key was used for something else", 422


class NotValidUnderAdjacency(OdometerError):
    """The mechanism's analysis does not hold under the dataset's adjacency."""

    code, title, status = "not-valid-under-adjacency", "Not valid under this dataset's adjacency", 422


class BudgetExceeded(OdometerError):
    """The charge does not fit at least one budget. Nothing was charged; a smaller one may fit.

    `refusals` lists each budget that refuses; `would_fit` says what would fit; `notes` what is to be known of
    how the charge was counted. When only budgets of windows refuse what a fresh window would allow, it is
    retryable: Retry-After says when the window is over.
    """

    code, title, status = "budget-exceeded", "The budget does not allow this charge", 409


class DatasetExists(OdometerError):
    """The name is taken. Names are never used twice."""

    code, title, status = "dataset-exists", "There is already a dataset of that name", 409


class BudgetExists(OdometerError):
    """The dataset has a budget of that name already."""

    code, title, status = "budget-exists", "There is already a budget of that name", 409


class DatasetClosed(OdometerError):
    """The dataset takes no more charges."""

    code, title, status = "dataset-closed", "This dataset is closed", 409


class PartitionExists(OdometerError):
    """The dataset has a partition of that name already."""

    code, title, status = "partition-exists", "There is already a partition of that name", 409


class NameTaken(OdometerError):
    """A principal has, or had, that name. `principals` lists its id: give that one another key."""

    code, title, status = "name-taken", "There is already a principal of that name", 409


class KeyEnded(OdometerError):
    """The API key was revoked, has expired, or was rotated before."""

    code, title, status = "key-ended", "This API key is no longer in use", 409


class HoldSettled(OdometerError):
    """The hold was settled before, for another number. A hold is settled once."""

    code, title, status = "hold-settled", "This hold was settled already", 409


class HoldExpired(OdometerError):
    """The hold's time is over: it is spent for good."""

    code, title, status = "hold-expired", "This hold has expired", 409


class TooManyHolds(OdometerError):
    """The dataset, or who asks, has as many open holds as can be. Settle some, or charge instead."""

    code, title, status = "too-many-holds", "Too many holds are open", 409


class SessionClosed(OdometerError):
    """The session takes no more answers: its last above answer came, or it was closed. Open another one."""

    code, title, status = "session-closed", "This session is closed", 409


class SessionMovedOn(OdometerError):
    """The answer ends another run than the one that the session is in. Nothing was charged."""

    code, title, status = "session-moved-on", "This session is in another run", 409


class TooManySessions(OdometerError):
    """The dataset, or who opens, has as many open sessions as can be. List them, and close what is unused."""

    code, title, status = "too-many-sessions", "Too many sessions are open", 409


class NotFrozen(OdometerError):
    """The dataset is not frozen."""

    code, title, status = "not-frozen", "This dataset is not frozen", 409


class EditConflict(OdometerError):
    """The budget or principal changed since it was read (If-Match does not match)."""

    code, title, status = "edit-conflict", "It was changed by someone else", 412


class IfMatchRequired(OdometerError):
    """A change of a budget or a principal must say which version it changes."""

    code, title, status = "if-match-required", "Say which version you change", 428


class TooManyRequests(OdometerError):
    """Too many requests of this key's principal wait already. Nothing was done for this one; others are not
    concerned. Retry-After says when to ask again.
    """

    code, title, status, retryable = "too-many-requests", "Too many requests at once", 429, True


class InternalError(OdometerError):
    """A fault of the service. Whether the request took effect is unknown: ask again with the same key."""

    code, title, status, retryable = "internal-error", "The service made a mistake", 500, True


class Unsure(OdometerError):
    """Base of the answers given when the ledger is unsure: nothing may be released on them."""

    status, retryable = 503, True


class StoreUnavailable(Unsure):
    """The store is away, slow or unreadable."""

    code, title = "store-unavailable", "The ledger cannot be reached"


class LedgerCorrupt(Unsure):
    """What the store holds contradicts itself. A person has to look."""

    code, title, retryable = "ledger-corrupt", "The ledger contradicts itself", False


class LedgerRolledBack(Unsure):
    """History that this process saw is gone or differs. The stream is frozen."""

    code, title, retryable = "ledger-rolled-back", "The ledger went back in time", False


class UpgradeNeeded(Unsure):
    """A later version of the service wrote this ledger. This worker must be upgraded before it takes part."""

    code, title, retryable = "upgrade-needed", "This worker is too old for the ledger", False


class Overloaded(Unsure):
    """More is waiting than the service takes on."""

    code, title = "overloaded", "The service is overloaded"


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
