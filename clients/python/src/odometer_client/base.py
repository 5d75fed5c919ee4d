"""Errors of the client itself, and the base that the service's errors share.

OdometerError
 ├─ ProblemError         the service answered with a problem; a class per code is in `errors`
 ├─ OutcomeUnknown       no answer: it may or may not be recorded
 ├─ Unreachable          nothing was sent, so nothing was recorded
 ├─ UnexpectedAnswer     an answer that is not the service's (a proxy's page, a wrong URL)
 ├─ ReplayedCharge       an old receipt came back for work that is about to be done now
 ├─ NotTheRunner         a session's answers are another object's to give
 ├─ UnsupportedPlan      a hook cannot say what the framework is about to release
 ├─ PartlyCharged        some shards' units were charged, then one failed; the same key goes on
 └─ UsedUp               a sweep was asked for more runs than it holds

Whatever of these is raised by a charge: do not release.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from odometer_client import wording


class OdometerError(Exception):
    """Base of everything this package raises on purpose."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class ProblemError(OdometerError):
    """The service refused, and said why. `detail` tells a person what was wrong and what would work.

    Attributes: `code`, `title`, `status` (HTTP) and `retryable` as the service's registry has them;
    `problem` is the whole RFC 9457 document. Its other members can be read as attributes.
    """

    code: ClassVar[str] = "unknown"
    title: ClassVar[str] = "The service refused"
    retryable: ClassVar[bool] = False

    def __init__(self, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem.get("detail") or problem.get("title") or self.title))
        self.problem = dict(problem)
        self.status = int(problem.get("status", 0))

    def __str__(self) -> str:
        """What a person reads: of a refused charge with each budget's numbers, and what would fit."""
        return "\n".join(wording.refused(self.problem)) if "refusals" in self.problem else self.detail

    def __getattr__(self, name: str) -> Any:
        problem = self.__dict__.get("problem", {})
        if name in problem:
            return problem[name]
        raise AttributeError(f"{type(self).__name__} has no {name!r}; the problem has {sorted(problem)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.problem,)


class OutcomeUnknown(OdometerError):
    """The bounded tries are used up and at least one may have arrived: it may or may not be recorded.

    Do not release. Ask again with the same `key`: if it was recorded you get that receipt, with
    `replayed` true, and nothing is charged twice. Doing nothing is safe too; it may stay spent.
    """

    def __init__(self, detail: str, key: str | None = None) -> None:
        super().__init__(detail)
        self.key = key

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.detail, self.key)


class Unreachable(OdometerError):
    """No connection could be made, so the service never saw the request and recorded nothing."""


class UnexpectedAnswer(OdometerError):
    """Something answered, but not as the service does. Look at the URL, and at proxies between."""


class ReplayedCharge(OdometerError):
    """A new key was answered with an old receipt, so this work is not paid for.

    It means that two processes use the same keys. Give each run its own `run_id`.
    """


class NotTheRunner(OdometerError):
    """This object did not open the session, or not in this process: what the opener drew is not here.

    Two runners would give out two answers for one payment, under two thresholds. Close the session, unless
    its opener still runs, and open another one.
    """


class UnsupportedPlan(OdometerError):
    """What the framework would release has no honest description here, so nothing was charged or released."""


class PartlyCharged(OdometerError):
    """Of the units of one call those of some shards were charged, and then one shard's were not.

    Release nothing, except of `units`: those are charged for certain, by `receipts`. Ask again with the
    same `key` and the same units: what was charged is not charged twice. `__cause__` is what went wrong.
    """

    def __init__(self, detail: str, key: str, receipts: Sequence[Any], units: Sequence[str]) -> None:
        super().__init__(detail)
        self.key = key
        self.receipts = list(receipts)
        self.units = list(units)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.detail, self.key, self.receipts, self.units)


class UsedUp(OdometerError):
    """All the runs that were held have started: this one is not paid for and must not run."""
