"""What the operational log says of answers that are no success: why, once, and not a line for each.

A refusal is no entry of a ledger: the log is where it can be found. Of the answers that leave open whether
something took effect, each kind is said once a minute, with its cause: while a disk is full there are many.
"""

import logging
import re
import time
from typing import Final

from odometer_accountant.errors import InternalError, OdometerError, Unsure

log = logging.getLogger("odometer.api")

EVERY_S: Final = 60.0
_KINDS_MAX: Final = 100
_VARIES: Final = re.compile(r"'[^']*'|\S*\d\S*")
"""What differs from one request to the next: names in quotes, and words with digits."""


class Causes:
    """Which kinds of unsure answers were said lately."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], tuple[float, int]] = {}
        """By kind: when it was said last, and how many came since."""

    def tell(self, error: OdometerError) -> None:
        """Log an unsure answer, unless one of its kind was logged within the last minute. No other."""
        if not isinstance(error, Unsure | InternalError):
            return
        kind = (error.code, _VARIES.sub("…", error.detail)[:120])
        if kind not in self._said and len(self._said) >= _KINDS_MAX:
            kind = (error.code, "")
        now = time.monotonic()
        before, since = self._said.get(kind, (-EVERY_S, 0))
        if now - before < EVERY_S:
            self._said[kind] = before, since + 1
            return
        self._said[kind] = now, 0
        more = f" ({since} more since this was last said)" if since else ""
        cause = error.__cause__
        why = (
            f"; cause: {type(cause).__name__}: {cause}"
            if cause is not None and str(cause) not in error.detail
            else ""
        )
        log.warning("%d %s: %s%s%s", error.status, error.code, error.detail, why, more)


def refused(request: str, principal: str, dataset: str, error: OdometerError) -> None:
    """Log a refusal: of what kind of request, whose, of which dataset, and why."""
    log.info("refused %s a %s of %s: %s: %s", principal, request, dataset, error.code, error.detail)
