"""Logs refusals and unsure answers.

A refusal is not an entry of a ledger, so the log is the only place that has it. Unsure answers (the ledger's
state is not certain) are logged once a minute per kind, with their cause: a full disk makes many.
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
"""The parts of a detail that differ between requests: quoted names, and words with digits."""


class UnsureLog:
    """The kinds of unsure answers that were logged lately."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], tuple[float, int]] = {}
        """Per kind: when it was last logged (monotonic seconds), and how many came since."""

    def tell(self, error: OdometerError) -> None:
        """Log an unsure answer, unless its kind was logged within the last minute. Ignores other errors."""
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
        more = f" ({since} more since this was last logged)" if since else ""
        cause = error.__cause__
        why = (
            f"; cause: {type(cause).__name__}: {cause}"
            if cause is not None and str(cause) not in error.detail
            else ""
        )
        log.warning("%d %s: %s%s%s", error.status, error.code, error.detail, why, more)


def refused(request: str, principal: str, dataset: str, error: OdometerError) -> None:
    """Log a refusal: the principal, the kind of request, the dataset, and the reason."""
    log.info("refused %s a %s of %s: %s: %s", principal, request, dataset, error.code, error.detail)
