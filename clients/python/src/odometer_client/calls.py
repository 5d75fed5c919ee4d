"""The core without I/O: what to send, what an answer means, whether and when to ask again.

A face (sync, async, another language's) sends `Call.request`, tells the call what happened through
`answered` or `failed`, and does what it returns: `Wait`, or hand back the document.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from odometer_client.base import OdometerError, OutcomeUnknown, ProblemError, UnexpectedAnswer, Unreachable
from odometer_client.bodies import segment
from odometer_client.errors import BY_CODE
from odometer_client.operations import OPERATIONS, Repeat

FIRST_WAIT_S: Final = 0.05
LONGEST_WAIT_S: Final = 2.0
LONGEST_RETRY_AFTER_S: Final = 10.0
_GATEWAY_STATUSES: Final = frozenset({429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Request:
    """One request for an operation. `names` say of which dataset, budget, hold, session, key or principal."""

    operation: str
    method: str
    path: str
    repeat: Repeat
    names: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str | int | float] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    if_match: str | None = None
    """The etag of the version that is to be changed."""
    key: str | None = None
    """The idempotency key."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers of its HTTP form."""
        given = {"Idempotency-Key": self.key, "If-Match": self.if_match}
        return {name: value for name, value in given.items() if value is not None}


def request_of(operation: str, names: Mapping[str, str], **parts: Any) -> Request:
    """A request for an operation: its method, path and repeats come from the table of operations."""
    method, path, repeat = OPERATIONS[operation]
    places = {place: segment(name) for place, name in names.items()}
    return Request(operation, method, path.format(**places), repeat, names, **parts)


@dataclass(frozen=True)
class Answer:
    """What came back. `document` is None for a body that is empty or not JSON."""

    status: int
    document: Any = None
    retry_after_s: float | None = None


@dataclass(frozen=True)
class Wait:
    """Sleep `seconds`, then send the same request again."""

    seconds: float


@dataclass(frozen=True)
class Done:
    """The service did it. `retried` says that an earlier try of this same call may have arrived."""

    document: Any
    retried: bool


class TransportFailure(Exception):
    """No answer. `may_have_arrived` is False only where the request certainly was not sent."""

    def __init__(self, reason: str, *, may_have_arrived: bool) -> None:
        super().__init__(reason)
        self.may_have_arrived = may_have_arrived


class Call:
    """One operation through all its tries, at most `attempts`, always with the same request and key."""

    def __init__(self, request: Request, attempts: int, jitter: Callable[[], float] = random.random) -> None:
        self.request = request
        self._attempts = attempts
        self._jitter = jitter
        self._made = 0
        self._may_have_arrived = False
        self._url = ""

    def answered(self, answer: Answer) -> Done | Wait:
        """What an answer means. Raises the error it stands for, once asking again cannot help."""
        self._made += 1
        if 200 <= answer.status < 300 and (answer.document is not None or answer.status == 204):
            return Done(answer.document, retried=self._may_have_arrived)
        error = _error(answer)
        if not _may_pass(answer, error) or self.request.repeat == "never":
            raise error
        self._may_have_arrived |= answer.status != 429
        return self._again(str(error), answer.retry_after_s, error)

    def failed(self, failure: TransportFailure, url: str = "") -> Wait:
        """What to do without an answer. Raises `OutcomeUnknown` or `Unreachable` at the end.

        `url`: where it was sent, as it may be shown.
        """
        self._made += 1
        self._url = url
        self._may_have_arrived |= failure.may_have_arrived
        if failure.may_have_arrived and self.request.repeat == "never":
            raise self._gave_up(str(failure))
        return self._again(str(failure), None, None)

    def _again(self, reason: str, retry_after_s: float | None, error: OdometerError | None) -> Wait:
        if self._made < self._attempts:
            if retry_after_s is not None:
                return Wait(min(retry_after_s, LONGEST_RETRY_AFTER_S))
            longest = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0**self._made)
            return Wait(longest * (0.5 + 0.5 * self._jitter()))
        if error is not None and self.request.repeat == "safe":
            raise error
        raise self._gave_up(reason) from error

    def _gave_up(self, reason: str) -> OdometerError:
        what = f"After {self._made} {'try' if self._made == 1 else 'tries'}: {reason}"
        where = f" at {self._url}" if self._url else ""
        if not self._may_have_arrived:
            return Unreachable(
                f"The service{where} could not be reached. {what}. Is the URL right, is it running?"
            )
        if self.request.repeat == "safe":
            return Unreachable(f"The service{where} did not answer. {what}.")
        how = "Look whether it took effect before you do it again"
        if self.request.repeat == "once":
            how = "Ask again: doing it twice is the same as once"
        elif self.request.key:
            how = f"Release nothing; ask again with the same key {self.request.key!r}"
        return OutcomeUnknown(f"It is not known whether this was recorded. {what}. {how}.", self.request.key)


def _error(answer: Answer) -> OdometerError:
    """The error that an answer stands for."""
    document = answer.document
    if isinstance(document, Mapping) and str(document.get("type", "")).startswith("/problems/"):
        code = str(document["type"]).removeprefix("/problems/")
        return BY_CODE.get(code, ProblemError)({"status": answer.status, **document})
    return UnexpectedAnswer(
        f"HTTP {answer.status} without the service's own problem document. "
        "Does the URL point at the service itself, and is a proxy between?"
    )


def _may_pass(answer: Answer, error: OdometerError) -> bool:
    """Whether the same request may succeed in a moment, by itself.

    A refusal is an answer, also that of a budget which renews at midnight and so says that it is retryable.
    """
    if isinstance(error, ProblemError):
        passing = answer.status == 429 or answer.status >= 500
        return passing and bool(error.problem.get("retryable", error.retryable))
    return answer.status in _GATEWAY_STATUSES
